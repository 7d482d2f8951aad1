"""Draws the film of one patient: soft tissue, lungs, vessels, bones, then exposure, blur and noise.

Brightness model (ours): a map in 0 (air) to 1 (metal) that is already what the eye sees on the film; layers add, and
lung replaces tissue by its mask. Findings are hooks of `lesions` and `devices` that act on the same `Film`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from data_preprocess.phantom import anatomy as an
from data_preprocess.phantom.anatomy import DIRECTION, Anatomy
from data_preprocess.phantom.canvas import Canvas, blurred, cloud, sigmoid
from data_preprocess.phantom.findings import Finding

LUNG, WALL, BELLY = 0.15, 0.47, 0.20


@dataclass
class Film:
    """State of a drawing. Masks are float32 (S, S) in 0..1; `value` is the brightness so far."""

    a: Anatomy
    size: int
    cue: float
    x: np.ndarray  # (1, S)
    y: np.ndarray  # (S, 1)
    value: np.ndarray
    hull: dict[str, np.ndarray]  # a lung's outline
    heart: np.ndarray  # heart and mediastinum
    air: dict[str, np.ndarray]  # lung not covered by the heart
    dry: dict[str, np.ndarray]  # 1 where lung tissue is, 0 where a pneumothorax took its place
    lift: dict[str, float] = field(default_factory=lambda: {"R": 0.0, "L": 0.0})

    def blend(self, mask_SS: np.ndarray, level: float | np.ndarray) -> None:
        """Bring the film to a level under a mask."""
        self.value += mask_SS * (level - self.value)


def start(a: Anatomy, size: int, cue: float, ctr: float | None, widen: float, lift: dict[str, float]) -> Film:
    """Soft tissue, abdomen and lungs without vessels."""
    axis = (np.arange(size, dtype=np.float32) + 0.5) / size
    x, y = axis[None, :], axis[:, None]
    skin = Canvas(size).fill(an.body(a)).mask(0.004)
    deep = blurred(skin, 0.035)
    value = 0.015 + skin * (0.10 + (WALL - 0.10) * np.clip(1.7 * deep - 0.7, 0, 1))
    base = 0.5 * (a.yb["R"] + a.yb["L"])
    value += skin * BELLY * sigmoid((y - base + 0.06) / 0.022)
    value += skin * 0.10 * np.exp(-(((x - a.cx) / 0.09) ** 2))
    value += 0.05 * skin * np.exp(-(((np.abs(x - a.cx) - a.w - 0.02) / 0.035) ** 2)) * sigmoid((y - 0.3) / 0.05)
    heart = Canvas(size).fill(an.silhouette(a, ctr, widen)).mask(0.0035)
    hull = {s: Canvas(size).fill(an.lung(a, s, lift[s])).mask(0.0025) for s in "RL"}
    air = {s: hull[s] * (1 - 0.90 * heart) for s in "RL"}
    dry = {s: np.ones_like(value) for s in "RL"}
    film = Film(a, size, cue, x, y, value.astype(np.float32), hull, heart, air, dry, lift)
    # Heart and mediastinum stand out against lung, much less against neck and abdomen.
    contrast = 0.06 + 0.11 * sigmoid((y - a.y(0.02)) / 0.02) - 0.15 * sigmoid((y - a.y(0.93)) / 0.035)
    bulk = 0.05 * np.exp(-(((x - a.cx - 0.05) / 0.12) ** 2) - ((y - a.y(0.70)) / 0.14) ** 2)
    tissue = film.value + heart * skin * (contrast + bulk)
    shade = LUNG + 0.05 * sigmoid((y - a.y(0.75)) / 0.1) + 0.03 * sigmoid((a.y(0.25) - y) / 0.05)
    both = air["R"] + air["L"]
    film.value = (tissue * (1 - both) + both * shade).astype(np.float32)
    return film


def vessels(film: Film, rng: np.random.Generator, swell: float = 0.0) -> np.ndarray:
    """Branching hilar vessels of both lungs; `swell` widens those of the upper lobes (cephalization): (S, S)."""
    a, layer = film.a, Canvas(film.size)
    for side in "RL":
        s = DIRECTION[side]
        hilum = np.array([a.x(side, 0.20), a.y(0.455 if side == "R" else 0.425)])
        for degrees in (-80, -52, -22, 8, 36, 58, 78):
            angle = np.radians(degrees + rng.uniform(-10, 10))
            root = hilum + np.array([s * (0.012 + 0.012 * np.cos(angle)), 0.050 * np.sin(angle)])
            upper = degrees < 0
            width = (0.0095 if upper else 0.0130) * (1 + swell * (0.9 if upper else 0.25))
            reach = (0.085 if abs(degrees) < 45 else 0.105) * rng.uniform(0.85, 1.15)
            _branch(layer, iter(rng.random((31, 4)).tolist()), (root[0], root[1]), angle, s, width, reach, 5, 0.62)
        trunk = hilum + np.array(
            [[-0.01 * s, -0.05], [0.012 * s, -0.02], [0.020 * s, 0.02], [0.028 * s, 0.075], [0.030 * s, 0.11]]
        )
        layer.stroke(an.spline(trunk, steps=4), 0.024, 0.60)
        layer.disc(hilum[0] + 0.010 * s, hilum[1], 0.020, 0.028, 0.58)
    return layer.mask(0.0026)


def _branch(
    layer: Canvas,
    dice: Iterator[list[float]],
    at: tuple[float, float],
    angle: float,
    s: float,
    width: float,
    length: float,
    depth: int,
    value: float,
) -> None:
    """A curved, tapering piece that forks in two, the thicker child nearly straight on; `dice` are in 0..1."""
    bend, flip, straight, aside = next(dice)
    bend = 0.44 * bend - 0.22
    half, scale = 0.5 * length, layer.scale
    q = (at[0] + half * s * math.cos(angle), at[1] + half * math.sin(angle))
    r = (q[0] + half * s * math.cos(angle + bend), q[1] + half * math.sin(angle + bend))
    for a, b, w, v in ((at, q, width, value), (q, r, width * 0.85, value * 0.93)):
        ends = (a[0] * scale, a[1] * scale, b[0] * scale, b[1] * scale)
        layer.draw.line(ends, fill=round(255 * v), width=max(1, round(w * scale)))
    if depth > 1:
        turn = 1.0 if flip < 0.5 else -1.0
        on, off = angle + bend + (0.05 + 0.20 * straight) * turn, angle + bend - (0.40 + 0.40 * aside) * turn
        _branch(layer, dice, r, on, s, width * 0.74, length * 0.82, depth - 1, value * 0.83)
        _branch(layer, dice, q if depth > 3 else r, off, s, width * 0.60, length * 0.74, depth - 1, value * 0.72)


def bones(film: Film, broken: Sequence[Finding] = ()) -> np.ndarray:
    """Ribs, clavicles, scapulae and spine as an additive layer (S, S); `broken` ribs are drawn apart."""
    a, size = film.a, film.size
    post, ant, girdle = Canvas(size), Canvas(size), Canvas(size)
    loose, gaps = Canvas(size), Canvas(size)
    for side in "RL":
        hurt = {int(f.part) + i for f in broken if f.side == side for i in range(3)}
        for k in range(1, 11):
            p, q = an.rib(a, side, k)
            w = 0.019 + 0.0008 * k
            if k in hurt:
                post.stroke(p[:6], w, 0.95).stroke(p[:6], w * 0.55, 0.62)
                sunk = _broken_rib(loose, gaps, p, q, w, DIRECTION[side], film.cue)
                if k <= 7:
                    ant.stroke(q[8:] + sunk, w * 1.1, 0.8).stroke(q[8:] + sunk, w * 0.7, 0.55)
            else:
                post.stroke(p, w, 0.95).stroke(p, w * 0.55, 0.62)
            if 2 <= k <= 7 and k not in hurt:
                ant.stroke(q, w * 1.1, 0.8).stroke(q, w * 0.7, 0.55)
        c = an.clavicle(a, side)
        girdle.stroke(c, 0.030, 0.95).stroke(c, 0.017, 0.65)
        girdle.disc(float(c[0, 0]), float(c[0, 1]), 0.017, 0.018, 0.85)
        s = DIRECTION[side]
        head = (a.cx + s * 0.475, a.shoulder + 0.095)
        girdle.disc(*head, 0.052, value=0.8).disc(*head, 0.046, value=0.62)
    layer = 0.145 * post.mask(0.0016) + (0.21 * loose.mask(0.0016) if broken else 0.0) + 0.07 * ant.mask(0.003)
    layer += 0.21 * girdle.mask(0.002) + _scapulae(film) + _spine(film)
    # Bone shows less where the film is already white: under the diaphragm, behind the heart, over fluid.
    layer *= 1 - 0.85 * np.clip((film.value - 0.32) / 0.36, 0, 1)
    return layer - 0.12 * gaps.mask(0.002) if broken else layer


def _broken_rib(
    loose: Canvas, gaps: Canvas, p: np.ndarray, q: np.ndarray, w: float, s: float, cue: float
) -> np.ndarray:
    """A displaced fracture at the lateral arc: the distal piece sinks by more than a rib's width, a dark cleft between.

    Returns by how much it sinks.
    """
    cut = 10
    step = np.array([s * -0.004, 0.040]) * min(cue, 1.4)
    near, far = p[5 : cut + 1], np.vstack([p[cut:], q[:9]]) + step
    for piece in (near, far):
        loose.stroke(piece, w * 1.2, 1.0).stroke(piece, w * 0.55, 0.62)
    along = (p[cut] - p[cut - 1]) / np.linalg.norm(p[cut] - p[cut - 1])
    across = np.array([-along[1], along[0]]) * w * 0.6
    for end in (near[-1], far[0]):  # cortex of the broken ends
        loose.stroke(np.array([end - across, end + across]), 0.006, 1.0)
    middle = 0.5 * (near[-1] + far[0]) + along * 0.004
    gaps.stroke(np.array([middle - across * 1.1, middle + across * 1.1]), w * 0.30)
    return step


def _scapulae(film: Film) -> np.ndarray:
    a, layer = film.a, Canvas(film.size)
    for s in (-1.0, 1.0):
        inner = a.w * (1.02 - 0.22 * a.scapula)
        pts = [
            (inner, 0.17),
            (inner - 0.012, 0.26),
            (inner + 0.015, 0.36),
            (inner + 0.05, 0.42),
            (inner + 0.09, 0.34),
            (inner + 0.13, 0.22),
            (inner + 0.10, 0.15),
        ]
        p = an.spline([(a.cx + s * d, y + a.y0 - 0.09) for d, y in pts], closed=True)
        layer.fill(p, 0.5).stroke(p[: len(p) // 2], 0.009, 0.9)
    return 0.085 * layer.mask(0.004)


def _spine(film: Film) -> np.ndarray:
    a = film.a
    dx = (film.x - a.cx) / 0.036
    column = sigmoid((1 - np.abs(dx)) / 0.12)
    phase = (film.y - a.y0) / (a.rib_gap * 0.78)
    disc = np.exp(-((((phase % 1) - 0.5) / 0.10) ** 2))
    pedicle = np.exp(-(((np.abs(dx) - 0.62) / 0.16) ** 2)) * np.exp(-(((((phase + 0.42) % 1) - 0.5) / 0.16) ** 2))
    spinous = np.exp(-((dx / 0.12) ** 2)) * np.exp(-(((((phase + 0.15) % 1) - 0.5) / 0.2) ** 2))
    return column * (0.075 - 0.055 * disc + 0.05 * spinous) + 0.07 * pedicle


def airway(film: Film) -> np.ndarray:
    """Tracheal air column, carina and main bronchi: (S, S), to be subtracted."""
    a, layer = film.a, Canvas(film.size)
    c = np.array([a.cx - 0.006, a.y(0.33)])
    layer.stroke(np.array([[a.cx, -0.02], [a.cx + 0.002, a.y0], c]), 0.034)
    for s, end in ((-1, (0.062, 0.078)), (1, (0.082, 0.062))):
        layer.stroke(
            an.spline(c + np.array([[0, -0.008], [s * 0.022, 0.022], [s * end[0], end[1]]]), steps=5), 0.021, 0.8
        )
    return layer.mask(0.0035) * (0.75 + 0.25 * film.heart)


def soft_parts(film: Film) -> None:
    """Breast shadows, side marker and gastric bubble."""
    a = film.a
    if a.breasts:
        layer = Canvas(film.size)
        for s in (-1.0, 1.0):
            layer.disc(a.cx + s * 0.25, a.y(0.74), 0.165, 0.155)
        shade = layer.mask(0.006) * sigmoid((film.y - a.y(0.62)) / 0.05)
        film.value += 0.055 * a.breasts * shade * (1 - 0.5 * film.heart)
    mark = Canvas(film.size)  # lead marker of the patient's left
    mark.stroke(np.array([[0.925, 0.022], [0.925, 0.062], [0.948, 0.062]]), 0.008)
    film.blend(0.8 * mark.mask(0.0008), 0.95)
    if a.bubble:
        x, y = a.x("L", 0.40), float(an.dome_y(a, "L", 0.40)) + a.bubble + 0.022
        gas = Canvas(film.size).disc(x, y, a.bubble * 1.5, a.bubble * 0.85).mask(0.006)
        film.value -= 0.22 * gas * (1 - film.hull["L"])


def expose(value: np.ndarray, rng: np.random.Generator, view: str) -> np.ndarray:
    """Tone curve, blur, scatter and noise of one exposure: (S, S) uint8."""
    size = value.shape[0]
    gamma, gain, veil = rng.uniform(0.82, 1.2), rng.uniform(0.94, 1.06), rng.uniform(-0.015, 0.03)
    grain = rng.uniform(0.008, 0.020) * (1.25 if view == "AP" else 1.0)
    slope = rng.uniform(-0.03, 0.03, 2)
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    tone = np.clip(value, 0, 1.05) ** np.float32(gamma) * np.float32(gain) + np.float32(veil)
    tone *= 1 + slope[0] * axis[None, :] + slope[1] * axis[:, None]
    noise = rng.standard_normal(value.shape, dtype=np.float32)
    tone += grain * noise * (0.6 + 0.8 * np.sqrt(np.clip(value, 0, 1)))
    return (np.clip(tone, 0, 1) * 255).astype(np.uint8)


def texture(film: Film, rng: np.random.Generator) -> None:
    """Fine interstitial and soft-tissue unevenness."""
    film.value += (film.air["R"] + film.air["L"]) * 0.012 * cloud(rng, film.size, 40) + 0.008 * cloud(rng, film.size, 9)
