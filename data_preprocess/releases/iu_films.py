"""The films of IU X-ray on disk: the same film has a name in each form, and perhaps another ending.

XML: CXR10_IM-0002-1001; PNG: CXR10_IM-0002-1001.png; Kaggle: 10_IM-0002-1001.dcm.png; DICOM: 10/10_IM-0002-1001.dcm.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from data_preprocess.core.candidates import Intake
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import TableError
from data_preprocess.core.views import Film
from data_preprocess.releases.iu_forms import ENDINGS, Study

MAX_DEPTH = 3  # folders below the image root
# Report CXR1 alone has its number twice, CXR1_1_IM-0001-3001.
_NAME = re.compile(r"(?:CXR)?(?:\d+_)?(\d+_IM-\d+(?:-\d+)*)(?:\.dcm)?(?:\.(?:png|jpe?g|dcm))?", re.I)

FilmsOf = Callable[[Study, str, Intake], list[Film]]


def film_key(name: str) -> str:
    """What is the same in all names of a film: 10_IM-0002-1001; another name is its own key."""
    base = name.strip().rpartition("/")[2]
    match = _NAME.fullmatch(base)
    return match[1].upper() if match else name.strip()


def image_root(option: str | None, usual: Path) -> Path:
    """The folder of the films, absolute.

    Raises:
        TableError: no such folder.
    """
    root = Path(option or usual)
    if not root.is_dir():
        raise TableError(f"{root}: no such folder; pass the folder of the films with --image-root.")
    return Path(os.path.abspath(root))


def read_films(root: Path, views: Mapping[str, str], *, ordered: bool) -> FilmsOf:
    """A function that gives the films of a study; one that lies outside `root` is listed and left out.

    Args:
        views: by `film_key`; a film that is not there has no known view.
        ordered: the order of the study counts, and its names are paths; else names, looked up below `root`.
    """
    files = {} if ordered else index_files(root)

    def films(study: Study, split: str, intake: Intake) -> list[Film]:
        out = []
        for number, image in enumerate(study.images):
            try:
                inside = path_inside(root, image)
            except SkipRow as error:
                intake.add(f"{study.row_id} image {number}", error.reason, str(error), split)
                continue
            path = inside if ordered else files.get(film_key(image)) or _with_ending(inside)
            out.append(Film(f"{number:06d}" if ordered else film_key(image), path, views.get(film_key(image), "")))
        return out

    return films


def index_files(root: Path) -> dict[str, str]:
    """Film key -> file below a folder; of several files of one film, that with the first of `ENDINGS` counts.

    Linked folders in it are not followed, so that no loop is walked.
    """
    found: dict[str, tuple[int, str]] = {}
    for folder, folders, names in os.walk(root):
        if folder.count(os.sep) - str(root).rstrip(os.sep).count(os.sep) >= MAX_DEPTH:
            folders.clear()
        for name in names:
            ending = os.path.splitext(name)[1].lower()
            if ending in ENDINGS and _NAME.fullmatch(name):
                here = (ENDINGS.index(ending), os.path.join(folder, name))
                found[film_key(name)] = min(here, found.get(film_key(name), here))
    return {key: path for key, (_, path) in found.items()}


def path_inside(root: Path, name: str) -> str:
    """A name of the release as a path below `root`.

    Raises:
        SkipRow: it leads elsewhere.
    """
    if "\\" in name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
        raise SkipRow(f"{name[:80]!r} leads out of the folder of the films", "image outside image root")
    return os.path.join(root, name)


def _with_ending(path: str) -> str:
    return path if path.lower().endswith(ENDINGS) else path + ".png"
