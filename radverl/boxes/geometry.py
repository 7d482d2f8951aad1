"""Overlap of boxes, and the spaces they are written in.

A box is (x0, y0, x1, y1): left, top, right, bottom. Spaces: "unit", 0-1 of the image; "thousand", 0-1000 of it;
"pixel", of an image of `width` x `height`.

Shape legend: N, M boxes; 4 coordinates.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

SPACES = ("unit", "pixel", "thousand")


def iou(a_N4: "ArrayLike", b_M4: "ArrayLike") -> "NDArray[np.float64]":
    """Intersection over union of every pair, (N, M), in [0, 1]; an empty, inverted or non-finite box overlaps nothing.

    Raises:
        ValueError: not four numbers a box.
    """
    a_N4, b_M4 = _boxes(a_N4), _boxes(b_M4)
    good_NM = _has_area(a_N4)[:, None] & _has_area(b_M4)[None, :]
    with np.errstate(invalid="ignore", over="ignore"):
        low_NM2 = np.maximum(a_N4[:, None, :2], b_M4[None, :, :2])
        high_NM2 = np.minimum(a_N4[:, None, 2:], b_M4[None, :, 2:])
        inter_NM = np.prod(np.clip(high_NM2 - low_NM2, 0.0, None), axis=-1)
        area_N, area_M = np.prod(a_N4[:, 2:] - a_N4[:, :2], axis=-1), np.prod(b_M4[:, 2:] - b_M4[:, :2], axis=-1)
        union_NM = area_N[:, None] + area_M[None, :] - inter_NM
        ratio_NM = np.divide(inter_NM, union_NM, out=np.zeros_like(inter_NM), where=good_NM & (union_NM > 0))
    return np.where(good_NM, ratio_NM, 0.0)


def convert(boxes: "ArrayLike", from_space: str, to_space: str, width: float, height: float) -> "NDArray[np.float64]":
    """The boxes in another space, (N, 4), neither rounded nor clamped.

    Args:
        width, height: of the image in pixels, where one of the spaces is "pixel".
    Raises:
        ValueError: an unknown space, no positive size where one is needed, or not four numbers a box.
    """
    scale_from_4, scale_to_4 = (_scale(space, width, height) for space in (from_space, to_space))
    return _boxes(boxes) / scale_from_4 * scale_to_4


def clamp(box: "ArrayLike", width: float = 1.0, height: float = 1.0) -> tuple[float, float, float, float] | None:
    """The part of one box that lies in the image of `width` x `height`; None where nothing of it does."""
    x0, y0, x1, y1 = (float(value) for value in _boxes([box])[0])
    if not np.isfinite([x0, y0, x1, y1]).all():
        return None
    x0, x1 = max(0.0, x0), min(float(width), x1)
    y0, y1 = max(0.0, y0), min(float(height), y1)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def _scale(space: str, width: float, height: float) -> "NDArray[np.float64]":
    if space not in SPACES:
        raise ValueError(f"box space is {space!r}; use one of {', '.join(SPACES)}.")
    if space != "pixel":
        return np.full(4, 1.0 if space == "unit" else 1000.0)
    if not (width > 0 and height > 0):
        raise ValueError(f"boxes in pixels need the size of the image, not {width} x {height}.")
    return np.array([width, height, width, height], dtype=np.float64)


def _boxes(boxes: Any) -> "NDArray[np.float64]":
    array = np.asarray(boxes, dtype=np.float64)
    if array.size == 0:
        return array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(f"boxes have the shape {array.shape}; pass a list of (x0, y0, x1, y1).")
    return array


def _has_area(boxes_N4: "NDArray[np.float64]") -> "NDArray[np.bool_]":
    return np.isfinite(boxes_N4).all(axis=1) & (boxes_N4[:, 2] > boxes_N4[:, 0]) & (boxes_N4[:, 3] > boxes_N4[:, 1])
