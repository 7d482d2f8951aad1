"""The `ground_truth` of a row: JSON as `data_preprocess` writes it, boxes xyxy in 0-1.

A report row has report, findings, impression and labels; a grounding row has a phrase and its boxes, [] where there is
nothing to be found; a trace row is a report row with regions (`radverl.datacheck.traces`).
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from radverl.datacheck.report import Found
from radverl.datacheck.traces import check_regions, has_words, is_number, short
from radverl.labels import CHEXPERT_14

LIMITS = {"unit": (1.0, 1.0), "thousand": (1000.0, 1000.0)}


def check_truth(value: Any, extra: dict[str, Any], ability: Any = None) -> Iterator[Found]:
    """Findings about one `reward_model.ground_truth`; `extra` is the row's extra_info (box_space, width, height)."""
    if value is None or (isinstance(value, str) and not value.strip()):
        yield "error", "empty ground truth", "ground_truth is empty; skip the row when you write the file."
        return
    if not isinstance(value, str):
        kind = type(value).__name__
        yield "error", "ground truth type", f"ground_truth is a {kind}; write it as a JSON string (json.dumps)."
        return
    try:
        truth = json.loads(value)
    except (ValueError, RecursionError):
        truth = None
    if not isinstance(truth, dict):
        message = f"ground_truth is plain text ({short(value)}); the rewards of radverl need our JSON object."
        yield "warning", "plain ground truth", message
        return
    grounding = "phrase" in truth
    texts = [truth.get(key) for key in ("report", "findings", "impression")]
    if grounding:
        if not isinstance(truth["phrase"], str) or not has_words(truth["phrase"]):
            yield "error", "empty phrase", f"phrase is {short(truth['phrase'])}; write what is to be found."
        if not isinstance(truth.get("boxes"), list):
            yield (
                "error",
                "no boxes",
                "a row with a phrase lacks the list of boxes; write [] where nothing is to be found.",
            )
    elif not any(isinstance(text, str) and has_words(text) for text in texts):
        yield "error", "empty report", "ground_truth has no report, findings or impression; nothing can be learned."
    elif _says_nothing(truth.get("labels"), texts):
        message = "no label is set and the report says nothing about a chest image; every normal report scores 1."
        yield "warning", "nothing to compare", message
    if not grounding or truth.get("labels") is not None:
        yield from _check_labels(truth.get("labels"))
    for key in ("boxes", "regions"):
        yield from _check_boxes(key, truth.get(key), extra, any_label=grounding)
    yield from check_regions(truth, is_trace=ability == "trace")


def _check_labels(labels: Any) -> Iterator[Found]:
    if labels is None:
        yield "warning", "no labels", "ground_truth has no labels, so the facts reward has nothing to compare with."
        return
    if not isinstance(labels, dict):
        yield "error", "labels type", f"labels is a {type(labels).__name__}; write an object name -> 1, 0, -1 or null."
        return
    for name, value in labels.items():
        if name not in CHEXPERT_14:
            yield "error", "unknown label", f"labels has {short(name)}, which is none of radverl.labels.CHEXPERT_14."
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value not in (1, 0, -1)):
            message = f"label {short(name)} is {short(value)}; use 1, 0, -1 or null."
            yield "error", "label value", message
    missing = [name for name in CHEXPERT_14 if name not in labels]
    if missing:
        yield "warning", "missing label", f"labels lacks {', '.join(missing)}; write null where not mentioned."


def _check_boxes(key: str, boxes: Any, extra: dict[str, Any], any_label: bool) -> Iterator[Found]:
    if boxes is None:
        return
    if not isinstance(boxes, list):
        yield "error", "boxes type", f"{key} is a {type(boxes).__name__}; write a list, [] where there are none."
        return
    space = extra.get("box_space") or "unit"
    limits = (extra.get("width"), extra.get("height")) if space == "pixel" else LIMITS.get(str(space))
    if limits is None:
        yield "error", "box space", f"box_space is {short(space)}; use unit, pixel or thousand."
        return
    for number, entry in enumerate(boxes):
        box = entry.get("box") if isinstance(entry, dict) else None
        if not isinstance(box, list) or len(box) != 4 or not all(is_number(v) for v in box):
            message = f"{key}[{number}] has the box {short(box)}; write [x0, y0, x1, y1]."
            yield "error", "box shape", message
            continue
        x0, y0, x1, y1 = box
        right, bottom = (limit if is_number(limit) else math.inf for limit in limits)
        if not (0 <= x0 < x1 <= right and 0 <= y0 < y1 <= bottom):
            message = f"{key}[{number}] has the box {box}, empty or outside 0-{right:g} x 0-{bottom:g} ({space})."
            yield "error", "box out of bounds", message
        label = entry.get("label")
        if key == "boxes" and not any_label and label is not None and label not in CHEXPERT_14:
            yield "warning", "box label", f"{key}[{number}] has the label {short(label)}, no CheXpert label."


def _says_nothing(labels: Any, texts: list[Any]) -> bool:
    from radverl.chexpert import has_clinical_content

    if isinstance(labels, dict) and any(value is not None for value in labels.values()):
        return False
    return not any(isinstance(text, str) and has_clinical_content(text) for text in texts)
