"""Drawing primitives: unit-square shapes to anti-aliased float masks of shape (S, S), values 0..1.

Pillow draws at twice the resolution and a box filter halves it: smooth edges in C speed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SUPERSAMPLE = 2


class Canvas:
    """An 8-bit layer of side `size`, drawn on at twice the size."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.scale = size * SUPERSAMPLE
        self.image = Image.new("L", (self.scale, self.scale), 0)
        self.draw = ImageDraw.Draw(self.image)

    def fill(self, points_N2: np.ndarray, value: float = 1.0) -> Canvas:
        """Fill a closed outline."""
        self.draw.polygon((points_N2 * self.scale).ravel().tolist(), fill=round(255 * value))
        return self

    def stroke(self, points_N2: np.ndarray, width: float, value: float = 1.0) -> Canvas:
        """Draw a line of a width in units of the image side (at least one fine pixel)."""
        w = max(1, round(width * self.scale))
        xy = np.asarray(points_N2, float) * self.scale
        if w > 3 and len(xy) > 2:  # a band as one polygon; Pillow's own round joints are slow
            along = np.empty_like(xy)
            along[1:-1] = xy[2:] - xy[:-2]
            along[0], along[-1] = xy[1] - xy[0], xy[-1] - xy[-2]
            across = along[:, ::-1] * (0.5 * w / np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-6))[:, None]
            across[:, 0] *= -1
            band = np.concatenate([xy + across, (xy - across)[::-1]])
            self.draw.polygon(band.ravel().tolist(), fill=round(255 * value))
        else:
            self.draw.line(xy.ravel().tolist(), fill=round(255 * value), width=w)
        return self

    def disc(self, x: float, y: float, rx: float, ry: float | None = None, value: float = 1.0) -> Canvas:
        """Fill an ellipse."""
        s, ry = self.scale, rx if ry is None else ry
        self.draw.ellipse([(x - rx) * s, (y - ry) * s, (x + rx) * s, (y + ry) * s], fill=round(255 * value))
        return self

    def mask(self, blur: float = 0.0) -> np.ndarray:
        """The layer as float32 (S, S), blurred with a Gaussian of a radius in units of the image side."""
        small = self.image.reduce(SUPERSAMPLE)
        if blur * self.size > 0.2:
            small = small.filter(ImageFilter.GaussianBlur(blur * self.size))
        return np.asarray(small, np.float32) * np.float32(1 / 255)


def blurred(mask_SS: np.ndarray, radius: float) -> np.ndarray:
    """Gaussian blur of a mask in 0..1; the radius in units of the image side."""
    size = mask_SS.shape[0]
    small = Image.fromarray((np.clip(mask_SS, 0, 1) * 255).astype(np.uint8))
    return np.asarray(small.filter(ImageFilter.GaussianBlur(radius * size)), np.float32) * np.float32(1 / 255)


def cloud(rng: np.random.Generator, size: int, cells: int) -> np.ndarray:
    """Smooth noise with about `cells` cells a side, mean 0 and standard deviation near 1: (S, S)."""
    coarse = rng.standard_normal((cells, cells), dtype=np.float32)
    return np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC))


def bounds(mask_SS: np.ndarray, threshold: float = 0.15) -> list[float] | None:
    """Smallest unit box [x0, y0, x1, y1] around the pixels over the threshold; None where there is none."""
    on = mask_SS > threshold
    xs, ys = np.flatnonzero(on.any(0)), np.flatnonzero(on.any(1))
    if len(xs) == 0:
        return None
    s = mask_SS.shape[0]
    return [xs[0] / s, ys[0] / s, (xs[-1] + 1) / s, (ys[-1] + 1) / s]


def outline_box(points_N2: np.ndarray, pad: float = 0.0) -> list[float]:
    """Unit box around points, clipped to the image."""
    (x0, y0), (x1, y1) = points_N2.min(0) - pad, points_N2.max(0) + pad
    return [float(np.clip(v, 0, 1)) for v in (x0, y0, x1, y1)]


def sigmoid(z: np.ndarray | float) -> np.ndarray:
    """Logistic step, for soft edges."""
    return 1 / (1 + np.exp(-np.clip(z, -30, 30)))


def stack(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Pixelwise maximum of masks."""
    return np.maximum.reduce(list(arrays))
