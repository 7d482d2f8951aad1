"""The page of the gated reproduction, in Markdown.

Every number comes from the result of `reproduce_gated_runs.compare`, so that it can be written anew from its JSON.
"""

import statistics
from collections.abc import Mapping
from typing import Any

from radverl.evaluation.pages import mean_range, table, verdict
from radverl.evaluation.reproduce_gated_runs import ARMS, NAMES
from radverl.evaluation.trace_metrics import RATES


def markdown(result: dict[str, Any]) -> str:
    """The page: what was measured, what came out, whether the paper's claims show, what was set."""
    parts = [
        "# The gated reward and its parts, on a CPU",
        "Written by `make reproduce-gated` from [reproduce_gated.json](reproduce_gated.json); do not edit. "
        "Research only, not for clinical use.",
        _what(result),
        "![Rollouts by step, held-out boxes and findings, the answer, the sweep over tau](reproduce_gated.png)",
        "## What came out",
        _table(result),
        _regions(result),
        "## Do the paper's claims show?",
        _claims(result),
        *(["## The gate at other tau", _sweep(result)] if "sweep" in result else []),
        "## Settings",
        _settings(result),
    ]
    return "\n\n".join(parts) + "\n"


def _what(result: Mapping[str, Any]) -> str:
    start = result["cold_start"]
    seeds = ", ".join(next(iter(result["runs"].values())))
    error = max(start["standard_error"][name] for name in ("mean_iou", "region_f1", "gated_f1", "answer_f1"))
    return (
        "A tiny Qwen3-VL goes through the three stages of arXiv 2609.31911 on simulated films: SFT on reports, "
        "cold-start SFT on region traces with a report, GRPO with the gated reward, all on verl. All arms start from "
        f"one cold start and run {len(_first_run(result)['steps'])} steps with seeds {seeds}; a seed gives all arms "
        "the same prompts in the same order. An arm differs from the others in its reward only: none (0 for every "
        "output), spatial only (mean IoU), factual only (F1 of the findings without the gate), both (IoU, and F1 where "
        f"IoU > .25). Only the reasoning is rewarded. Outputs are evaluated on {start['n']} held-out studies, greedy; "
        "what fails the format gate counts 0. Blind is the cold start with images shuffled between the patients. F1 is "
        f"RadGraph's partial F1 over what the annotator `{start['annotator']}` reads; it is not RadGraph-F1. The "
        f"standard error of a mean over these studies is at most {error:.3f}, without what the seed adds."
    )


def _table(result: Mapping[str, Any]) -> str:
    arms, start = list(result["runs"]), result["cold_start"]
    rows = [["", "blind", "cold start", *(ARMS[arm] for arm in arms)]]
    for name, shown in NAMES.items():
        blind = f"{start['blind'][name]:.3f}" if "blind" in start else ""
        rows.append([shown, blind, f"{start[name]:.3f}", *(mean_range(_last(result, arm, name)) for arm in arms)])
    return (
        "Mean over the seeds (lowest to highest) after the last step. The truth has "
        f"{start['distinct_true']:.3f} different findings over findings written.\n\n{table(rows)}"
    )


def _regions(result: Mapping[str, Any]) -> str:
    arms, start = list(result["runs"]), result["cold_start"]
    rows = [["mean IoU (share above .25)", "cold start", *(ARMS[arm] for arm in arms)]]
    for name, one in start["regions"].items():
        cells = []
        for arm in arms:
            found = [run["evaluations"][-1]["regions"][name] for run in result["runs"][arm].values()]
            cells.append(_both(*(statistics.fmean(region[key] for region in found) for key in ("mean_iou", "located"))))
        rows.append([name, _both(one["mean_iou"], one["located"]), *cells])
    return table(rows)


