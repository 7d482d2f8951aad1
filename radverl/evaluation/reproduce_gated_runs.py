"""Reading the runs of the gated reproduction: what the rollouts were like by step, and what the held-out studies say.

    OUT/cold_start/eval/step_0.json         evaluation of the cold start, with its blind baseline
    OUT/runs/<arm>_seed<seed>/              rollouts/ and metrics.jsonl as verl writes them, eval/step_<n>.json
    OUT/runs/tau<tau>_seed<seed>/           the sweep, arm "both" with another tau, at the first seed

Rollouts of all arms are measured by one rule (trace_metrics.py) from the dumps, whatever reward they were given.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from radverl.evaluation.files import parse_json
from radverl.evaluation.pages import evaluation_files, quarters, span
from radverl.evaluation.trace_metrics import GATE, RATES, measure_traces
from radverl.evaluation.verl_log import PADDING, read_log, rollout_rates

ARMS = {"none": "none", "spatial": "spatial only", "factual": "factual only", "both": "both, gated"}
NAMES = {
    "format": "outputs that pass the format gate",
    "mean_iou": "mean IoU",
    "located": "regions with IoU > .25",
    "region_f1": "F1 of the regions' findings, wherever the box is",
    "gated_f1": "F1 of the regions' findings, 0 where IoU <= .25",
    "answer_f1": "F1 of the answer",
    "distinct": "different findings over findings written",
    "copied": "studies with one finding for all regions",
    "swapped": "boxes on the other side, a study",
}
CURVES = ("mean_iou", "region_f1", "gated_f1", "distinct")
LOGGED = ("actor/grad_norm", "actor/entropy", "actor/kl_loss")
RECIPE = "run recipes/gated_cpu.sh with this arm and seed first"


def read_run(folder: Path, cold_start: Mapping[str, Any]) -> dict[str, Any]:
    """One run: curves of its rollouts by step, its evaluations by checkpoint (the cold start is step 0), verl's log.

    Raises:
        ValueError: a part of the run is missing; says which and what to do.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is missing: {RECIPE}.")
    rates = [rate for rate in rollout_rates(folder / "rollouts") if rate["step"] > 0]
    steps = [int(rate["step"]) for rate in rates]
    measured = [measure_traces(*read_rollouts(folder / f"rollouts/{step}.jsonl")) for step in steps]
    logged = [record for record in read_log(folder / "metrics.jsonl") if record["step"] > 0]
    seconds = [record["timing_s/step"] for record in logged if "timing_s/step" in record]
    found = {name: [record[name] for record in logged if name in record] for name in LOGGED}
    return {
        "steps": steps,
        "reward_mean": [round(rate.get("reward_mean", 0.0), 4) for rate in rates],
        "rollouts": {name: [round(one[name], 4) for one in measured] for name in ("format", *CURVES)},
        "evaluations": [cold_start, *read_evaluations(folder / "eval")],
        "first_and_last_quarter": {name: quarters(values) for name, values in found.items() if values},
        "seconds_per_step": round(statistics.median(seconds[1:] or seconds), 2) if seconds else None,
    }


