"""One simulated study: film, findings, labels, boxes, report and region trace, all from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_preprocess.core.traces import trace_text
from data_preprocess.phantom import devices, lesions, render, trace
from data_preprocess.phantom.anatomy import Anatomy, sample_anatomy
from data_preprocess.phantom.findings import KINDS, LABEL_KIND, Finding, detail
from data_preprocess.phantom.placement import place
from data_preprocess.phantom.report import Report, write_report

MIN_SIZE = 64
MAX_KINDS = 5  # more than five kinds at once is rare and makes reports long
# Chance of each label where nothing is said; a normal film where none of them comes up.
EVEN_PREVALENCE: dict[str, float] = {
    "Enlarged Cardiomediastinum": 0.08,
    "Cardiomegaly": 0.25,
    "Lung Opacity": 0.12,
    "Lung Lesion": 0.18,
    "Edema": 0.18,
    "Consolidation": 0.18,
    "Pneumonia": 0.10,
    "Atelectasis": 0.12,
    "Pneumothorax": 0.20,
    "Pleural Effusion": 0.25,
    "Pleural Other": 0.08,
    "Fracture": 0.08,
    "Support Devices": 0.25,
}
# A long tail in the order of frequency of routine films; shares are ours.
LONG_TAIL: dict[str, float] = {
    "Support Devices": 0.40,
    "Pleural Effusion": 0.28,
    "Cardiomegaly": 0.20,
    "Edema": 0.16,
    "Atelectasis": 0.13,
    "Lung Opacity": 0.12,
    "Pneumonia": 0.07,
    "Consolidation": 0.05,
    "Pneumothorax": 0.045,
    "Enlarged Cardiomediastinum": 0.03,
    "Lung Lesion": 0.025,
    "Fracture": 0.015,
    "Pleural Other": 0.008,
}


@dataclass(frozen=True)
class Drawing:
    """What the renderer gives back: film (S, S) uint8, a box per finding, the patient and what changed the outline."""

    image: np.ndarray
    boxes: list[list[float]]
    anatomy: Anatomy
    ctr: float | None
    widen: float
    lift: dict[str, float]


def sample_kinds(rng: np.random.Generator, prevalence: dict[str, float], limit: int | None) -> list[str]:
    """Draw the kinds of finding, each by the chance of its label; at most `limit` of them."""
    kinds = [k for label, k in LABEL_KIND.items() if rng.random() < prevalence.get(label, 0.0)]
    if limit is not None and len(kinds) > limit:
        keep = set(rng.choice(len(kinds), limit, replace=False).tolist())
        kinds = [k for i, k in enumerate(kinds) if i in keep]
    return kinds


def geometry(a: Anatomy, findings: Sequence[Finding], cue: float) -> tuple[float | None, float, dict[str, float]]:
    """Heart ratio, mediastinal widening and raise of each hemidiaphragm that the findings bring."""
    ctr, widen, lift = None, 0.0, {"R": 0.0, "L": 0.0}
    for f in findings:
        if f.kind == "cardiomegaly":
            ctr = lesions.heart_ratio(f, cue)
        elif f.kind == "mediastinum":
            widen = lesions.widening(f, cue)
        elif f.kind == "atelectasis":
            lift[f.side] = float(f.rng().uniform(0.03, 0.05)) * min(cue, 1.5)
    return ctr, widen, lift


def draw_film(a: Anatomy, findings: Sequence[Finding], size: int, seed: Sequence[int], cue: float = 1.0) -> Drawing:
    """Draw a patient with findings.

    Args:
        a: the patient.
        findings: in any order; drawn from the inside out.
        size: image side in pixels.
        seed: of texture, vessels, exposure and noise; findings bring their own, so leaving one out changes only it.
        cue: conspicuity of the findings.
    """
    ctr, widen, lift = geometry(a, findings, cue)
    film = render.start(a, size, cue, ctr, widen, lift)
    by = {k: [(i, f) for i, f in enumerate(findings) if f.kind == k] for k in KINDS}
    boxes: list[list[float]] = [[] for _ in findings]
    lines = np.zeros_like(film.value)
    for i, f in by["pneumothorax"]:
        boxes[i], pleura = lesions.pneumothorax(film, f)
        lines = np.maximum(lines, pleura)
    vein = np.random.default_rng([*seed, 1])
    tree = render.vessels(film, vein, swell=0.7 if by["edema"] else 0.0)
    lung = film.air["R"] * film.dry["R"] + film.air["L"] * film.dry["L"]
    film.value += 0.26 * tree * lung
    render.texture(film, np.random.default_rng([*seed, 2]))
    for i, f in by["edema"]:
        boxes[i] = lesions.edema(film, f, tree)
    for kind, hook in (
        ("consolidation", lesions.airspace),
        ("pneumonia", lesions.airspace),
        ("opacity", lesions.airspace),
        ("atelectasis", lesions.atelectasis),
        ("nodule", lesions.nodule),
        ("effusion", lesions.effusion),
        ("pleural", lesions.pleural),
    ):
        for i, f in by[kind]:
            boxes[i] = hook(film, f)
    render.soft_parts(film)
    film.value += render.bones(film, [f for _, f in by["fracture"]])
    film.value += lines * np.clip((0.6 - film.value) / 0.15, 0, 1)  # the pleural line ends where fluid begins
    film.value -= 0.16 * render.airway(film)
    for i, f in by["device"]:
        boxes[i] = devices.device(film, f)
    for i, _ in by["cardiomegaly"]:
        boxes[i] = lesions.heart_box(a, ctr)
    for i, _ in by["mediastinum"]:
        boxes[i] = lesions.mediastinum_box(a, widen)
    for i, f in by["fracture"]:
        boxes[i] = lesions.fracture_box(a, f, cue)
    image = render.expose(film.value, np.random.default_rng([*seed, 3]), a.view)
    return Drawing(image, [[round(float(np.clip(v, 0, 1)), 4) for v in b] for b in boxes], a, ctr, widen, lift)


@dataclass(frozen=True)
class Study:
    """One study. `boxes` has one entry per finding, `regions` one per anatomical region (see `trace`)."""

    image: np.ndarray  # (S, S) uint8; the patient's right is the image's left
    findings_drawn: list[Finding]
    labels: dict[str, int | None]
    boxes: list[dict[str, Any]]  # {"label", "name", "box": [x0, y0, x1, y1] in 0..1}
    regions: list[dict[str, Any]]  # {"name", "box", "finding"}
    report: str
    findings: str
    impression: str
    trace: str
    view: str


def plan_findings(seed: Sequence[int], kinds: Sequence[str]) -> list[Finding]:
    """The findings of a study whose kinds are settled."""
    return detail(kinds, np.random.default_rng([*seed, 11]))


def draw_study(
    seed: int | Sequence[int],
    size: int = 224,
    *,
    kinds: Sequence[str] | None = None,
    findings: Sequence[Finding] | None = None,
    prevalence: dict[str, float] | None = None,
    patient: int | Sequence[int] | None = None,
    style: str = "prose",
    cue: float = 1.0,
    border: float = 0.0,
    trace_regions: Sequence[str] | None = None,
) -> Study:
    """Draw one study.

    Args:
        seed: one int or several; the same seed gives the same bytes.
        size: image side in pixels, at least 64.
        kinds: names in `KINDS` to show; drawn by `prevalence` where None.
        findings: exactly these instead (for example all but one of another study's `findings_drawn`).
        prevalence: CheXpert label -> chance; `EVEN_PREVALENCE` where None.
        patient: seed of the anatomy, for several studies of one subject; `seed` where None.
        style: "prose" or "template".
        cue: conspicuity of findings; 1 is meant for 112 pixels and up.
        border: up to which share of the image side stays black around the film (see `placement`).
        trace_regions: the regions that the trace names; as `trace.select` has them where None.
    Raises:
        ValueError: a size under 64, an unknown kind, style or region, a cue that is not positive, or a border outside
            [0, 0.5].
    """
    seeds = _seeds(seed)
    if size < MIN_SIZE:
        raise ValueError(f"size is {size}; draw at least {MIN_SIZE} pixels a side.")
    if not cue > 0:
        raise ValueError(f"cue is {cue}; use a positive number.")
    if kinds is not None and (unknown := sorted(set(kinds) - set(KINDS))):
        raise ValueError(f"kinds {unknown} are unknown; use {', '.join(KINDS)}.")
    if findings is None:
        if kinds is None:
            chance = EVEN_PREVALENCE if prevalence is None else prevalence
            kinds = sample_kinds(np.random.default_rng([*seeds, 10]), chance, MAX_KINDS if prevalence is None else None)
        findings = plan_findings(seeds, kinds)
    findings = list(findings)
    a = sample_anatomy(np.random.default_rng([*(seeds if patient is None else _seeds(patient)), 12]))
    drawing = draw_film(a, findings, size, seeds, cue)
    placed = place(border, np.random.default_rng([*seeds, 14]))
    report = write_study_report(seeds, findings, style)
    drawn = trace.region_boxes(a, drawing.ctr, drawing.widen, drawing.lift)
    regions = trace.describe({name: placed.box(box) for name, box in drawn.items()}, findings)
    boxes = [
        {"label": f.label, "name": f.name, "box": placed.box(b)} for f, b in zip(findings, drawing.boxes, strict=True)
    ]
    text = trace_text(trace.select(regions, trace_regions), report.text)
    return Study(
        placed.image(drawing.image),
        findings,
        report.labels,
        boxes,
        regions,
        report.text,
        report.findings,
        report.impression,
        text,
        a.view,
    )


def write_study_report(seed: Sequence[int], findings: Sequence[Finding], style: str) -> Report:
    """The report of a study without drawing it."""
    return write_report(findings, style, np.random.default_rng([*seed, 13]))


def _seeds(seed: int | Sequence[int]) -> list[int]:
    return [int(seed)] if isinstance(seed, int | np.integer) else [int(s) for s in seed]
