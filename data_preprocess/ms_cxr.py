"""MS-CXR as Parquet files for verl: one row per phrase of an image, with the boxes that radiologists drew for it.

example: the splits of version 1.1.0
  python -m data_preprocess.ms_cxr --csv MS_CXR_Local_Alignment_v1.1.0.csv --image-root mimic-cxr-jpg-2.1.0 \\
      --out data/ms_cxr --max-pixels 401408 --workers 8
example: the splits of MIMIC-CXR, so that a model trained on MIMIC-CXR reports is not tested on its own patients
  python -m data_preprocess.ms_cxr --csv MS_CXR_Local_Alignment_v1.0.0.csv --image-root mimic-cxr-jpg-2.1.0 \\
      --split-file mimic-cxr-jpg-2.1.0/mimic-cxr-2.0.0-split.csv.gz --out data/ms_cxr

On disk:
  CSV         MS_CXR_Local_Alignment_v*.csv, or the COCO file of the same name, .json
  IMAGE_ROOT  files/p10/p10000032/s50414267/DICOM_ID.jpg of MIMIC-CXR-JPG, or p10/... alone
All boxes of one image, phrase and category make one row. Boxes are stored in 0-1 of the image, by the image size in the
table, so they hold for a smaller copy of the images too; a copy of another shape (cropped, padded) is refused.
Splits: those of --split-file, else the table's own (1.1.0; they are not those of MIMIC-CXR), else (1.0.0) a hash of the
patient. Labels for --balance: the category of the phrase.
The same input gives the same files, whatever its order and --workers. A run that was killed goes on where it stopped
when the same command is given again.
Exit status: 0 done, 1 nothing usable (or a damaged row under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import hashlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from data_preprocess.core import options, pipeline
from data_preprocess.core.candidates import Candidate, Content, DataSet, Intake
from data_preprocess.core.content import grounding_content
from data_preprocess.core.image_files import refuse_other_shape
from data_preprocess.core.reports import words
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import SPLITS, hash_split, split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table, require_columns
from data_preprocess.releases import mscxr_boxes
from data_preprocess.releases.mscxr_boxes import Phrase, Place
from radverl.boxes import convert
from radverl.labels import Labels, normalise_labels
from radverl.text import remove_prior_references

TEST_FRACTION = 0.15  # of version 1.0.0: about the part that is test in RadVLM-GRPO, 189 of 1,160 (arXiv 2512.10691)
ENDINGS = (".jpg", ".png", ".jpeg", ".dcm")
Box = tuple[float, float, float, float]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return pipeline.run(DATASET, argv)


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    """The phrases of the table.

    Raises:
        TableError: a table or folder cannot be used.
    """
    root = Path(os.path.abspath(args.image_root))
    if not root.is_dir():
        raise TableError(f"{root}: no such folder; pass the folder of MIMIC-CXR-JPG with --image-root.")
    tree = root / "files" if (root / "files").is_dir() else root
    columns, rows = mscxr_boxes.open_marks(args.csv)
    split_of = _splits(args, "split" in columns)
    boxes: dict[Phrase, set[Box]] = defaultdict(set)
    facts: dict[Phrase, tuple[Place, tuple[int, int], str]] = {}
    broken: dict[Phrase, tuple[str, str, str | None]] = {}
    for number, row in enumerate(rows, 1):
        about: Phrase | None = None
        split: str | None = None
        try:
            if isinstance(row, MalformedRow):
                raise SkipRow(row.detail, "malformed row")
            about = mscxr_boxes.phrase(row)
            where = mscxr_boxes.place(row, about.dicom_id)
            split = split_of(row, about, where)
            intake.hold_out(where.subject_id, split)
            box, fact = mscxr_boxes.box(row), (where, mscxr_boxes.size(row), split)
            if facts.setdefault(about, fact) != fact:
                raise SkipRow("its rows differ in path, image size or split", "contradicting rows")
            if box in boxes[about]:
                intake.add(number, "duplicate row", f"{_row_id(about)} has this box already", split)
            boxes[about].add(box)
        except SkipRow as error:
            if about:  # its other boxes alone would be a wrong answer
                why = (error.reason, str(error), split)
                broken[about] = min(why, broken.get(about, why), key=str)
            else:
                intake.add(number, error.reason, str(error))
    for about, why in broken.items():
        intake.add(_row_id(about), *why)
    return [
        _candidate(about, *facts[about], sorted(boxes[about]), tree, args.check_images)
        for about in sorted(boxes)
        if about not in broken
    ]


def content(candidate: Candidate, args: argparse.Namespace) -> Content:
    """Where the phrase is.

    Raises:
        SkipRow: a box without area, an image of another shape than the table says, or nothing but a reference to
            prior studies.
    """
    original, size = candidate.payload["phrase"], candidate.payload["size"]
    if args.check_images == "decode":
        refuse_other_shape(candidate.images[0], *size)
    text = words(remove_prior_references(original)) if args.priors == "drop" else original
    if not text:
        raise SkipRow(
            f"nothing is left of {original[:80]!r} without references to prior studies", "only prior references"
        )
    boxes = convert(candidate.payload["boxes"], "pixel", "unit", *size).tolist()
    category = candidate.payload["category"]
    made = grounding_content(text, boxes, args, candidate.row_id, label=category, labels=candidate.labels)
    made.priors, made.original_report = args.priors, "" if text == original else original
    return made


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this data set alone."""
    add = parser.add_argument
    add("--csv", required=True, help="MS_CXR_Local_Alignment_v*.csv, or the COCO file beside it (.json)")
    add("--image-root", required=True, help="folder of MIMIC-CXR-JPG that holds files/, or files/ itself")
    add("--split-file", help="mimic-cxr-2.0.0-split.csv.gz: its splits instead of the table's own")
    add(
        "--priors", choices=("keep", "drop"), default="keep",
        help="references to prior studies in a phrase: keep (default) or drop (by rules)",
    )  # fmt: skip
    options.add_hash_split_options(parser, val=0.0, test=TEST_FRACTION)


