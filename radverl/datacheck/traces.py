"""Reasoning traces: the regions of a ground truth, and the answer that an SFT row teaches.

    <think>[{"region": "left lung", "box": [0.53, 0.11, 0.88, 0.84], "finding": "..."}, ...]</think><answer>...</answer>

The gated reward (arXiv 2609.31911) pairs regions by name, takes boxes in 0-1 of the image, and compares findings.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from radverl.datacheck.report import Found

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_TRACE = re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.S)


def check_regions(truth: dict[str, Any], is_trace: bool) -> Iterator[Found]:
    """Findings about names and findings of the regions of a ground truth, and of a trace about all it needs.

    Their boxes are checked as those of any row.
    """
    regions = truth.get("regions")
    entries = [entry for entry in regions if isinstance(entry, dict)] if isinstance(regions, list) else []
    yield from _check_entries(entries, "name", "regions", is_trace)
    if not is_trace:
        return
    if not entries:
        yield "error", "no regions", "a trace row has no regions; the gated reward has nothing to compare with."
    elif not any(isinstance(entry.get("finding"), str) and has_words(entry["finding"]) for entry in entries):
        yield "warning", "no findings", "no region has a finding, so the gated reward has no factual term here."
    report = truth.get("report")
    if not isinstance(report, str) or not has_words(report):
        yield "error", "no report", "a trace row has no report; write the text of the answer under report."
        return
    flat = " ".join(report.split())
    for key in ("findings", "impression"):
        text = truth.get(key)
        if isinstance(text, str) and " ".join(text.split()) not in flat:
            yield "error", "answer differs", f"the report does not contain the {key} ({short(text)})."


def check_answer(text: str) -> Iterator[Found]:
    """Findings about the text of an assistant, where it is a trace."""
    counts = [text.count(tag) for tag in TAGS]
    if not any(counts):
        return
    match = _TRACE.fullmatch(text)
    if counts != [1, 1, 1, 1] or not match:
        yield "error", "trace form", "the target is not one <think>...</think> and then one <answer>...</answer>."
        return
    if not has_words(match[2]):
        yield "error", "empty answer", "the target has no words inside <answer>."
    if not match[1].lstrip().startswith("["):
        message = "the target has no list of regions inside <think>; the gated reward scores such a response 0."
        yield "warning", "plain reasoning", message
        return
    try:
        regions = json.loads(match[1])
    except (ValueError, RecursionError) as error:
        yield "error", "trace form", f"the list inside <think> is not JSON ({short(str(error))})."
        return
    entries = [entry for entry in regions if isinstance(entry, dict)]
    if not entries or len(entries) != len(regions):
        yield "error", "trace form", "the list inside <think> is empty, or holds what is no object with a region."
    yield from _check_entries(entries, "region", "think", True)
    for number, entry in enumerate(entries):
        box = entry.get("box")
        if not (isinstance(box, list) and len(box) == 4 and all(map(is_number, box))):
            yield "error", "box shape", f"think[{number}] has the box {short(box)}; write [x0, y0, x1, y1]."
        elif not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):
            yield "error", "box out of bounds", f"think[{number}] has the box {box}, empty or outside 0-1."


def differs(answer: Any, ground_truth: Any) -> str:
    """How the text of an assistant differs from the ground truth of the same row; "" where it does not.

    Only what has a report is compared, and of a trace the names of its regions.
    """
    try:
        truth = json.loads(ground_truth)
    except (TypeError, ValueError, RecursionError):
        return ""
    if not isinstance(truth, dict) or "phrase" in truth or not isinstance(truth.get("report"), str):
        return ""
    match = _TRACE.fullmatch(answer) if isinstance(answer, str) else None
    if not isinstance(answer, str) or " ".join((match[2] if match else answer).split()) != " ".join(
        truth["report"].split()
    ):
        return "the answer is not the report"
    if match and _names(match[1], "region") != _names(truth.get("regions"), "name"):
        return "the regions inside <think> are not those"
    return ""


def has_words(text: str) -> bool:
    return any(character.isalpha() for character in text) and text.strip().lower() != "nan"


def is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a JSON integer may have hundreds of digits
        return False


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_entries(entries: list[dict[str, Any]], key: str, where: str, with_finding: bool) -> Iterator[Found]:
    seen: dict[str, int] = {}
    for number, entry in enumerate(entries):
        name, finding = entry.get(key), entry.get("finding")
        if not isinstance(name, str) or not has_words(name):
            yield "error", "region name", f"{where}[{number}] has the {key} {short(name)}; write which region it is."
        elif seen.setdefault(" ".join(name.lower().split()), number) != number:
            first = seen[" ".join(name.lower().split())]
            message = f"{where}[{number}] is {short(name)} like {where}[{first}]; regions are paired by name."
            yield "error", "duplicate region", message
        if not isinstance(finding, str) and (with_finding or finding is not None):
            message = f'{where}[{number}] has the finding {short(finding)}; write a text, "" where nothing is said.'
            yield "error", "region finding", message


def _names(regions: Any, key: str) -> list[Any]:
    if isinstance(regions, str):
        try:
            regions = json.loads(regions)
        except (ValueError, RecursionError):
            return []
    return [entry.get(key) for entry in regions if isinstance(entry, dict)] if isinstance(regions, list) else []
