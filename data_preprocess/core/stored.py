"""The image file a row points to: the original where a model can read it as it is, else a PNG made from it."""

import hashlib
import os
from pathlib import Path

from data_preprocess.core.images import is_plain, load_image, open_stored, png_bytes, save_png, shrink


def plain_copy(path: Path, cache: Path, max_pixels: int | None) -> tuple[str, tuple[int, int]]:
    """The path of a plain 8-bit version of an image (itself, or a PNG in `cache`), and its width and height.

    Raises:
        ImageError: as `load_image`.
    """
    picture = load_image(path)
    small, _ = shrink(picture, max_pixels)
    if small is picture and path.suffix.lower() in (".png", ".jpg", ".jpeg") and is_plain(open_stored(path)):
        return str(path), picture.size
    target = cache / f"{hashlib.sha256(png_bytes(small)).hexdigest()[:24]}.png"  # by content: reruns find it again
    if not os.path.isfile(target):
        save_png(small, target)
    return str(target), small.size
