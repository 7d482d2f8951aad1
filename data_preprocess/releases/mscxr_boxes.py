"""The tables of MS-CXR: one row a box, x, y, width and height in pixels of the MIMIC-CXR-JPG image.

`MS_CXR_Local_Alignment_v*.csv` and the COCO file beside it, `.json`, say the same; both are read as rows of the CSV.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from data_preprocess.core.json_files import load_json
from data_preprocess.core.reports import words
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import MalformedRow, TableError, cell, number, open_table
from data_preprocess.releases.others import script_of_columns

COLUMNS = ("dicom_id", "category_name", "label_text", "path", "x", "y", "w", "h", "image_width", "image_height")
MAX_JSON = 200_000_000  # bytes; the release has under one million (ours)
_PATH = re.compile(
    r"(?:.*/)?(?P<folder>p\d{2}/p(?P<subject>\d{8})/s(?P<study>\d{8}))/(?P<name>[\w-][\w.-]*?)(?:\.\w+)?", re.A
)
Row = dict[str, Any]
Table = tuple[list[str], Iterator[Row | MalformedRow]]


class Place(NamedTuple):
    """Where an image lies, and whose it is."""

    subject_id: str  # digits, as in MIMIC-CXR
    study_id: str
    file: str  # p10/p10000032/s50414267/DICOM_ID, without its ending


class Phrase(NamedTuple):
    """What a box is about; its boxes make one row."""

    dicom_id: str
    category: str
    text: str


def open_marks(path: str) -> Table:
    """Columns and rows of the CSV or COCO file, under the names of the CSV.

    Raises:
        TableError: it cannot be used; names the script for it where it is another data set's.
    """
    columns, rows = _open_coco(Path(path)) if path.lower().endswith(".json") else open_table(path)
    if missing := [name for name in COLUMNS if name not in columns]:
        other = script_of_columns(columns, "ms_cxr")
        what = f"that is a table for data_preprocess.{other}" if other and len(missing) > 2 else "restore the file"
        message = f"has no column {missing[0]!r}; pass MS_CXR_Local_Alignment_v*.csv or .json with --csv ({what})."
        raise TableError(f"{path}: {message}")
    return columns, rows


def phrase(row: Row) -> Phrase:
    """What a row is about.

    Raises:
        SkipRow: it does not say.
    """
    found = Phrase(cell(row, "dicom_id"), cell(row, "category_name"), words(cell(row, "label_text")))
    for name, value in zip(COLUMNS[:3], found, strict=True):
        if not value:
            raise SkipRow(f"{name} is blank", "no phrase" if name == "label_text" else "no id or category")
    return found


def place(row: Row, dicom_id: str) -> Place:
    """Where the image of a row lies.

    Raises:
        SkipRow: its path leaves the folder of the images, is no path of MIMIC-CXR-JPG, or is of another image.
    """
    path = cell(row, "path")
    if path.startswith("/") or "\\" in path or ".." in path.split("/"):
        raise SkipRow(f"path {path[:100]!r} leaves the folder of the images", "image outside image root")
    match = _PATH.fullmatch(path)
    if not match:
        raise SkipRow(f"path is {path[:100]!r}, not files/p10/p10000032/s50414267/DICOM_ID.jpg", "unknown path")
    if match["name"] != dicom_id:
        raise SkipRow(f"path names the image {match['name']!r}, dicom_id {dicom_id[:80]!r}", "contradicting ids")
    return Place(match["subject"], match["study"], f"{match['folder']}/{match['name']}")


def size(row: Row) -> tuple[int, int]:
    """Width and height of the image that the box is in pixels of.

    Raises:
        SkipRow: the row does not say.
    """
    width, height = (number(row, name, "no image size") for name in COLUMNS[8:])
    if not (width >= 1 and height >= 1):
        raise SkipRow(f"the image is {width:g} x {height:g} pixels", "no image size")
    return int(width), int(height)


def box(row: Row) -> tuple[float, float, float, float]:
    """The box of a row, xyxy in pixels.

    Raises:
        SkipRow: a number is missing, or no number.
    """
    x, y, w, h = (number(row, name, "malformed box") for name in COLUMNS[4:8])
    return x, y, x + w, y + h


def _open_coco(path: Path) -> Table:
    """The rows of the COCO file; a key that none of its objects has is no column."""
    if not os.path.isfile(path):
        raise TableError(f"{path}: no such file; pass MS_CXR_Local_Alignment_v*.csv or .json with --csv.")
    try:
        coco = load_json(path, MAX_JSON)
        categories = {str(item["id"]): item for item in coco["categories"]}
        images = {str(item["id"]): item for item in coco["images"]}
        rows = [_coco_row(mark, categories, images) for mark in coco["annotations"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # JsonError too
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise TableError(f"{path}: is no COCO file of MS-CXR ({what}); pass MS_CXR_Local_Alignment_v*.json.") from error
    split = [] if all(isinstance(row, dict) and row["split"] is None for row in rows) else ["split"]
    return [*COLUMNS, *split], iter(rows)


def _coco_row(mark: Any, categories: dict[str, Any], images: dict[str, Any]) -> Row | MalformedRow:
    try:
        image = images[str(mark["image_id"])]
        name = str(image["file_name"]).rpartition("/")[2].rpartition(".")[0]
        x, y, w, h = mark["bbox"]
        values = [name, categories[str(mark["category_id"])]["name"], mark["label_text"], image["path"], x, y, w, h]
        row = dict(zip(COLUMNS, [*values, image["width"], image["height"]], strict=True))
        return row | {"split": mark.get("split") or image.get("split")}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"lacks {error}, or names one that is not there" if isinstance(error, KeyError) else str(error)
        return MalformedRow(f"annotation {what}")
