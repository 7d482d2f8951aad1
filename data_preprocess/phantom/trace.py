"""Anatomical regions (names and boxes as in Chest ImaGenome) with what a reader sees in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from data_preprocess.phantom import anatomy as an
from data_preprocess.phantom.anatomy import SIDE_WORD, Anatomy
from data_preprocess.phantom.canvas import outline_box
from data_preprocess.phantom.findings import DEVICES, Finding

Region = dict[str, Any]
# Every trace names these, in this order, then the regions with a finding.
CORE = (
    "cardiac silhouette",
    "mediastinum",
    "right lung",
    "left lung",
    "right costophrenic angle",
    "left costophrenic angle",
)
NORMAL = {
    "cardiac silhouette": "normal heart size",
    "mediastinum": "normal mediastinum",
    "costophrenic angle": "no effusion",
    "lung": "clear lung",
    "hemidiaphragm": "normal diaphragm",
    "apical zone": "no pneumothorax",
}


def region_boxes(
    a: Anatomy, ctr: float | None = None, widen: float = 0.0, lift: dict[str, float] | None = None
) -> dict[str, list[float]]:
    """Boxes of 36 Chest ImaGenome regions from the outlines, name -> [x0, y0, x1, y1] in 0..1."""
    lift = lift or {"R": 0.0, "L": 0.0}
    right, left = an.heart_edges(a, ctr)
    out: dict[str, list[float]] = {}

    def box(name: str, x0: float, y0: float, x1: float, y1: float) -> None:
        out[name] = outline_box(np.array([[min(x0, x1), y0], [max(x0, x1), y1]]))

    for s, word in SIDE_WORD.items():
        if not s:
            continue
        lung = an.lung(a, s, lift[s])
        inner, outer = a.x(s, 0.10), a.x(s, 1.0)
        dome = float(an.dome_y(a, s, 0.45, lift[s]))
        out[f"{word} lung"] = outline_box(lung)
        out[f"{word} apical zone"] = outline_box(lung[lung[:, 1] < a.y(0.13)])
        third = [a.y0, a.y(0.33), a.y(0.58), a.yb[s]]
        for zone, y0, y1 in zip(("upper", "mid", "lower"), third[:-1], third[1:], strict=True):
            box(f"{word} {zone} lung zone", inner, y0, outer, y1)
        box(f"{word} hilar structures", a.x(s, 0.12), a.y(0.34), a.x(s, 0.38), a.y(0.60))
        box(f"{word} costophrenic angle", a.x(s, 0.80), a.yb[s] - 0.075, a.x(s, 1.01), a.yb[s] + 0.02)
        edge = right if s == "R" else left
        cardiac = a.cx + an.DIRECTION[s] * edge * 0.85
        box(f"{word} cardiophrenic angle", cardiac - 0.035, dome - 0.03, cardiac + 0.035, dome + 0.05)
        box(f"{word} hemidiaphragm", inner, dome - 0.01, outer, a.yb[s] + 0.01)
        out[f"{word} clavicle"] = outline_box(an.clavicle(a, s), 0.014)
        box(f"{word} cardiac silhouette", a.cx, a.y(0.42), a.cx + an.DIRECTION[s] * edge, a.y(1.0))
        box(f"{word} upper abdomen", a.cx, dome, outer, 1.0)
    upper = 0.075 + widen
    box("cardiac silhouette", a.cx - right, a.y(0.42), a.cx + left, a.y(1.0))
    box("mediastinum", a.cx - max(right, upper), a.y(0.0), a.cx + left, a.y(1.0))
    box("upper mediastinum", a.cx - upper, a.y(0.0), a.cx + upper + 0.01, a.y(0.36))
    box("aortic arch", a.cx - 0.01, a.y(0.18), a.cx + a.knob + widen, a.y(0.32))
    box("trachea", a.cx - 0.022, 0.0, a.cx + 0.018, a.y(0.33))
    box("carina", a.cx - 0.04, a.y(0.30), a.cx + 0.03, a.y(0.37))
    box("svc", a.cx - 0.06, a.y(0.14), a.cx - 0.02, a.y(0.46))
    box("cavoatrial junction", a.cx - 0.075, a.y(0.43), a.cx - 0.02, a.y(0.51))
    box("right atrium", a.cx - right, a.y(0.50), a.cx - 0.01, a.y(0.93))
    box("descending aorta", a.cx + 0.0, a.y(0.28), a.cx + 0.06, a.y(0.98))
    box("spine", a.cx - 0.04, 0.0, a.cx + 0.04, 1.0)
    box("abdomen", a.cx - a.w, float(an.dome_y(a, "R", 0.45)), a.cx + a.w, 1.0)
    return out


REGION_NAMES: tuple[str, ...] = tuple(region_boxes(an.sample_anatomy(np.random.default_rng(0))))


def places(f: Finding) -> tuple[str, ...]:
    """Regions in which a finding is read."""
    side = SIDE_WORD.get(f.side, "")
    if f.kind in ("cardiomegaly", "mediastinum"):
        return ("cardiac silhouette",) if f.kind == "cardiomegaly" else ("mediastinum", "upper mediastinum")
    if f.kind == "edema":
        return ("right lung", "left lung", "right hilar structures", "left hilar structures")
    if f.kind == "effusion":
        return (f"{side} costophrenic angle", f"{side} lung", f"{side} lower lung zone")
    if f.kind in ("pneumothorax", "pleural"):
        return (f"{side} lung", f"{side} apical zone" if f.part != "lateral" else f"{side} mid lung zone")
    if f.kind == "pneumonia":
        return (f"{side} lung",)
    if f.kind == "atelectasis":
        return (f"{side} lower lung zone", f"{side} lung", f"{side} hemidiaphragm")
    if f.kind == "fracture":
        return (f"{side} lung",)
    if f.kind == "device":
        home = dict(
            zip(DEVICES, ("trachea", "svc", "left upper lung zone", f"{side} lung", "upper mediastinum"), strict=True)
        )
        return (home[f.part],)
    return (f"{side} {f.part} lung zone", f"{side} lung")


def describe(boxes: dict[str, list[float]], findings: Sequence[Finding]) -> list[Region]:
    """All regions as {"name", "box", "finding"}; the finding is "" where a region is neither abnormal nor in `CORE`."""
    out = []
    for name, box in boxes.items():
        here = [_short(f) for f in findings if name in places(f)]
        core = name in CORE
        normal = next((text for key, text in NORMAL.items() if name.endswith(key)), "") if core else ""
        out.append(
            {"name": name, "box": [round(v, 4) for v in box], "finding": ", ".join(dict.fromkeys(here)) or normal}
        )
    return out


def select(regions: Sequence[Region], names: Sequence[str] | None = None, most: int = 10) -> list[Region]:
    """The regions that a trace names: those of `names`, or `CORE` first, then those with a finding, up to `most`.

    Raises:
        ValueError: a name that is no region.
    """
    by = {r["name"]: r for r in regions}
    if names is not None:
        if unknown := [name for name in names if name not in by]:
            raise ValueError(f"region {unknown[0]!r} is unknown; use {', '.join(CORE)}, or another of {len(by)}.")
        return [by[name] for name in names]
    core = [by[n] for n in CORE]
    return (core + [r for r in regions if r["finding"] and r["name"] not in CORE])[:most]


def _short(f: Finding) -> str:
    side = SIDE_WORD.get(f.side, "")
    noun = {
        "mediastinum": "widened mediastinum",
        "nodule": "lung nodule",
        "pleural": "pleural thickening",
        "fracture": "rib fractures",
        "effusion": "pleural effusion",
        "edema": "pulmonary edema",
        "device": f.part,
    }.get(f.kind, f.kind)
    part = f.part if f.kind in ("consolidation", "opacity", "pleural") else ""
    return " ".join(filter(None, [f.grade, "" if f.kind == "device" else side, part, noun]))
