"""What an image file is before anything decodes it: missing, a failed download, DICOM, too large; and how to say so."""

import errno
import os
import stat
import struct
import warnings
import zlib
from pathlib import Path

from data_preprocess.core.skiplog import SkipRow

FORMATS = ("PNG", "JPEG", "JPEG2000", "TIFF", "BMP", "GIF", "WEBP", "PPM")
MAX_PIXELS = 89_478_485  # Pillow's own limit for decompression bombs; the largest radiographs have about 20 million
MAX_BYTES = 1 << 30  # of a file; that many pixels of 16 bits take 180 million (ours)
MAX_RATIO = 200  # of the sides; qwen_vl_utils.smart_resize refuses more
SHAPE_TOLERANCE = 0.01  # of the ratio of the sides: rounding of a copy of 100 pixels (ours)
MIN_SIDE = 8  # below this a file is a placeholder, not a radiograph (ours)
# What Pillow and its plugins raise on a damaged file.
DECODE_ERRORS = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, ArithmeticError, struct.error, zlib.error,
    MemoryError, AttributeError, NotImplementedError, AssertionError,
)  # fmt: skip
# The machine's faults. They hit every file alike, so they must not pass for damaged images.
MACHINE_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}
DICOM_SUFFIXES = (".dcm", ".dicom", ".dic")
DICOM_STARTS = (b"\x02\0", b"\x08\0", b"\0\x02", b"\0\x08")  # group of the first tag, in files without a preamble
PICTURE_STARTS = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF", b"\0\0\0\x0cjP")
_PAGE = ("is text (a web page or a server's message?), not an image; fetch the file again", "image is text")
_PACKED = ("is a compressed file or archive; unpack it", "image is compressed")
# First bytes, in small letters, of what a download may leave in an image's place -> what to say, reason.
IMPOSTORS = {
    b"version https://git-lfs": ("is a Git LFS pointer; run git lfs pull", "image is a Git LFS pointer"),
    b"<!doctype": _PAGE, b"<html": _PAGE, b"<?xml": _PAGE, b"<error": _PAGE, b'{"': _PAGE,
    b"\x1f\x8b": _PACKED, b"pk\x03\x04": _PACKED, b"bzh": _PACKED, b"\xfd7zxz": _PACKED,
}  # fmt: skip
HEAD = 512  # bytes that tell what a file is


class ImageError(SkipRow):
    """An image that cannot be used."""

    def __init__(self, message: str, reason: str = "image unreadable") -> None:
        super().__init__(message, reason)


def read_head(path: str | os.PathLike[str]) -> bytes:
    """The first bytes of a file that could be an image.

    Raises:
        ImageError: no path, no such file, a folder, a loop of links, not readable, empty, too large, or a Git LFS
            pointer, web page or archive in its place.
        OSError: the machine's fault.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):  # NaN from a table, say
        raise ImageError(f"{path!r} is not a path; check the image column.", "image missing")
    name = os.fspath(path)
    try:
        status = os.stat(name)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ImageError(f"{name}: no such file; check the path and the image root.", "image missing") from error
    except (OSError, ValueError) as error:  # a name with a zero byte, too long, or a loop of links
        raise ImageError(f"{name}: no such file ({_why(error)}).", "image missing") from error
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
        raise ImageError(f"{name}: is {what}, not an image file.", "image missing")
    if status.st_size > MAX_BYTES:
        raise ImageError(f"{name}: has {status.st_size} bytes; the limit is {MAX_BYTES}.", "image too large")
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise unreadable(name, error) from error
    refuse_impostor(head, name)
    return head


def header_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Width and height of an image file, no DICOM, by its header and as it is stored; no pixel is read.

    Raises:
        ImageError: missing, or no image.
        OSError: the machine's fault.
    """
    from PIL import Image

    name = os.fspath(path)
    read_head(path)
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DecompressionBombWarning
            with Image.open(file, formats=FORMATS) as image:
                return image.size
    except Image.UnidentifiedImageError as error:
        raise ImageError(f"{name}: is not an image in one of {', '.join(FORMATS)}.", "not an image") from error
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name}: {error}.", "image too large") from error
    except DECODE_ERRORS as error:
        raise unreadable(name, error) from error


def refuse_other_shape(path: str | os.PathLike[str], width: int, height: int) -> None:
    """See that an image has the shape of the one its boxes were drawn on; what cannot be opened is not judged here.

    Raises:
        SkipRow: its sides have another ratio.
    """
    try:
        there = header_size(path)
    except ImageError:
        return
    if abs(there[0] * height / (there[1] * width) - 1) > SHAPE_TOLERANCE:
        message = f"{path}: is {there[0]} x {there[1]}, the table says {width} x {height}; cropped, padded or squeezed?"
        raise SkipRow(message, "image shape differs")


def refuse_impostor(head: bytes, name: str) -> None:
    """Raise an ImageError for a file that starts like nothing that is an image."""
    if not head:
        raise ImageError(f"{name}: is empty (0 bytes); fetch the file again.", "image file empty")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n").lower()
    for first, (message, reason) in IMPOSTORS.items():
        if start.startswith(first):
            raise ImageError(f"{name}: {message}.", reason)
    if len(head) == HEAD and not any(head):  # a DICOM preamble is zeros too, but "DICM" follows
        raise ImageError(
            f"{name}: starts with {HEAD} zeros, as an unfinished download does; fetch it again.", "image truncated"
        )


def is_dicom(head: bytes, suffix: str) -> bool:
    """Whether to read a file as DICOM: by its preamble; without one by its first tag or else its suffix."""
    if head[128:132] == b"DICM":
        return True
    if head.startswith(PICTURE_STARTS):  # whatever the suffix
        return False
    return suffix.lower() in DICOM_SUFFIXES or (suffix.lower() != ".jp2" and head.startswith(DICOM_STARTS))


def check_size(width: int, height: int, name: str) -> None:
    """Raise an ImageError for sides that are no radiograph's."""
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{name}: is {width} x {height} pixels; too small to be a radiograph.", "image too small")
    if max(width, height) > MAX_RATIO * min(width, height):
        message = f"{name}: is {width} x {height} pixels; image processors refuse sides beyond 1:{MAX_RATIO}."
        raise ImageError(message, "image shape")
    if width * height > MAX_PIXELS:
        raise ImageError(f"{name}: is {width} x {height} pixels; the limit is {MAX_PIXELS}.", "image too large")


def refuse_frames(name: str, frames: int | str) -> None:
    """Raise the ImageError of a file with several frames."""
    message = f"{name}: has {frames} frames; a radiograph has one, so save the wanted frame alone."
    raise ImageError(message, "image has several frames")


def unreadable(name: str, error: BaseException, hint: str = "") -> ImageError:
    """The ImageError for what a decoder raised; an error that is the machine's fault is raised again."""
    if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
        raise error
    text = _why(error)
    truncated = isinstance(error, EOFError) or any(t in text.lower() for t in ("truncated", "less than expected"))
    message = f"{name}: cannot be read ({text}){hint}."
    return ImageError(message, "image truncated" if truncated else "image unreadable")


def _why(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()).rstrip(".") or type(error).__name__
