"""The films of Chest ImaGenome by study: those that have a scene graph, a split and a frontal view.

View and size come from the metadata table of MIMIC-CXR-JPG, where it is there; the split tables know the view too.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

from data_preprocess.core.candidates import Intake
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import SPLITS, split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table
from data_preprocess.core.views import Film
from data_preprocess.releases.imagenome_files import Graphs, Image, gold_subjects, read_images
from data_preprocess.releases.mimic_release import find_table
from data_preprocess.releases.mimic_tables import Study, require, size_of

SPLITS_OF = ("imagenome", "mimic")
Known = tuple[str, tuple[int, int] | None]  # view and size by the metadata table


def read_films(silver: Path, mimic_root: str, graphs: Graphs, splits_of: str, intake: Intake) -> list[Study]:
    """The studies with their usable films, by id; films that are none, and graphs of no film, go to the intake.

    Subjects that must not be trained on are held out.

    Args:
        splits_of: whose splits they are, one of `SPLITS_OF`.
    Raises:
        TableError: a table cannot be used.
    """
    if not Path(mimic_root).is_dir():
        raise TableError(f"{mimic_root}: no such folder; pass MIMIC-CXR-JPG with --mimic-root.")
    images = read_images(silver, intake)
    held_out = {image.subject_id for image in images.values() if not image.split} | gold_subjects(silver)
    for subject in sorted(held_out):
        intake.hold_out(subject, "test")
    if splits_of == "mimic":
        images = _with_mimic_splits(images, mimic_root, intake)
    for image in images.values():
        intake.hold_out(image.subject_id, image.split or "test")
    metadata = _read_metadata(mimic_root, images)
    films: dict[tuple[str, str], list[Film]] = defaultdict(list)
    for image in images.values():
        try:
            film = _film(image, graphs, metadata)
            films[image.row_id, image.split].append(film)
        except SkipRow as error:
            intake.add(image.dicom_id, error.reason, str(error), image.split)
    for dicom_id in graphs.images() - images.keys():
        intake.add(dicom_id, "not in a split", "it has a scene graph, but no usable row in the split tables")
    return [Study(row_id, split, films[row_id, split]) for row_id, split in sorted(films)]


def _film(image: Image, graphs: Graphs, metadata: dict[str, Known]) -> Film:
    """The film of an image.

    Raises:
        SkipRow: it is to be avoided, has no scene graph or is not frontal.
    """
    if not image.split:
        raise SkipRow("images_to_avoid.csv names it", "image to avoid")
    if not graphs.place(image.dicom_id):
        raise SkipRow("the release has no scene graph of it", "no scene graph")
    view, size = metadata.get(image.dicom_id, ("", None))
    film = Film(image.dicom_id, "", view, size)
    if film.kind != "lateral":  # the regions of a frontal film do not fit one that MIMIC-CXR calls lateral
        film = Film(image.dicom_id, "", image.view or view, size)
    if film.kind != "frontal":
        raise SkipRow(f"its view is {film.view or 'unknown'}", "no frontal view")
    return film


def _with_mimic_splits(images: dict[str, Image], root: str, intake: Intake) -> dict[str, Image]:
    """The images with the splits of MIMIC-CXR; those to avoid stay so, and one without a split there is left out.

    Raises:
        TableError: there is no split table, or it cannot be used.
    """
    out = {dicom_id: image for dicom_id, image in images.items() if not image.split}
    for row in _rows(root, "split", ("dicom_id", "split")):
        image, split = images.get(row["dicom_id"].strip()), split_name(row["split"])
        if image is None or not image.split:
            continue
        if split is None:
            intake.add(image.dicom_id, "unknown split", f"split is {row['split'][:40]!r}; use train, validate or test")
            continue
        first = out.setdefault(image.dicom_id, image._replace(split=split))
        if first.split != split:  # whichever row is read first
            out[image.dicom_id] = max(first, image._replace(split=split), key=lambda one: SPLITS.index(one.split))
    return out


def _read_metadata(root: str, wanted: Collection[str]) -> dict[str, Known]:
    """View and size of the wanted images; none where there is no table.

    Raises:
        TableError: there is one, but it cannot be used.
    """
    if not any(Path(root).glob("mimic-cxr-*-metadata.csv*")):
        return {}
    out: dict[str, Known] = {}
    for row in _rows(root, "metadata", ("dicom_id", "ViewPosition", "Rows", "Columns")):
        dicom_id = row["dicom_id"].strip()
        if dicom_id in wanted:
            out.setdefault(dicom_id, (cell(row, "ViewPosition").upper(), size_of(row["Columns"], row["Rows"])))
    return out


def _rows(root: str, kind: str, wanted: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The rows of a table of MIMIC-CXR-JPG, without those that cannot be read: nothing is known of their images."""
    try:
        path = find_table(root, kind)
    except TableError as error:
        raise TableError(str(error).replace("--root", "--mimic-root")) from error
    columns, rows = open_table(path)
    require(path, columns, wanted)
    yield from (row for row in rows if not isinstance(row, MalformedRow))
