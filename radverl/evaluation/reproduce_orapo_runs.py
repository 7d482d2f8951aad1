"""Reading the runs of the OraPO reproduction: zero-reward curves, evaluations, and how the two arms differ.

    OUT/cohort/train.parquet                studies of the warm start, with the long tail (labels named rare by it)
    OUT/pool/train.parquet                  studies of RL
    OUT/warm_start/eval/step_0.json         evaluation of the warm start (`radverl eval`)
    OUT/warm_start/gradient_share.json      gradients of the two terms there (gradient_share.py)
    OUT/runs/<arm>_seed<seed>/              rollouts/ and metrics.jsonl as verl writes them, eval/step_<n>.json

    share(t)      = all-zero groups of step t / groups of step t          a group is all-zero if all its rewards are 0
    cumulative(t) = all-zero groups of steps 1..t / groups of steps 1..t               (arXiv 2509.18600, Figure 2)

Shares come from the rollout dumps alone, so both arms are measured by the same code.
"""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from radverl.evaluation.files import parse_json, read_parquet, truth_of
from radverl.evaluation.pages import cumulative_share, evaluation_files, quarters, span
from radverl.evaluation.verl_log import PADDING, read_log, rollout_rates
from radverl.labels import CHEXPERT_14

ARMS = {"grpo": "GRPO + FactS", "orapo": "OraPO + FactS"}
N_RARE = 2  # the paper shows two rare classes
METRICS = ("facts", "macro_precision", "macro_recall", "macro_f1")
# What verl's log says about the preference term, for the question why it helps or not.
LOGGED = (
    "actor/grad_norm", "actor/entropy", "actor/kl_loss", "orapo/w/mean", "orapo/dpo_loss", "orapo/margin",
    "orapo/accuracy",
)  # fmt: skip
DISTINCT = "distinct reports a group"


def rarest_labels(parquet: str | Path, n: int = N_RARE) -> dict[str, float]:
    """The n labels with the fewest positive studies and their shares, rarest first; labels without any are left out.

    Raises:
        ValueError: fewer than n labels have a positive study.
    """
    shares = label_shares(parquet)
    present = sorted((share, CHEXPERT_14.index(name)) for name, share in shares.items() if share > 0)
    if len(present) < n:
        raise ValueError(f"{parquet} has positive studies of {len(present)} labels only; {n} are compared.")
    return {CHEXPERT_14[index]: share for share, index in present[:n]}


def label_shares(parquet: str | Path) -> dict[str, float]:
    """Share of the studies in which each label is positive (uncertain counts, as in the evaluation)."""
    truths = [truth_of(row, f"{parquet}: row {i}")["labels"] for i, row in enumerate(read_parquet(parquet))]
    return {name: sum(labels.get(name) in (1, -1) for labels in truths) / len(truths) for name in CHEXPERT_14}


