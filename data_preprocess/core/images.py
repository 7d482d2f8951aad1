"""Any chest image file as an 8-bit picture: DICOM, 16-bit PNG, EXIF, CMYK, palette and alpha included.

DICOM: modality LUT, VOI LUT (index 0, LUT before window; a window width below its minimum is no window), invert
MONOCHROME1, min-max to 8 bit. 16-bit files are scaled by min-max too: clipping them would give a white picture.
Shape legend: H rows, W columns, C channels; pictures are (H, W) "L" or (H, W, 3) "RGB", uint8, higher is brighter.
"""

import contextlib
import io
import math
import os
import struct
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from data_preprocess.core.skiplog import SkipRow, write_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = ("PNG", "JPEG", "JPEG2000", "TIFF", "BMP", "GIF", "WEBP", "PPM")
MAX_PIXELS = 89_478_485  # Pillow's own limit for decompression bombs; the largest radiographs have about 20 million
PIXEL_KEYWORDS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
EXIF_ORIENTATION = 0x0112
MAX_RATIO = 200  # of the sides; qwen_vl_utils.smart_resize refuses more
MIN_SIDE = 8  # below this a file is a placeholder, not a radiograph (ours)
MIN_RANGE = 8  # grey levels out of 256; JPEG noise on a blank page stays below, any radiograph is far above (ours)
# What Pillow and its plugins raise on a damaged file.
DECODE_ERRORS = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, ArithmeticError, struct.error, zlib.error,
    MemoryError, AttributeError, NotImplementedError, AssertionError,
)  # fmt: skip


class ImageError(SkipRow):
    """An image that cannot be used."""

    def __init__(self, message: str, reason: str = "image unreadable") -> None:
        super().__init__(message, reason)


def load_image(path: str | os.PathLike[str]) -> Image.Image:
    """Read an image file as an 8-bit picture of mode "L" (all channels equal) or "RGB".

    Raises:
        ImageError: missing, not an image, truncated or otherwise unreadable, too small, too large, more than one
            frame, or blank (constant, all white, all black).
    """
    name = os.fspath(path)
    file = Path(path)
    if not os.path.isfile(file):  # False too for a name that is too long or not readable
        raise ImageError(f"{name}: no such file; check the path and the image root.", "image missing")
    try:
        is_dicom = file.suffix.lower() in (".dcm", ".dicom") or _has_dicom_magic(file)
    except OSError as error:
        raise ImageError(f"{name}: cannot be opened ({error.strerror}).") from error
    picture = _eight_bit(read_dicom(file), name) if is_dicom else to_eight_bit(open_stored(file), name)
    _refuse_blank(picture, name)
    return picture


def open_stored(source: str | os.PathLike[str] | bytes, name: str | None = None) -> Image.Image:
    """Decode an image file or its bytes with Pillow as it is stored (any mode), guarding against bombs.

    Raises:
        ImageError: as `load_image`, except that blank pictures pass.
    """
    name = name or (os.fspath(source) if not isinstance(source, bytes) else "embedded image")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own check follows
            image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
        _check_size(image.width, image.height, name)
        if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":  # a camera's MPO: the first is the picture
            raise ImageError(f"{name}: has more than one frame; save the radiograph alone.", "image has several frames")
        image.load()
    except ImageError:
        raise
    except FileNotFoundError as error:
        raise ImageError(f"{name}: no such file; check the path and the image root.", "image missing") from error
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name}: {error}.", "image too large") from error
    except Image.UnidentifiedImageError as error:
        raise ImageError(f"{name}: is not an image in one of {', '.join(FORMATS)}.", "not an image") from error
    except DECODE_ERRORS as error:
        raise _unreadable(name, error) from error
    return image


def to_eight_bit(image: Image.Image, name: str = "image") -> Image.Image:
    """Turn a decoded Pillow image of any mode upright and into 8-bit "L" or "RGB"; alpha lies on black."""
    # A damaged EXIF block says nothing about the pixels.
    with contextlib.suppress(OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, struct.error):
        image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _eight_bit(np.asarray(image), name)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.new("RGBA", rgba.size, (0, 0, 0, 255))  # black: what surrounds a radiograph
        image.alpha_composite(rgba)
    if image.mode in ("1", "L"):
        return image.convert("L")
    red, green, blue = image.convert("RGB").split()
    if red.tobytes() == green.tobytes() == blue.tobytes():
        return red
    return Image.merge("RGB", (red, green, blue))


