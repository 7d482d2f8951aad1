"""CheXpert Plus as Parquet files for verl: one row per study, with the labels that come with the data set.

example: 1,000 label-balanced training studies that have both sections, and the data set's own validation studies
  python -m data_preprocess.chexpert_plus --csv df_chexpert_plus_240401.csv --image-root PNG \\
      --out data/chexpert_plus_1000 --balance 1000 --split train val --max-pixels 401408 --workers 8
  (--max-pixels 401408 is what recipes/orapo_qwen25vl3b.sh expects: 512 tokens a film; larger films pass its limit)

Labels are those of chexbert_labels/{report,findings,impression}_fixed.json beside the table (which one: by --target).
Studies that lack a wanted section are left out and listed in OUT/SPLIT.skipped.jsonl, and so is all that is unusable.
Splits: the data set's valid studies are val (or test: --official-valid); of its other patients a hash moves
--test-fraction to test, because the data set has no test split. Files of splits not named by --split stay.
--balance and --limit draw studies before an image is opened, and draw others for those whose image then is bad;
how: data_preprocess/core/balance.py. The same input gives the same files, whatever its order and --workers.
A run that was killed goes on where it stopped when the same command is given again.
Exit status: 0 done, 1 nothing usable (or a damaged study under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import sys
from pathlib import Path

from data_preprocess.core import options, pipeline
from data_preprocess.core.candidates import Candidate, DataSet, Intake
from data_preprocess.core.content import TARGETS
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import SPLITS, hash_split
from data_preprocess.core.tabular import TableError, open_table
from data_preprocess.releases import chexpert_rows
from data_preprocess.releases.chexpert_studies import check_root, group_rows
from data_preprocess.releases.others import script_of_columns

TEST_FRACTION = 0.02  # about 1,300 of the 64,700 patients (ours)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return pipeline.run(DATASET, argv)


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    """The studies that have the wanted sections, views and image files.

    Raises:
        TableError: a table or folder cannot be used.
    """
    root = Path(args.image_root or Path(args.csv).parent)
    check_root(root, [])  # before the table is read, which takes a while
    columns, rows = open_table(args.csv)
    wanted = (f"section_{name}" for name in TARGETS[args.target])
    for column in ("path_to_image", *wanted):
        if column not in columns and (column == "path_to_image" or args.target != "any"):
            other = script_of_columns(columns, "chexpert_plus")
            what = f" (that is a table for data_preprocess.{other})" if other else ""
            raise TableError(f"{args.csv}: has no column {column!r}; pass df_chexpert_plus_*.csv with --csv{what}.")
    labels = chexpert_rows.read_study_labels(args.labels, args.csv, columns, args.target)
    studies = group_rows(rows, intake)
    if not studies and not any(intake.logs.values()):
        raise TableError(f"{args.csv}: has a header and no rows; pass the whole table with --csv.")
    check_root(root, studies)
    official = {"valid": args.official_valid, "test": "test"}
    for study in studies:
        intake.hold_out(study.subject_id, official.get(study.part, "train"))
    out = []
    for study in studies:
        split = official.get(study.part)
        if study.part == "train":  # a patient of the valid studies stays in train, where the guard takes it out
            fractions = (0.0, 0.0) if study.subject_id in intake.held_out else (args.val_fraction, args.test_fraction)
            split = hash_split(study.subject_id, val_fraction=fractions[0], test_fraction=fractions[1])
        assert split
        try:
            out.append(chexpert_rows.candidate(study, split, args, root, labels))
        except SkipRow as error:
            intake.add(study.study_id, error.reason, str(error), split)
    return out


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this data set alone."""
    add = parser.add_argument
    add("--csv", required=True, help="df_chexpert_plus_*.csv")
    add("--image-root", help="folder that holds train/ and valid/, PNG, JPEG or DICOM (default: the table's folder)")
    add("--labels", help="label file (.csv or JSON lines), its folder, or: rules (default: chexbert_labels)")
    add("--official-valid", choices=SPLITS[1:], default="val", help="where the data set's valid studies go")
    options.add_hash_split_options(parser, val=0.0, test=TEST_FRACTION)
    options.add_view_option(parser)


DATASET = DataSet(
    name="chexpert_plus",
    cohort="chexpert",
    tasks=("report",),
    description=__doc__,
    add_options=add_options,
    read=read,
    content=chexpert_rows.content,
    unwanted=chexpert_rows.UNWANTED,
)

if __name__ == "__main__":
    sys.exit(main())
