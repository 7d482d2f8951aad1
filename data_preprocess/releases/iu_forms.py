"""The three forms of IU X-ray: which one lies in a folder, and what all of them come to, a `Study`.

openi: XML files and a folder of films; kaggle: two tables and films; r2gen: one JSON file and films.
"""

import html
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_preprocess.core.tabular import TableError
from data_preprocess.releases.others import script_of_folder

FORMS = ("openi", "kaggle", "r2gen")
# Where the films lie, from the folder of the reports.
IMAGE_FOLDERS = {
    "openi": ("NLMCXR_png", "png", "images", "NLMCXR_dcm"),
    "kaggle": ("images/images_normalized", "images_normalized", "images"),
    "r2gen": ("images",),
}
XML_FOLDERS = (
    "", "ecgen-radiology", "NLMCXR_reports", "NLMCXR_reports/ecgen-radiology", "reports", "reports/ecgen-radiology",
)  # fmt: skip
ENDINGS = (".png", ".jpg", ".jpeg", ".dcm")  # of films
PACKED = (".tgz", ".tar.gz", ".tar", ".zip")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,8});")
_ID = re.compile(r"(?:CXR)?0*(\d{1,9})(?:\.0)?(?:_.*)?", re.S)


@dataclass(frozen=True)
class Release:
    """A form and what holds its reports: a folder of XML files, a table or a JSON file."""

    form: str
    source: Path


@dataclass(slots=True)
class Study:
    """One report and its films.

    texts: findings, impression, indication; or report alone, where it has no headers.
    images: their names in the release, with or without ending.
    mesh: major MeSH terms; None where the form has none.
    split: of the release, "" for none.
    """

    row_id: str
    subject_id: str
    texts: dict[str, str]
    images: list[str]
    mesh: list[str] | None = None
    split: str = ""


def subject_of(name: str) -> str:
    """The report's number as Open-i writes it: CXR1 for "1", "CXR1", "CXR1_1_IM-0001"; "" for anything else."""
    match = _ID.fullmatch(name.strip())
    return f"CXR{match[1]}" if match else ""


def unescape(text: str) -> str:
    """The text without entities: the release has escaped some twice, so that a parser leaves `&gt;`."""
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)


def find_release(data: str, form: str | None = None) -> Release:
    """The form that lies in a folder, or that a file is of.

    Args:
        form: the one to look for; None: any.
    Raises:
        TableError: there is none, or more than one.
    """
    path = Path(data)
    if path.name.lower().endswith(PACKED) and path.is_file():
        raise TableError(f"{path}: is packed; unpack it and pass the folder with --root.")
    if not path.exists():
        raise TableError(f"{path}: no such file or folder; pass the folder of the release with --root.")
    finders = {form: _FINDERS[form]} if form else _FINDERS
    found = [Release(name, source) for name, find in finders.items() if (source := find(path))]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(release.form for release in found)
        raise TableError(f"{path}: holds more than one form of IU X-ray ({names}); choose one with --form.")
    raise TableError(_nothing(path, form))


def image_folder(release: Release) -> Path:
    """Where the films of a release should be: the first known folder that is there, else the folder that holds films
    itself (NLMCXR_png.tgz has no folder of its own), else the folder of the reports."""
    base = release.source if release.source.is_dir() else release.source.parent
    bases = [base]
    if release.form == "openi":  # the films lie beside ecgen-radiology/, which may be in a folder of its own
        parent = base.absolute().parent
        bases += [parent, parent.parent] if parent.name in XML_FOLDERS else [parent]
    folders = (folder / name for folder in bases for name in IMAGE_FOLDERS[release.form])
    there = [*filter(Path.is_dir, folders), *filter(_holds_films, bases)]
    return there[0] if there else base


def xml_files(folder: Path) -> list[Path]:
    """The XML files of a folder by name, without the hidden ones that some archives hold."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() == ".xml" and not p.name.startswith("."))


def _holds_films(folder: Path) -> bool:
    """Whether films lie right in a folder, or in numbered folders as DICOM films do."""
    with os.scandir(folder) as entries:
        return any(entry.name.lower().endswith(ENDINGS) or entry.name.isdigit() for entry in entries)


def _find_xml(path: Path) -> Path | None:
    folders = [path / name for name in XML_FOLDERS if (path / name).is_dir()]
    return next((folder for folder in folders if xml_files(folder)), None)


def _find_reports(path: Path) -> Path | None:
    return _find_file(path, (".csv", ".csv.gz"), "reports", "indiana_reports")


def _find_annotation(path: Path) -> Path | None:
    return _find_file(path, (".json",), "annotation", "annotation")


def _find_file(path: Path, endings: tuple[str, ...], word: str, usual: str) -> Path | None:
    """The file itself, or the one in the folder that has the word in its name; the usual name goes first."""
    if path.is_file():
        return path if path.name.lower().endswith(endings) else None
    there = [p for p in path.iterdir() if p.name.lower().endswith(endings) and not p.name.startswith(".")]
    named = sorted(p for p in there if word in p.name.lower() and p.is_file())
    usually = [p for p in named if p.name.lower() in [usual + ending for ending in endings]]
    if len(usually) == 1 or len(named) == 1:
        return (usually or named)[0]
    if named:
        names = ", ".join(p.name for p in named)
        raise TableError(f"{path}: holds {names}; pass the one that is meant with --root.")
    return None


_FINDERS: dict[str, Callable[[Path], Path | None]] = {
    "openi": _find_xml, "kaggle": _find_reports, "r2gen": _find_annotation,
}  # fmt: skip


def _nothing(path: Path, form: str | None) -> str:
    if path.is_dir():
        packed = sorted(p.name for p in path.iterdir() if p.name.lower().endswith(PACKED))
        if packed:
            return f"{path}: holds {packed[0]}, which is packed; unpack it first."
        if script := script_of_folder(path, "iu_xray"):
            return f"{path}: is not IU X-ray; use data_preprocess.{script}."
    wanted = {
        "openi": "ecgen-radiology/ with XML files", "kaggle": "indiana_reports.csv", "r2gen": "annotation.json",
    }  # fmt: skip
    names = wanted[form] if form else ", ".join(wanted.values())
    return f"{path}: has none of what IU X-ray starts with ({names}); pass the folder that has it with --root."
