"""Bring your own table: a CSV or JSON-lines file of image path + report becomes Parquet files for verl.

    python -m data_preprocess.table --csv reports.csv --image-root images/ --out data/mine

A row of the table is a study with one image (or several, separated by ";", or a JSON list). DICOM, 16-bit and other
unusual files are converted to 8-bit PNG under OUT/images; plain PNG and JPEG files stay where they are. Splits come
from --split-column, else from a hash of the subject. Rows that cannot be used are skipped and counted by reason.
Exit status: 0 done, 1 nothing usable (or the first bad row under --no-skip-bad), 2 bad input.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from data_preprocess.core.options import pixels, positive, prompt_text
from data_preprocess.core.outputs import output_folder, usable_text
from data_preprocess.core.reports import findings_and_impression, refuse_empty, report_text
from data_preprocess.core.rows import DEFAULT_PROMPT
from data_preprocess.core.skiplog import SkipLog, SkipRow
from data_preprocess.core.split_files import StudyRow, refuse_folders, remove_files, write_split
from data_preprocess.core.splits import SPLITS, hash_split, split_name
from data_preprocess.core.stored import plain_copy
from data_preprocess.core.tabular import MalformedRow, TableError, cell, plain_text, read_table, require_columns
from radverl.chexpert import label_report


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        columns, rows = read_table(args.csv)
        require_columns(args.csv, columns, _wanted_columns(args))
        hash_split("", val_fraction=args.val_fraction, test_fraction=args.test_fraction)
        root = Path(args.image_root or Path(args.csv).parent)
        if not root.is_dir():
            raise TableError(f"{root}: no such folder; pass the folder of the images with --image-root.")
        usable_text(str(root), "--image-root")
        args.prompt = prompt_text(args.prompt)
        output_folder(output_folder(args.out) / "images")
        refuse_folders(args.out, SPLITS)
    except (ValueError, OSError) as error:
        print(f"table: {error}", file=sys.stderr)
        return 2
    try:
        return convert(args, rows[: args.limit], root)
    except (ValueError, OSError) as error:  # SkipRow too
        print(f"table: {error}", file=sys.stderr)
        return 1


def convert(args: argparse.Namespace, rows: list[dict[str, Any] | MalformedRow], root: Path) -> int:
    """Convert parsed rows and write all files of `args.out`; returns the exit status."""
    from tqdm import tqdm

    logs = {split: SkipLog() for split in SPLITS}
    studies: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    out = Path(args.out)
    cache = Path(tempfile.mkdtemp(dir=out, prefix=".images.")) if args.embed_images else out / "images"
    try:
        for number, row in enumerate(tqdm(rows, desc="studies", unit="row", disable=None), 1):
            split = "train"  # where a row is counted whose own split cannot be known
            try:
                split = _split(row, args)
                study = _study(row, args, root, cache)
                if study["key"] in seen:
                    raise SkipRow("same subject, images and report as an earlier row", "duplicate row")
                seen.add(study["key"])
                studies[split].append(study)
            except SkipRow as error:
                if not args.skip_bad:
                    raise SkipRow(f"{args.csv}: row {number}: {error.reason}: {error}", error.reason) from error
                logs[split].add(number, error.reason, str(error))
        _write(args, studies, logs)
    finally:
        if args.embed_images:
            shutil.rmtree(cache, ignore_errors=True)
    return _report(args, studies, logs)


def _study(row: dict[str, Any] | MalformedRow, args: argparse.Namespace, root: Path, cache: Path) -> dict[str, Any]:
    """Everything of one row but its place in the file.

    Raises:
        SkipRow: with the reason to count it under.
    """
    assert isinstance(row, dict)  # _split has refused the others
    if args.findings_column or args.impression_column:
        findings, impression = cell(row, args.findings_column), cell(row, args.impression_column)
    else:
        findings, impression = findings_and_impression(cell(row, args.report_column))
    refuse_empty(findings, impression)
    names = _image_cells(row, args.image_column, root)
    images, sizes = zip(*(plain_copy(_inside(name, root, args), cache, args.max_pixels) for name in names), strict=True)
    subject = cell(row, args.subject_column) or names[0]
    key = hashlib.sha256(json.dumps([subject, names, findings, impression]).encode()).hexdigest()[:16]
    text = report_text(findings, impression)
    row = {
        "subject_id": subject,
        "study_id": cell(row, args.study_column) or key,
        "images": list(images),
        "width": sizes[0][0],
        "height": sizes[0][1],
        "truth": {
            "findings": findings,
            "impression": impression,
            "report": text,
            "labels": label_report(text),
            "regions": [],
            "boxes": [],
        },
    }
    return {"key": key, "row": row}


def _split(row: dict[str, Any] | MalformedRow, args: argparse.Namespace) -> str:
    if isinstance(row, MalformedRow):
        raise SkipRow(row.detail, "malformed row")
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
    return hash_split(subject, val_fraction=args.val_fraction, test_fraction=args.test_fraction, seed=args.seed)


def _image_cells(row: dict[str, Any], column: str, root: Path | None) -> list[str]:
    """The image names in a row's cell: a JSON list, or text with ";" between names (unless the whole is a file)."""
    value = row.get(column)
    if isinstance(value, list):
        names = [plain_text(name, column) for name in value]
    else:
        text = cell(row, column)
        names = [text] if root is not None and os.path.isfile(root / text) else [n.strip() for n in text.split(";")]
    names = [name.removeprefix("file://") for name in names if name]
    if not names:
        raise SkipRow(f"{column} is empty", "no image")
    return names