def read_run(folder: Path, warm_start: dict[str, Any], rare: Sequence[str]) -> dict[str, Any]:
    """One run: its curves by step, its evaluations by checkpoint (the warm start is step 0), what verl logged.

    Raises:
        ValueError: a part of the run is missing; says which and what to do.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is missing: run recipes/orapo_cpu.sh with this arm and seed first.")
    rates = [rate for rate in rollout_rates(folder / "rollouts") if rate["step"] > 0]
    evaluations = [warm_start, *read_evaluations(folder / "eval")]
    logged = [record for record in read_log(folder / "metrics.jsonl") if record["step"] > 0]
    curves = {DISTINCT: distinct_reports(folder / "rollouts", [int(rate["step"]) for rate in rates])}
    curves |= {name: [record[name] for record in logged if name in record] for name in LOGGED}
    seconds = [record["timing_s/step"] for record in logged if "timing_s/step" in record]
    return {
        "steps": [int(rate["step"]) for rate in rates],
        "all_zero_share": [round(rate.get("all_zero_groups", 0.0), 4) for rate in rates],
        "cumulative_share": [round(share, 4) for share in cumulative_share(rates)],
        "zero_reward_rate": [round(rate.get("zero_reward_rate", 0.0), 4) for rate in rates],
        "reward_mean": [round(rate.get("reward_mean", 0.0), 4) for rate in rates],
        "checkpoints": [evaluation["step"] for evaluation in evaluations],
        "rare_f1": {name: [e["f1"][name] for e in evaluations] for name in rare},
        "evaluations": evaluations,
        "first_and_last_quarter": {name: quarters(values) for name, values in curves.items() if values},
        "seconds_per_step": round(statistics.median(seconds[1:] or seconds), 2) if seconds else None,
    }


def distinct_reports(dump_dir: Path, steps: Sequence[int]) -> list[float]:
    """How many different texts the rollouts of a prompt hold, mean of the prompts of each step."""
    means = []
    for step in steps:
        texts: dict[str, set[str]] = {}
        for line in (dump_dir / f"{step}.jsonl").read_text(encoding="utf-8").split("\n"):
            rollout = parse_json(line) if line.strip() else {}
            prompt = str(rollout.get("uid", "")).rsplit("_", 2)[0]
            if prompt and not PADDING.fullmatch(prompt):
                texts.setdefault(prompt, set()).add(rollout["output"])
        means.append(statistics.fmean(map(len, texts.values())) if texts else 0.0)
    return means


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """The evaluations in a folder, by step, cut down to what is compared.

    Raises:
        ValueError: none there, or one that was not written by this version.
    """
    found = {}
    for step, path in evaluation_files(folder).items():
        try:
            value = parse_json(path.read_text(encoding="utf-8"))
            found[step] = {
                "n": value["n"],
                **{name: round(value[name], 4) for name in METRICS},
                "facts_blind": value.get("facts_blind"),
                "macro_f1_blind": value.get("macro_f1_blind"),
                "f1": {label: round(value["per_label"][label]["f1"], 4) for label in CHEXPERT_14},
                "positives": {label: int(value["per_label"][label]["support"]) for label in CHEXPERT_14},
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no evaluation of this version ({error!r:.80}); remove it.") from error
    if not found:
        raise ValueError(f"{folder} holds no evaluation: run recipes/orapo_cpu.sh with this arm and seed first.")
    return [{"step": step, **evaluation} for step, evaluation in found.items()]


def read_gradient_share(path: Path) -> dict[str, Any]:
    """What `gradient_share` wrote: {"prompts", "ratio": {tau: DPO / GRPO}, ...}.

    Raises:
        ValueError: no such file, or something else in it.
    """
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
        return {"prompts": value["prompts"], "ratio": dict(value["ratio"]), "cosine": value["cosine"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error!r:.80}): run recipes/orapo_cpu.sh again.") from error


def compare(out: Path, arms: Sequence[str], seeds: Sequence[int], settings: dict[str, str]) -> dict[str, Any]:
    """Everything the picture and the table show.

    Args:
        out: folder of the whole experiment.
        settings: named by whoever ran it, shown as they are.
    Returns:
        {"settings", "rare_labels", "warm_start", "gradient_share", "runs": {arm: {seed: `read_run`}}, "differences"};
        differences are OraPO minus GRPO seed by seed, and only there if both arms are.
    Raises:
        ValueError: a run is missing, or two runs do not have the same steps and checkpoints.
    """
    rare = rarest_labels(out / "cohort/train.parquet")
    warm_start = read_evaluations(out / "warm_start/eval")[0]
    pool = label_shares(out / "pool/train.parquet")
    runs = {
        arm: {str(seed): read_run(out / f"runs/{arm}_seed{seed}", warm_start, list(rare)) for seed in seeds}
        for arm in arms
    }
    first = runs[arms[0]][str(seeds[0])]
    for name, run in ((f"runs/{arm}_seed{seed}", runs[arm][seed]) for arm in arms for seed in runs[arm]):
        for key in ("steps", "checkpoints"):
            if run[key] != first[key]:
                raise ValueError(
                    f"{name} has the {key} {span(run[key])}, runs/{arms[0]}_seed{seeds[0]} has {span(first[key])}: "
                    "finish them with the same settings."
                )
    result = {
        "settings": settings,
        "rare_labels": [
            {
                "label": name,
                "share": round(share, 4),
                "share_pool": round(pool[name], 4),
                "positives_test": warm_start["positives"][name],
            }
            for name, share in rare.items()
        ],
        "warm_start": warm_start,
        "gradient_share": read_gradient_share(out / "warm_start/gradient_share.json"),
        "runs": runs,
    }
    if {"grpo", "orapo"} <= set(arms):
        result["differences"] = {
            name: [round(measure(runs["orapo"][seed]) - measure(runs["grpo"][seed]), 4) for seed in runs["grpo"]]
            for name, measure in measures(result).items()
        }
    return result


def measures(result: dict[str, Any]) -> dict[str, Callable[[dict[str, Any]], float]]:
    """The numbers that are compared, by name, as functions of a run."""
    found: dict[str, Callable[[dict[str, Any]], float]] = {
        "cumulative share of all-zero groups": lambda run: run["cumulative_share"][-1],
        "all-zero groups, last quarter of the steps": lambda run: quarters(run["all_zero_share"])[1],
        "FactS": lambda run: run["evaluations"][-1]["facts"],
        "macro precision": lambda run: run["evaluations"][-1]["macro_precision"],
        "macro recall": lambda run: run["evaluations"][-1]["macro_recall"],
        "macro F1": lambda run: run["evaluations"][-1]["macro_f1"],
    }
    for name in (entry["label"] for entry in result["rare_labels"]):
        found[f"F1 {name}"] = lambda run, name=name: run["rare_f1"][name][-1]  # type: ignore[misc]
        found[f"F1 {name}, mean of the checkpoints"] = (
            lambda run, name=name: statistics.fmean(  # type: ignore[misc]
                run["rare_f1"][name][1:]
            )
        )
    return found
