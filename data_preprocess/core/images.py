"""Any chest image file as an 8-bit picture: DICOM, 16-bit PNG and TIFF, EXIF, CMYK, palette and alpha included.

What a file is, its content says, not its suffix. Integers and floats beyond 8 bit are scaled by min-max: clipping them
would give a white picture. EXIF (and TIFF) orientation is applied, so a picture, its size and every box of it are in
the *upright* frame that viewers show, not in the stored one. DICOM: see `data_preprocess.core.dicom`.
Shape legend: H rows, W columns, C channels; pictures are (H, W) "L" or (H, W, 3) "RGB", uint8, higher is brighter.
"""

import contextlib
import io
import math
import os
import struct
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from data_preprocess.core.grey import MIN_RANGE, is_blank, refuse_blank, stretch
from data_preprocess.core.image_files import (
    DECODE_ERRORS,
    FORMATS,
    HEAD,
    MAX_PIXELS,
    MIN_SIDE,
    ImageError,
    check_size,
    is_dicom,
    read_head,
    refuse_frames,
    refuse_impostor,
    unreadable,
)
from data_preprocess.core.skiplog import write_bytes

__all__ = [
    "DECODE_ERRORS", "FORMATS", "MAX_PIXELS", "MIN_RANGE", "MIN_SIDE", "ImageError", "is_blank", "is_plain",
    "is_turned", "load_image", "open_stored", "png_bytes", "read_picture", "save_png", "shrink", "to_eight_bit",
]  # fmt: skip

EXIF_ORIENTATION, TIFF_PHOTOMETRIC = 0x0112, 0x0106
DAMAGED_EXIF = (OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, struct.error)


def load_image(path: str | os.PathLike[str]) -> Image.Image:
    """Read an image file as an upright 8-bit picture of mode "L" (all channels equal) or "RGB".

    Raises:
        ImageError: missing, not an image, truncated or otherwise unreadable, too small, too large, more than one
            frame, or blank (constant, all white, all black).
        OSError: the machine's fault, not the file's (too many open files).
    """
    return read_picture(path)[0]


def read_picture(path: str | os.PathLike[str]) -> tuple[Image.Image, bool, bool]:
    """The picture of `load_image`, whether the file itself `is_plain`, and whether it `is_turned`; decodes once."""
    head = read_head(path)
    name, file = os.fspath(path), Path(path)
    if is_dicom(head, file.suffix):
        from data_preprocess.core.dicom import read_dicom

        picture, plain, turned = to_eight_bit(Image.fromarray(read_dicom(file)), name), False, False
    else:
        stored = open_stored(file)
        picture, plain, turned = to_eight_bit(stored, name), is_plain(stored), is_turned(stored)
    refuse_blank(picture, name)
    return picture, plain, turned


def open_stored(source: str | os.PathLike[str] | bytes, name: str | None = None) -> Image.Image:
    """Decode an image file or its bytes with Pillow as it is stored (any mode), guarding against bombs.

    Raises:
        ImageError, OSError: as `load_image`, except that blank pictures pass.
    """
    name = name or (os.fspath(source) if not isinstance(source, bytes) else "embedded image")
    try:
        # Never by path: Pillow maps such files, and mixes up rows and columns of TIFF files with an orientation.
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DecompressionBombWarning (our own check follows), damaged EXIF
            image = Image.open(file, formats=FORMATS)
            check_size(image.width, image.height, name)
            if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":  # a camera's MPO: the first is the picture
                refuse_frames(name, getattr(image, "n_frames", 2))
            halved = image.mode in ("RGB", "RGBA") and any(";16" in str(tile) for tile in image.tile)
            image.load()
    except ImageError:
        raise
    except FileNotFoundError as error:
        raise ImageError(f"{name}: no such file; check the path and the image root.", "image missing") from error
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name}: {error}.", "image too large") from error
    except Image.UnidentifiedImageError as error:
        refuse_impostor(source[:HEAD] if isinstance(source, bytes) else read_head(source), name)
        raise ImageError(f"{name}: is not an image in one of {', '.join(FORMATS)}.", "not an image") from error
    except DECODE_ERRORS as error:
        raise unreadable(name, error) from error
    if halved and np.asarray(image)[..., :3].max() < 128:
        message = (
            f"{name}: is a 16-bit colour image, read with its upper 8 bits, which are dark; save it as 16-bit grey."
        )
        raise ImageError(message, "image 16-bit colour")
    return image


