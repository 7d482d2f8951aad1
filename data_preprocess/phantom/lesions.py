"""Draws findings of lung, pleura and heart on a `Film`; each function returns the unit box [x0, y0, x1, y1] it changed.

`film.cue` scales how conspicuous a finding is (contrast and, less, size); 1 keeps all visible at 112 pixels.
"""

from __future__ import annotations

import math

import numpy as np

from data_preprocess.phantom import anatomy as an
from data_preprocess.phantom.anatomy import DIRECTION, Anatomy
from data_preprocess.phantom.canvas import Canvas, blurred, bounds, cloud, outline_box, sigmoid
from data_preprocess.phantom.findings import Finding
from data_preprocess.phantom.render import Film

Box = list[float]
ZONE_V = {"upper": (0.19, 0.30), "mid": (0.44, 0.54), "lower": (0.68, 0.78)}


def heart_ratio(f: Finding, cue: float) -> float:
    """Cardiothoracic ratio of an enlarged heart, by severity."""
    low, high = {"mild": (0.56, 0.595), "moderate": (0.60, 0.64), "severe": (0.65, 0.70)}[f.grade]
    return float(min(0.5 + (f.rng().uniform(low, high) - 0.5) * cue, 0.76))


def widening(f: Finding, cue: float) -> float:
    """How far a widened mediastinum stands out on either side."""
    return float(f.rng().uniform(0.034, 0.050) * cue)


def heart_box(a: Anatomy, ctr: float | None) -> Box:
    """Cardiac silhouette."""
    right, left = an.heart_edges(a, ctr)
    return outline_box(np.array([[a.cx - right, a.y(0.42)], [a.cx + left, min(a.y(1.02), 1.0)]]))


def mediastinum_box(a: Anatomy, widen: float) -> Box:
    """Upper mediastinum, from the thoracic inlet to the hila."""
    p = an.silhouette(a, None, widen)
    upper = p[(p[:, 1] > a.y(0.0)) & (p[:, 1] < a.y(0.44))]
    return outline_box(upper, 0.004)


def pneumothorax(film: Film, f: Finding) -> tuple[Box, np.ndarray]:
    """Takes the lung off the wall: black rim without vessels. Returns the box and the pleural line to draw later."""
    a, rng, s = film.a, f.rng(), f.side
    depth = {"small": 0.17, "moderate": 0.27, "large": 0.42}[f.grade] * rng.uniform(0.92, 1.1) * film.cue**0.5
    reach = {"small": 0.70, "moderate": 0.88, "large": 1.02}[f.grade]
    v = np.linspace(0.0, reach, 14)
    top = 0.30 * depth + 0.02
    vv = top + v * (reach - top) / reach
    u = an.lateral(vv) - depth * np.clip(1.12 - (v / reach) ** 2.2, 0.0, 1)
    u[0] = max(0.28, u[0] * 0.9)
    edge = an.spline(np.stack([np.asarray(a.x(s, u)), np.asarray(a.y(vv))], 1), steps=5)
    apex = np.array([[a.x(s, 0.10), a.y(top + 0.03)], [a.x(s, 0.2), a.y(top - 0.005)]])
    line = np.vstack([apex, edge])
    foot = np.array(
        [[a.x(s, 1.1), edge[-1, 1]], [a.x(s, 1.1), 0.0], [a.x(s, 0.0), 0.0], [a.x(s, 0.0), a.y(top + 0.05)]]
    )
    free = Canvas(film.size).fill(np.vstack([line, foot])).mask(0.0015) * film.hull[s] * (1 - film.heart)
    film.dry[s] *= 1 - free
    film.blend(free, 0.045)
    collapse = film.air[s] * (1 - free)
    zone = sigmoid((a.y(reach) - film.y) / 0.05)
    film.value += collapse * zone * {"small": 0.02, "moderate": 0.04, "large": 0.08}[f.grade]
    pleura = Canvas(film.size).stroke(line, 0.0065).mask(0.001) * film.hull[s] * (1 - film.heart)
    box = bounds(np.maximum(free, pleura), 0.3)
    return box or outline_box(line), pleura * min(0.30 * film.cue, 0.6)