DATASET = DataSet(
    name="ms_cxr",
    cohort="mimic",
    tasks=("phrase",),
    description=__doc__,
    add_options=add_options,
    read=read,
    content=content,
    leak_hint="--split-file mimic-cxr-2.0.0-split.csv.gz takes the splits of MIMIC-CXR",
)


def _splits(args: argparse.Namespace, own: bool) -> Callable[[dict[str, str], Phrase, Place], str]:
    """How the split of a row is found; it raises SkipRow where it cannot be."""
    if args.split_file:
        official = _read_split_file(args.split_file)

        def by_file(row: dict[str, str], about: Phrase, where: Place) -> str:
            if about.dicom_id not in official:
                raise SkipRow(f"{args.split_file} has no row of {about.dicom_id}", "no split")
            return _known(official[about.dicom_id])

        return by_file
    if own:
        return lambda row, about, where: _known(cell(row, "split"))
    fractions = {"val_fraction": args.val_fraction, "test_fraction": args.test_fraction}
    return lambda row, about, where: hash_split(where.subject_id, **fractions)


def _known(word: str) -> str:
    split = split_name(word)
    if split is None:
        raise SkipRow(f"split is {word[:40]!r}; use train, validate or test", "unknown split")
    return split


def _read_split_file(path: str) -> dict[str, str]:
    columns, rows = open_table(path)
    for column in ("dicom_id", "split"):
        require_columns(path, columns, {"--split-file": column})
    out: dict[str, str] = {}
    for row in rows:
        if isinstance(row, MalformedRow):
            raise TableError(f"--split-file {path}: a row cannot be read ({row.detail}); restore the file.")
        dicom_id, word = cell(row, "dicom_id"), sys.intern(cell(row, "split"))
        out[dicom_id] = max(word, out.get(dicom_id, word), key=_from_training)
    return out


def _from_training(word: str) -> tuple[int, str]:
    """The larger, the further from training: of two rows of one image, whichever is read first."""
    split = split_name(word)
    return SPLITS.index(split) if split else len(SPLITS), word


def _candidate(
    about: Phrase, where: Place, size: tuple[int, int], split: str, boxes: list[Box], tree: Path, check: str
) -> Candidate:
    names = [f"{tree}/{where.file}{ending}" for ending in ENDINGS]
    there = next((name for name in names if os.path.isfile(name)), names[0]) if check != "no" else names[0]
    return Candidate(
        row_id=_row_id(about),
        subject_id=where.subject_id,
        study_id=where.study_id,
        split=split,
        images=(there,),
        size=size,
        labels=_labels(about.category),
        payload={"phrase": about.text, "category": about.category, "boxes": boxes, "size": size},
    )


def _labels(category: str) -> Labels | None:
    try:
        return normalise_labels({category: 1})
    except ValueError:
        return None


def _row_id(about: Phrase) -> str:
    category = re.sub(r"\W+", "-", about.category.lower())
    return f"{about.dicom_id}/{category}/{hashlib.sha256(about.text.encode()).hexdigest()[:8]}"


if __name__ == "__main__":
    sys.exit(main())
