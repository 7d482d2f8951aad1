"""The picture of the gated reproduction: rollouts by step above, held-out studies below.

Every number comes from the result of `reproduce_gated_runs.compare`.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from radverl.evaluation import pictures
from radverl.evaluation.reproduce_gated_runs import ARMS, NAMES

# Colour, line and mark differ, for readers who see no colours.
STYLES = {
    "none": (pictures.GREY, ":", "o"),
    "spatial": (pictures.GREEN, "-.", "s"),
    "factual": (pictures.ORANGE, "--", "^"),
    "both": (pictures.BLUE, "-", "D"),
}
WINDOW = 6  # steps of a running mean in the picture


def draw(result: dict[str, Any], out_png: str | Path) -> list[str]:
    """Above: rollouts by step. Below: the held-out studies: boxes against findings, the answer by arm, the sweep.

    A thin line is one seed, the thick one their mean, both running means of WINDOW steps.

    Returns:
        titles of the panels.
    """
    curves = {
        "mean_iou": "IoU of rollouts",
        "region_f1": "F1 of findings of rollouts",
        "gated_f1": "Gated F1 of rollouts",
    }
    titles = [*curves.values(), "Held-out: boxes and findings", "Held-out: the answer"]
    if "sweep" in result:
        titles.append("Held-out: gate at tau")
    figure = pictures._figure(15.0, 8.2)
    axes = [figure.add_subplot(2, 3, place + 1) for place in range(len(titles))]
    for panel, name in zip(axes, curves, strict=False):
        for arm, runs in result["runs"].items():
            colour, dashes, _ = STYLES[arm]
            series = [_smooth(run["rollouts"][name]) for run in runs.values()]
            steps = next(iter(runs.values()))["steps"]
            for values in series:
                panel.plot(steps, values, color=colour, linestyle=dashes, lw=0.7, alpha=0.4)
            means = [statistics.fmean(at_step) for at_step in zip(*series, strict=True)]
            panel.plot(steps, means, color=colour, linestyle=dashes, lw=2, label=ARMS[arm])
        panel.set(xlabel="training step", ylabel=f"mean of {WINDOW} steps")
    _draw_plane(axes[3], result)
    _draw_answers(axes[4], result)
    if "sweep" in result:
        _draw_sweep(axes[5], result["sweep"])
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=8)
    figure.text(
        0.5,
        0.015,
        f"Simulated films, a tiny model. F1: of entities and relations found by the annotator "
        f"{result['cold_start']['annotator']}, which is not RadGraph.",
        ha="center",
        fontsize=9,
    )
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    pictures._save(figure, out_png, 110)
    return titles


def _draw_plane(panel: Any, result: Mapping[str, Any]) -> None:
    start = result["cold_start"]
    for name, place in (("cold start", start), ("cold start, blind", start.get("blind"))):
        if place:
            mark = "*" if name == "cold start" else "x"
            panel.plot(
                place["mean_iou"],
                place["region_f1"],
                color="black",
                linestyle="",
                marker=mark,
                markersize=9,
                label=name,
            )
    for arm, runs in result["runs"].items():
        colour, _, mark = STYLES[arm]
        last = [run["evaluations"][-1] for run in runs.values()]
        panel.plot(
            [one["mean_iou"] for one in last],
            [one["region_f1"] for one in last],
            color=colour,
            linestyle="",
            marker=mark,
            markersize=7,
            alpha=0.8,
            label=ARMS[arm],
        )
    panel.set(xlabel="mean IoU", ylabel="F1 of findings")


def _draw_answers(panel: Any, result: Mapping[str, Any]) -> None:
    for arm, runs in result["runs"].items():
        colour, dashes, mark = STYLES[arm]
        series = [run["evaluations"] for run in runs.values()]
        steps = [one["step"] for one in series[0]]
        means = [statistics.fmean(one["answer_f1"] for one in at_step) for at_step in zip(*series, strict=True)]
        for evaluations in series:
            values = [one["answer_f1"] for one in evaluations]
            panel.plot(steps, values, color=colour, linestyle=dashes, lw=0.7, alpha=0.4)
        panel.plot(steps, means, color=colour, linestyle=dashes, lw=2, marker=mark, markersize=5, label=ARMS[arm])
    panel.set(xlabel="training step", ylabel="F1 of the answer")


def _draw_sweep(panel: Any, sweep: Mapping[str, Mapping[str, float]]) -> None:
    shown = (
        ("mean_iou", pictures.GREEN, "s"),
        ("region_f1", pictures.ORANGE, "^"),
        ("gated_f1", pictures.BLUE, "D"),
        ("answer_f1", pictures.GREY, "o"),
    )
    for name, colour, mark in shown:
        values = [evaluation[name] for evaluation in sweep.values()]
        panel.plot(list(map(float, sweep)), values, color=colour, marker=mark, lw=1.6, label=NAMES[name])
    panel.set(xlabel=f"tau (one seed, {next(iter(sweep.values()))['step']} steps)", ylabel="mean", ylim=(0, None))
    panel.set_xticks(list(map(float, sweep)))


def _smooth(values: Sequence[float]) -> list[float]:
    return [statistics.fmean(values[max(0, i + 1 - WINDOW) : i + 1]) for i in range(len(values))]
