"""The files of Chest ImaGenome: where the scene graphs are, which image is in which split, who is in the gold data set.

The splits are by patient. Images of gold patients are in `images_to_avoid.csv` and in no split. The 243,000 graphs are
listed here, by name, and opened later.
"""

import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_preprocess.core.candidates import Intake
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table
from data_preprocess.releases.mimic_tables import STUDY, SUBJECT
from data_preprocess.releases.others import script_of_folder

SPLIT_TABLES = ("test", "valid", "train")  # an image in two of them stays in the first
AVOID = "images_to_avoid"
SUFFIX = "_SceneGraph.json"
_COLUMNS = ("subject_id", "study_id", "dicom_id")
_DICOM = re.compile(r"(\w[\w-]{0,99})(?:\.dcm)?", re.A)


class Image(NamedTuple):
    """A row of a split table: row_id is that of its study, p10000032/s50414267; split is "" for one to avoid."""

    dicom_id: str
    row_id: str
    view: str
    split: str

    @property
    def subject_id(self) -> str:
        """Digits, as in the tables."""
        return self.row_id[1:9]


@dataclass
class Graphs:
    """Where the scene graphs are: in a folder, in scene_graph.zip, or some here and some there.

    members: image -> name in the zip file.
    """

    folder: str
    unpacked: set[str]
    packed: str
    members: dict[str, str]

    def place(self, dicom_id: str) -> tuple[str, str] | None:
        """File and member ("": the file itself) of an image's graph; None where there is none."""
        if dicom_id in self.unpacked:
            return os.path.join(self.folder, dicom_id + SUFFIX), ""
        return (self.packed, self.members[dicom_id]) if dicom_id in self.members else None

    def images(self) -> set[str]:
        """Images that have a graph."""
        return self.unpacked | self.members.keys()


def silver_folder(root: str) -> Path:
    """The folder silver_dataset of the release.

    Raises:
        TableError: `root` is not the release; says what to pass.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise TableError(f"{root}: no such folder; pass chest-imagenome-dataset-1.0.0 with --root.")
    for silver in (folder / "silver_dataset", folder):
        if (silver / "splits").is_dir():
            return Path(os.path.abspath(silver))
    inside = sorted(path.parent for depth in ("*", "*/*", "*/*/*") for path in folder.glob(f"{depth}/silver_dataset"))
    hint = "pass chest-imagenome-dataset-1.0.0, which has silver_dataset/splits, with --root"
    if inside:
        hint = f"pass {inside[0]} with --root"
    elif any(folder.glob("mimic-cxr-*.csv*")):
        hint = f"this is MIMIC-CXR-JPG, pass it with --mimic-root; {hint}"
    elif other := script_of_folder(folder, "chest_imagenome"):
        hint = f"use data_preprocess.{other}"
    raise TableError(f"{root}: is not Chest ImaGenome; {hint}.")


def find_graphs(silver: Path) -> Graphs:
    """The scene graphs of the release, unpacked or not.

    Raises:
        TableError: there are none.
    """
    graphs = Graphs("", set(), str(silver / "scene_graph.zip"), {})
    for folder in (silver / "scene_graph", silver / "scene_graph" / "scene_graph"):  # the zip unpacked inside or beside
        if folder.is_dir():
            with os.scandir(folder) as entries:
                names = {e.name.removesuffix(SUFFIX) for e in entries if e.name.endswith(SUFFIX)}
            if names:
                graphs.folder, graphs.unpacked = str(folder), names
                break
    if os.path.isfile(graphs.packed):
        try:
            with zipfile.ZipFile(graphs.packed) as packed:
                names_inside = packed.namelist()
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise TableError(
                f"{graphs.packed}: is damaged ({error}), perhaps half downloaded; fetch it again."
            ) from error
        for name in names_inside:
            base = name.rpartition("/")[2]
            if base.endswith(SUFFIX) and not base.startswith("."):
                graphs.members.setdefault(base.removesuffix(SUFFIX), name)
    if not graphs.images():
        raise TableError(f"{silver}: has no scene_graph.zip and no scene_graph/*{SUFFIX}; fetch scene_graph.zip.")
    return graphs


def read_images(silver: Path, intake: Intake) -> dict[str, Image]:
    """The images of the split tables and those to avoid, by dicom_id.

    Raises:
        TableError: a table is missing or cannot be used.
    """
    images: dict[str, Image] = {}
    for table in (AVOID, *SPLIT_TABLES):
        split = split_name(table) or ""
        for image in _rows(silver / "splits" / f"{table}.csv", split, intake):
            first = images.setdefault(image.dicom_id, image)
            if first is not image and first.split:
                intake.add(image.dicom_id, "duplicate row", "the split tables have more than one row of it", split)
    return images


def gold_subjects(silver: Path) -> set[str]:
    """Patients of the gold data set by its own tables, where they are there.

    Its texts hold quotes and line breaks that no CSV reader agrees about, so only the first columns are looked at.
    """
    out = set()
    for path in sorted((silver.parent / "gold_dataset").glob("*.txt")):
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            names = file.readline().rstrip("\r\n").split("\t")
            column = next((names.index(name) for name in ("patient_id", "subject_id") if name in names), None)
            if column is None:
                continue
            for line in file:
                cells = line.split("\t", column + 1)
                if len(cells) > column and (match := SUBJECT.fullmatch(cells[column].strip())):
                    out.add(match[1])
    return out


def _rows(path: Path, split: str, intake: Intake) -> Iterator[Image]:
    columns, rows = open_table(path) if path.is_file() else ([], iter(()))
    if not columns:
        raise TableError(f"{path}: no such table, without which nobody knows what to hold out; fetch it again.")
    for column in _COLUMNS:
        if column not in columns:
            raise TableError(f"{path}: has no column {column!r} but {', '.join(columns[:8])}; restore the table.")
    for number, row in enumerate(rows, 1):
        try:
            if isinstance(row, MalformedRow):
                raise SkipRow(row.detail, "malformed row")
            subject, study = SUBJECT.fullmatch(cell(row, "subject_id")), STUDY.fullmatch(cell(row, "study_id"))
            dicom = _DICOM.fullmatch(cell(row, "dicom_id"))
            if not (subject and study and dicom):  # it would become part of a path
                ids = ", ".join(repr(str(row[column])[:60]) for column in _COLUMNS)
                raise SkipRow(f"ids are {ids}, not eight digits, eight digits and a name", "malformed id")
        except SkipRow as error:
            intake.add(number, error.reason, f"{path.name}: {error}", split)
            continue
        yield Image(dicom[1], f"p{subject[1]}/s{study[1]}", cell(row, "ViewPosition").upper(), split)
