"""What a training run changed: a table, summary.json, the curves, and sample reports beside their images.

    python -m radverl.evaluation.before_after --run outputs/demo --data test.parquet

reads from the run's folder before.json and after.json (`radverl eval`), rl/metrics.jsonl (verl's file logger),
rl/rollouts/ (its rollout dumps) and stats.json (the watchdog); writes summary.json, curves.png and samples.png there.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from radverl.datacheck.truth import check_truth
from radverl.evaluation.files import extra_info, parse_json, read_parquet, write_json
from radverl.evaluation.metrics import mean_interval
from radverl.evaluation.run import predictions_path
from radverl.evaluation.verl_log import merge, read_log, rollout_rates

N_SAMPLES = 4
MEASURED = ("n", "facts", "facts_failed", "macro_f1", "macro_precision", "macro_recall")


def summarise(run: Path, seconds_total: float) -> dict[str, Any]:
    """The numbers of a run.

    Returns:
        {"steps", "seconds_total", "seconds_per_step" (median, without the first step, which warms up), "facts_before",
        "facts_after", "facts_gain" and "facts_gain_ci" (mean and 95 % bootstrap interval of the difference study by
        study), "macro_f1_before", "macro_f1_after", "macro_f1_blind" (before RL, images shuffled between
        studies), "zrr_first", "zrr_last" (share of rollouts with reward 0: means over the first and the last quarter of
        the steps), "peak_rss_gb" (all processes; shared pages once each), "studies", "facts_failed"}.
    Raises:
        ValueError: a file is missing or holds no training step; names it.
    """
    before, after = _read(run / "before.json", *MEASURED, "blind"), _read(run / "after.json", *MEASURED)
    stats = _read(run / "stats.json", "seconds", "peak_rss_gb")
    records = _records(run)
    steps = [r for r in records if "timing_s/step" in r]
    if not steps:
        raise ValueError(f"{run / 'rl/metrics.jsonl'} holds no training step; did the training end before its first?")
    quarter = max(1, len(steps) // 4)
    gains = _paired_gains(run)
    zrr = [r["zero_reward_rate"] for r in records if "zero_reward_rate" in r]
    if not gains or not zrr:
        what = "no study was scored both times" if not gains else "no rollout in rl/rollouts has a reward"
        raise ValueError(f"{run}: {what}; run the recipe again.")
    return {
        "steps": len(steps),
        "seconds_total": round(seconds_total or stats["seconds"], 1),
        "seconds_per_step": round(statistics.median(r["timing_s/step"] for r in steps[1:] or steps), 2),
        "facts_before": round(before["facts"], 4),
        "facts_after": round(after["facts"], 4),
        "facts_gain": round(statistics.fmean(gains), 4),
        "facts_gain_ci": [round(bound, 4) for bound in mean_interval(gains)],
        "macro_f1_before": round(before["macro_f1"], 4),
        "macro_f1_after": round(after["macro_f1"], 4),
        "macro_f1_blind": round(before["blind"]["macro_f1"], 4),
        "zrr_first": round(statistics.fmean(zrr[:quarter]), 4),
        "zrr_last": round(statistics.fmean(zrr[-quarter:]), 4),
        "peak_rss_gb": stats["peak_rss_gb"],
        "studies": after["n"],
        "facts_failed": after["facts_failed"],
    }


def table(run: Path, summary: dict[str, Any]) -> str:
    """The summary for a terminal, with the bootstrap intervals of the two evaluations."""
    before, after = _read(run / "before.json", *MEASURED, "blind"), _read(run / "after.json", *MEASURED)
    rows = [f"{summary['studies']} held-out studies{'':<8}{'blind':>8}{'before':>8}{'after':>8}   95 % CI after"]
    for key, name in (
        ("facts", "FactS reward"),
        ("macro_f1", "macro F1, 14 labels"),
        ("macro_precision", "macro precision"),
        ("macro_recall", "macro recall"),
    ):
        low_high = after.get(f"{key}_ci")
        interval = f"   {low_high[0]:.3f} to {low_high[1]:.3f}" if low_high else ""
        rows.append(f"{name:<28}{before['blind'][key]:>8.3f}{before[key]:>8.3f}{after[key]:>8.3f}{interval}")
    low, high = summary["facts_gain_ci"]
    rows.append(f"FactS gained study by study: {summary['facts_gain']:+.3f} (95 % CI {low:+.3f} to {high:+.3f})")
    rows.append(
        f"zero-reward rollouts: {summary['zrr_first']:.1%} in the first quarter, {summary['zrr_last']:.1%} in the last"
    )
    rows.append(
        f"{summary['steps']} steps, {summary['seconds_per_step']:.1f} s a step, "
        f"{summary['seconds_total'] / 60:.1f} min in all, {summary['peak_rss_gb']:.1f} GB at most"
    )
    return "\n".join(rows)


def draw(run: Path, data: Path) -> None:
    """curves.png, and samples.png of the first held-out studies whose report RL changed."""
    from radverl.evaluation.pictures import curves, samples

    curves(_records(run), run / "curves.png")
    before, after = (
        {p["row"]: p["prediction"] for p in _predictions(run / f"{name}.json")} for name in ("before", "after")
    )
    rows = read_parquet(data)
    both = sorted(before.keys() & after.keys())  # positions in the file: the evaluation skips rows it cannot use
    if not both or both[-1] >= len(rows):
        raise ValueError(f"{data} is not the file that {run} was evaluated on; give that one.")
    chosen = sorted(both, key=lambda i: before[i] == after[i])[:N_SAMPLES]
    for i in chosen:
        for severity, _, message in check_truth(rows[i]["reward_model"]["ground_truth"], extra_info(rows[i])):
            if severity == "error":
                raise ValueError(f"{data}: row {i} cannot be drawn: {message}")
    samples(
        [rows[i] for i in chosen],
        [before[i] for i in chosen],
        [after[i] for i in chosen],
        run / "samples.png",
        N_SAMPLES,
    )


def _records(run: Path) -> list[dict[str, float]]:
    return merge(read_log(run / "rl/metrics.jsonl"), rollout_rates(run / "rl/rollouts"))


def _predictions(result: Path) -> list[dict[str, Any]]:
    path = predictions_path(result)
    try:
        # Not splitlines(): a report may hold U+2028, which is no line end in JSON.
        rows = [parse_json(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); run the recipe again.") from error
    if not all(isinstance(row, dict) and {"row", "prompt_id", "prediction", "facts"} <= row.keys() for row in rows):
        raise ValueError(f"{path} is not written by this version of radverl eval; run the recipe again.")
    return rows


def _paired_gains(run: Path) -> list[float]:
    """FactS after minus before, for each study whose judge answered both times."""
    before = {p["row"]: p["facts"] for p in _predictions(run / "before.json")}
    after = {p["row"]: p["facts"] for p in _predictions(run / "after.json")}
    return [after[k] - before[k] for k in before if before[k] is not None and after.get(k) is not None]


def _read(path: Path, *needed: str) -> dict[str, Any]:
    """A JSON object in which every one of `needed` has a value."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); run the recipe again.") from error
    missing = [key for key in needed if not isinstance(value, dict) or value.get(key) is None]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}; run the recipe again (radverl eval with --blind).")
    return dict(value)


def main(argv: list[str] | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m radverl.evaluation.before_after",
        description="Summarise a training run in numbers and pictures.",
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--data", type=Path, required=True, help="Parquet file the evaluations used")
    parser.add_argument("--seconds", type=float, default=0.0, help="wall time of the whole recipe")
    args = parser.parse_args(argv)
    try:
        summary = summarise(args.run, args.seconds)
        write_json(args.run / "summary.json", summary)
        draw(args.run, args.data)
    except (ValueError, OSError) as error:
        print(f"before_after: {error}", file=sys.stderr)
        return 2
    print(table(args.run, summary))
    print(f"wrote {args.run}/summary.json, curves.png and samples.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
