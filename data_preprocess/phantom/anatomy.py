"""Geometry of a simulated frontal chest: every outline as points in the unit square, no pixels yet.

Frame: x to the right, y down, both in [0, 1]; the patient's right side lies at the image's left (never flip).
Side "R" has direction -1, side "L" +1. Lung coordinates (u, v): u = 0 at the midline and 1 at the inner chest wall,
v = 0 at the apex and 1 at the costophrenic angle. Proportions are ours, set by eye:
right dome higher by about 2 % of the height, heart one third right and two thirds left of the midline,
carina at about a third of the thorax, cardiothoracic ratio below .5 unless enlarged.
Points are float arrays of shape (N, 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

DIRECTION = {"R": -1.0, "L": 1.0}
SIDE_WORD = {"R": "right", "L": "left"}
NORMAL_CTR = (0.39, 0.46)

# Half width of the lung (u) down the chest (v): a bell, wide at the base.
_LATERAL_V = np.array([0.0, 0.02, 0.06, 0.13, 0.24, 0.38, 0.54, 0.70, 0.86, 1.0])
_LATERAL_U = np.array([0.32, 0.44, 0.56, 0.69, 0.80, 0.885, 0.945, 0.98, 0.998, 1.0])


@dataclass(frozen=True)
class Anatomy:
    """One patient. Lengths in units of the image side."""

    cx: float  # midline
    w: float  # half width of the rib cage, inside
    y0: float  # lung apices
    yb: dict[str, float]  # costophrenic angles
    dome: dict[str, float]  # height of each hemidiaphragm over its costophrenic angle
    skin: float  # soft tissue outside the ribs
    ctr: float  # cardiothoracic ratio
    heart_left: float  # share of the heart left of the midline
    apex_v: float  # height of the cardiac apex
    knob: float  # how far the aortic knob stands out
    shoulder: float  # y of the shoulders at the image edge
    clavicle: float  # tilt of the clavicles
    breasts: float  # 0 none
    bubble: float  # gastric bubble radius
    rib_gap: float
    rib_slope: float
    scapula: float  # 1: over the lungs (AP film), 0: rotated off
    view: str  # "PA" or "AP"

    def y(self, v: Any) -> Any:
        """Image y (float or array, as given) of the height v (0 apex, 1 mean costophrenic angle)."""
        return self.y0 + v * (0.5 * (self.yb["R"] + self.yb["L"]) - self.y0)

    def x(self, side: str, u: Any) -> Any:
        """Image x (float or array, as given) of the lateral position u of a side."""
        return self.cx + DIRECTION[side] * self.w * u


def sample_anatomy(rng: np.random.Generator) -> Anatomy:
    """Draw one patient: habitus, inspiration, rotation of the midline, heart size below the cardiomegaly limit."""
    u = rng.uniform
    view = "AP" if rng.random() < 0.4 else "PA"
    depth = u(0.785, 0.875) - (0.03 if view == "AP" else 0.0)
    return Anatomy(
        cx=0.5 + u(-0.02, 0.02),
        w=u(0.355, 0.415),
        y0=u(0.07, 0.125),
        yb={"R": depth - u(0.008, 0.025), "L": depth + u(0.0, 0.012)},
        dome={"R": u(0.085, 0.12), "L": u(0.075, 0.105)},
        skin=u(0.03, 0.085),
        ctr=u(*NORMAL_CTR),
        heart_left=u(0.63, 0.70),
        apex_v=u(0.80, 0.86),
        knob=u(0.070, 0.088),
        shoulder=u(0.035, 0.085),
        clavicle=u(-0.02, 0.03) + (0.02 if view == "AP" else 0.0),
        breasts=u(0.5, 1.0) if rng.random() < 0.45 else 0.0,
        bubble=u(0.03, 0.055) if rng.random() < 0.75 else 0.0,
        rib_gap=u(0.085, 0.096),
        rib_slope=u(0.8, 1.25),
        scapula=u(0.5, 1.0) if view == "AP" else u(0.0, 0.35),
        view=view,
    )


def spline(points: np.ndarray | list, closed: bool = False, steps: int = 8) -> np.ndarray:
    """Catmull-Rom curve through the points, `steps` samples per span: (N, 2) -> (about N * steps, 2)."""
    p = np.asarray(points, float)
    p = np.vstack([p[-1:], p, p[:2]]) if closed else np.vstack([2 * p[0] - p[1], p, 2 * p[-1] - p[-2]])
    t = np.linspace(0, 1, steps, endpoint=False)[:, None, None]
    a, b, c, d = p[:-3], p[1:-2], p[2:-1], p[3:]
    curve = 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - 3 * c + d - a) * t**3)
    curve = curve.transpose(1, 0, 2).reshape(-1, 2)
    return curve if closed else np.vstack([curve, p[-2:-1]])


def lateral(v: Any) -> np.ndarray:
    """u of the inner chest wall at the height v."""
    return np.interp(v, _LATERAL_V, _LATERAL_U)


def dome_y(a: Anatomy, side: str, u: float | np.ndarray, lift: float = 0.0) -> np.ndarray:
    """y of the hemidiaphragm at u; `lift` raises it (volume loss)."""
    u = np.asarray(u, float)
    arch = np.where(u < 0.45, 1 - 0.55 * ((0.45 - u) / 0.45) ** 2, 1 - np.clip((u - 0.45) / 0.55, 0, 1.2) ** 2.4)
    return a.yb[side] - (a.dome[side] + lift) * arch - 0.5 * lift


def lung(a: Anatomy, side: str, lift: float = 0.0) -> np.ndarray:
    """Outline of one lung, its medial edge hidden behind the mediastinum."""
    base = a.yb[side]
    wall = [
        (float(lateral(v)), a.y0 + v * (base - a.y0)) for v in (0.0, 0.02, 0.06, 0.13, 0.24, 0.38, 0.54, 0.70, 0.86)
    ]
    wall.append((0.995, base - 0.028))
    floor = [(u, float(dome_y(a, side, u, lift))) for u in (0.985, 0.94, 0.86, 0.74, 0.6, 0.45, 0.3, 0.18, 0.08)]
    medial = [(0.05, a.y(0.7)), (0.07, a.y(0.4)), (0.10, a.y(0.16)), (0.14, a.y(0.06)), (0.21, a.y(0.012))]
    outline = np.array(wall + floor + medial, float)
    outline[:, 0] = a.x(side, outline[:, 0])
    return spline(outline, closed=True)


def silhouette(a: Anatomy, ctr: float | None = None, widen: float = 0.0) -> np.ndarray:
    """Outline of heart and mediastinum: SVC, right atrium, left ventricle and apex, pulmonary trunk, aortic knob.

    Args:
        ctr: cardiothoracic ratio; the patient's own where None.
        widen: how far the upper mediastinum is widened on either side.
    """
    right, left = heart_edges(a, ctr)
    ratio = a.ctr if ctr is None else ctr
    extra = max(ratio - 0.48, 0.0)  # a large left ventricle sags down and out and splays the waist
    apex = a.apex_v + 0.28 * extra
    k, m = a.knob + 0.9 * widen, 0.055 + widen
    pts = [
        (-0.060 - 0.3 * widen, a.y(-0.2)), (-0.052 - 0.5 * widen, a.y(0.02)), (-m, a.y(0.16)), (-m - 0.003, a.y(0.30)),
        (-m - 0.004 - 0.1 * extra, a.y(0.44)), (-0.66 * right - 0.004, a.y(0.53)), (-0.90 * right, a.y(0.60)),
        (-right, a.y(0.71)), (-0.97 * right, a.y(0.82)), (-0.83 * right, a.y(0.91)), (-0.5 * right, a.y(1.05)),
        (0.5 * left, a.y(1.06)), (0.86 * left, a.y(0.97)), (0.985 * left, a.y(apex + 0.05)), (left, a.y(apex - 0.01)),
        (0.945 * left, a.y(apex - 0.10)), (0.79 * left, a.y(apex - 0.20)),
        (0.054 + 0.25 * left, a.y(0.51 - 0.2 * extra)),
        (0.080 + 0.3 * extra + 0.3 * widen, a.y(0.43)), (0.067 + 0.2 * extra + 0.5 * widen, a.y(0.365)),
        (0.056 + widen, a.y(0.318)), (k, a.y(0.255)), (0.92 * k, a.y(0.205)), (0.052 + 0.8 * widen, a.y(0.16)),
        (0.045 + 0.5 * widen, a.y(0.02)), (0.056 + 0.3 * widen, a.y(-0.2)),
    ]  # fmt: skip
    outline = np.array(pts, float)
    outline[:, 0] += a.cx
    return spline(outline, closed=True)


def heart_edges(a: Anatomy, ctr: float | None = None) -> tuple[float, float]:
    """Distances of the right and the left heart border from the midline."""
    width = (a.ctr if ctr is None else ctr) * 2 * a.w
    return width * (1 - a.heart_left), width * a.heart_left


def body(a: Anatomy) -> np.ndarray:
    """Skin outline: neck, shoulders, trunk; runs out of the image at the sides and below."""
    half = []
    trunk = a.w + a.skin
    for d, y in [(0.105, -0.05), (0.11, 0.0), (0.14, 0.035), (0.24, a.shoulder * 0.55), (0.36, a.shoulder * 0.8),
                 (0.47, a.shoulder), (0.60, a.shoulder + 0.06)]:  # fmt: skip
        half.append((d, y))
    half += [
        (0.66, 0.30),
        (trunk + 0.10, 0.40),
        (trunk + 0.025, 0.47),
        (trunk, 0.58),
        (trunk + 0.005, 0.8),
        (trunk + 0.02, 1.06),
    ]
    p = np.array(half)
    left, right = p * [1, 1], p[::-1] * [-1, 1]
    outline = np.vstack([left, right])
    outline[:, 0] += a.cx
    return spline(outline, closed=True, steps=5)


def rib(a: Anatomy, side: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Posterior and anterior part of rib k (1..10) as centre lines, from the spine to the cartilage."""
    v = -0.035 + (k - 1) * a.rib_gap * 1.03
    drop = (0.05 + 0.014 * min(k, 7)) * a.rib_slope
    vl = np.clip(v + drop + 0.05, 0.02, 1.04)
    start = np.array([a.cx + DIRECTION[side] * 0.042, a.y(v)])
    wall = np.array([a.x(side, float(lateral(vl)) + 0.012), a.y(vl)])
    dx, dy = wall - start
    post = _bezier(
        start, start + np.array([0.38 * dx, -0.05 * dy - 0.010]), wall - [0.10 * dx, 0.55 * dy + 0.012], wall
    )
    va = vl + (0.075 + 0.022 * min(k, 6)) * a.rib_slope
    tip = np.array([a.x(side, 0.34 + 0.045 * k), a.y(va)])
    ant = _bezier(
        wall,
        wall + np.array([0.012 * DIRECTION[side], 0.4 * (tip[1] - wall[1])]),
        tip - 0.45 * (tip - wall) * [1, 0.35],
        tip,
    )
    return post, ant


def clavicle(a: Anatomy, side: str) -> np.ndarray:
    """Centre line of a clavicle, sternal end first."""
    s, y = DIRECTION[side], a.y(0.085)
    t = a.clavicle
    pts = [(0.035, y + 0.012), (0.085, y + 0.006), (0.16, y - 0.022 - 0.4 * t), (0.25, y - 0.050 - 0.9 * t),
           (0.335, y - 0.055 - 1.1 * t), (0.44, y - 0.035 - t)]  # fmt: skip
    return spline([(a.cx + s * d, max(yy, a.shoulder * min(1.0, d / 0.47) + 0.03)) for d, yy in pts], steps=6)


def _bezier(p0: np.ndarray, p1: np.ndarray, p2: np.ndarray, p3: np.ndarray, n: int = 18) -> np.ndarray:
    t = np.linspace(0, 1, n)[:, None]
    return (1 - t) ** 3 * p0 + 3 * (1 - t) ** 2 * t * p1 + 3 * (1 - t) * t**2 * p2 + t**3 * p3
