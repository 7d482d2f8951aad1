"""Numbers of any type and range as 8-bit grey levels: level = round(255 (s - min s) / (max s - min s)).

s is the number itself, or what a DICOM file says to show for it. Shape legend: H rows, W columns, V values.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from data_preprocess.core.image_files import ImageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_RANGE = 8  # grey levels out of 256; JPEG noise on a blank page stays below, any radiograph is far above (ours)
MIN_SHARE = 0.01  # of the pixels, outside the fullest such range: a page with only a marker on it is blank (ours)
TABLE = 1 << 16  # a range up to this is computed once a value, not once a pixel


def stretch(
    pixels: "NDArray[Any]",
    name: str,
    *,
    show: "Callable[[NDArray[Any]], NDArray[Any]] | None" = None,
    padding: "Callable[[NDArray[Any]], NDArray[np.bool_]] | None" = None,
    inverted: bool = False,
) -> "NDArray[np.uint8]":
    """Scale numbers of any shape to 0-255 by min and max.

    Args:
        name: of the file, for messages.
        show: what to show for each value.
        padding: which values have no part in min and max; beyond those they become black or white.
        inverted: whether the smallest shown value is white.
    Raises:
        ImageError: some are not finite, or all are the same.
    """
    low, high = pixels.min(), pixels.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ImageError(f"{name}: some pixel values are not finite numbers.")
    low, high = low.item(), high.item()
    values_V, used_V, index_HW = pixels, np.ones(1, bool), None
    if pixels.dtype.kind in "iu" and high - low < TABLE:
        values_V = np.arange(low, high + 1)
        index_HW = np.subtract(pixels, low, dtype=np.int64 if pixels.dtype.itemsize > 2 else np.int32)
        used_V = np.zeros(values_V.shape, bool)
        used_V[index_HW] = True
    used_V = np.broadcast_to(used_V, values_V.shape)
    if padding and (inside_V := used_V & ~padding(values_V)).any():  # where all is padding, none is
        used_V = inside_V
    shown_V = np.asarray(show(values_V) if show else values_V, dtype=np.float64)
    least, most = shown_V[used_V].min(), shown_V[used_V].max()
    if not (np.isfinite(least) and np.isfinite(most)):
        raise ImageError(f"{name}: some pixel values are not finite numbers.")
    if most <= least:
        raise ImageError(f"{name}: every pixel has the value {least:g}, so there is no picture.", "image blank")
    if inverted:
        shown_V = most + least - shown_V
    with np.errstate(invalid="ignore"):  # values that no pixel has
        levels_V = np.clip(np.rint((shown_V - least) / (most - least) * 255), 0, 255).astype(np.uint8)
    return levels_V if index_HW is None else levels_V[index_HW]


def is_blank(image: Image.Image) -> bool:
    """Whether nearly all pixels of an 8-bit picture lie within `MIN_RANGE` grey levels."""
    return _fullest_range(image)[1] > 1 - MIN_SHARE


def refuse_blank(image: Image.Image, name: str) -> None:
    """Raise an ImageError for a picture that `is_blank`."""
    start, share = _fullest_range(image)
    if share > 1 - MIN_SHARE:
        shade = "white" if start >= 256 - 2 * MIN_RANGE else "black" if start < MIN_RANGE else "one grey"
        raise ImageError(f"{name}: is all {shade}, so there is no picture.", "image blank")


def _fullest_range(image: Image.Image) -> tuple[int, float]:
    """First of the `MIN_RANGE` neighbouring grey levels that hold the most pixels, and their share of all."""
    counts = np.array(image.convert("L").histogram())
    sums = np.convolve(counts, np.ones(MIN_RANGE, dtype=counts.dtype), mode="valid")
    return int(sums.argmax()), float(sums.max() / counts.sum())
