"""Draws lines, tubes and a pacemaker on a `Film`; each function returns its box."""

from __future__ import annotations

import numpy as np

from data_preprocess.phantom import anatomy as an
from data_preprocess.phantom.anatomy import DIRECTION
from data_preprocess.phantom.canvas import Canvas, outline_box
from data_preprocess.phantom.findings import Finding
from data_preprocess.phantom.render import Film

METAL = 0.98


def device(film: Film, f: Finding) -> list[float]:
    """Draw the device named by `f.part`."""
    draw = {
        "endotracheal tube": _tracheal,
        "central line": _central,
        "pacemaker": _pacemaker,
        "chest tube": _chest_tube,
        "enteric tube": _enteric,
    }[f.part]
    return draw(film, f.rng(), f.side or "R")


def _line(film: Film, path: np.ndarray, width: float, level: float = METAL, strength: float = 1.0) -> list[float]:
    width = max(width, 0.85 / film.size)
    mask = Canvas(film.size).stroke(path, width).mask(0.0006)
    film.blend(np.clip(mask * strength * film.cue**0.5, 0, 1), np.maximum(film.value, level))
    return outline_box(path, width)


def _tracheal(film: Film, rng: np.random.Generator, side: str) -> list[float]:
    a = film.a
    tip = a.y(0.33) - rng.uniform(0.045, 0.07)
    path = an.spline([(a.cx + 0.004, -0.01), (a.cx + 0.002, a.y0), (a.cx - 0.002, tip)])
    box = _line(film, path, 0.021, 0.80, 0.45)
    for shift in (-0.010, 0.010):
        _line(film, path + np.array([shift, 0]), 0.0045, 0.92)
    _line(film, path[:-4] + np.array([0.003, 0]), 0.004)
    return [max(box[0], 0), 0.0, box[2], box[3]]


def _central(film: Film, rng: np.random.Generator, side: str) -> list[float]:
    a, tip = film.a, film.a.y(0.46) + rng.uniform(-0.02, 0.04)
    if rng.random() < 0.5:  # internal jugular
        pts = [
            (a.cx - 0.125, -0.01),
            (a.cx - 0.095, 0.05),
            (a.cx - 0.062, a.y(0.10)),
            (a.cx - 0.045, a.y(0.22)),
            (a.cx - 0.043, tip),
        ]
    else:  # subclavian
        pts = [
            (a.cx - 0.34, a.y(0.14)),
            (a.cx - 0.25, a.y(0.055)),
            (a.cx - 0.13, a.y(0.062)),
            (a.cx - 0.062, a.y(0.13)),
            (a.cx - 0.045, a.y(0.25)),
            (a.cx - 0.043, tip),
        ]
    return _line(film, an.spline(pts), 0.0085)


def _pacemaker(film: Film, rng: np.random.Generator, side: str) -> list[float]:
    a = film.a
    gx, gy = a.cx + a.w * rng.uniform(0.62, 0.74), a.y(rng.uniform(0.11, 0.17))
    can = an.spline(
        [
            (gx - 0.052, gy - 0.028),
            (gx - 0.02, gy - 0.046),
            (gx + 0.03, gy - 0.044),
            (gx + 0.056, gy - 0.012),
            (gx + 0.046, gy + 0.034),
            (gx, gy + 0.048),
            (gx - 0.044, gy + 0.032),
        ],
        closed=True,
    )
    mask = Canvas(film.size).fill(can).mask(0.001)
    film.blend(mask * 0.95, METAL)
    film.blend(Canvas(film.size).disc(gx + 0.004, gy + 0.004, 0.024, 0.022).mask(0.002) * 0.5, 0.86)
    header = Canvas(film.size).fill(
        np.array([(gx - 0.05, gy - 0.030), (gx - 0.012, gy - 0.048), (gx - 0.03, gy - 0.062), (gx - 0.062, gy - 0.044)])
    )
    film.blend(header.mask(0.001) * 0.7, 0.88)
    vein = [
        (gx - 0.055, gy - 0.05),
        (gx - 0.11, a.y(0.045)),
        (a.cx + 0.05, a.y(0.10)),
        (a.cx - 0.028, a.y(0.19)),
        (a.cx - 0.042, a.y(0.42)),
    ]
    right, left = an.heart_edges(a)
    atrium = an.spline([*vein, (a.cx - 0.8 * right, a.y(0.63)), (a.cx - 0.55 * right, a.y(0.60))])
    chamber = an.spline(
        [*vein, (a.cx - 0.5 * right, a.y(0.74)), (a.cx + 0.2 * left, a.y(0.87)), (a.cx + 0.72 * left, a.y(0.85))]
    )
    boxes = [_line(film, p, 0.0065) for p in (atrium, chamber)]
    for p in (atrium, chamber):
        boxes.append(_line(film, p[-4:], 0.011))
    return outline_box(np.array([*can, *[b[:2] for b in boxes], *[b[2:] for b in boxes]]), 0.003)


def _chest_tube(film: Film, rng: np.random.Generator, side: str) -> list[float]:
    a, d = film.a, DIRECTION[side]
    v = rng.uniform(0.60, 0.68)
    pts = [
        (a.cx + d * (a.w + a.skin + 0.07), a.y(v + 0.10)),
        (a.x(side, 0.97), a.y(v)),
        (a.x(side, 0.78), a.y(v - 0.14)),
        (a.x(side, 0.66), a.y(0.34)),
        (a.x(side, 0.46), a.y(0.13)),
    ]
    path = an.spline(pts)
    box = _line(film, path, 0.024, 0.66, 0.55)
    _line(film, path, 0.008)
    return outline_box(np.clip(path, 0, 1), 0.012) if box else box


def _enteric(film: Film, rng: np.random.Generator, side: str) -> list[float]:
    a = film.a
    end = float(an.dome_y(a, "L", 0.35))
    pts = [
        (a.cx + 0.012, -0.01),
        (a.cx + 0.014, a.y(0.2)),
        (a.cx + 0.010, a.y(0.5)),
        (a.cx + 0.022, a.y(0.8)),
        (a.cx + 0.055, end + 0.03),
        (a.cx + 0.115, end + 0.075),
        (a.cx + 0.175, end + 0.085),
    ]
    path = an.spline(pts)
    path = path[path[:, 1] < 0.985]
    return _line(film, path, 0.0085)
