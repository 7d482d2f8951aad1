"""The image file a row points to: the original where a model can read it as it is, else a PNG made from it.

A file is decoded once and encoded at most once. The PNG is named by its content, so reruns and other processes find it;
it appears under that name only when complete.
"""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from data_preprocess.core.images import png_bytes, read_picture, shrink
from data_preprocess.core.skiplog import write_bytes

PLAIN_SUFFIXES = (".png", ".jpg", ".jpeg")


class Stored(NamedTuple):
    """An image as a row names it; `turned`: it was turned upright, so boxes of the original may not fit it."""

    path: str
    width: int
    height: int
    turned: bool = False


def plain_copy(path: Path, cache: Path, max_pixels: int | None) -> Stored:
    """A plain 8-bit version of an image: the file itself, or a PNG in `cache`.

    Raises:
        ImageError: as `load_image`.
        OSError: the PNG cannot be written (a full disk, say). That is no fault of the image: never skip the row.
    """
    picture, plain, turned = read_picture(path)
    small, _ = shrink(picture, max_pixels)
    if small is picture and plain and path.suffix.lower() in PLAIN_SUFFIXES:
        return Stored(str(path), *picture.size)
    data = png_bytes(small)
    target = cache / f"{hashlib.sha256(data).hexdigest()[:24]}.png"
    try:
        # A power cut may leave a file of that name without its content.
        if not (os.path.isfile(target) and os.path.getsize(target) == len(data)):
            write_bytes(target, data)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; {path} is not converted", str(target)) from error
    return Stored(str(target), *small.size, turned)
