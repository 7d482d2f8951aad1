"""What balancing did, for the screen and for the card of the data file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_preprocess.core.balance import Histogram
from data_preprocess.core.skiplog import write_text


def balance_card(asked: int, taken: int, pool: int, uncertain: str, labels: Sequence[Histogram]) -> dict[str, Any]:
    """The part of the card, as JSON: how many were asked for, taken and there, and the counts of each label."""
    return {
        "asked": asked,
        "taken": taken,
        "pool": pool,
        "uncertain": uncertain,
        "labels": {h.label: {"pool": h.pool, "sample": h.sample, "exhausted": h.exhausted} for h in labels},
    }


def balance_lines(part: dict[str, Any]) -> list[str]:
    """The same for people: a Markdown table, and which labels the pool cannot fill."""
    counts = {"ones": "count as present", "zeros": "do not count", "ignore": "do not count"}[part["uncertain"]]
    lines = [f"Balanced: {part['taken']} of {part['pool']} studies; uncertain labels {counts}.", ""]
    if part["taken"] < part["asked"]:
        lines[0] += f" {part['asked']} were asked for, there are no more."
    lines += ["| label | studies before | after |", "| --- | --- | --- |"]
    lines += [f"| {name} | {n['pool']} | {n['sample']} |" for name, n in part["labels"].items()]
    absent = [name for name, n in part["labels"].items() if not n["pool"]]
    short = [f"{name} ({n['pool']})" for name, n in part["labels"].items() if n["exhausted"] and n["pool"]]
    if short:
        lines += ["", f"Cannot be filled, all studies that carry it are taken: {', '.join(short)}."]
    if absent:
        lines += ["", f"Cannot be filled, no study carries it: {', '.join(absent)}."]
    return lines


def add_to_card(path: str | os.PathLike[str], card: dict[str, Any], part: dict[str, Any]) -> None:
    """Add the part to the card, `.md` and `.json`, that `write_card` left beside the Parquet file `path`."""
    path = Path(path)
    write_text(path.with_suffix(".json"), json.dumps(card | {"balance": part}, indent=1, ensure_ascii=False) + "\n")
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    write_text(path.with_suffix(".md"), "\n".join([text, *balance_lines(part)]) + "\n")