def edema(film: Film, f: Finding, tree_SS: np.ndarray) -> Box:
    """Bat-wing haze about the hila, blurred vessels, septal (Kerley B) lines at the bases."""
    a, rng = film.a, f.rng()
    gain = {"mild": 0.75, "moderate": 1.0, "severe": 1.25}[f.grade] * film.cue
    fog = np.zeros_like(film.value)
    for s in "RL":
        hx, hy = a.x(s, 0.36), a.y(0.50)
        wing = np.exp(-(np.abs((film.x - hx) / (0.36 * a.w)) ** 2.4) - np.abs((film.y - hy) / 0.20) ** 2.4)
        fog += film.air[s] * film.dry[s] * wing
    grain = np.clip(1 + 0.30 * cloud(rng, film.size, 26) + 0.22 * cloud(rng, film.size, 60), 0.25, 2)
    haze = np.clip(fog * grain * 0.36 * gain, 0, 0.85)
    film.blend(haze, 0.72)
    film.value += (
        (film.air["R"] * film.dry["R"] + film.air["L"] * film.dry["L"]) * blurred(tree_SS, 0.009) * 0.22 * gain
    )
    lines = Canvas(film.size)
    for s in "RL":
        for v in np.arange(0.66, 0.92, 0.045):
            u = float(an.lateral(v)) - 0.01
            y = a.y(v + rng.uniform(-0.014, 0.014))
            reach = rng.uniform(0.07, 0.13)
            lines.stroke(np.array([[a.x(s, u), y], [a.x(s, u - reach), y + rng.uniform(-0.006, 0.003)]]), 0.0045)
    kerley = lines.mask(0.0012) * (film.air["R"] * film.dry["R"] + film.air["L"] * film.dry["L"])
    film.value += 0.16 * gain * kerley
    return bounds(fog, 0.22) or heart_box(a, None)


def airspace(film: Film, f: Finding) -> Box:
    """Consolidation (dense lobar, air bronchograms), pneumonia (several patches) or a hazy opacity."""
    a, rng, s = film.a, f.rng(), f.side
    v = rng.uniform(*ZONE_V[f.part])
    u = rng.uniform(0.46, 0.62) if f.part != "upper" else rng.uniform(0.42, 0.54)
    size = min(film.cue, 1.3) ** 0.5
    if f.kind == "pneumonia":
        steps = (-0.17, -0.08, 0.0, 0.09, 0.17)
        spots = [(rng.uniform(0.36, 0.78), v + d + rng.uniform(-0.03, 0.03), rng.uniform(0.040, 0.075)) for d in steps]
    else:
        spots = [(u, v, rng.uniform(0.105, 0.135))]
    shape = np.zeros_like(film.value)
    warp = 0.5 * cloud(rng, film.size, 9) + 0.25 * cloud(rng, film.size, 22)
    soft = {"consolidation": 0.16, "pneumonia": 0.42, "opacity": 0.5}[f.kind]
    ragged = {"consolidation": 0.34, "pneumonia": 0.42, "opacity": 0.30}[f.kind]
    for pu, pv, r in spots:
        rx, ry = r * size * (1.12 if f.kind == "consolidation" else rng.uniform(0.9, 1.35)), r * size
        q = np.sqrt(((film.x - a.x(s, pu)) / rx) ** 2 + ((film.y - a.y(pv)) / ry) ** 2)
        shape = np.maximum(shape, sigmoid((1 - q - ragged * warp) / (soft * 0.45)))
    if f.kind == "consolidation":
        # A fissure bounds a lobe sharply: below an upper lobe, above a lower one (both tilt with the side).
        tilt = 0.10 * (film.x - a.x(s, 0.5)) * DIRECTION[s]
        fissure = a.y(v + 0.085) + tilt if f.part == "upper" else a.y(v - 0.11) + tilt
        down = (film.y - fissure) * (1 if f.part == "upper" else -1)
        shape *= sigmoid(-down / 0.004)
    alpha = shape * film.air[s] * film.dry[s]
    level = {"consolidation": 0.92, "pneumonia": 0.85, "opacity": 0.62}[f.kind] * film.cue**0.7
    mottle = 1 + {"consolidation": 0.07, "pneumonia": 0.16, "opacity": 0.12}[f.kind] * cloud(rng, film.size, 34)
    strength = np.clip(alpha * level * mottle, 0, 0.97)
    film.blend(strength, 0.66)
    if f.kind == "consolidation":
        _bronchogram(film, rng, s, u, v, alpha)
    return bounds(alpha, 0.25) or outline_box(np.array([[a.x(s, u), a.y(v)]]), 0.05)


