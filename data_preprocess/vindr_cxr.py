"""VinDr-CXR as Parquet files for verl: one row per image and abnormality that a reader marked, with its boxes.

example: the release of PhysioNet, its train and test images
  python -m data_preprocess.vindr_cxr --csv vindr-cxr/annotations --image-root vindr-cxr --out data/vindr_cxr \\
      --max-pixels 401408 --workers 8
example: a PNG copy of Kaggle's training images that are smaller than the DICOM images were
  python -m data_preprocess.vindr_cxr --csv train.csv --sizes train_meta.csv --image-root train --out data/vindr_kaggle

On disk:
  CSV         annotations_train.csv, annotations_test.csv (PhysioNet) or train.csv (Kaggle), or a folder with them
  IMAGE_ROOT  IMAGE_ID.dicom, .dcm, .png or .jpg, in this folder or up to three below it (train/, test/)
Boxes are in pixels of the DICOM images, so their size must be known: from the DICOM header, or for PNG and JPEG copies
from --sizes (or width and height in the table itself). Without either, a copy is taken to be as large as the original;
where boxes then lie outside the images, nothing is written. A padded copy cannot be used.
Three readers marked each training image on their own. Their boxes of a class become one set by weighted boxes fusion
(radverl/boxes/fusion.py); --fusion none keeps all. The test boxes are a consensus already.
Splits: PhysioNet's test is test, of its train images a hash moves --val-fraction to val; of Kaggle's one table a hash
moves --val-fraction and --test-fraction. The release names no patients: an image is its own subject and study, so two
images of a patient may lie in different splits.
Labels for --balance: the CheXpert label that the class means; classes without one (ILD, Calcification, ...) come last.
The same input gives the same files, whatever its order and --workers. A run that was killed goes on where it stopped
when the same command is given again.
Exit status: 0 done, 1 nothing usable (or a damaged row under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import functools
import hashlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from data_preprocess.core import options, pipeline
from data_preprocess.core.candidates import Candidate, Content, DataSet, Intake
from data_preprocess.core.content import grounding_content, unit_box
from data_preprocess.core.image_files import DICOM_SUFFIXES
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import hash_split
from data_preprocess.core.tabular import TableError
from data_preprocess.releases import vindr_tables
from data_preprocess.releases.vindr_images import Size, image_files, outside, read_sizes, size_and_kind
from data_preprocess.releases.vindr_tables import CHEXPERT, Box, Film, Mark
from radverl.boxes import clamp, convert
from radverl.boxes.fusion import FUSIONS, IOU_THRESHOLD, fuse
from radverl.labels import normalise_labels

TEST_FRACTION = 0.1
TOLERANCE = 0.02  # of the sides, that a box may leave the image by; it is cut off there (ours)
LOOKED_AT = 200  # copies whose size is looked at before the work starts
MANY = 0.05  # of them with boxes outside say that the copies are smaller, not that a box is bad (ours)
VAGUE = "Other lesion"  # nobody can say that there is none


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return pipeline.run(DATASET, argv)


def check(args: argparse.Namespace) -> None:
    """See that the threshold is one."""
    if not 0 < args.fusion_iou < 1:
        raise ValueError(f"--fusion-iou is {args.fusion_iou}; use a number between 0 and 1.")


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    """One candidate per image and class, marked or drawn as a negative.

    Raises:
        TableError: a table or folder cannot be used, or the images are smaller than the ones the boxes were drawn on.
    """
    root = Path(os.path.abspath(args.image_root))
    files = image_files(root)
    sizes = read_sizes(args.sizes) if args.sizes else {}
    films = vindr_tables.read_films(vindr_tables.find_tables(args.csv), intake)
    absent = [name for name in vindr_tables.classes_of(films) if name != VAGUE]
    out: list[Candidate] = []
    for image_id in sorted(films):
        film = films[image_id]
        split = _split(image_id, film, args)
        intake.hold_out(image_id, split)
        for name, why in sorted(film.broken.items()):
            intake.add(_row_id(image_id, name), *why, split)
        if not (film.marks or film.broken or film.unnamed or args.negatives):
            intake.add(image_id, "no finding", "no reader marked anything", split)
        stated = {sizes[image_id]} if image_id in sizes else set() if args.sizes else film.sizes
        if film.marks and (len(stated) > 1 or (args.sizes and not stated)):
            intake.add(image_id, "no image size", f"{args.sizes or 'the table'} states {len(stated)} sizes", split)
            continue
        marks = list(vindr_tables.marks_of(film))
        marks += [(name, []) for name in _negatives(image_id, film, absent, args.negatives)]
        image, size = files.get(image_id, f"{root}/{image_id}.dicom"), next(iter(stated), None)
        out += [_candidate(image_id, name, boxes, len(film.readers), split, image, size) for name, boxes in marks]
    _refuse_small_copies(out)
    return out


def content(candidate: Candidate, args: argparse.Namespace) -> Content:
    """Where the abnormality is; no box for a negative.

    Raises:
        SkipRow: the image cannot be read, a box lies outside it or has no area, or too few readers saw the finding.
    """
    marked = candidate.payload
    if not marked["boxes"]:
        return grounding_content(marked["name"], [], args, candidate.row_id, labels=candidate.labels)
    size = original_size(candidate.images[0], marked["size"])
    if outside(marked["boxes"], size, TOLERANCE):
        message = f"a box leaves the image of {size[0]} x {size[1]}; is it a smaller copy? pass --sizes"
        raise SkipRow(message, "box outside image")
    in_unit = convert(marked["boxes"], "pixel", "unit", *size).tolist()
    boxes: Sequence[Sequence[float]] = [_inside(box) for box in in_unit]
    if marked["of"] > 1:
        boxes = fuse(boxes, marked["readers"], marked["of"], args.fusion, args.fusion_iou, args.min_readers)
        if not boxes:
            raise SkipRow(f"of {marked['of']} readers too few marked {marked['name']}", "too few readers")
    return grounding_content(marked["name"], boxes, args, candidate.row_id, labels=candidate.labels)


def original_size(path: str, stated: Sequence[int] | None) -> Size:
    """Width and height of the DICOM image: of its header, else as stated by a table, else those of the copy.

    Raises:
        ImageError: the file is missing, or no image.
    """
    if stated is not None and not path.lower().endswith(DICOM_SUFFIXES):
        return stated[0], stated[1]
    return size_and_kind(path)[0]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this data set alone."""
    add = parser.add_argument
    add(
        "--csv",
        nargs="+",
        required=True,
        help="annotations_train.csv and annotations_test.csv, train.csv, or their folder",
    )
    add("--image-root", required=True, help="folder of the images, or the one above train/ and test/")
    add("--sizes", metavar="FILE", help="table of the DICOM images' sizes: image_id, width, height (or dim1, dim0)")
    add(
        "--fusion", choices=FUSIONS, default="wbf",
        help="several readers: wbf (default), union (the hull of boxes that match), majority (wbf of what more than\n"
        "half of them marked), none (all boxes)",
    )  # fmt: skip
    add(
        "--fusion-iou",
        type=float,
        default=IOU_THRESHOLD,
        metavar="X",
        help="above which boxes match (default: %(default)s)",
    )
    add("--min-readers", type=options.positive, default=1, metavar="N", help="that marked a box (default: %(default)s)")
    add(
        "--negatives", type=functools.partial(options.positive, least=0), default=0, metavar="N",
        help="classes per image that no reader marked, whose answer is None, chosen by hash (default: %(default)s)",
    )  # fmt: skip
    options.add_hash_split_options(parser, val=0.0, test=TEST_FRACTION)


