"""From the sections of a report, or the boxes of a phrase, to what a row asks and what its true answer is.

Order of a report's way: the wanted sections, its labels (of the report as it was written), references to prior studies,
marks of de-identification.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from data_preprocess.core import prompts
from data_preprocess.core.candidates import Content, Row
from data_preprocess.core.reports import refuse_empty, report_text, words
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.traces import trace_text
from radverl.boxes import clamp, write_boxes
from radverl.chexpert import label_report
from radverl.labels import Labels
from radverl.text import apply_blanks, remove_prior_references

TARGETS = {
    "findings": ("findings",), "impression": ("impression",), "both": ("findings", "impression"),
    "any": ("findings", "impression"),
}  # fmt: skip
PRIORS = ("drop", "keep", "llm")
MAX_REPORT = 50_000  # characters; the longest real chest reports have some thousand, so a longer one is damage (ours)
MAX_INDICATION = 1000  # likewise
ONLY_PRIORS = "only prior references"
# Reasons of this module that say a row is not wanted, not that it is damaged.
UNWANTED = frozenset({"no findings", "no impression", "no findings and no impression", ONLY_PRIORS})
DECIMALS = 4  # of boxes in 0-1: less than a pixel of any radiograph


def report_content(
    sections: Mapping[str, str],
    args: Namespace,
    *,
    labels: Labels | None = None,
    regions: Sequence[dict[str, Any]] = (),
    boxes: Sequence[dict[str, Any]] = (),
    extra: Mapping[str, Any] | None = None,
) -> Content:
    """The content of a report or trace row.

    Args:
        sections: by lower-case name: findings and impression; indication and history for `--indication`.
        args: target, priors, blanks, indication, prompt, task.
        labels: of the data set; None: those our rules read in the report.
        regions: of a trace, {"name", "box", "finding"}, boxes in 0-1.
        boxes: of findings, {"label", "box"}, boxes in 0-1.
        extra: more of the ground truth.
    Raises:
        SkipRow: a wanted section is missing, nothing is left of the report, or it is damaged.
    """
    texts = wanted_sections(sections, args.target)
    original = report_text(**texts)
    if len(original) > MAX_REPORT:
        raise SkipRow(f"the report has {len(original)} characters, more than {MAX_REPORT}", "report too long")
    refuse_empty(**texts)
    truth = {
        "labels": label_report(original) if labels is None else labels, "regions": list(regions), "boxes": list(boxes),
    }  # fmt: skip
    asked = args.prompt
    if args.indication and (why := indication(sections, args.blanks)):
        asked = f"Indication: {why}\n{asked}"
    content = Content(asked, "", truth | dict(extra or {}), args.priors)
    if args.priors == "drop":
        texts = {name: words(remove_prior_references(text)) for name, text in texts.items()}
    set_report(content, texts, args, original)
    return content


def wanted_sections(sections: Mapping[str, str], target: str) -> dict[str, str]:
    """Findings and impression, "" for one that is not wanted.

    Raises:
        SkipRow: a wanted one is missing.
    """
    texts = {name: words(sections.get(name, "")) if name in TARGETS[target] else "" for name in TARGETS["both"]}
    if not _complete(texts, target):
        missing = [name for name in TARGETS[target] if not texts[name]]
        raise SkipRow(f"no word in {' and '.join(missing)}", " and ".join(f"no {name}" for name in missing))
    return texts


def set_report(row: Content | Row, texts: Mapping[str, str], args: Namespace, original: str) -> None:
    """Write findings and impression into a row: its truth, its target and what they were made from.

    Raises:
        SkipRow: nothing is left of a wanted section.
    """
    if args.priors != "keep" and not _complete(texts, args.target):
        raise SkipRow("nothing is left without references to prior studies", ONLY_PRIORS)
    texts = {name: words(apply_blanks(text, args.blanks)) for name, text in texts.items()}
    if not _complete(texts, args.target):
        raise SkipRow("nothing is left without marks of de-identification", "empty report")
    report = report_text(**texts)
    head = {"findings": texts["findings"], "impression": texts["impression"], "report": report}
    row.truth = head | {name: value for name, value in row.truth.items() if name not in head}
    row.target = trace_text(row.truth["regions"], report) if args.task == "trace" else report
    row.original_report = "" if report == original else original


def grounding_content(
    name: str,
    boxes: Sequence[Sequence[float]],
    args: Namespace,
    row_id: str,
    *,
    label: str = "",
    labels: Labels | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Content:
    """The content of a grounding row: where `name` is.

    Args:
        name: the region, finding or phrase.
        boxes: xyxy in 0-1; none where there is nothing to be found. They are clamped to the image.
        label: what the boxes are called in the truth, `name` by default.
    Raises:
        SkipRow: a box has no area in the image, or the phrase is empty or no text for a model.
    """
    phrase = words(name)
    refuse_empty(phrase, "")
    kept = [unit_box(box) for box in boxes]
    template = args.prompt or prompts.wording(prompts.GROUNDING[args.task], row_id) + prompts.BOX_FORM
    truth: dict[str, Any] = {"phrase": phrase, "boxes": [{"label": label or phrase, "box": box} for box in kept]}
    if labels is not None:
        truth["labels"] = labels
    return Content(template.replace("{name}", phrase), write_boxes(kept), truth | dict(extra or {}))


def unit_box(box: Sequence[float]) -> list[float]:
    """The part of a box in 0-1 that lies in the image.

    Raises:
        SkipRow: there is none.
    """
    inside = clamp(box)
    rounded = [round(value, DECIMALS) for value in inside] if inside else []
    if not rounded or rounded[0] >= rounded[2] or rounded[1] >= rounded[3]:
        raise SkipRow(
            f"the box {[round(float(v), DECIMALS) for v in box]} has no area in the image", "box without area"
        )
    return rounded


def indication(sections: Mapping[str, str], blanks: str) -> str:
    """Why the examination was asked for, on one line; "" where the report does not say."""
    text = sections.get("indication") or sections.get("history") or ""
    text = words(apply_blanks(text[:MAX_INDICATION], blanks))
    try:
        refuse_empty(text, "")
    except SkipRow:  # the row is about the report, which may be whole
        return ""
    return text


def _complete(texts: Mapping[str, str], target: str) -> bool:
    there = [bool(words(texts[name])) for name in TARGETS[target]]
    return any(there) if target == "any" else all(there)