def _bronchogram(film: Film, rng: np.random.Generator, s: str, u: float, v: float, alpha: np.ndarray) -> None:
    """Air in the bronchi of a consolidated lobe: a few dark, forking, tapering lines from the hilum."""
    a, layer, d = film.a, Canvas(film.size), DIRECTION[s]
    hilum = np.array([a.x(s, 0.22), a.y(0.45)])
    aim = np.array([a.x(s, u), a.y(v)]) - hilum
    root = hilum + 0.45 * aim
    main = math.atan2(float(aim[1]), float(aim[0]) * d)
    for turn in (-0.55, 0.05, 0.5):
        angle = main + turn + rng.uniform(-0.15, 0.15)
        curl = angle + rng.uniform(-0.35, 0.35)
        mid = root + 0.055 * np.array([d * math.cos(angle), math.sin(angle)])
        tip = mid + 0.060 * np.array([d * math.cos(curl), math.sin(curl)])
        layer.stroke(an.spline([root, mid, tip], steps=4), 0.0065, 0.8)
    film.value -= 0.15 * layer.mask(0.0025) * alpha


def atelectasis(film: Film, f: Finding) -> Box:
    """Plate-like bands above a raised hemidiaphragm (the raise itself is drawn with the lung)."""
    a, rng, s = film.a, f.rng(), f.side
    layer = Canvas(film.size)
    crest = float(an.dome_y(a, s, 0.5, film.lift[s]))
    for lift, u0, u1 in ((0.028, 0.42, 0.90), (0.066, 0.36, 0.80)):
        tilt, sag = rng.uniform(0.012, 0.035), rng.uniform(0.006, 0.014)
        u = np.linspace(u0, u1, 6) + rng.uniform(-0.03, 0.03)
        t = np.linspace(-1, 1, 6)
        y = crest - lift + tilt * t - sag * (1 - t**2)
        half = 0.0125 * (1.1 - 0.75 * t**2) * rng.uniform(0.9, 1.15) * min(film.cue, 1.5) ** 0.5
        x = np.asarray(a.x(s, u))
        layer.fill(np.vstack([np.stack([x, y - half], 1), np.stack([x, y + half], 1)[::-1]]))
    bands = layer.mask(0.0025) * film.air[s]
    film.value += 0.09 * film.air[s] * sigmoid((film.y - crest + 0.085) / 0.03)  # crowded lung
    film.blend(np.clip(0.78 * film.cue * bands, 0, 1), 0.62)
    x0, y0, x1, y1 = bounds(bands, 0.2) or outline_box(np.array([[a.x(s, 0.5), crest]]), 0.06)
    floor = [float(a.x(s, 0.12)), float(a.x(s, 0.98))]
    return [min(x0, *floor), y0, max(x1, *floor), min(max(y1, a.yb[s] + 0.01), 1.0)]


def nodule(film: Film, f: Finding) -> Box:
    """A round, sharply bounded nodule of radius .04 to .055."""
    a, rng, s = film.a, f.rng(), f.side
    r = rng.uniform(0.040, 0.055) * min(film.cue, 1.4) ** 0.5
    v = rng.uniform(*ZONE_V[f.part])
    v = v - 0.05 if f.part == "lower" else v
    # Clear of the heart on the left, of the wall laterally.
    low = 0.42 if s == "R" or v < 0.5 else 0.70
    u = rng.uniform(low, max(float(an.lateral(v)) - r / a.w - 0.04, low + 0.02))
    cx, cy = a.x(s, u), a.y(v)
    angle = np.arctan2(film.y - cy, film.x - cx)
    lobes = 1 + 0.05 * np.cos(3 * angle + rng.uniform(0, 6)) + 0.04 * np.cos(5 * angle + rng.uniform(0, 6))
    q = np.hypot(film.x - cx, film.y - cy) / (r * lobes)
    disc = sigmoid((1 - q) / 0.09) * np.maximum(film.hull[s] * (1 - 0.5 * film.heart), 0)
    film.blend(np.clip(disc * (0.80 - 0.18 * np.clip(q, 0, 1) ** 2) * film.cue**0.7, 0, 1), 0.80)
    return bounds(disc, 0.3) or outline_box(np.array([[cx, cy]]), r)


