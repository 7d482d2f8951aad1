"""What the pages of both reproductions share: checkpoints of a run, curves of its rollouts, JSON, tables, verdicts."""

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from radverl.evaluation.verl_log import Record


def checkpoints(source: Path) -> dict[int, Path]:
    """Model folders of a run by step, ascending; a model folder itself is step 0.

    Raises:
        ValueError: `source` is neither.
    """
    if (source / "config.json").is_file():
        return {0: source}
    folders = source.glob("checkpoints/global_step_*/actor/huggingface")
    models = {int(folder.parts[-3].removeprefix("global_step_")): folder for folder in folders}
    if not models:
        raise ValueError(f"{source} is neither a model folder nor a run with checkpoints/global_step_*; did it end?")
    return dict(sorted(models.items()))


def evaluation_files(folder: Path) -> dict[int, Path]:
    """The files step_<n>.json of a folder by step, ascending."""
    found = {}
    for path in folder.glob("step_*.json"):
        match = re.fullmatch(r"step_([0-9]{1,15})\.json", path.name)
        if match:
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def cumulative_share(rates: Sequence[Record]) -> list[float]:
    """Share of all-zero groups among all groups up to each step.

    Args:
        rates: records of `rollout_rates`, steps ascending; a step without any reward adds no group.
    """
    zero = groups = 0.0
    shares = []
    for rate in rates:
        zero += rate.get("all_zero_groups", 0.0) * rate["groups"]
        groups += rate["groups"]
        shares.append(zero / groups if groups else 0.0)
    return shares


def quarters(values: Sequence[float]) -> list[float]:
    """Means of the first and of the last quarter."""
    quarter = max(1, len(values) // 4)
    return [round(statistics.fmean(part), 5) for part in (values[:quarter], values[-quarter:])]


def span(numbers: Sequence[int]) -> str:
    """What a list of steps covers, in words."""
    return f"{numbers[0]} to {numbers[-1]} ({len(numbers)} of them)" if numbers else "none"


def settings_of(items: Sequence[str]) -> dict[str, str]:
    """`--setting NAME=VALUE` as a dict.

    Raises:
        ValueError: one has no name.
    """
    unnamed = [item for item in items if "=" not in item]
    if unnamed:
        raise ValueError(f"--setting {unnamed[0]!r} has no name; write NAME=VALUE.")
    return dict(item.split("=", 1) for item in items)


def to_json(value: Any, indent: str = "") -> str:
    """JSON in which whatever holds only numbers and texts takes one line, so that a curve is one line of a diff."""
    inner = indent + " "
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if not any(isinstance(item, dict | list) for item in items):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key, ensure_ascii=False)}: {to_json(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + to_json(item, inner) for item in value) + f"\n{indent}]"


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def mean_range(values: Sequence[float]) -> str:
    """Mean, lowest and highest of the seeds."""
    return f"{statistics.fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def verdict(gains: Sequence[float], lower_is_better: bool = False) -> str:
    """In how many seeds something is better, in words; equal is not better."""
    sign = -1 if lower_is_better else 1
    better, worse = sum(sign * gain > 0 for gain in gains), sum(sign * gain < 0 for gain in gains)
    if better == len(gains):
        return f"yes, in every seed ({statistics.fmean(gains):+.3f})"
    if worse == len(gains):
        return f"no, the reverse in every seed ({statistics.fmean(gains):+.3f})"
    return f"not shown: better in {better} of {len(gains)} seeds ({statistics.fmean(gains):+.3f})"
