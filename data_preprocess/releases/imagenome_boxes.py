"""The two frames of a Chest ImaGenome box: pixels of the MIMIC-CXR-JPG image, and a square of 224.

An image of W x H pixels was shrunk by r = max(W, H) / 224, and its short side padded with zeros on both sides, so

    original = (c - pad) * r        c = original / r + pad        pad = (224 - floor(min(W, H) / r)) // 2

where pad counts on the short side only. A scene graph gives both frames; the original one is taken where it is there.
Boxes of the release may be negative, outside the image or without area.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from data_preprocess.core.content import unit_box
from data_preprocess.core.skiplog import SkipRow

SIDE = 224
# Rounding costs less than a pixel of the 224 frame in each; what differs by more was not made from one box (ours).
TOLERANCE = 3.0
_CORNERS = ("x1", "y1", "x2", "y2")

Box = tuple[float, float, float, float]


class Padding(NamedTuple):
    """Of an image: original pixels in one of the 224 frame, and what was added on the left and at the top."""

    ratio: float
    left: int
    top: int


def padding(width: int, height: int) -> Padding:
    """How an image was put into the 224 frame."""
    ratio = max(width, height) / SIDE
    left, top = ((SIDE - int(side / ratio)) // 2 for side in (width, height))
    return Padding(ratio, left, top)


def to_original(box: Sequence[float], width: int, height: int) -> Box:
    """A box of the 224 frame in pixels of the image of `width` x `height`, neither rounded nor clamped."""
    ratio, left, top = padding(width, height)
    x0, y0, x1, y1 = box
    return (x0 - left) * ratio, (y0 - top) * ratio, (x1 - left) * ratio, (y1 - top) * ratio


def to_224(box: Sequence[float], width: int, height: int) -> Box:
    """The inverse of `to_original`."""
    ratio, left, top = padding(width, height)
    x0, y0, x1, y1 = box
    return x0 / ratio + left, y0 / ratio + top, x1 / ratio + left, y1 / ratio + top


def corners(box: Mapping[str, Any], prefix: str = "") -> Box | None:
    """The box under x1, y1, x2, y2 of an object in a scene graph; None where a number is missing or not finite.

    Args:
        prefix: "original_" for the frame of the image, "" for that of 224.
    """
    values = [box.get(prefix + name) for name in _CORNERS]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return None
    try:
        x0, y0, x1, y1 = (float(v) for v in values)  # type: ignore[arg-type]
    except OverflowError:  # a JSON integer may have thousands of digits
        return None
    return (x0, y0, x1, y1) if all(map(math.isfinite, (x0, y0, x1, y1))) else None


def image_box(box: Mapping[str, Any], width: int, height: int) -> list[float] | None:
    """The box of an object in 0-1 of the image, clamped to it; None where nothing is left."""
    found = corners(box, "original_")
    if found is None and (small := corners(box)):
        found = to_original(small, width, height)
    if found is None:
        return None
    x0, y0, x1, y1 = found
    try:
        return unit_box((x0 / width, y0 / height, x1 / width, y1 / height))
    except SkipRow:
        return None


def frames_disagree(boxes: Sequence[Mapping[str, Any]], width: int, height: int) -> bool:
    """Whether most boxes that are given in both frames lie elsewhere in the one than in the other.

    Then `width` and `height` are not those of the image that was annotated. A few such boxes are faults of their own.
    """
    both = [(small, large) for box in boxes if (small := corners(box)) and (large := corners(box, "original_"))]
    apart = sum(_apart(small, to_224(large, width, height), width, height) for small, large in both)
    return 2 * apart > len(both)


def _apart(a: Box, b: Box, width: int, height: int) -> bool:
    """Compared inside the image: the release cut some boxes off at its edge in one of the frames."""
    low_x, low_y, high_x, high_y = to_224((0, 0, width, height), width, height)
    lows, highs = (low_x, low_y) * 2, (high_x, high_y) * 2
    pairs = zip(a, b, lows, highs, strict=True)
    return any(abs(min(max(p, low), high) - min(max(q, low), high)) > TOLERANCE for p, q, low, high in pairs)
