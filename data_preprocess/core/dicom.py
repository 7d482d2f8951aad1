"""A DICOM radiograph as 8-bit grey or RGB levels.

Stored value -> modality LUT or rescale -> VOI LUT (index 0, LUT before window) -> inverted where 0 is white -> min-max.
- A window whose width is below its minimum, not finite, or that leaves a blank picture, is no window.
- MONOCHROME1 and Presentation LUT Shape INVERSE both say that 0 is white; a file with both (as DX requires) is inverted
  once.
- Pixel Padding Value (to its Range Limit) has no part in min and max; it lies at their dark end, so it becomes black.
- Bits above Bits Stored (rubbish, overlays) are cut off; overlays are not drawn.
- A radiograph has one frame: several are refused. Palette colour becomes RGB.
Shape legend: H rows, W columns, V values.
"""

import contextlib
import math
import os
import re
import struct
import warnings
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from data_preprocess.core.grey import is_blank, stretch
from data_preprocess.core.image_files import MAX_PIXELS, ImageError, check_size, refuse_frames, unreadable

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIXEL_KEYWORDS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
WINDOW_FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")
MAX_INFLATED = 3 * MAX_PIXELS  # bytes of a deflated data set: the largest picture of 16 bits and its header (ours)
IMPLICIT, EXPLICIT, BIG_ENDIAN, DEFLATED, RLE, JPEG_2000 = (
    f"1.2.840.10008.1.2{end}" for end in ("", ".1", ".2", ".1.99", ".5", ".4.90")
)
# Start-of-frame marker of a JPEG stream -> transfer syntax, for files whose header was lost.
JPEG_SYNTAX = {0xC0: "50", 0xC1: "51", 0xC2: "51", 0xC3: "57", 0xF7: "80"}


def read_dicom(path: str | os.PathLike[str]) -> "NDArray[np.uint8]":
    """Grey levels (H, W) or colours (H, W, 3) of a DICOM file, uint8, higher is brighter.

    Raises:
        ImageError: not DICOM, no pixel data, several frames, one value only, or a transfer syntax that no installed
            plugin decodes (the message names the plugin).
        OSError: the machine's fault.
    """
    from pydicom import dcmread

    name, hint = os.fspath(path), ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom warns about every odd value; what matters is raised below
        try:
            _refuse_deflate_bomb(name)
            data = dcmread(path, force=True)
            if "Rows" not in data or not any(keyword in data for keyword in PIXEL_KEYWORDS):
                raise ImageError(f"{name}: holds no DICOM pixel data.", "not an image")
            check_size(int(data.Columns), int(data.Rows), name)
            if int(data.get("NumberOfFrames") or 1) > 1:
                refuse_frames(name, data.NumberOfFrames)
            hint = _check_decoder(data, name)
            _complete(data)
            return _levels(data, name)
        except ImageError:
            raise
        except Exception as error:  # pydicom and its decoders raise anything on a damaged file
            raise unreadable(name, error, hint) from error


def _levels(data: Any, name: str) -> "NDArray[np.uint8]":
    from pydicom.pixels import apply_color_lut, pixel_array

    pixels = pixel_array(data)  # YBR becomes RGB here, and bits above Bits Stored are cut off
    if data.PhotometricInterpretation == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, data)[..., :3]
        return (pixels >> 8 if pixels.max() > 255 else pixels).astype(np.uint8)  # some write 8 bits in 16
    if pixels.ndim == 3 and pixels.shape[2] == 3:
        return pixels if pixels.dtype == np.uint8 else stretch(pixels, name)
    if pixels.ndim != 2:
        raise ImageError(f"{name}: its pixels have the shape {pixels.shape}, which is neither grey nor RGB.")
    shape = str(data.get("PresentationLUTShape") or "").strip().upper()
    inverted = data.PhotometricInterpretation == "MONOCHROME1" or shape == "INVERSE"
    padding = _padding(data, pixels.dtype)

    def levels(show: "Callable[[NDArray[Any]], NDArray[Any]]") -> "NDArray[np.uint8]":
        return stretch(pixels, name, show=show, padding=padding, inverted=inverted)

    if data.get("VOILUTSequence") or "WindowWidth" in data:
        # One that leaves nothing to see was made for other numbers (of another series, or before rescaling).
        with contextlib.suppress(ImageError):
            windowed = levels(lambda values_V: _voi(_modality(values_V, data), data))
            if not is_blank(Image.fromarray(windowed)):
                return windowed
    return levels(lambda values_V: _modality(values_V, data))


def _modality(values_V: "NDArray[Any]", data: Any) -> "NDArray[Any]":
    if data.get("ModalityLUTSequence"):
        return _look_up(values_V, data.ModalityLUTSequence[0], data)
    slope, intercept = _first_number(data, "RescaleSlope"), _first_number(data, "RescaleIntercept")
    if not (math.isfinite(slope) and math.isfinite(intercept)):
        return values_V
    return values_V.astype(np.float64) * slope + intercept


def _voi(values_V: "NDArray[Any]", data: Any) -> "NDArray[Any]":
    """Values through the first VOI LUT, or else the first window."""
    from pydicom.pixels import apply_windowing

    if data.get("VOILUTSequence"):
        with contextlib.suppress(AttributeError, TypeError, ValueError, IndexError):  # a damaged table is none
            return _look_up(values_V, data.VOILUTSequence[0], data)
    return apply_windowing(values_V, data, index=0)


