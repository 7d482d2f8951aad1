"""How good generated reasoning traces are, measured by one rule whatever reward they were trained with.

Means over the studies of what the gated reward counts (`radverl.rewards.gated`, verify=both, tau = GATE); an output
that fails its format gate counts 0 everywhere:
    format      share of outputs that pass the format gate
    mean_iou    IoU with the annotated boxes, 0 for a missing region          (R_spatial of arXiv 2609.31911)
    located     share of annotated regions with IoU > GATE
    region_f1   F1 of written and annotated findings, wherever the boxes are  (R_factual without its gate)
    gated_f1    the same, 0 where IoU <= GATE: right, and in the right place  (R_factual behind its gate)
    answer_f1   F1 of the answer and the true report
Signs of hacking:
    distinct    different findings over findings written; `distinct_true` is that of the truth
    copied      share of studies in which all regions have one finding although their true findings differ
    swapped     regions whose box lies on the other side, a study
F1 is RadGraph-F1 (partial) of what an annotator reads; that of `rules` is no RadGraph.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from radverl.reasoning import parse_trace
from radverl.rewards.gated import compute_score

GATE = 0.25
# name here -> component of the reward
COMPONENTS = {
    "format": "format_ok",
    "mean_iou": "mean_iou",
    "located": "gated_share",
    "region_f1": "factual_mean",
    "gated_f1": "factual",
    "answer_f1": "answer_f1",
    "distinct": "distinct_findings",
    "distinct_true": "distinct_true_findings",
    "swapped": "n_swapped",
}
RATES = (*COMPONENTS, "copied")


def measure_traces(texts: Sequence[str], rows: Sequence[Mapping[str, Any]], annotator: str = "rules") -> dict[str, Any]:
    """Measure one output a study.

    Args:
        rows: of our RL Parquet of a trace task.
    Returns:
        {"n", *RATES, "standard_error": {rate: of its mean over the studies}, "regions": {name: {"n", "mean_iou",
        "located"}}, "studies": of each study RATES}.
    Raises:
        ValueError: lengths differ, no study, or ground truth that the reward refuses.
        RuntimeError: the annotator failed on a text; a mean without it would be another number.
    """
    if not texts or len(texts) != len(rows):
        raise ValueError(f"{len(texts)} outputs for {len(rows)} studies: give one of each, and at least one.")
    studies: list[dict[str, float]] = []
    ious: dict[str, list[float]] = {}
    for text, row in zip(texts, rows, strict=True):
        info, truth = row["extra_info"], row["reward_model"]["ground_truth"]
        score = compute_score("", text, truth, info, verify="both", tau=GATE, annotator=annotator)
        if score["failed"]:
            raise RuntimeError(f"annotator {annotator} failed on {info.get('prompt_id')}; see the log.")
        regions = json.loads(truth)["regions"]
        trace = parse_trace(text)
        findings = {region.finding.strip().lower() for region in trace.regions}
        differ = len({region["finding"] for region in regions if region["finding"]}) > 1
        copied = bool(score["format_ok"]) and len(trace.regions) > 1 and len(findings) == 1 and differ
        studies.append({name: float(score[key]) for name, key in COMPONENTS.items()} | {"copied": float(copied)})
        for region in regions:
            alone = json.dumps({"regions": [region]})
            ious.setdefault(region["name"], []).append(
                float(compute_score("", text, alone, info, reward="spatial")["spatial"])
            )
    return {
        "n": len(studies),
        **{name: statistics.fmean(study[name] for study in studies) for name in RATES},
        "standard_error": {
            name: statistics.pstdev(study[name] for study in studies) / len(studies) ** 0.5 for name in RATES
        },
        "regions": {
            name: {
                "n": len(values),
                "mean_iou": statistics.fmean(values),
                "located": statistics.fmean(value > GATE for value in values),
            }
            for name, values in ious.items()
        },
        "studies": studies,
    }
