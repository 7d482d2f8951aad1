"""The images of a row, as verl's loaders open them: by Pillow, from a path or from bytes, then `convert("RGB")`."""

import os
from collections.abc import Iterator
from typing import Any

from data_preprocess.core.images import ImageError, is_blank, is_turned, open_stored, to_eight_bit
from radverl.datacheck.report import Severity

Found = tuple[Severity, str, str]
# Modes that Pillow turns into 8-bit RGB without loss of range; 16-bit modes are clipped to white.
SAFE_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


class PictureCheck:
    """Checks images one at a time and remembers each path, since views and studies repeat in a file."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[Found], tuple[int, int] | None]] = {}

    def check(self, image: Any, role: str) -> tuple[list[Found], tuple[int, int] | None]:
        """Findings about one element of `images`, and its width and height where it opens."""
        source = None
        if isinstance(image, dict):
            source = (
                image.get("bytes") if image.get("bytes") is not None else image.get("image") or image.get("image_url")
            )
            if "bytes" in image and image["bytes"] is None:
                message = 'is a struct with "bytes" empty, which verl tries to decode; write structs of one field.'
                return [("error", "image form", message)], None
            if "bytes" in image and "image" in image:
                return [("error", "image form", 'has both "bytes" and "image", which verl refuses; write one.')], None
        elif isinstance(image, str):
            source = image
            if role == "sft":
                return [("error", "image form", 'is plain text; verl\'s SFT loader needs {"image": ...}.')], None
        if isinstance(source, str) and source:
            if source not in self._known:
                self._known[source] = _examine_path(source)
            return self._known[source]
        if isinstance(source, bytes) and source:
            return _examine(source)
        return [("error", "image form", f"is {type(image).__name__} without a path or bytes.")], None


def _examine_path(source: str) -> tuple[list[Found], tuple[int, int] | None]:
    if source.startswith(("http://", "https://", "data:image")):
        return [("warning", "image not checked", f"is {source[:60]}, which is not read here.")], None
    path = source.removeprefix("file://")
    found, size = _examine(path)
    if not os.path.isabs(path):
        found.append(
            ("warning", "relative path", f"{path!r} depends on the folder a worker starts in; write it whole.")
        )
    return found, size


def _examine(source: str | bytes) -> tuple[list[Found], tuple[int, int] | None]:
    try:
        stored = open_stored(source)
    except ImageError as error:
        return [("error", error.reason, str(error))], None
    return list(_judge(stored)), stored.size


def _judge(stored: Any) -> Iterator[Found]:
    if stored.mode not in SAFE_MODES:
        message = f"has mode {stored.mode}, which verl clips to white; convert it to 8 bit with data_preprocess."
        yield "error", "image not 8-bit", message
        return
    if is_turned(stored):
        message = "lies turned, by its EXIF data, which verl does not read; save it upright."
        yield "warning", "image turned", message
    try:
        if is_blank(to_eight_bit(stored)):
            yield "warning", "image blank", "shows nothing: all pixels are alike."
    except (ImageError, OSError, ValueError) as error:
        yield "error", "image unreadable", f"cannot be converted to RGB ({error})."
