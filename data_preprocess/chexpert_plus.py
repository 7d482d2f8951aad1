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
Exit status: 0 done, 1 nothing usable (or a damaged study under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from data_preprocess.core.balance import Carried, balanced, carried, drawing_order, fill, histogram
from data_preprocess.core.balance_card import add_to_card, balance_card, balance_lines
from data_preprocess.core.chexpert_rows import (
    PRIORS,
    TARGETS,
    UNWANTED,
    Candidate,
    candidate,
    read_study_labels,
    study_row,
)
from data_preprocess.core.chexpert_studies import VIEWS, Study, check_root, group_rows
from data_preprocess.core.options import pixels, positive, prompt_file, prompt_text
from data_preprocess.core.outputs import output_folder, usable_text
from data_preprocess.core.parallel import ordered_map
from data_preprocess.core.reports import report_text
from data_preprocess.core.skiplog import SkipLog, SkipRow
from data_preprocess.core.split_files import StudyRow, refuse_folders, remove_files, write_split
from data_preprocess.core.splits import SPLITS, hash_split
from data_preprocess.core.tabular import TableError, read_table
from radverl.chexpert import label_report
from radverl.labels import Labels, UncertainPolicy

TEST_FRACTION = 0.02  # about 1,300 of the 64,700 patients (ours)
SETTINGS = (
    "target", "views", "priors", "uncertain", "balance", "limit", "seed", "max_pixels", "embed_images",
    "official_valid", "val_fraction", "test_fraction", "prompt",
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        args.prompt = _prompt(args)
        hash_split("", val_fraction=args.val_fraction, test_fraction=args.test_fraction)
        if args.balance and "train" not in args.split:
            raise ValueError("--balance draws the training studies, but --split does not name train; add it.")
        for option in ("csv", "image_root", "labels"):  # an empty shell variable is no choice
            if getattr(args, option) is not None:
                usable_text(getattr(args, option), f"--{option.replace('_', '-')}")
        root = Path(args.image_root or Path(args.csv).parent)
        check_root(root, [])  # before the table is read, which takes a while
        columns, rows = read_table(args.csv)
        for column in ("path_to_image", *(f"section_{name}" for name in TARGETS[args.target])):
            if column not in columns:
                raise TableError(f"{args.csv}: has no column {column!r}; pass df_chexpert_plus_*.csv with --csv.")
        if not rows:
            raise TableError(f"{args.csv}: has a header and no rows; pass the whole table with --csv.")
        labels, source = read_study_labels(args.labels, args.csv, columns, rows, args.target)
        log = SkipLog()
        studies = group_rows(rows, log)
        del rows  # gigabytes
        check_root(root, studies)
        output_folder(output_folder(args.out) / "images")
        refuse_folders(args.out, args.split)
    except (ValueError, OSError) as error:
        print(f"chexpert_plus: {error}", file=sys.stderr)
        return 2
    try:
        return convert(args, studies, labels, source, root, log)
    except (ValueError, OSError) as error:  # SkipRow too
        print(f"chexpert_plus: {error}", file=sys.stderr)
        return 1


def convert(
    args: argparse.Namespace, studies: list[Study], labels: dict[str, Labels] | None, source: str, root: Path,
    log: SkipLog,
) -> int:  # fmt: skip
    """Draw and convert studies and write all files of `args.out`; returns the exit status.

    Args:
        labels: by `View.key`; None: label the reports with our rules.
        source: where the labels come from, for the card.
        log: rows that belong to no study; it goes with the first split written.
    """
    splits = [split for split in SPLITS if split in args.split]
    logs = {split: SkipLog() for split in splits} | {splits[0]: log}
    for entry in log.entries:
        _stop_if_damaged(args, entry["row"], SkipRow(str(entry["detail"]), str(entry["reason"])))
    pools = _candidates(args, studies, labels, root, logs)
    results: dict[str, list[StudyRow]] = {}
    balance: dict[str, dict[str, Any]] = {}
    cache = tempfile.mkdtemp(dir=args.out, prefix=".images.") if args.embed_images else os.path.join(args.out, "images")
    try:
        for split in splits:
            pool = {name: carried(study.labels, args.uncertain) for name, study in pools[split].items()}
            done, unusable = fill(pool, _picker(args, split), functools.partial(_rows, args, cache, pools[split]))
            results[split] = [done[name] for name in sorted(done)]
            for name, why in unusable.items():
                logs[split].add(name, why.reason, str(why))
                del pool[name]
            logs[split].entries.sort(key=lambda entry: (isinstance(entry["row"], str), entry["row"]))
            if args.balance and split == "train":
                counts = histogram(pool, done.keys())
                balance[split] = balance_card(args.balance, len(done), len(pool), args.uncertain, counts)
        _write(args, source, results, logs, balance)
    finally:
        if args.embed_images:
            shutil.rmtree(cache, ignore_errors=True)
    return _report(args, results, logs, balance)


def _candidates(
    args: argparse.Namespace, studies: list[Study], labels: dict[str, Labels] | None, root: Path,
    logs: dict[str, SkipLog],
) -> dict[str, dict[str, Candidate]]:  # fmt: skip
    """Split -> name -> study that can be drawn; the others go to `logs`."""
    pools: dict[str, dict[str, Candidate]] = {split: {} for split in logs}
    held_out = {study.subject_id for study in studies if study.part != "train"}
    for study in studies:
        split = {"valid": args.official_valid, "test": "test"}.get(study.part) or hash_split(
            study.subject_id, val_fraction=args.val_fraction, test_fraction=args.test_fraction
        )
        if split not in logs:
            continue
        try:
            if study.part == "train" and study.subject_id in held_out:
                message = f"{study.subject_id} has studies in the data set's valid or test split too"
                raise SkipRow(message, "subject of a held-out split")
            pools[split][study.study_id] = candidate(study, args.target, args.views, root, labels)
        except SkipRow as error:
            _stop_if_damaged(args, study.study_id, error)
            logs[split].add(study.study_id, error.reason, str(error))
    if labels is None:
        everyone = [drawable for pool in pools.values() for drawable in pool.values()]
        texts = [report_text(**drawable.texts) for drawable in everyone]
        found = ordered_map(label_report, texts, args.workers, desc="labels", chunk=256)
        for drawable, report_labels in zip(everyone, found, strict=True):
            drawable.labels = report_labels
    return pools


def _picker(args: argparse.Namespace, split: str) -> Callable[[Mapping[str, Carried], Collection[str]], list[str]]:
    """Which studies of a pool are wanted, given those taken already (see `fill`)."""
    if split == "train" and args.balance:
        return lambda pool, keep: balanced(pool, args.balance, seed=args.seed, keep=keep)
    return lambda pool, keep: drawing_order(pool, args.seed)[: args.limit]


def _rows(
    args: argparse.Namespace, cache: str, pool: dict[str, Candidate], names: list[str]
) -> Iterator[StudyRow | SkipRow]:
    work = functools.partial(study_row, target=args.target, priors=args.priors, cache=cache, max_pixels=args.max_pixels)
    jobs = [pool[name] for name in names]
    for name, result in zip(names, ordered_map(work, jobs, args.workers, desc="studies"), strict=True):
        if isinstance(result, StudyRow):
            yield result
            continue
        reason = SkipRow(*result)
        _stop_if_damaged(args, name, reason)
        yield reason


def _prompt(args: argparse.Namespace) -> str:
    if args.prompt_file is not None:
        return prompt_file(args.prompt_file)
    sections = " and ".join(TARGETS[args.target])
    return prompt_text(f"Write the {sections} of this chest radiograph." if args.prompt is None else args.prompt)


def _stop_if_damaged(args: argparse.Namespace, row: str | int, error: SkipRow) -> None:
    if not args.skip_bad and error.reason not in UNWANTED:
        where = row if isinstance(row, str) else f"row {row}"
        raise SkipRow(f"{args.csv}: {where}: {error.reason}: {error}", error.reason) from error


def _write(
    args: argparse.Namespace, source: str, results: dict[str, list[StudyRow]], logs: dict[str, SkipLog],
    balance: dict[str, dict[str, Any]],
) -> None:  # fmt: skip
    settings = {name: getattr(args, name) for name in SETTINGS} | {"labels": source}
    remove_files(args.out, list(results))
    for split, studies in results.items():
        card = write_split(
            args.out, split, studies, logs[split], data_source="chexpert_plus", prompt=args.prompt,
            settings=settings, embed=args.embed_images,
        )  # fmt: skip
        if card and split in balance:
            add_to_card(Path(args.out, f"{split}.parquet"), card, balance[split])


def _report(
    args: argparse.Namespace, results: dict[str, list[StudyRow]], logs: dict[str, SkipLog],
    balance: dict[str, dict[str, Any]],
) -> int:  # fmt: skip
    for split, studies in results.items():
        print(f"{os.path.join(args.out, split)}.parquet: {len(studies)} studies; {logs[split].summary()}")
        if split in balance:
            print("\n".join(balance_lines(balance[split])))
    if not any(results.values()):
        message = f"no usable study in {args.csv}; {args.out}/*.skipped.jsonl name the reasons."
        print(f"chexpert_plus: {message}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    description, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        "data_preprocess.chexpert_plus", description=description, epilog=rest,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--csv", required=True, help="df_chexpert_plus_*.csv")
    add("--image-root", help="folder that holds train/ and valid/, PNG, JPEG or DICOM (default: the table's folder)")
    add("--out", required=True, help="folder for the Parquet files, skip logs, cards and converted images")
    add("--target", choices=TARGETS, default="both", help="sections to write; a study must have all (default: both)")
    add(
        "--views",
        choices=VIEWS,
        default="frontal",
        help="frontal (default): one, PA before AP; pair: one of both",
    )
    add("--labels", help="label file (.csv or JSON lines), its folder, or: rules (default: chexbert_labels)")
    add("--priors", choices=PRIORS, default="drop", help="references to prior studies in reports (default: drop)")
    add("--balance", type=positive, metavar="N", help="draw N training studies, label-balanced")
    add("--uncertain", choices=get_args(UncertainPolicy), default="ones", help="ones (default): count for --balance")
    add("--limit", type=positive, metavar="N", help="draw at most N studies of each split; with --balance: val, test")
    add("--split", nargs="+", choices=SPLITS, default=list(SPLITS), help="files to write (default: all three)")
    add("--official-valid", choices=SPLITS[1:], default="val", help="where the data set's valid studies go")
    add("--val-fraction", type=float, default=0.0, help="of the other patients, by hash (default: %(default)s)")
    add("--test-fraction", type=float, default=TEST_FRACTION, help="likewise (default: %(default)s)")
    add("--seed", type=int, default=0, help="of --balance and --limit; splits do not depend on it")
    add("--max-pixels", type=pixels, help="shrink larger images to this many pixels, keeping their shape")
    add("--embed-images", action="store_true", help="store image bytes in the Parquet files instead of paths")
    add("--workers", type=positive, default=1, help="processes; the result does not depend on it")
    text = parser.add_mutually_exclusive_group().add_argument
    text("--prompt", help="user text; one <image> per image is put before it")
    text("--prompt-file", help="UTF-8 text file with the user text")
    add("--skip-bad", action=argparse.BooleanOptionalAction, default=True, help="skip and count damage, or stop at it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