def read_rollouts(dump: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """The outputs in a rollout dump, each with its ground truth as a row, without what verl fills a batch up with.

    Raises:
        ValueError: no rollout in it.
    """
    texts, rows = [], []
    for line in dump.read_text(encoding="utf-8").split("\n"):
        rollout = parse_json(line) if line.strip() else None
        if rollout is None or PADDING.fullmatch(str(rollout.get("uid", "")).rsplit("_", 2)[0]):
            continue
        texts.append(rollout["output"])
        rows.append({"extra_info": {}, "reward_model": {"ground_truth": rollout["gts"]}})
    if not texts:
        raise ValueError(f"{dump} holds no rollout: is the run still writing it?")
    return texts, rows


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """The evaluations in a folder, by step, cut down to what is compared.

    Raises:
        ValueError: none there, or one that was not written by this version.
    """
    found = []
    for step, path in evaluation_files(folder).items():
        try:
            value = parse_json(path.read_text(encoding="utf-8"))
            blind = value.get("blind")
            one = {"step": step, "n": value["n"], "annotator": value["annotator"], **_rounded(value)}
            one["standard_error"] = _rounded(value["standard_error"])
            one["regions"] = {
                name: {
                    "n": region["n"],
                    "mean_iou": round(region["mean_iou"], 4),
                    "located": round(region["located"], 4),
                }
                for name, region in value["regions"].items()
            }
            found.append(one | ({"blind": _rounded(blind)} if blind else {}))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no evaluation of this version ({error!r:.80}); remove it.") from error
    if not found:
        raise ValueError(f"{folder} holds no evaluation: {RECIPE}.")
    return found


def compare(
    out: Path, arms: Sequence[str], seeds: Sequence[int], taus: Sequence[str], settings: Mapping[str, str]
) -> dict[str, Any]:
    """Everything the picture and the tables show.

    Args:
        out: folder of the whole experiment.
        taus: of the sweep, as the folders are named; the arm "both" is the value between.
        settings: named by whoever ran it, shown as they are.
    Returns:
        {"settings", "tau", "cold_start", "runs": {arm: {seed: `read_run`}}, "sweep": {tau: an evaluation},
        "differences": {other arm: {measure: both minus other, by seed}}}; the sweep is compared at its last step, at
        the first seed.
    Raises:
        ValueError: a run is missing, two runs do not have the same steps and checkpoints, or a sweep without "both".
    """
    cold_start = read_evaluations(out / "cold_start/eval")[0]
    runs = {arm: {str(seed): read_run(out / f"runs/{arm}_seed{seed}", cold_start) for seed in seeds} for arm in arms}
    first = _shape(runs[arms[0]][str(seeds[0])])
    for name, run in ((f"runs/{arm}_seed{seed}", run) for arm in arms for seed, run in runs[arm].items()):
        for key, steps in _shape(run).items():
            if steps != first[key]:
                raise ValueError(
                    f"{name} has the {key} {span(steps)}, runs/{arms[0]}_seed{seeds[0]} has {span(first[key])}: finish "
                    "them with the same settings."
                )
    result: dict[str, Any] = {"settings": dict(settings), "tau": GATE, "cold_start": cold_start, "runs": runs}
    if taus:
        if "both" not in runs:
            raise ValueError("the sweep over tau is compared with the arm both; name it among --arms.")
        result["sweep"] = _sweep(out, taus, str(seeds[0]), runs["both"][str(seeds[0])])
    if "both" in runs:
        result["differences"] = {
            arm: {
                name: [
                    round(run["evaluations"][-1][name] - runs[arm][seed]["evaluations"][-1][name], 4)
                    for seed, run in runs["both"].items()
                ]
                for name in RATES
            }
            for arm in arms
            if arm != "both"
        }
    return result


def _sweep(out: Path, taus: Sequence[str], seed: str, both: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {float(tau): read_evaluations(out / f"runs/tau{tau}_seed{seed}/eval")[-1] for tau in taus}
    step = next(iter(found.values()))["step"]
    shared = [evaluation for evaluation in both["evaluations"] if evaluation["step"] == step]
    if not shared or any(evaluation["step"] != step for evaluation in found.values()):
        raise ValueError(f"runs of the sweep and runs/both_seed{seed} have no common last checkpoint; finish them.")
    found[GATE] = shared[0]
    return {f"{tau:g}": found[tau] for tau in sorted(found)}


def _shape(run: Mapping[str, Any]) -> dict[str, list[int]]:
    return {"steps": run["steps"], "checkpoints": [evaluation["step"] for evaluation in run["evaluations"]]}


def _rounded(value: Mapping[str, Any]) -> dict[str, float]:
    return {name: round(value[name], 4) for name in RATES}