def to_eight_bit(image: Image.Image, name: str = "image") -> Image.Image:
    """Turn a decoded Pillow image of any mode upright and into 8-bit "L" or "RGB"; alpha lies on black."""
    if is_turned(image):
        with contextlib.suppress(*DAMAGED_EXIF):
            image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        # Pillow inverts only 8-bit TIFF files whose 0 is white.
        inverted = image.format == "TIFF" and image.tag_v2.get(TIFF_PHOTOMETRIC) == 0  # type: ignore[attr-defined]
        levels = stretch(np.asarray(image), name)
        return Image.fromarray(255 - levels if inverted else levels)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.new("RGBA", rgba.size, (0, 0, 0, 255))  # black: what surrounds a radiograph
        image.alpha_composite(rgba)
    if image.mode in ("1", "L"):
        return image.convert("L") if image.mode == "1" else image
    image = image.convert("RGB")
    levels_HWC = np.asarray(image)
    red = levels_HWC[..., 0]
    grey = bool((red == levels_HWC[..., 1]).all() and (red == levels_HWC[..., 2]).all())
    return image.getchannel(0) if grey else image


def shrink(image: Image.Image, max_pixels: int | None) -> tuple[Image.Image, tuple[float, float]]:
    """Scale down to at most `max_pixels` pixels, keeping the aspect ratio (to the pixel); never up.

    Returns:
        the picture, and its width and height divided by the original's: multiply pixel boxes by them.
    """
    if max_pixels is None or image.width * image.height <= max_pixels:
        return image, (1.0, 1.0)
    if max_pixels < MIN_SIDE * MIN_SIDE:
        raise ValueError(f"max_pixels is {max_pixels}; use at least {MIN_SIDE * MIN_SIDE}, or None to keep the size.")
    width, height = image.size
    # Whole numbers throughout: a float square root would make 111 of 112. The product stays within max_pixels.
    new_width, new_height = math.isqrt(max_pixels * width // height), math.isqrt(max_pixels * height // width)
    new_width, new_height = max(1, min(width, new_width)), max(1, min(height, new_height))
    small = image.resize((new_width, new_height), Image.Resampling.LANCZOS)
    return small, (new_width / width, new_height / height)


def png_bytes(image: Image.Image) -> bytes:
    """The picture as PNG; the same pixels give the same bytes, and no metadata of the source comes along."""
    buffer = io.BytesIO()
    clean = Image.frombytes(image.mode, image.size, image.tobytes())
    clean.save(buffer, "PNG")
    return buffer.getvalue()


def save_png(image: Image.Image, path: str | os.PathLike[str]) -> None:
    """Write `png_bytes(image)` to `path`, making its folder; the file appears only when complete."""
    write_bytes(path, png_bytes(image))


def is_plain(image: Image.Image) -> bool:
    """Whether a stored picture can be handed to a model as it is: 8-bit PNG or JPEG, upright, no alpha, grey or RGB."""
    with contextlib.suppress(*DAMAGED_EXIF):
        plain = image.format in ("PNG", "JPEG") and image.mode in ("L", "RGB") and "transparency" not in image.info
        return plain and image.getexif().get(EXIF_ORIENTATION, 1) == 1
    return False


def is_turned(image: Image.Image) -> bool:
    """Whether EXIF data say that a stored picture lies turned or mirrored."""
    with contextlib.suppress(*DAMAGED_EXIF):  # a damaged block says nothing about the pixels
        return bool(image.getexif().get(EXIF_ORIENTATION, 1) in range(2, 9))
    return False
