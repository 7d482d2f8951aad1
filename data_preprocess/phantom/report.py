"""Writes the report of a simulated study and the labels that a reader of the text would give.

Two styles. `template`: fixed order, short sentences whose first word carries the decision (for a very small model).
`prose`: Findings and Impression as a radiologist dictates them: order, wording and severity vary, some normal findings
go unmentioned. Every sentence comes with the labels it states (1 present, 0 absent, -1 uncertain); a study's labels are
their union, present over uncertain over absent, so that they hold what is written and not what was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_preprocess.phantom import phrases
from data_preprocess.phantom.anatomy import SIDE_WORD
from data_preprocess.phantom.findings import KINDS, Finding
from radverl.labels import CHEXPERT_14, NO_FINDING, has_finding

STYLES = ("template", "prose")
# Said in every template report, present or not; the other kinds only where present.
ALWAYS = ("cardiomegaly", "edema", "effusion", "pneumothorax", "consolidation", "nodule")
URGENCY = (
    "pneumothorax",
    "effusion",
    "edema",
    "pneumonia",
    "consolidation",
    "nodule",
    "opacity",
    "fracture",
    "mediastinum",
    "cardiomegaly",
    "atelectasis",
    "pleural",
)
NAMED = 2  # findings that a template impression repeats, the most urgent first
Stated = dict[str, int]


@dataclass(frozen=True)
class Report:
    """Text of both sections, the whole as a model should write it, and the 14 labels it states."""

    findings: str
    impression: str
    labels: dict[str, int | None]

    @property
    def text(self) -> str:
        """ "Findings: ... Impression: ..." """
        return f"Findings: {self.findings} Impression: {self.impression}"


def write_report(findings: Sequence[Finding], style: str, rng: np.random.Generator) -> Report:
    """Write a report.

    Args:
        findings: what was drawn, as from `findings.detail`.
        style: "template" or "prose".
        rng: of the wording; unused by `template`.
    Raises:
        ValueError: unknown style.
    """
    if style not in STYLES:
        raise ValueError(f"report style {style!r} is unknown; use one of {', '.join(STYLES)}.")
    parts = _template(findings) if style == "template" else _prose(findings, rng)
    body, closing = ([(t, s) for t, s in part] for part in parts)
    labels = merge([s for _, s in body + closing])
    return Report(" ".join(t for t, _ in body), " ".join(t for t, _ in closing), labels)


def merge(stated: Sequence[Stated]) -> dict[str, int | None]:
    """Labels of a report from those of its sentences; No Finding is 1 where nothing but devices is stated."""
    rank = {None: -1, 0: 0, -1: 1, 1: 2}
    labels: dict[str, int | None] = dict.fromkeys(CHEXPERT_14)
    for sentence in stated:
        for name, value in sentence.items():
            if rank[value] > rank[labels[name]]:
                labels[name] = value
    if not has_finding(labels):
        labels[NO_FINDING] = 1
    return labels


def state(f: Finding, text: str) -> tuple[str, Stated]:
    """A sentence about a finding with its label; the words "opacity" and "haze" also state Lung Opacity."""
    stated = {f.label: 1}
    if any(word in text.lower() for word in ("opaci", "haze", "airspace disease")):
        stated["Lung Opacity"] = 1
    if "possible pneumonia" in text:
        stated["Pneumonia"] = -1
    return text, stated


def _template(findings: Sequence[Finding]) -> tuple[list[tuple[str, Stated]], list[tuple[str, Stated]]]:
    body: list[tuple[str, Stated]] = []
    order = [*ALWAYS, *(k for k in KINDS if k not in ALWAYS)]
    for kind in order:
        here = [f for f in findings if f.kind == kind]
        if not here and kind in ALWAYS:
            body.append((phrases.TEMPLATE_ABSENT[kind], {KINDS[kind]: 0}))
        elif kind == "effusion" and len(here) == 2:
            body.append(("Bilateral pleural effusions.", {"Pleural Effusion": 1}))
        elif kind == "device" and here:
            body.append(("Device: " + ", ".join(f.part for f in here) + ".", {"Support Devices": 1}))
        else:
            body += [state(f, _fill(phrases.TEMPLATE_PRESENT[kind], f)) for f in here]
    kinds = [k for k in URGENCY if any(f.kind == k for f in findings)][:NAMED]
    nouns = [phrases.NOUN[k] for k in kinds]
    if not nouns:
        return body, [(phrases.TEMPLATE_NORMAL, {})]
    text = ", ".join(nouns)
    stated = {KINDS[k]: 1 for k in kinds}
    return body, [(text[0].upper() + text[1:] + ".", stated)]


def _prose(
    findings: Sequence[Finding], rng: np.random.Generator
) -> tuple[list[tuple[str, Stated]], list[tuple[str, Stated]]]:
    body: list[tuple[str, Stated]] = []
    present = {f.kind for f in findings}
    paired = [f for f in findings if f.kind == "effusion"]
    for f in findings:
        if f.kind == "effusion" and len(paired) == 2:
            if f is paired[0]:
                body.append(state(f, _choose(phrases.BOTH_EFFUSIONS, rng).format(grade=f.grade)))
            continue
        body.append(state(f, _fill(_choose(phrases.PRESENT[f.kind], rng), f)))
    for kind, options in phrases.ABSENT.items():
        if kind not in present and rng.random() < phrases.MENTION[kind]:
            body.append((_choose(options, rng), {KINDS[kind]: 0}))
    absent = {k for k in ("effusion", "pneumothorax") if k not in present and not _said(body, KINDS[k])}
    if len(absent) == 2 and rng.random() < 0.7:
        body.append((_choose(phrases.NO_PLEURAL, rng), {"Pleural Effusion": 0, "Pneumothorax": 0}))
    rng.shuffle(body)
    if not body:
        body.append((phrases.CLEAR_CHEST, {}))
    return body, _impression(findings, rng)


def _impression(findings: Sequence[Finding], rng: np.random.Generator) -> list[tuple[str, Stated]]:
    kinds = [k for k in URGENCY if any(f.kind == k for f in findings)]
    if not kinds:
        return [(_choose(phrases.NORMAL, rng), {})]
    if len(kinds) > 3:
        kinds = kinds[: int(rng.integers(3, len(kinds) + 1))]
    closing = []
    for kind in kinds:
        here = [f for f in findings if f.kind == kind]
        if len(here) == 2:
            closing.append(state(here[0], "Bilateral pleural effusions."))
        else:
            closing.append(state(here[0], _fill(_choose(phrases.SUMMARY[kind], rng), here[0])))
    return closing


def _said(body: Sequence[tuple[str, Stated]], label: str) -> bool:
    return any(label in stated for _, stated in body)


def _choose(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _fill(text: str, f: Finding) -> str:
    side = SIDE_WORD.get(f.side, "")
    lobe = f"{side} {f.part} lobe" if (f.part != "mid") else ("right middle lobe" if f.side == "R" else "lingula")
    words = {
        "side": side,
        "part": f.part,
        "grade": f.grade,
        "lobe": lobe,
        "zone": f"{side} {f.part} lung",
        "rib": _ordinals(f),
        "noun": phrases.DEVICE_NOUN.get(f.part, f.part),
    }
    out = text.format(**words)
    return out[0].upper() + out[1:]


def _ordinals(f: Finding) -> str:
    if f.kind != "fracture":
        return ""
    k = int(f.part)
    return f"{phrases.ORDINAL[k]} to {phrases.ORDINAL[k + 2]}"
