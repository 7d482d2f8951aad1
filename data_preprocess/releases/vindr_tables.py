"""The tables of VinDr-CXR: one row a box of a reader, or a reader's "No finding"; corners in pixels of the DICOM image.

PhysioNet: annotations_train.csv (three readers an image) and annotations_test.csv (their consensus, no rad_id).
Kaggle: train.csv, the same training images with fewer classes and a class_id.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_preprocess.core.candidates import Intake
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import MalformedRow, TableError, cell, number, open_table
from data_preprocess.releases.others import script_of_columns
from data_preprocess.releases.vindr_images import Size, size_of_row

NO_FINDING = "No finding"
KAGGLE_CLASSES = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "ILD", "Infiltration",
    "Lung Opacity", "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax",
    "Pulmonary fibrosis",
)  # fmt: skip
LOCAL_CLASSES = (
    *KAGGLE_CLASSES, "Clavicle fracture", "Edema", "Emphysema", "Enlarged PA", "Lung cavity", "Lung cyst",
    "Mediastinal shift", "Rib fracture",
)  # fmt: skip
# Class -> the CheXpert label that means the same or more; classes that are none of CheXpert's are left out (ours).
CHEXPERT = {
    "Atelectasis": "Atelectasis", "Cardiomegaly": "Cardiomegaly", "Consolidation": "Consolidation", "Edema": "Edema",
    "Lung Opacity": "Lung Opacity", "Nodule/Mass": "Lung Lesion", "Pleural effusion": "Pleural Effusion",
    "Pleural thickening": "Pleural Other", "Pneumothorax": "Pneumothorax", "Clavicle fracture": "Fracture",
    "Rib fracture": "Fracture",
}  # fmt: skip
COLUMNS = ("image_id", "class_name", "x_min", "y_min", "x_max", "y_max")
TABLES = ("annotations_train.csv", "annotations_test.csv", "train.csv")
_SPELLING = {name.lower(): name for name in (*LOCAL_CLASSES, NO_FINDING)}
_SPLIT = re.compile(r"(?:^|[^a-z])(train|test)(?:$|[^a-z])")
_IMAGE_ID = re.compile(r"\w[\w.-]{0,99}", re.A)
Box = tuple[float, float, float, float]
Mark = tuple[str, Box]  # reader ("" where none is named) and box


@dataclass
class Film:
    """What the readers say of one image."""

    part: str  # train or test of PhysioNet, "" of Kaggle
    readers: set[str] = field(default_factory=set)
    marks: dict[str, set[Mark]] = field(default_factory=lambda: defaultdict(set))  # by class
    broken: dict[str, tuple[str, str]] = field(default_factory=dict)  # class -> reason and detail
    unnamed: bool = False  # a reader marked something, and the row does not say what
    sizes: set[Size] = field(default_factory=set)  # the table's own, where it has any


def find_tables(paths: Sequence[str]) -> list[Path]:
    """The tables that are named, or that lie in a folder that is named or in its annotations/.

    Raises:
        TableError: a folder has none.
    """
    out = []
    for path in map(Path, paths):
        if not path.is_dir():
            out.append(path)
            continue
        folder = path / "annotations" if (path / "annotations").is_dir() else path
        both = ([folder / name, folder / f"{name}.gz"] for name in TABLES)
        there = [next(filter(Path.is_file, names), None) for names in both]
        found = [name for name in there[:2] if name] or [name for name in there[2:] if name]
        if not found:
            raise TableError(f"{folder}: has no {', '.join(TABLES)}; pass the tables of VinDr-CXR with --csv.")
        out += found
    return out


def read_films(paths: Sequence[Path], intake: Intake) -> dict[str, Film]:
    """Images by id; rows that cannot be read go to the intake.

    Raises:
        TableError: a table cannot be used.
    """
    films: dict[str, Film] = {}
    twice: set[str] = set()
    for path in paths:
        columns, rows = open_table(path)
        part = _part(path, columns)
        for place, row in enumerate(rows, 1):
            try:
                if isinstance(row, MalformedRow):
                    raise SkipRow(row.detail, "malformed row")
                image_id = _image_id(row)
                film = films.setdefault(image_id, Film(part))
                if film.part != part:
                    twice.add(image_id)
                elif _add(film, row):
                    raise SkipRow(f"{image_id} has this row already", "duplicate row")
            except SkipRow as error:
                intake.add(place, error.reason, f"{path.name}: {error}", part)
    for image_id in sorted(twice):
        intake.hold_out(image_id, "test")
        intake.add(image_id, "contradicting rows", "the image is in a table of train and in one of test", "test")
        del films[image_id]
    return films


def classes_of(films: dict[str, Film]) -> tuple[str, ...]:
    """The local classes of the release that the images are from."""
    return LOCAL_CLASSES if any(film.part for film in films.values()) else KAGGLE_CLASSES


def _part(path: Path, columns: list[str]) -> str:
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        other = script_of_columns(columns, "vindr_cxr")
        what = f"a table for data_preprocess.{other}" if other else "not the table of the boxes"
        if NO_FINDING in columns:
            what = "image_labels_*.csv, which has no boxes"
        message = f"has no column {missing[0]!r} ({what}); pass annotations_*.csv or Kaggle's train.csv."
        raise TableError(f"{path}: {message}")
    if "class_id" in columns:
        return ""
    if match := _SPLIT.search(path.name.lower()):
        return match[1]
    raise TableError(f"{path}: its name says neither train nor test; name it as in the release, annotations_train.csv.")


def _image_id(row: dict[str, Any]) -> str:
    image_id = cell(row, "image_id")
    if "/" in image_id or "\\" in image_id or ".." in image_id:
        raise SkipRow(f"image_id {image_id[:100]!r} leaves the folder of the images", "image outside image root")
    if not _IMAGE_ID.fullmatch(image_id):
        raise SkipRow(f"image_id is {image_id[:100]!r}", "no image id")
    return image_id


def _add(film: Film, row: dict[str, Any]) -> bool:
    """Note what a row says; True where it was said before."""
    name, reader = cell(row, "class_name"), cell(row, "rad_id")
    name = _SPELLING.get(name.lower(), name)
    film.readers.add(reader)
    if not name:
        film.unnamed = True
        raise SkipRow("class_name is blank", "no class")
    if size := size_of_row(row):
        film.sizes.add(size)
    if name == NO_FINDING:
        return False
    try:
        box = _box(row)
    except SkipRow as error:  # the other boxes of the class alone would be a wrong answer
        why = (error.reason, str(error))
        film.broken[name] = min(why, film.broken.get(name, why))
        return False
    known = (reader, box) in film.marks[name]
    film.marks[name].add((reader, box))
    return known


def _box(row: dict[str, Any]) -> Box:
    x0, y0, x1, y1 = (number(row, column, "malformed box") for column in COLUMNS[2:])
    return x0, y0, x1, y1


def marks_of(film: Film) -> Iterator[tuple[str, list[Mark]]]:
    """The classes that readers marked, with their boxes, in an order that no table has a say in."""
    for name in sorted(film.marks):
        if name not in film.broken:
            yield name, sorted(film.marks[name])
