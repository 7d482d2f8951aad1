"""Bring your own table: a CSV or JSON-lines file of image path + report becomes Parquet files for verl.

example:
  python -m data_preprocess.table --csv reports.csv --image-root images/ --subject-column patient --out data/mine

A row of the table is a study with one image (or several, separated by ";", or a JSON list). DICOM, 16-bit and other
unusual files are converted to 8-bit PNG under OUT/images; plain PNG and JPEG files stay where they are. Splits come
from --split-column, else from a hash of the subject. Labels are those our rules read in the report. Rows that cannot be
used are skipped and counted by reason.
Exit status: 0 done, 1 nothing usable (or the first bad row under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from data_preprocess.core import options, pipeline
from data_preprocess.core.candidates import Candidate, Content, DataSet, Intake
from data_preprocess.core.content import report_content
from data_preprocess.core.reports import findings_and_impression, refuse_empty
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import SPLITS, hash_split, split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table, plain_text, require_columns


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return pipeline.run(DATASET, argv)


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    """A candidate for each row of the table.

    Raises:
        TableError: the table or the folder of the images cannot be used.
    """
    columns, rows = open_table(args.csv)
    require_columns(args.csv, columns, _wanted_columns(args))
    root = Path(args.image_root or Path(args.csv).parent)
    if not root.is_dir():
        raise TableError(f"{root}: no such folder; pass the folder of the images with --image-root.")
    if not args.subject_column:
        print("no --subject-column: the split is by image path, so a patient with two films may be in two splits.")
    made: dict[str, Candidate] = {}
    for number, row in enumerate(rows, 1):
        split = None
        try:
            if isinstance(row, MalformedRow):
                raise SkipRow(row.detail, "malformed row")
            split = _split(row, args)
            if args.split_column and (subject := cell(row, args.subject_column)):
                intake.hold_out(subject, split)  # also where the row cannot be used
            candidate = _candidate(row, number, split, args, root)
            first = made.setdefault(candidate.row_id, candidate)
            if first is not candidate:
                first.split = max(first.split, split, key=SPLITS.index)  # whichever row is read first
                raise SkipRow("same subject, images and report as an earlier row", "duplicate row")
        except SkipRow as error:
            intake.add(number, error.reason, str(error), split)
    return list(made.values())


def content(drawn: Candidate, args: argparse.Namespace) -> Content:
    """The content of a row; its labels are those of our rules."""
    texts = drawn.payload
    if "report" in texts:
        texts = dict(zip(("findings", "impression"), findings_and_impression(texts["report"]), strict=True))
    return report_content(texts, args)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this script alone."""
    add = parser.add_argument
    add("--csv", required=True, help="table, .csv, .tsv or .jsonl, UTF-8, gzipped or not")
    add("--image-root", help="folder the image paths are relative to (default: the table's folder)")
    add("--allow-outside-root", action="store_true", help="allow absolute and ../ paths that leave --image-root")
    add("--image-column", default="image")
    add("--report-column", default="report", help="whole report, split into sections (default: report)")
    add("--findings-column", help="already split reports: use this instead of --report-column")
    add("--impression-column", help="likewise; one of the two is enough")
    add("--subject-column", help="patient; all rows of a patient go to one split")
    add("--study-column")
    add("--split-column", help="train, val or test (default: by hash of the subject)")
    add("--cohort", help="a name shared by tables whose subject ids mean the same patients (see the leakage guard)")
    options.add_hash_split_options(parser, val=0.1, test=0.1)


def _candidate(row: dict[str, Any], number: int, split: str, args: argparse.Namespace, root: Path) -> Candidate:
    """A row as the table knows it.

    Raises:
        SkipRow: with the reason to count it under.
    """
    if args.findings_column or args.impression_column:
        texts = {"findings": cell(row, args.findings_column), "impression": cell(row, args.impression_column)}
    else:
        texts = {"report": cell(row, args.report_column)}
    refuse_empty(" ".join(texts.values()), "")
    names = _image_cells(row, args.image_column, root)
    subject = cell(row, args.subject_column) or names[0]
    key = hashlib.sha256(json.dumps([subject, names, *texts.values()]).encode()).hexdigest()[:16]
    return Candidate(
        row_id=key,
        subject_id=subject,
        study_id=cell(row, args.study_column) or key,
        split=split,
        images=tuple(_inside(name, root, args) for name in names),
        payload=texts,
        number=number,
    )


def _split(row: dict[str, Any], args: argparse.Namespace) -> str:
    if args.split_column:
        word = cell(row, args.split_column)
        split = split_name(word)
        if split is None:
            raise SkipRow(f"{args.split_column} is {word!r}; use train, val or test", "unknown split")
        return split
    subject = cell(row, args.subject_column)
    if args.subject_column and not subject:
        raise SkipRow(f"{args.subject_column} is empty, so a patient could land in two splits", "no subject")
    subject = subject or ";".join(_image_cells(row, args.image_column, None)[:1])
    return hash_split(subject, val_fraction=args.val_fraction, test_fraction=args.test_fraction)


def _image_cells(row: dict[str, Any], column: str, root: Path | None) -> list[str]:
    """The image names in a row's cell: a JSON list, or text with ";" between names (unless the whole is a file)."""
    value = row.get(column)
    if isinstance(value, str) and value.strip().startswith("["):
        with contextlib.suppress(ValueError, RecursionError):  # else it is a name with a bracket
            value = json.loads(value)
    if isinstance(value, list):
        names = [plain_text(name, column) for name in value]
    else:
        text = cell(row, column)
        names = [text] if root is not None and os.path.isfile(root / text) else [n.strip() for n in text.split(";")]
    names = [name.removeprefix("file://") for name in names if name]
    if not names:
        raise SkipRow(f"{column} is empty", "no image")
    return names


def _inside(name: str, root: Path, args: argparse.Namespace) -> str:
    """The image's path; links inside the root are the user's own and are followed."""
    path, base = os.path.abspath(root / name), os.path.abspath(root)
    if not args.allow_outside_root and os.path.commonpath([path, base]) != base:
        raise SkipRow(f"{name} leaves {root}; move it, or pass --allow-outside-root", "image outside image root")
    return path


def _wanted_columns(args: argparse.Namespace) -> dict[str, str]:
    """Option -> the column it names, for every column this run reads."""
    names = ["image_column", "subject_column", "study_column", "split_column"]
    if args.findings_column or args.impression_column:
        names += ["findings_column", "impression_column"]
    else:
        names.append("report_column")
    return {"--" + name.replace("_", "-"): getattr(args, name) for name in names if getattr(args, name)}


DATASET = DataSet(
    name="table",
    cohort="",
    tasks=("report",),
    description=__doc__,
    add_options=add_options,
    read=read,
    content=content,
    target="any",
)

if __name__ == "__main__":
    sys.exit(main())