def _claims(result: Mapping[str, Any]) -> str:
    lines = []
    if result.get("differences"):
        found = "; ".join(
            f"over {ARMS[arm]}: {verdict(gains['answer_f1'])}" for arm, gains in result["differences"].items()
        )
        lines.append(f"- Both parts together give the best reports (Table 6): F1 of the answer of both, {found}.")
    runs = result["runs"]
    if {"none", "spatial"} <= runs.keys():
        lines.append(
            "- Spatial only: boxes are right, and different regions get the same finding. Against no reward, mean IoU "
            f"rises: {_against(result, 'spatial', 'none', 'mean_iou')}; different findings over findings written fall: "
            f"{_against(result, 'spatial', 'none', 'distinct', lower=True)}; studies with one finding for all regions "
            f"rise: {_against(result, 'spatial', 'none', 'copied')}."
        )
    if {"none", "factual"} <= runs.keys():
        lines.append(
            "- Factual only: right findings in wrong regions, and worse than no reward. Against no reward, F1 of the "
            f"findings rises: {_against(result, 'factual', 'none', 'region_f1')}; mean IoU falls: "
            f"{_against(result, 'factual', 'none', 'mean_iou', lower=True)}; F1 of the answer falls: "
            f"{_against(result, 'factual', 'none', 'answer_f1', lower=True)}."
        )
    if {"factual", "both"} <= runs.keys():
        lines.append(
            "- The gate makes findings right where boxes are: F1 behind the gate is higher with both than with factual "
            f"only: {verdict(result['differences']['factual']['gated_f1'])}."
        )
    lines += [f"- {remark}" for remark in remarks(result)]
    n_seeds = len(next(iter(runs.values())))
    lines.append(
        f"- Seeds: {n_seeds}. One cold start, one tiny model, films that are drawn: a difference that changes sign "
        "between seeds is noise, and one that does not may be."
    )
    return "\n".join(lines)


def remarks(result: Mapping[str, Any]) -> list[str]:
    """What a reader of the table has to know: an arm that is the cold start, a lost format, a gate that is open."""
    found = []
    start = result["cold_start"]
    for arm, seeds in result["runs"].items():
        last = [run["evaluations"][-1] for run in seeds.values()]
        if all(one[name] == start[name] for one in last for name in RATES):
            found.append(
                f"{ARMS[arm]} ends as the cold start, in every number: equal rewards give no advantage, and at the "
                "reference policy the KL term has no gradient."
            )
        broken = [
            f"seed {seed}" for seed, one in zip(seeds, last, strict=True) if one["format"] < start["format"] - 0.05
        ]
        if broken:
            found.append(f"{ARMS[arm]}, {' and '.join(broken)}, loses the format: its means count these outputs as 0.")
    if start["located"] > 0.95:
        found.append(
            f"The gate is open for {start['located']:.1%} of the cold start's regions: it has little to teach."
        )
    return found


def _sweep(result: Mapping[str, Any]) -> str:
    sweep, start = result["sweep"], result["cold_start"]
    rows = [["", "cold start", *(f"tau {tau}" for tau in sweep)]]
    rows += [
        [shown, f"{start[name]:.3f}", *(f"{one[name]:.3f}" for one in sweep.values())] for name, shown in NAMES.items()
    ]
    best = {name: max(sweep, key=lambda tau: sweep[tau][name]) for name in ("gated_f1", "answer_f1")}
    return (
        f"One seed, {next(iter(sweep.values()))['step']} steps, reward both. The paper finds .25 the best (Table 5). "
        f"Here tau {best['answer_f1']} has the best F1 of the answer and tau {best['gated_f1']} the best F1 of "
        "findings whose box has IoU > .25; with one seed, a difference as small as that between the seeds above may be "
        "chance.\n\n" + table(rows)
    )


def _settings(result: Mapping[str, Any]) -> str:
    rows = [["what", "value"], *([name, value] for name, value in result["settings"].items())]
    runs = [run for runs in result["runs"].values() for run in runs.values()]
    seconds = [run["seconds_per_step"] for run in runs]
    if None not in seconds:
        rows.append(["seconds a step (median of each run)", ", ".join(f"{value:.1f}" for value in seconds)])
    for name in runs[0]["first_and_last_quarter"]:
        ends = (
            f"{run['first_and_last_quarter'][name][1]:.3g}" for run in runs if name in run["first_and_last_quarter"]
        )
        rows.append([f"`{name}`, last quarter of each run", ", ".join(ends)])
    return table(rows)


def _against(result: Mapping[str, Any], arm: str, other: str, name: str, lower: bool = False) -> str:
    pairs = zip(_last(result, arm, name), _last(result, other, name), strict=True)
    return verdict([round(a - b, 4) for a, b in pairs], lower)


def _last(result: Mapping[str, Any], arm: str, name: str) -> list[float]:
    return [run["evaluations"][-1][name] for run in result["runs"][arm].values()]


def _both(iou: float, located: float) -> str:
    return f"{iou:.3f} ({located:.3f})"


def _first_run(result: Mapping[str, Any]) -> dict[str, Any]:
    return dict(next(iter(next(iter(result["runs"].values())).values())))
