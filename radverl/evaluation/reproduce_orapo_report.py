"""The comparison of OraPO and GRPO for readers: one picture in the layout of the paper's Figure 2, and Markdown.

Every number comes from the result of `reproduce_orapo_runs.compare`: the page can be written anew from its JSON.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from radverl.evaluation import pages, pictures
from radverl.evaluation.pages import mean_range, table
from radverl.evaluation.reproduce_orapo_runs import ARMS, DISTINCT, measures

# Colour and line differ, for readers who see no colours.
STYLES = {"grpo": (pictures.ORANGE, "--"), "orapo": (pictures.BLUE, "-")}
LOWER_IS_BETTER = ("all-zero",)
QUARTERS = "first_and_last_quarter"
STILL = 0.02  # ours: how far below ln 2 the preference loss may be and still count as unmoved
FELL = 0.1  # ours: loss of held-out FactS beyond which a run is named


def draw(result: dict[str, Any], out_png: str | Path) -> list[str]:
    """Left: cumulative share of all-zero groups by step. Centre and right: F1 of the two rarest labels by checkpoint.

    A thin line is one seed, the thick one their mean.

    Returns:
        titles of the panels.
    """
    rare = result["rare_labels"]
    titles = ["All-zero groups", *(f"{entry['label']} ({entry['share']:.1%} of the cohort)" for entry in rare)]
    figure = pictures._figure(5.0 * len(titles), 4.1)
    for place, title in enumerate(titles):
        axes = figure.add_subplot(1, len(titles), place + 1)
        for arm, runs in result["runs"].items():
            colour, dashes = STYLES[arm]
            series = [_points(run, None if place == 0 else rare[place - 1]["label"]) for run in runs.values()]
            for steps, values in series:
                axes.plot(steps, values, color=colour, linestyle=dashes, lw=0.7, alpha=0.4)
            steps = series[0][0]
            means = [statistics.fmean(at_step) for at_step in zip(*(values for _, values in series), strict=True)]
            marker = "" if place == 0 else "o"
            axes.plot(steps, means, color=colour, linestyle=dashes, lw=2, marker=marker, markersize=4, label=ARMS[arm])
        axes.set(title=title, xlabel="training step", ylabel="cumulative share of groups" if place == 0 else "F1")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    seeds = max(len(runs) for runs in result["runs"].values())
    lines = "" if seeds == 1 else f"thick: mean of {seeds} seeds, thin: each seed. "
    figure.text(
        0.5,
        0.02,
        f"{lines}All-zero group: no report sampled for a film gets any FactS reward. F1: on held-out simulated films.",
        ha="center",
        fontsize=9,
    )
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    pictures._save(figure, out_png, 120)
    return titles


def _points(run: dict[str, Any], label: str | None) -> tuple[list[int], list[float]]:
    if label is None:
        return run["steps"], run["cumulative_share"]
    return run["checkpoints"], run["rare_f1"][label]


def markdown(result: dict[str, Any]) -> str:
    """The page: what was measured, what came out, whether the paper's claims show, what was set."""
    parts = [
        "# OraPO against GRPO, on a CPU",
        "Written by `make reproduce-orapo` from [reproduce_orapo.json](reproduce_orapo.json); do not edit. "
        "Research only, not for clinical use.",
        _what(result),
        "![Cumulative share of all-zero groups, and F1 of the two rarest labels](reproduce_orapo.png)",
        "## What came out",
        _table(result),
        "## Do the paper's claims show?",
        _claims(result),
        "## What the preference term did",
        _preference(result),
        "## Settings",
        _settings(result),
    ]
    return "\n\n".join(parts) + "\n"


def _what(result: dict[str, Any]) -> str:
    first = _first_run(result)
    seeds = ", ".join(next(iter(result["runs"].values())))
    rare = "; ".join(
        f"{entry['label']}: {entry['share']:.1%} of the cohort, {entry['share_pool']:.1%} of the RL studies, "
        f"{entry['positives_test']} held-out positives"
        for entry in result["rare_labels"]
    )
    return (
        f"Both arms start from one warm start and run {len(first['steps'])} steps of verl with seeds {seeds}; a seed "
        "gives both the same prompts in the same order. A group is all-zero if the FactS reward of every rollout of a "
        "prompt is exactly 0, counted in verl's rollout dumps for both arms alike. Reports are evaluated on "
        f"{result['warm_start']['n']} held-out studies of the long-tailed cohort, greedy. The rarest labels: {rare}."
    )


def _table(result: dict[str, Any]) -> str:
    arms = list(result["runs"])
    header = ["", "warm start", *(ARMS[arm] for arm in arms)]
    if "differences" in result:
        header += ["OraPO - GRPO: mean", "each seed"]
    rows = [header]
    for name, measure in measures(result).items():
        values = {arm: [measure(run) for run in result["runs"][arm].values()] for arm in arms}
        row = [name, _warm_start(result, name), *(mean_range(values[arm]) for arm in arms)]
        if "differences" in result:
            gains = result["differences"][name]
            row += [f"{statistics.fmean(gains):+.3f}", ", ".join(f"{gain:+.3f}" for gain in gains)]
        rows.append(row)
    return f"Mean over the seeds (lowest to highest); after the last step where nothing else is said.\n\n{table(rows)}"


