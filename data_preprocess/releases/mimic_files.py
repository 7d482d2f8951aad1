"""The files of MIMIC-CXR: files/p10/p10000032/s50414267.txt and files/p10/p10000032/s50414267/DICOM_ID.jpg.

Paths are computed from the tables. Only a few files are looked for before the work starts, so that a data set that is
not there is one error, not 227,835 skipped studies.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from data_preprocess.core.content import MAX_REPORT
from data_preprocess.core.image_files import MACHINE_ERRORS, header_size
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import TableError
from data_preprocess.releases.mimic_tables import Size, Study

ENDINGS = (".jpg", ".png", ".dcm", ".jpeg")
REPORT_FOLDERS = ("files", "", "mimic-cxr-reports/files", "mimic-cxr-reports")  # the zip may be unpacked beside files/
IMAGE_FOLDERS = ("files", "")
MAX_BYTES = 4 * MAX_REPORT  # of a report file; the longest real ones have some thousand
LOOKED_FOR = 1000  # images, where nobody asked to see that they are there
WHERE_FROM = (
    "MIMIC-CXR-JPG has no reports: download mimic-cxr-reports.zip of MIMIC-CXR from PhysioNet, unpack it and pass its "
    "folder with --reports"
)
_GROUP = re.compile(r"p\d\d")
Item = TypeVar("Item")


def find_reports(folder: str, studies: Sequence[Study]) -> str:
    """The folder of reports that holds p10 to p19.

    Raises:
        TableError: no study has a report there; says where they come from.
    """
    trees = _trees(folder, REPORT_FOLDERS)
    for tree in trees:
        if any(os.path.isfile(report_path(tree, study)) for study in _spread(studies, len(studies))):
            return tree
    if trees and not studies:
        return trees[0]
    example = report_path(trees[0] if trees else os.path.join(folder, "files"), studies[0]) if studies else "p10"
    packed = Path(folder, "mimic-cxr-reports.zip")
    hint = f"unpack {packed} there" if packed.is_file() else WHERE_FROM
    raise TableError(f"{folder}: has none of the reports, for example {example}; {hint}.")


def image_tree(folder: str) -> str:
    """The folder of images that holds p10 to p19; as in the release, where it is not there."""
    return next(iter(_trees(folder, IMAGE_FOLDERS)), os.path.abspath(os.path.join(folder, "files")))


def report_path(tree: str, study: Study) -> str:
    """The file of a study's report."""
    return f"{tree}/{study.row_id[:3]}/{study.row_id}.txt"


def image_path(tree: str, study: Study, name: str, ending: str) -> str:
    """The file of an image."""
    return f"{tree}/{study.row_id[:3]}/{study.row_id}/{name}{ending}"


def find_ending(
    studies: Sequence[Study], tree: str, option: str | None, *, thorough: bool
) -> tuple[str, tuple[str, Size | None] | None]:
    """The ending of the image files, and the first such file with the size that the tables give it.

    Args:
        option: the ending, where the command line says it.
        thorough: look for all images until one is found.
    """
    endings = (option,) if option else ENDINGS
    for study in _spread(studies, len(studies) if thorough else LOOKED_FOR):
        for film in study.films:
            for ending in endings:
                path = image_path(tree, study, film.name, ending)
                if os.path.isfile(path):
                    return ending, (path, film.size)
    return endings[0], None


def size_holds(path: str, size: Size | None) -> bool:
    """Whether an image has the size that the tables give: not in a copy of smaller images."""
    try:
        return header_size(path) == size
    except (SkipRow, OSError):  # DICOM, or damaged: the one image says nothing about the others
        return True


def ending_of(text: str) -> str:
    """The ending of files that `--image-ending` means, with its dot.

    Raises:
        TableError: it is none.
    """
    if not re.fullmatch(r"\.?[A-Za-z0-9]{1,8}", text):
        raise TableError(f"--image-ending {text[:40]!r} is no ending of a file; use {', '.join(ENDINGS)}.")
    return "." + text.removeprefix(".")


def read_report(path: str) -> str:
    """The text of a report file: UTF-8, else Latin-1.

    Raises:
        SkipRow: it is missing, no file, too long or empty, or cannot be read.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
            raise SkipRow(f"{path}: is no file", "report unreadable")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SkipRow(f"{path}: no such file", "report missing") from error
    except OSError as error:
        if error.errno in MACHINE_ERRORS:
            raise
        raise SkipRow(f"{path}: cannot be read ({error.strerror})", "report unreadable") from error
    if len(data) > MAX_BYTES:
        raise SkipRow(f"{path}: has more than {MAX_BYTES} bytes", "report too long")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if not text.strip():
        raise SkipRow(f"{path}: is empty", "empty report")
    if "\0" in text:
        raise SkipRow(
            f"{path}: has NUL characters, as damaged files and UTF-16 have; save it as UTF-8", "malformed text"
        )
    return text


def _trees(folder: str, inside: Sequence[str]) -> list[str]:
    found = []
    for name in inside:
        path = os.path.abspath(os.path.join(folder, name))
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                if any(_GROUP.fullmatch(entry.name) and entry.is_dir() for entry in entries):
                    found.append(path)
    return found


def _spread(items: Sequence[Item], most: int) -> Iterator[Item]:
    """At most so many of the items, those first that lie far apart: a part of the data set is one group of patients."""
    step = max(1, len(items) // LOOKED_FOR)
    yield from items[::step]
    for start in range(1, step if most >= len(items) else 1):
        yield from items[start::step]