def effusion(film: Film, f: Finding) -> Box:
    """Fluid at the base: blunt angle and a meniscus that climbs the wall."""
    a, rng, s = film.a, f.rng(), f.side
    h = {"small": 0.185, "moderate": 0.265, "large": 0.37}[f.grade] * rng.uniform(0.92, 1.1) * film.cue**0.5
    u = np.linspace(-0.02, 1.06, 16)
    rise = 0.42 + 0.16 * u + 0.42 * np.clip(u, 0, 1) ** 5
    top = a.yb[s] + 0.015 - h * rise
    outline = np.vstack([np.stack([np.asarray(a.x(s, u)), top], 1), [[a.x(s, 1.06), 1.02], [a.x(s, -0.02), 1.02]]])
    pool = Canvas(film.size).fill(outline).mask(0.005)
    # The fluid hides the hemidiaphragm: it fills the lung and all of the dome down to the angle.
    floor = np.linspace(0.04, 0.99, 14)
    dome = np.stack([np.asarray(a.x(s, floor)), an.dome_y(a, s, floor, film.lift[s]) - 0.01], 1)
    angle = np.array([[a.x(s, 0.99), a.yb[s]], [a.x(s, 0.04), a.yb[s]]])
    space = Canvas(film.size).fill(an.lung(a, s, film.lift[s])).fill(np.vstack([dome, angle]))
    fluid = pool * np.clip(1.8 * space.mask(0.004), 0, 1)
    fluid *= sigmoid((a.yb[s] + 0.012 - film.y) / 0.006) * np.clip((DIRECTION[s] * (film.x - a.cx) - 0.03) / 0.05, 0, 1)
    film.blend(fluid * (1 - 0.35 * film.heart), np.maximum(film.value, 0.68))
    # Fluid behind the lung veils its lower part.
    veil = film.air[s] * film.dry[s] * (1 - pool) * sigmoid((film.y - (a.yb[s] - h - 0.02)) / 0.03)
    film.value += 0.10 * veil
    return bounds(fluid * (1 - 0.6 * film.heart), 0.45) or outline_box(outline)


def pleural(film: Film, f: Finding) -> Box:
    """Apical cap or a lateral band along the wall with an uneven inner edge."""
    a, rng, s = film.a, f.rng(), f.side
    wave = rng.uniform(-0.25, 0.25, 14)
    if f.part == "apical":
        u = np.linspace(0.06, 0.95, 14)
        low = a.y(0.0) + 0.072 * min(film.cue, 1.4) * (1 + 0.35 * wave) + 0.055 * (u - 0.5) ** 2
        outline = np.vstack([np.stack([np.asarray(a.x(s, u)), low], 1), [[a.x(s, 1.0), 0.0], [a.x(s, 0.0), 0.0]]])
    else:
        v = np.linspace(0.24, 0.80, 14)
        thick = 0.13 * min(film.cue, 1.4) * np.sin(np.pi * (v - 0.225) / 0.59) ** 0.6 * (1 + 0.7 * wave)
        inner = np.stack([np.asarray(a.x(s, an.lateral(v) - thick)), np.asarray(a.y(v))], 1)
        outline = np.vstack([inner, [[a.x(s, 1.1), a.y(0.80)], [a.x(s, 1.1), a.y(0.24)]]])
    rind = Canvas(film.size).fill(an.spline(outline, closed=True)).mask(0.002) * film.hull[s] * (1 - film.heart)
    film.blend(np.clip(rind * 0.92, 0, 1), 0.66)
    return bounds(rind, 0.3) or outline_box(outline)


def fracture_box(a: Anatomy, f: Finding, cue: float) -> Box:
    """Where the broken ribs lie at the lateral arc."""
    parts = []
    for i in range(3):
        p, q = an.rib(a, f.side, int(f.part) + i)
        parts += [p[5:], q[:9] + np.array([DIRECTION[f.side] * -0.004, 0.040]) * min(cue, 1.4)]
    return outline_box(np.vstack(parts), 0.014)
