"""The tables of MIMIC-CXR-JPG: which studies there are, in which split, with which films and labels.

One row an image in `split` and `metadata`, one a study in `chexpert` and `negbio`. Images are joined by dicom_id, and
both tables must agree about the study of an image. What is kept of 377,110 rows is small: ids and splits are shared.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from data_preprocess.core.candidates import Intake
from data_preprocess.core.label_files import labels_of_rows
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import SPLITS, split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table
from data_preprocess.core.views import Film
from data_preprocess.releases.mimic_release import LABEL_TABLES, find_table
from radverl.labels import Labels

SUBJECT = re.compile(r"p?(\d{8})(?:\.0)?")  # exports write "p10000032" and "10000032.0" too
STUDY = re.compile(r"s?(\d{8})(?:\.0)?")
LABELS = "chexpert|negbio|rules|FILE"  # of --labels
LABELS_HELP = (
    "table of MIMIC-CXR-JPG, our own labeller, or a table with study_id and the 14 labels, then only its\n"
    "studies are written (default: %(default)s)"
)
_DICOM = re.compile(r"\w[\w.-]{0,99}", re.A)
_LEAVES = re.compile(r"[/\\]|\.\.")
Place = tuple[str, str]  # split and row_id of a study; one object for all its images
Size = tuple[int, int]


class Study(NamedTuple):
    """The films of one examination, by name."""

    row_id: str  # p10000032/s50414267
    split: str
    films: list[Film]  # their paths are not known yet

    @property
    def subject_id(self) -> str:
        """Digits, as in the tables."""
        return self.row_id[1:9]

    @property
    def study_id(self) -> str:
        """Likewise."""
        return self.row_id[11:]


def read_studies(splits: Path, metadata: Path, intake: Intake) -> list[Study]:
    """The studies of both tables, by id; images that belong to none go to the intake.

    Raises:
        TableError: a table cannot be used.
    """
    places = _read_places(splits, intake)
    films = _read_films(metadata, places, intake)
    studies: dict[str, Study] = {}
    for dicom_id, place in places.items():
        if place is None:  # listed already
            continue
        split, row_id = place
        film = films.get(dicom_id)
        if film is None:
            intake.add(dicom_id, "no metadata", f"of {row_id}; not in the metadata table", split)
            continue
        study = studies.get(row_id)
        # Images of one study in two splits: the study stays out of training.
        if study is None or SPLITS.index(split) > SPLITS.index(study.split):
            studies[row_id] = study = Study(row_id, split, study.films if study else [])
        study.films.append(film)
    return [studies[row_id] for row_id in sorted(studies)]


def read_study_labels(option: str, root: str) -> dict[str, Labels] | None:
    """Labels by study_id; None: by our rules.

    Raises:
        TableError: no such table, or as `label_files.labels_of_rows`.
    """
    if option == "rules":
        return None
    if option not in LABEL_TABLES and not Path(option).is_file():
        raise TableError(f"--labels {option}: no such file; pass one, or chexpert, negbio or rules.")
    path = find_table(root, option) if option in LABEL_TABLES else Path(option)
    columns, rows = open_table(path)
    require(path, columns, ("study_id",))
    return labels_of_rows(enumerate(rows, 1), _label_key, str(path))


def known_labels(labels: dict[str, Labels] | None, study: Study) -> Labels | None:
    """The labels of a study; None: by our rules.

    Raises:
        SkipRow: the table of labels has none.
    """
    if labels is None:
        return None
    if study.study_id not in labels:
        raise SkipRow(f"the labels have no row of study {study.study_id}", "no labels")
    return labels[study.study_id]


def require(path: Path, columns: list[str], wanted: tuple[str, ...]) -> None:
    """See that a table of MIMIC-CXR-JPG has the wanted columns."""
    for column in wanted:
        if column not in columns:
            there = ", ".join(columns[:8])
            raise TableError(f"{path}: has no column {column!r} but {there}; restore the table of MIMIC-CXR-JPG.")


def size_of(columns: str, rows: str) -> Size | None:
    """Width and height; None where the table does not say."""
    try:
        width, height = int(float(columns)), int(float(rows))
    except (ValueError, OverflowError):
        return None
    return (width, height) if width > 0 and height > 0 else None


def _read_places(path: Path, intake: Intake) -> dict[str, Place | None]:
    """Where each image of the split table belongs, None where nobody says; val and test subjects are held out."""
    places: dict[str, Place | None] = {}
    shared: dict[Place, Place] = {}
    repeats, unclear = Counter[str](), set[str]()
    for number, row in _rows(path, ("dicom_id", "study_id", "subject_id", "split"), intake):
        try:
            dicom_id, row_id = _ids(row)
        except SkipRow as error:
            intake.add(number, error.reason, f"{path.name}: {error}")
            continue
        place = None
        if split := split_name(row["split"]):
            intake.hold_out(row_id[1:9], split)
            place = shared.setdefault((split, row_id), (split, row_id))
        else:  # could be one that is held out
            message = f"split is {row['split'][:40]!r}; use train, validate or test"
            intake.add(dicom_id, "unknown split", f"{path.name}: {message}")
        if dicom_id in places:
            repeats[dicom_id] += 1
            if places[dicom_id] != place:
                unclear.add(dicom_id)
        else:
            places[dicom_id] = place
    _note_repeats(repeats, unclear, places, path, intake)
    places.update(dict.fromkeys(unclear))
    return places


def _read_films(path: Path, places: dict[str, Place | None], intake: Intake) -> dict[str, Film]:
    """View and size of each image; one of which the tables say different things loses its place."""
    films: dict[str, Film] = {}
    sizes: dict[tuple[str, str], Size | None] = {}  # few different ones, as are views
    views: dict[str, str] = {}
    repeats, unclear = Counter[str](), set[str]()
    for number, row in _rows(path, ("dicom_id", "study_id", "subject_id", "ViewPosition"), intake):
        try:
            dicom_id, row_id = _ids(row)
        except SkipRow as error:
            intake.add(number, error.reason, f"{path.name}: {error}")
            continue
        if dicom_id not in places:
            intake.add(dicom_id, "no split", f"of {row_id}; not in the split table")
            continue
        view = row["ViewPosition"]
        if view not in views:
            views[view] = " ".join(cell(row, "ViewPosition").upper().split())
        sides = row.get("Columns", ""), row.get("Rows", "")
        if sides not in sizes:
            sizes[sides] = size_of(*sides)
        film = Film(dicom_id, "", views[view], sizes[sides])
        place = places[dicom_id]
        if dicom_id in films:
            repeats[dicom_id] += 1
        if films.setdefault(dicom_id, film) != film or (place and place[1] != row_id):
            unclear.add(dicom_id)
    _note_repeats(repeats, unclear, places, path, intake)
    places.update(dict.fromkeys(unclear))
    return films


def _note_repeats(
    repeats: Mapping[str, int], unclear: set[str], places: Mapping[str, Place | None], path: Path, intake: Intake
) -> None:
    """List images with several rows; which row is read first decides nothing."""
    for dicom_id in unclear:
        intake.add(dicom_id, "contradictory rows", f"{path.name} or the split table says different things of it")
    for dicom_id, number in repeats.items():
        if dicom_id not in unclear:
            place = places[dicom_id]
            message = f"{number + 1} rows of {path.name} are about this image"
            intake.add(dicom_id, "duplicate row", message, place[0] if place else None)


def _rows(path: Path, wanted: tuple[str, ...], intake: Intake) -> Iterator[tuple[int, dict[str, str]]]:
    columns, rows = open_table(path)
    require(path, columns, wanted)
    for number, row in enumerate(rows, 1):
        if isinstance(row, MalformedRow):
            intake.add(number, "malformed row", f"{path.name}: {row.detail}")
        else:
            yield number, row


def _ids(row: Mapping[str, str]) -> tuple[str, str]:
    """The image, and the row_id of its study.

    Raises:
        SkipRow: an id is none of MIMIC's; it would become part of a path.
    """
    dicom_id = row["dicom_id"].strip()
    subject, study = SUBJECT.fullmatch(row["subject_id"].strip()), STUDY.fullmatch(row["study_id"].strip())
    if not _DICOM.fullmatch(dicom_id) or ".." in dicom_id:
        reason = "image outside image root" if _LEAVES.search(dicom_id) else "malformed id"
        raise SkipRow(f"dicom_id is {dicom_id[:100]!r}, no name of a file", reason)
    if not subject or not study:
        which = "study_id" if subject else "subject_id"
        raise SkipRow(f"{dicom_id}: {which} is {row[which][:40]!r}, not eight digits", "malformed id")
    return dicom_id, f"p{subject[1]}/s{study[1]}"


def _label_key(row: Mapping[str, Any]) -> str:
    study = STUDY.fullmatch(str(row.get("study_id")).strip())
    if not study:
        raise TableError(f"study_id is {str(row.get('study_id'))[:40]!r}, not eight digits; restore the table.")
    return study[1]