DATASET = DataSet(
    name="vindr_cxr",
    cohort="vindr",
    tasks=("abnormality",),
    description=__doc__,
    add_options=add_options,
    read=read,
    content=content,
    check=check,
    unwanted=frozenset({"no finding", "too few readers"}),
)


def _inside(box: Sequence[float]) -> Sequence[float]:
    """The part of a box in 0-1 that lies in the image; SkipRow: none, also when it is rounded as it is stored."""
    unit_box(box)
    return clamp(box) or box


def _split(image_id: str, film: Film, args: argparse.Namespace) -> str:
    if film.part == "test":
        return "test"
    fraction = 0.0 if film.part else args.test_fraction
    return hash_split(image_id, val_fraction=args.val_fraction, test_fraction=fraction)


def _negatives(image_id: str, film: Film, classes: Sequence[str], number: int) -> list[str]:
    """Classes that no reader marked, in an order that the image's id decides."""
    if film.unnamed:
        return []
    absent = [name for name in classes if name not in film.marks and name not in film.broken]
    return sorted(absent, key=lambda name: hashlib.sha256(f"{image_id}/{name}".encode()).digest())[:number]


def _candidate(
    image_id: str, name: str, marks: Sequence[Mark], of: int, split: str, image: str, size: Size | None
) -> Candidate:
    label = CHEXPERT.get(name)
    boxes, readers = [box for _, box in marks], [reader for reader, _ in marks]
    return Candidate(
        row_id=_row_id(image_id, name),
        subject_id=image_id,
        study_id=image_id,
        split=split,
        images=(image,),
        labels=normalise_labels({label: int(bool(marks))}) if label else None,
        payload={"name": name, "boxes": boxes, "readers": readers, "of": of, "size": size},
    )


def _row_id(image_id: str, name: str) -> str:
    return f"{image_id}/{re.sub(r'[^a-z0-9]+', '-', name.lower())}"


def _refuse_small_copies(candidates: Sequence[Candidate]) -> None:
    """See that copies whose original size nobody states hold the boxes.

    Of smaller copies only some boxes lie outside; the others would be wrong, and nobody would see it.
    """
    boxes: dict[str, list[Box]] = defaultdict(list)
    for candidate in candidates:
        if candidate.payload["size"] is None and not candidate.images[0].lower().endswith(DICOM_SUFFIXES):
            boxes[candidate.images[0]] += candidate.payload["boxes"]
    looked, small = 0, list[str]()
    for path in list(boxes)[:: max(1, len(boxes) // LOOKED_AT)]:
        try:
            size, dicom = size_and_kind(path)
        except SkipRow:  # listed later
            continue
        looked += 1
        if not dicom and outside(boxes[path], size, TOLERANCE):
            small.append(f"{path} ({size[0]} x {size[1]})")
    if len(small) > max(1, MANY * looked):
        message = f"boxes of {len(small)} in {looked} images lie outside, first in {small[0]}"
        raise TableError(f"{message}: these are smaller copies; pass the sizes of the DICOM images with --sizes.")


if __name__ == "__main__":
    sys.exit(main())