def _inside(name: str, root: Path, args: argparse.Namespace) -> Path:
    """The image's path; links inside the root are the user's own and are followed."""
    path, base = os.path.abspath(root / name), os.path.abspath(root)
    if not args.allow_outside_root and os.path.commonpath([path, base]) != base:
        raise SkipRow(f"{name} leaves {root}; move it, or pass --allow-outside-root", "image outside image root")
    return Path(path)


def _write(args: argparse.Namespace, studies: dict[str, list[dict[str, Any]]], logs: dict[str, SkipLog]) -> None:
    names = ("seed", "limit", "max_pixels", "embed_images", "val_fraction", "test_fraction", "prompt")
    settings = {name: getattr(args, name) for name in names}
    remove_files(args.out, SPLITS)
    for split in SPLITS:
        rows = [StudyRow(f"table/{split}/{study['key']}", **study["row"]) for study in studies[split]]
        write_split(
            args.out, split, rows, logs[split], data_source="table", prompt=args.prompt, settings=settings,
            embed=args.embed_images,
        )  # fmt: skip


def _report(args: argparse.Namespace, studies: dict[str, list[dict[str, Any]]], logs: dict[str, SkipLog]) -> int:
    total = SkipLog()
    total.entries = [entry for log in logs.values() for entry in log.entries]
    counts = ", ".join(f"{split} {len(studies[split])}" for split in SPLITS)
    print(f"{counts} rows -> {args.out}; {total.summary()}")
    if not args.subject_column:
        print("no --subject-column: the split is by image path, so a patient with two films may be in two splits.")
    if not any(studies.values()):
        print(f"table: no usable row in {args.csv}; {args.out}/*.skipped.jsonl name the reasons.", file=sys.stderr)
        return 1
    return 0


def _wanted_columns(args: argparse.Namespace) -> dict[str, str]:
    """Option -> the column it names, for every column this run reads."""
    options = ["image_column", "subject_column", "study_column", "split_column"]
    if args.findings_column or args.impression_column:
        options += ["findings_column", "impression_column"]
    else:
        options.append("report_column")
    return {"--" + o.replace("_", "-"): getattr(args, o) for o in options if getattr(args, o)}


def _parser() -> argparse.ArgumentParser:
    description, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        "data_preprocess.table", description=description, epilog=rest, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--csv", required=True, help="table, .csv, .tsv or .jsonl, UTF-8")
    add("--out", required=True, help="folder for the Parquet files, skip logs, cards and converted images")
    add("--image-root", help="folder the image paths are relative to (default: the table's folder)")
    add("--allow-outside-root", action="store_true", help="allow absolute and ../ paths that leave --image-root")
    add("--image-column", default="image")
    add("--report-column", default="report", help="whole report, split into sections (default: report)")
    add("--findings-column", help="already split reports: use this instead of --report-column")
    add("--impression-column", help="likewise; one of the two is enough")
    add("--subject-column", help="patient; all rows of a patient go to one split")
    add("--study-column")
    add("--split-column", help="train, val or test (default: by hash of the subject)")
    add("--val-fraction", type=float, default=0.1)
    add("--test-fraction", type=float, default=0.1)
    add("--seed", type=int, default=0, help="of the split by hash")
    add("--max-pixels", type=pixels, help="shrink larger images to this many pixels, keeping their shape")
    add("--embed-images", action="store_true", help="store image bytes in the Parquet files instead of paths")
    add("--limit", type=positive, help="read only the first rows of the table")
    add("--prompt", default=DEFAULT_PROMPT, help="user text; one <image> per image is put before it")
    add("--skip-bad", action=argparse.BooleanOptionalAction, default=True, help="skip and count bad rows, or stop")
    return parser


if __name__ == "__main__":
    sys.exit(main())
