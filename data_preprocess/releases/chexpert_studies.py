"""CheXpert Plus as studies: its table has one row per image, `train/patient00001/study1/view1_frontal.jpg`.

The table names .jpg files, the release holds PNG and DICOM files, so an image is looked up whatever its ending.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_preprocess.core.candidates import Intake
from data_preprocess.core.images import ImageError
from data_preprocess.core.reports import words
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell

PATH_COLUMNS = ("path_to_image", "Path")  # CheXpert Plus; CheXpert's own tables, such as the human-read valid.csv
# Our name of a section -> the column that holds it.
SECTIONS = {
    "findings": "section_findings", "impression": "section_impression", "indication": "section_clinical_history",
    "history": "section_history",
}  # fmt: skip
PARTS = ("train", "valid", "test")  # the data set's own splits
ENDINGS = (".png", ".jpg", ".dcm", ".jpeg", ".PNG", ".JPG", ".DCM")
_PATH = re.compile(
    r"(?:(?P<prefix>.+)/)?(?P<name>(?P<part>train|valid|test)/(?P<study>(?P<subject>patient\w+)/study\w+)"
    r"/view(?P<number>\d{1,9})(?:_(?P<kind>frontal|lateral))?)\.\w+"
)
_PROJECTIONS = ("PA", "AP")


@dataclass(frozen=True, order=True)
class View:
    """One image of a study and the report that its row repeats; sorts PA, AP, other frontal, lateral, unknown."""

    rank: int
    number: int
    name: str  # path without its ending, from the folder that holds train/ and valid/
    kind: str  # frontal, lateral or "" (unknown)
    texts: tuple[tuple[str, str], ...]  # section name and text
    prefix: str  # what the table writes before train/ or valid/
    projection: str  # PA, AP or ""

    @property
    def view(self) -> str:
        """PA, AP, FRONTAL, LATERAL or UNKNOWN."""
        return (self.projection if self.kind == "frontal" else "") or self.kind.upper() or "UNKNOWN"

    @property
    def key(self) -> str:
        """What its labels are filed under: the path from the patient on."""
        return self.name.partition("/")[2]


@dataclass(frozen=True)
class Study:
    """The images of one examination, best first."""

    study_id: str  # patient00001/study1
    subject_id: str
    part: str
    views: tuple[View, ...]


def group_rows(rows: Iterable[dict[str, Any] | MalformedRow], intake: Intake) -> list[Study]:
    """The studies of a table, by name; rows that belong to none go to the intake."""
    views: dict[str, list[View]] = defaultdict(list)
    subjects: dict[str, str] = {}
    parts: dict[str, set[str]] = defaultdict(set)
    for number, row in enumerate(rows, 1):
        try:
            if isinstance(row, MalformedRow):
                raise SkipRow(row.detail, "malformed row")
            match = _match(cell(row, "path_to_image"))
            view, part = _view(row, match), _part(cell(row, "split"))
            views[match["study"]].append(view)
            subjects[match["study"]] = match["subject"]
            parts[match["study"]] |= {match["part"], part}
        except SkipRow as error:
            intake.add(number, error.reason, str(error))
    studies = []
    for study_id in sorted(views):
        unique: dict[str, View] = {}
        for view in sorted(views[study_id]):  # whatever the order of the rows
            if view.name in unique:
                intake.add(view.name, "duplicate row", "the image has more than one row")
            unique.setdefault(view.name, view)
        # Folder and column should agree; where they do not, the study stays out of training.
        part = next(part for part in reversed(PARTS) if part in parts[study_id])
        studies.append(Study(study_id, subjects[study_id], part, tuple(unique.values())))
    return studies


def label_key(row: Mapping[str, Any]) -> str | None:
    """What the labels of a row are filed under (`View.key`); None for a row that is no image of CheXpert's.

    Raises:
        TableError: there is no column of paths.
    """
    column = next((name for name in PATH_COLUMNS if name in row), None)
    if column is None:
        raise TableError(f"has no {' or '.join(PATH_COLUMNS)}; pass a label file of CheXpert Plus.")
    match = _PATH.fullmatch(str(row[column]).strip())
    return match["name"].partition("/")[2] if match else None


def sections(study: Study, first: View) -> dict[str, str]:
    """The sections by their radverl names, "" where there is no word; the images of a study repeat one report."""
    order = [dict(view.texts) for view in (first, *study.views)]
    return {name: next((texts[name] for texts in order if texts[name]), "") for name in SECTIONS}


def find_image(root: Path, view: View) -> Path:
    """The file of an image under `root`, whatever its ending.

    Raises:
        ImageError: there is none.
    """
    for folder in (root, root / view.prefix) if view.prefix else (root,):
        for ending in ENDINGS:
            path = os.path.join(folder, view.name + ending)
            if os.path.isfile(path):
                return Path(os.path.abspath(path))
    endings = ", ".join(ENDINGS[:4])
    raise ImageError(f"{root / view.name}: no file of this name with {endings}; check --image-root.", "image missing")


def check_root(root: Path, studies: Sequence[Study]) -> None:
    """See that the folder of the images is the one the table's paths start in.

    Raises:
        TableError: it holds none of the folders; names one inside it that does.
    """
    if not root.is_dir():
        raise TableError(f"{root}: no such folder; pass the folder of the images with --image-root.")
    starts = {path.split("/")[0] for study in studies for view in study.views for path in (view.name, view.prefix)}
    starts -= {"", "."}
    if not starts or any((root / start).is_dir() for start in starts):
        return
    inside = [path for path in sorted(root.iterdir()) if any((path / start).is_dir() for start in starts)]
    hint = f"{inside[0]} has" if inside else "none of its folders has either"
    raise TableError(f"{root}: has no folder {' or '.join(sorted(starts))}; pass the one that has ({hint}).")


def _match(path: str) -> re.Match[str]:
    match = _PATH.fullmatch(path)
    if not match:
        raise SkipRow(f"path_to_image is {path[:100]!r}, not train/patient1/study1/view1_frontal.jpg", "unknown path")
    prefix = match["prefix"] or ""
    if prefix.startswith("/") or ".." in prefix.split("/"):
        raise SkipRow(f"path_to_image {path[:100]!r} leaves the folder of the images", "image outside image root")
    return match


def _part(word: str) -> str:
    """The data set's split a word means, "" for none; a word nobody knows could be one that is held out."""
    part = {"val": "valid"}.get(split_name(word) or "", split_name(word) or "")
    if word and not part:
        raise SkipRow(f"split is {word[:40]!r}; use {', '.join(PARTS)}", "unknown split")
    return part


def _view(row: dict[str, Any], match: re.Match[str]) -> View:
    # The release says the view twice: the column goes first, a blank one is read from the name, never guessed.
    kind = cell(row, "frontal_lateral").lower() or match["kind"] or ""
    projection = cell(row, "ap_pa").upper()
    if kind == "frontal":
        rank = _PROJECTIONS.index(projection) if projection in _PROJECTIONS else len(_PROJECTIONS)
    else:
        rank = len(_PROJECTIONS) + (1 if kind == "lateral" else 2)
    texts = tuple((name, words(cell(row, column))) for name, column in SECTIONS.items())
    return View(rank, int(match["number"]), match["name"], kind, texts, match["prefix"] or "", projection)
