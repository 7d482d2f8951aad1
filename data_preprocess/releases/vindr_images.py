"""The image files of VinDr-CXR, and the size of the DICOM image that its boxes are in pixels of.

That size is in the DICOM header. A PNG or JPEG copy may be smaller than the DICOM image was; then only a table knows:
PhysioNet has none, Kaggle's copies bring image_id with dim0 (height) and dim1 (width), or width and height.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_preprocess.core.image_files import ImageError, header_size, is_dicom, read_head, unreadable
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table

ENDINGS = (".dicom", ".dcm", ".png", ".jpg", ".jpeg")
SIZE_COLUMNS = (
    ("width", "height"),
    ("dim1", "dim0"),
    ("Columns", "Rows"),
    ("columns", "rows"),
)  # pairs of width and height
DEPTH = 3  # folders below the root: the release has train/ and test/, some copies a folder more
Size = tuple[int, int]


def image_files(root: Path) -> dict[str, str]:
    """Name without ending -> file, of all images at most `DEPTH` folders below `root`; the DICOM file where there are
    several. A folder is looked at once, so links may form loops.

    Raises:
        TableError: there is no such folder.
    """
    if not root.is_dir():
        raise TableError(f"{root}: no such folder; pass the folder of the images with --image-root.")
    best: dict[str, tuple[int, str]] = {}
    seen: set[str] = set()
    level = [str(root)]
    for _ in range(DEPTH + 1):
        below = []
        for folder in level:
            if (real := os.path.realpath(folder)) in seen:
                continue
            seen.add(real)
            with os.scandir(folder) as entries:
                for entry in entries:
                    stem, ending = os.path.splitext(entry.name)
                    if ending.lower() in ENDINGS:
                        place = (ENDINGS.index(ending.lower()), entry.path)
                        best[stem] = min(place, best.get(stem, place))
                    elif os.path.isdir(entry.path):  # False, too, for a link to itself
                        below.append(entry.path)
        level = sorted(below)
    return {stem: path for stem, (_, path) in best.items()}


def read_sizes(path: str) -> dict[str, Size]:
    """Width and height of the DICOM images by image id.

    Raises:
        TableError: the table cannot be used.
    """
    columns, rows = open_table(path)
    if "image_id" not in columns or not any(set(pair) <= set(columns) for pair in SIZE_COLUMNS):
        raise TableError(
            f"--sizes {path}: needs image_id with width and height, or with dim0 (height) and dim1 (width)."
        )
    out: dict[str, Size] = {}
    for number, row in enumerate(rows, 1):
        size = None if isinstance(row, MalformedRow) else size_of_row(row)
        if size is None or isinstance(row, MalformedRow):
            raise TableError(f"--sizes {path}: row {number} has no size; restore the file.")
        if out.setdefault(cell(row, "image_id"), size) != size:
            raise TableError(
                f"--sizes {path}: row {number} has another size for its image than a row before; remove one."
            )
    return out


def size_of_row(row: Mapping[str, Any]) -> Size | None:
    """Width and height that a row states, None where it does not."""
    for pair in SIZE_COLUMNS:
        try:
            width, height = (float(cell(dict(row), column)) for column in pair)
        except ValueError:  # SkipRow too
            continue
        if 1 <= width < math.inf and 1 <= height < math.inf:
            return int(width), int(height)
    return None


def size_and_kind(path: str) -> tuple[Size, bool]:
    """Width and height of an image file by its header, and whether it is DICOM; no pixel is read.

    Raises:
        ImageError: missing, or no image.
    """
    head = read_head(path)
    if is_dicom(head, Path(path).suffix):
        return _dicom_size(path, head[128:132] == b"DICM"), True
    return header_size(path), False


def outside(boxes_N4: Sequence[Sequence[float]], size: Size, tolerance: float) -> bool:
    """Whether a box leaves the image by more than a part `tolerance` of its sides."""
    width, height = size
    limits = (-tolerance * width, -tolerance * height, (1 + tolerance) * width, (1 + tolerance) * height)
    return any(
        min(x0, x1) < limits[0] or min(y0, y1) < limits[1] or max(x0, x1) > limits[2] or max(y0, y1) > limits[3]
        for x0, y0, x1, y1 in boxes_N4
    )


def _dicom_size(path: str, marked: bool) -> Size:
    """Size of a DICOM file; `marked`: it has the preamble, and so perhaps a transfer syntax."""
    import warnings

    from pydicom import dcmread
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if marked and read_file_meta_info(path).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
                raise ImageError(f"{path}: is deflated, so its size is not read; convert it.", "image form")
            data = dcmread(path, force=True, stop_before_pixels=True, specific_tags=["Rows", "Columns"])
            if "Rows" not in data or "Columns" not in data:
                raise ImageError(f"{path}: states no DICOM size.", "not an image")
            return int(data.Columns), int(data.Rows)
        except ImageError:
            raise
        except Exception as error:  # pydicom raises anything on a damaged file
            raise unreadable(path, error) from error