def read_dicom(path: str | os.PathLike[str]) -> "NDArray[Any]":
    """Pixels of a DICOM file ready for display, before scaling to 8 bit: (H, W) float64, or (H, W, 3) uint8.

    Raises:
        ImageError: not DICOM, no pixel data, several frames, or a transfer syntax that no installed plugin decodes.
    """
    from pydicom import dcmread
    from pydicom.pixels import apply_modality_lut, apply_voi_lut, pixel_array

    name = os.fspath(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom warns about every odd value; what matters is raised below
        try:
            data = dcmread(path, force=not _has_dicom_magic(Path(path)))
            if "Rows" not in data or not any(keyword in data for keyword in PIXEL_KEYWORDS):
                raise ImageError(f"{name}: holds no DICOM pixel data.", "not an image")
            _check_size(int(data.Columns), int(data.Rows), name)
            if int(data.get("NumberOfFrames", 1) or 1) > 1:
                message = f"{name}: has {data.NumberOfFrames} frames; a radiograph has one."
                raise ImageError(message, "image has several frames")
            if "TransferSyntaxUID" not in data.file_meta:
                data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2"  # DICOM's default: implicit little endian
            pixels = pixel_array(data)  # YBR becomes RGB here
            photometric = str(data.PhotometricInterpretation).strip()
            if photometric == "PALETTE COLOR":
                raise ImageError(f"{name}: is a palette colour image, not a radiograph.", "not a radiograph")
            if pixels.ndim == 3:
                return pixels
            pixels = apply_modality_lut(pixels, data)
            _drop_bad_window(data)
            pixels = np.asarray(apply_voi_lut(pixels, data, index=0, prefer_lut=True), dtype=np.float64)
        except ImageError:
            raise
        except Exception as error:  # pydicom and its decoders raise anything on a damaged file
            raise _unreadable(name, error) from error
    return pixels.max() - pixels if photometric == "MONOCHROME1" else pixels


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
    with contextlib.suppress(OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, struct.error):
        upright = image.getexif().get(EXIF_ORIENTATION, 1) == 1
        clear = "transparency" not in image.info
        return image.format in ("PNG", "JPEG") and image.mode in ("L", "RGB") and upright and clear
    return False


def is_blank(image: Image.Image) -> bool:
    """Whether an 8-bit picture spans fewer than `MIN_RANGE` grey levels."""
    low, high = image.convert("L").getextrema()
    return int(high) - int(low) < MIN_RANGE  # type: ignore[arg-type]


def _eight_bit(pixels: "NDArray[Any]", name: str) -> Image.Image:
    """Min-max an (H, W) array, or pass on an (H, W, 3) uint8 array, as a picture."""
    if pixels.dtype == np.uint8 and pixels.ndim == 3:
        return to_eight_bit(Image.fromarray(pixels))
    values = pixels.astype(np.float64)
    if not np.isfinite(values).all():
        raise ImageError(f"{name}: some pixel values are not finite numbers.")
    low, high = float(values.min()), float(values.max())
    if high <= low:
        raise ImageError(f"{name}: every pixel has the value {low:g}, so there is no picture.", "image blank")
    return Image.fromarray(np.round((values - low) / (high - low) * 255).astype(np.uint8))


def _drop_bad_window(data: Any) -> None:
    """Remove a window that defines no ramp (DICOM PS3.3 C.11.2.1.2: width >= 1, or > 0 where it is not LINEAR)."""
    first = []
    for keyword in ("WindowWidth", "WindowCenter"):
        value = data.get(keyword)
        try:
            first.append(float(value if isinstance(value, float | int | str) else value[0]))
        except (TypeError, ValueError, IndexError):
            first.append(math.nan)
    linear = str(data.get("VOILUTFunction") or "LINEAR").upper() == "LINEAR"
    if not all(map(math.isfinite, first)) or first[0] < (1 if linear else 1e-12):
        for keyword in ("WindowWidth", "WindowCenter"):
            if keyword in data:
                delattr(data, keyword)


def _has_dicom_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def _check_size(width: int, height: int, name: str) -> None:
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{name}: is {width} x {height} pixels; too small to be a radiograph.", "image too small")
    if max(width, height) > MAX_RATIO * min(width, height):
        message = f"{name}: is {width} x {height} pixels; image processors refuse sides beyond 1:{MAX_RATIO}."
        raise ImageError(message, "image shape")
    if width * height > MAX_PIXELS:
        raise ImageError(f"{name}: is {width} x {height} pixels; the limit is {MAX_PIXELS}.", "image too large")


def _refuse_blank(picture: Image.Image, name: str) -> None:
    if is_blank(picture):
        low, high = picture.convert("L").getextrema()
        shade = "white" if int(low) > 247 else "black" if int(high) < 8 else "one grey"  # type: ignore[arg-type]
        raise ImageError(f"{name}: is all {shade}, so there is no picture.", "image blank")


def _unreadable(name: str, error: BaseException) -> ImageError:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    truncated = isinstance(error, EOFError) or any(t in text.lower() for t in ("truncated", "less than expected"))
    return ImageError(f"{name}: cannot be read ({text}).", "image truncated" if truncated else "image unreadable")
