"""What can be wrong with a simulated chest: the kinds of finding, their label, and how their details are drawn.

One kind stands for one CheXpert label, so that a wanted prevalence of labels is a wanted prevalence of kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# kind -> CheXpert label, in the order in which a report mentions them.
KINDS: dict[str, str] = {
    "cardiomegaly": "Cardiomegaly",
    "mediastinum": "Enlarged Cardiomediastinum",
    "edema": "Edema",
    "effusion": "Pleural Effusion",
    "pneumothorax": "Pneumothorax",
    "consolidation": "Consolidation",
    "pneumonia": "Pneumonia",
    "opacity": "Lung Opacity",
    "atelectasis": "Atelectasis",
    "nodule": "Lung Lesion",
    "pleural": "Pleural Other",
    "fracture": "Fracture",
    "device": "Support Devices",
}
LABEL_KIND = {label: kind for kind, label in KINDS.items()}
DEVICES = ("endotracheal tube", "central line", "pacemaker", "chest tube", "enteric tube")
ZONES = ("upper", "mid", "lower")
GRADES = {
    "cardiomegaly": ("mild", "moderate", "severe"),
    "edema": ("mild", "moderate", "severe"),
    "effusion": ("small", "moderate", "large"),
    "pneumothorax": ("small", "moderate", "large"),
}


@dataclass(frozen=True)
class Finding:
    """One finding. `part` is the zone of a lung, the place of a pleural change or the name of a device."""

    kind: str
    side: str = ""  # "R", "L" or "" where the finding has no side
    part: str = ""
    grade: str = ""
    seed: int = 0  # its own stream of random numbers, so that leaving it out changes nothing else

    @property
    def label(self) -> str:
        """Its CheXpert label."""
        return KINDS[self.kind]

    @property
    def name(self) -> str:
        """A short caption, e.g. "right lower consolidation"."""
        words = {"R": "right", "L": "left", "": ""}[self.side]
        noun = {"pleural": "pleural thickening", "fracture": "rib fractures", "mediastinum": "wide mediastinum"}.get(
            self.kind, self.kind
        )
        if self.kind == "device":
            return f"{words} {self.part}".strip()
        part = "" if self.kind == "fracture" else self.part
        return " ".join(filter(None, [self.grade, words, part, noun]))

    def rng(self) -> np.random.Generator:
        """Fresh generator of this finding."""
        return np.random.default_rng(self.seed)


def detail(kinds: Sequence[str], rng: np.random.Generator) -> list[Finding]:
    """Choose side, place and severity of every kind; at most one air-space disease per lung half.

    Effusions may be bilateral (two findings), devices may be two. The order is that of `KINDS`.
    """
    out: list[Finding] = []
    taken: set[tuple[str, str]] = set()
    for kind in KINDS:
        if kind not in kinds:
            continue
        seeds = rng.integers(0, 2**62, 3)
        grade = str(rng.choice(GRADES[kind])) if kind in GRADES else ""
        side = str(rng.choice(["R", "L"]))
        if kind in ("cardiomegaly", "mediastinum", "edema"):
            out.append(Finding(kind, "", "", grade, int(seeds[0])))
        elif kind == "effusion":
            sides = ["R", "L"] if rng.random() < 0.3 else [side]
            out += [
                Finding(kind, s, "", str(rng.choice(GRADES[kind])), int(q)) for s, q in zip(sides, seeds, strict=False)
            ]
        elif kind == "pneumothorax":
            out.append(Finding(kind, side, "", grade, int(seeds[0])))
        elif kind in ("consolidation", "pneumonia", "opacity", "nodule"):
            side, zone = _free_place(kind, out, taken, rng)
            out.append(Finding(kind, side, zone, "", int(seeds[0])))
        elif kind == "atelectasis":
            wet = {f.side for f in out if f.kind == "effusion"}
            side = next((s for s in "RL" if s not in wet), side) if len(wet) == 1 else side
            out.append(Finding(kind, side, "lower", "", int(seeds[0])))
        elif kind == "pleural":
            out.append(
                Finding(kind, _off_pneumothorax(side, out), str(rng.choice(["apical", "lateral"])), "", int(seeds[0]))
            )
        elif kind == "fracture":
            out.append(Finding(kind, side, str(rng.integers(4, 7)), "", int(seeds[0])))
        elif kind == "device":
            names = rng.choice(DEVICES, 2 if rng.random() < 0.25 else 1, replace=False)
            for name, q in zip(names, seeds, strict=False):
                out.append(Finding(kind, _device_side(str(name), side, out), str(name), "", int(q)))
    return out


def _free_place(
    kind: str, out: list[Finding], taken: set[tuple[str, str]], rng: np.random.Generator
) -> tuple[str, str]:
    """A lung zone that no fluid, free air or other air-space disease hides."""
    wet = {f.side for f in out if f.kind == "effusion"}
    deep = {f.side for f in out if f.kind == "effusion" and f.grade == "large"}
    aired = {f.side for f in out if f.kind == "pneumothorax"}
    zones = ("upper", "mid", "lower") if kind == "nodule" else ("upper", "lower") if kind == "consolidation" else ZONES
    places = [(s, z) for s in "RL" for z in zones]
    free = [
        p
        for p in places
        if p not in taken and not (p[0] in wet and p[1] == "lower") and not (p[0] in deep and p[1] == "mid")
    ]
    free = [p for p in free if p[0] not in aired] or free or places
    side, zone = free[int(rng.integers(len(free)))]
    taken.update((side, z) for z in (ZONES if kind == "pneumonia" else (zone,)))
    return side, zone


def _off_pneumothorax(side: str, out: list[Finding]) -> str:
    aired = {f.side for f in out if f.kind == "pneumothorax"}
    return {"R": "L", "L": "R"}[side] if side in aired else side


def _device_side(name: str, side: str, out: list[Finding]) -> str:
    if name in ("endotracheal tube", "enteric tube"):
        return ""
    if name == "pacemaker":
        return "L"
    if name == "central line":
        return "R"
    aired = [f.side for f in out if f.kind in ("pneumothorax", "effusion")]  # a chest tube goes where it is needed
    return aired[0] if aired else side