def _look_up(values_V: "NDArray[Any]", item: Any, data: Any) -> "NDArray[Any]":
    """Entries of a LUT; values beyond its ends take the first or last (pydicom's own wraps around at 8 bit)."""
    count, first = int(item.LUTDescriptor[0]) or 1 << 16, int(item.LUTDescriptor[1])
    table = item.LUTData
    if isinstance(table, bytes):
        order = "<" if data.original_encoding[1] else ">"
        table = np.frombuffer(table, f"{order}u2" if len(table) >= 2 * count else "u1")
    table_N = np.atleast_1d(np.asarray(table))[:count].astype(np.int64) & 0xFFFF  # may have been read as signed
    return table_N[np.clip(np.floor(values_V).astype(np.int64) - first, 0, len(table_N) - 1)]


def _padding(data: Any, dtype: "np.dtype[Any]") -> "Callable[[NDArray[Any]], NDArray[np.bool_]] | None":
    """Which values are padding, where the file says so; it may state them as of the other signedness."""
    value = data.get("PixelPaddingValue")
    limit = data.get("PixelPaddingRangeLimit", value)
    if dtype.kind not in "iu" or not isinstance(value, int) or not isinstance(limit, int):
        return None
    low, high = sorted(
        int(np.array(v & (1 << 8 * dtype.itemsize) - 1, f"u{dtype.itemsize}").view(dtype)) for v in (value, limit)
    )
    return lambda values_V: (values_V >= low) & (values_V <= high)


def _complete(data: Any) -> None:
    """Fill in what stripped files lack, and remove a window that defines no ramp (DICOM PS3.3 C.11.2.1.2)."""
    for keyword, value in (("SamplesPerPixel", 1), ("PixelRepresentation", 0), ("BitsStored", data.BitsAllocated)):
        if data.get(keyword) is None:
            setattr(data, keyword, value)
    data.PhotometricInterpretation = str(data.PhotometricInterpretation).strip().upper()
    function = str(data.get("VOILUTFunction") or "").strip().upper()
    data.VOILUTFunction = function if function in WINDOW_FUNCTIONS else "LINEAR"
    width, centre = _first_number(data, "WindowWidth"), _first_number(data, "WindowCenter")
    least = 1 if data.VOILUTFunction == "LINEAR" else 1e-12
    if not (math.isfinite(width) and math.isfinite(centre) and width >= least):
        for keyword in ("WindowWidth", "WindowCenter"):
            data.pop(keyword, None)


def _first_number(data: Any, keyword: str) -> float:
    """The first value of an element, NaN where there is none."""
    value = data.get(keyword)
    try:
        return float(value if isinstance(value, float | int | str) else value[0])
    except (TypeError, ValueError, IndexError):
        return math.nan


def _check_decoder(data: Any, name: str) -> str:
    """Refuse what cannot be decoded, or only to a bomb; returns a hint on plugins for when decoding fails."""
    from pydicom.encaps import get_frame
    from pydicom.pixels import get_decoder

    stream = bytes(data.get("PixelData") or b"")
    encapsulated = stream.startswith(b"\xfe\xff\x00\xe0")
    marker, width, height = _stream_size(get_frame(stream, 0, number_of_frames=1) if encapsulated else b"")
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{name}: its stream has {width} x {height} pixels; the limit is {MAX_PIXELS}.", "image too large"
        )
    if "TransferSyntaxUID" not in data.file_meta:
        implicit, little = data.original_encoding
        plain = IMPLICIT if implicit else EXPLICIT if little else BIG_ENDIAN
        data.file_meta.TransferSyntaxUID = marker if encapsulated else plain
    syntax = data.file_meta.TransferSyntaxUID
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        message = f"{name}: has the transfer syntax {syntax.name}, which is not supported; convert it to {EXPLICIT}."
        raise ImageError(message, "no DICOM decoder") from None
    plugins = [re.findall(r"[\w-]+(?=>=)", line)[-1] for line in decoder.missing_dependencies if ">=" in line]
    if not decoder.is_available:
        message = f"{name}: is compressed as {syntax.name}, which nothing installed decodes; "
        raise ImageError(f"{message}pip install one of {', '.join(plugins)}.", "no DICOM decoder")
    return f"; the plugin {' or '.join(plugins)} may decode it" if plugins else ""


def _stream_size(stream: bytes) -> tuple[str, int, int]:
    """Transfer syntax, width and height of a compressed frame, from its own header; sizes 0 where it has none."""
    if stream.startswith(b"\xff\x4f\xff\x51") and len(stream) >= 24:
        right, bottom, left, top = struct.unpack(">4I", stream[8:24])
        return JPEG_2000, max(0, right - left), max(0, bottom - top)
    position = 2
    while stream.startswith(b"\xff\xd8") and position + 9 <= len(stream):
        if stream[position] != 0xFF:
            break
        if stream[position + 1] in JPEG_SYNTAX:
            height, width = struct.unpack(">2H", stream[position + 5 : position + 9])
            return f"1.2.840.10008.1.2.4.{JPEG_SYNTAX[stream[position + 1]]}", width, height
        position += (
            1 if stream[position + 1] == 0xFF else 2 + struct.unpack(">H", stream[position + 2 : position + 4])[0]
        )
    return RLE, 0, 0


def _refuse_deflate_bomb(path: str) -> None:
    """pydicom inflates a whole data set before it looks at one element."""
    with open(path, "rb") as file:
        head = file.read(1024)
        start = 144 + int.from_bytes(head[140:144], "little")  # after the group length comes the rest of the group
        if head[128:132] == b"DICM" and DEFLATED.encode() in head[:start]:
            file.seek(start)
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            inflate.decompress(file.read(), MAX_INFLATED)
            if inflate.unconsumed_tail:
                raise ImageError(f"{path}: inflates to more than {MAX_INFLATED} bytes.", "image too large")