def _claims(result: dict[str, Any]) -> str:
    if "differences" not in result:
        return "Only one arm was run, so nothing is compared."
    lines = []
    for claim, names in (
        ("OraPO has fewer all-zero groups", [name for name in measures(result) if "all-zero" in name]),
        ("OraPO gives better reports (Table 3)", ["macro precision", "macro recall", "macro F1"]),
        (
            "OraPO learns the rare labels earlier and better",
            [name for name in measures(result) if name.startswith("F1 ")],
        ),
    ):
        found = "; ".join(f"{name}: {verdict(name, result['differences'][name])}" for name in names)
        lines.append(f"- {claim}. {found}.")
    lines += [f"- {remark}" for remark in remarks(result)]
    n_seeds = len(next(iter(result["differences"].values())))
    lines.append(
        f"- Seeds: {n_seeds}. One warm start, one tiny model: a difference that changes sign between seeds is noise, "
        "and one that does not may be."
    )
    return "\n".join(lines)


def remarks(result: dict[str, Any]) -> list[str]:
    """What a mean would hide: rare labels that no run ever finds, and runs that end far below their warm start."""
    found = []
    for name in (entry["label"] for entry in result["rare_labels"]):
        runs = [run for runs in result["runs"].values() for run in runs.values()]
        if not any(value for run in runs for value in run["rare_f1"][name]):
            found.append(
                f"F1 {name} is 0 at every checkpoint of every run: the warm start does not see it, and "
                f"{len(runs[0]['steps'])} steps of either kind do not teach it. That panel says nothing of the claim."
            )
    before = result["warm_start"]["facts"]
    for arm, seeds in result["runs"].items():
        for seed, run in seeds.items():
            after = run["evaluations"][-1]["facts"]
            if after < before - FELL:
                found.append(
                    f"{ARMS[arm]}, seed {seed}, fell from FactS {before:.3f} to {after:.3f} on the held-out studies: "
                    "the means above hold this run."
                )
    return found


def verdict(name: str, gains: Sequence[float]) -> str:
    """In how many seeds OraPO is better, in words; equal is not better."""
    return pages.verdict(gains, any(part in name for part in LOWER_IS_BETTER))


def _preference(result: dict[str, Any]) -> str:
    share = result["gradient_share"]
    ratios = ", ".join(f"{value:.2f} at tau {tau}" for tau, value in share["ratio"].items() if value is not None)
    rows = [["mean over the seeds", "arm", "first quarter of the steps", "last quarter"]]
    for arm, runs in result["runs"].items():
        changes = [run[QUARTERS] for run in runs.values()]
        for name in changes[0]:
            both = [statistics.fmean(change[name][part] for change in changes if name in change) for part in (0, 1)]
            rows.append([f"`{name}`", ARMS[arm], *(f"{value:.4f}" for value in both)])
    why = explanation(result)
    return (
        "The paper gives no DPO temperature tau, and tau decides what OraPO is: LN-DPO's gradient is tau w g / |y| a "
        f"token. At the warm start, on {share['prompts']} RL prompts, the gradient norm of the DPO term of eq. 11 over "
        f"that of the GRPO term is {ratios} (`radverl.evaluation.gradient_share`).\n\n"
        + table(rows)
        + (f"\n\n{why}" if why else "")
    )


def explanation(result: dict[str, Any]) -> str:
    """Why fewer groups are all-zero, where the runs show it: more variety, not a true report that is preferred."""
    runs = result["runs"]
    if not {"grpo", "orapo"} <= runs.keys():
        return ""

    def last(arm: str, name: str) -> float | None:
        values = [run[QUARTERS][name][1] for run in runs[arm].values() if name in run[QUARTERS]]
        return statistics.median(values) if values else None

    loss, varied, narrow = last("orapo", "orapo/dpo_loss"), last("orapo", DISTINCT), last("grpo", DISTINCT)
    fewer = statistics.fmean(result["differences"]["cumulative share of all-zero groups"]) < 0
    if loss is None or varied is None or narrow is None:
        return ""
    if not fewer or loss < math.log(2) - STILL or varied <= narrow:
        return ""
    rewards = {arm: statistics.median(_last_quarter_reward(run) for run in runs[arm].values()) for arm in ARMS}
    return (
        f"The preference loss is still {loss:.3f} at the end (ln 2 = 0.693): on new prompts the true report is hardly "
        "more preferred over the rollouts than at the start, since the rollouts move with the policy. What the term "
        f"does is keep the rollouts apart: a prompt has {varied:.1f} distinct reports at the end, with GRPO alone "
        f"{narrow:.1f} (medians of the seeds, last quarter). So fewer groups are all-zero because more different "
        f"guesses are made; the mean reward of the rollouts is {rewards['orapo']:.3f} against {rewards['grpo']:.3f}."
    )


def _last_quarter_reward(run: dict[str, Any]) -> float:
    return statistics.fmean(run["reward_mean"][-max(1, len(run["reward_mean"]) // 4) :])


def _settings(result: dict[str, Any]) -> str:
    rows = [["what", "value"], *([name, value] for name, value in result["settings"].items())]
    seconds = [run["seconds_per_step"] for runs in result["runs"].values() for run in runs.values()]
    if None not in seconds:
        rows.append(["seconds a step (median of each run)", ", ".join(f"{value:.1f}" for value in seconds)])
    return table(rows)


def _warm_start(result: dict[str, Any], name: str) -> str:
    before = result["warm_start"]
    key = {"FactS": "facts"}.get(name, name.lower().replace(" ", "_"))
    if key in before:
        return f"{before[key]:.3f}"
    label = name.removeprefix("F1 ")
    return f"{before['f1'][label]:.3f}" if label in before["f1"] else ""


def _first_run(result: dict[str, Any]) -> dict[str, Any]:
    return dict(next(iter(next(iter(result["runs"].values())).values())))
