"""Simulated chest radiographs with reports, labels, boxes and region traces, in the Parquet of the real data sets.

No credentialed data may be shipped, so this draws a cohort. The films are schematic: use them to test and to teach the
machinery, never to judge a clinical model.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_preprocess.core.images import png_bytes, save_png
from data_preprocess.core.outputs import output_folder
from data_preprocess.core.parallel import ordered_map
from data_preprocess.core.rows import DEFAULT_PROMPT, report_row, sft_row, write_rows
from data_preprocess.core.sheet import write_sheet
from data_preprocess.core.skiplog import SkipLog
from data_preprocess.core.summary import write_card
from data_preprocess.phantom import EVEN_PREVALENCE, LONG_TAIL, Study, draw_study
from data_preprocess.phantom.cohort import SPLITS, Entry, check_prevalence, plan, split_counts
from data_preprocess.phantom.report import STYLES
from data_preprocess.phantom.study import MIN_SIZE
from data_preprocess.phantom.trace import select

TASKS = ("report", "trace")
PRESETS = {"even": EVEN_PREVALENCE, "long-tail": LONG_TAIL}
TRACE_PROMPT = (
    "<image>List the regions of this chest radiograph with box and finding inside <think>, then write the report "
    "inside <answer>."
)
SHEET_CELLS = 24
MAX_SIDE, MAX_STUDIES = 4096, 1_000_000  # larger than any detector; study numbers have six digits
MAX_CUE = 100.0
EXAMPLE = """example:
  python -m data_preprocess.simulated --out data/sim --n 1000 --size 224 --seed 0 --balance --contact-sheet
  python -m data_preprocess.simulated --out data/tail --n 5000 --prevalence long-tail Pneumothorax=0.01
  python -m data_preprocess.simulated --out data/tiny --n-train 6000 --n-val 128 --size 112 --style template
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 done, 1 failed (a full disk, say), 2 an argument makes no sense, 130 Ctrl-C."""
    args = _parser().parse_args(argv)
    try:
        counts = _counts(args)
        prevalence = parse_prevalence(args.prevalence) if args.prevalence else None
        _check(args, counts)
        out = output_folder(args.out)
    except ValueError as error:
        print(f"simulated: {error}", file=sys.stderr)
        return 2
    try:
        write_cohort(args, counts, prevalence, out)
    except OSError as error:
        print(f"simulated: {out} is incomplete ({error}); make room and run this again.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"simulated: interrupted, {out} is incomplete; run this again.", file=sys.stderr)
        return 130
    return 0


def write_cohort(
    args: argparse.Namespace, counts: dict[str, int], prevalence: dict[str, float] | None, out: Path
) -> None:
    """Draw the films and write all files of a cohort to `out`, in place of those of an earlier one.

    Raises:
        OSError: a file cannot be written.
    """
    # Films are drawn over those of an earlier cohort, so its Parquet files must not outlive them.
    for split in SPLITS:
        for name in (
            f"{split}.parquet",
            f"sft_{split}.parquet",
            f"{split}.skipped.jsonl",
            f"{split}.md",
            f"{split}.json",
        ):
            (out / name).unlink(missing_ok=True)
    entries = plan(counts, args.seed, prevalence=prevalence, balance=args.balance, style=args.style)
    drawn = list(_draw_all(entries, args, out))
    settings = {
        "seed": args.seed,
        "size": args.size,
        "style": args.style,
        "task": args.task,
        "cue": args.cue,
        "balance": args.balance,
        "prevalence": prevalence or ("" if args.balance else "even"),
    }
    for split in SPLITS:
        rows = [(row, target) for row, target in drawn if row["extra_info"]["split"] == split]
        if not rows:
            continue
        write_rows(out / f"{split}.parquet", (row for row, _ in rows), kind="rl")
        if split != "test":
            write_rows(out / f"sft_{split}.parquet", (sft_row(row, target) for row, target in rows), kind="sft")
        skipped = SkipLog()
        skipped.write(out / f"{split}.skipped.jsonl")
        write_card(out / f"{split}.parquet", skipped, settings)
        print(f"{out / split}.parquet: {len(rows)} studies")
    if args.contact_sheet:
        path = out / "contact_sheet.png"
        first = next(split for split in SPLITS if counts[split])  # train, where there is one
        write_sheet(out / f"{first}.parquet", path, most=SHEET_CELLS)
        print(f"{path}: look at it")


def parse_prevalence(items: list[str]) -> dict[str, float]:
    """`["long-tail", "Edema=0.1"]` to label -> chance: presets first, then single labels; the rest is 0.

    Raises:
        ValueError: not `Label=p` or a preset, an unknown label, a chance outside [0, 1].
    """
    out: dict[str, float] = {}
    for item in items:
        if item in PRESETS:
            out.update(PRESETS[item])
            continue
        label, equals, number = item.rpartition("=")
        try:
            chance = float(number)
        except ValueError:
            chance = math.nan
        if not equals or math.isnan(chance):
            raise ValueError(f"prevalence {item!r} is not understood; write Label=0.1 or one of {', '.join(PRESETS)}.")
        out[label.strip()] = chance
    check_prevalence(out)
    return out


def study_row(entry: Entry, study: Study, image: str | bytes, task: str = "report") -> tuple[dict[str, Any], str]:
    """The RL row of a study and the text that supervised training aims at."""
    regions = select(study.regions) if task == "trace" else study.regions
    truth = {
        "findings": study.findings,
        "impression": study.impression,
        "report": study.report,
        "labels": study.labels,
        "regions": regions,
        "boxes": study.boxes,
    }
    height, width = study.image.shape
    row = report_row(
        data_source="simulated",
        split=entry.split,
        index=entry.index,
        prompt_id=f"simulated/{entry.split}/{entry.study_id}",
        subject_id=entry.subject_id,
        study_id=entry.study_id,
        images=[image],
        ground_truth=truth,
        width=width,
        height=height,
        prompt=TRACE_PROMPT if task == "trace" else DEFAULT_PROMPT,
        ability=task,
    )
    return row, study.trace if task == "trace" else study.report


def _draw(entry: Entry, args: argparse.Namespace) -> Study:
    return draw_study(entry.seed, args.size, kinds=entry.kinds, patient=entry.patient, style=args.style, cue=args.cue)


def _work(job: tuple[Entry, argparse.Namespace, str]) -> tuple[dict[str, Any], str]:
    """Draw one study and store its film; a pool's unit of work."""
    from PIL import Image

    entry, args, out = job
    study = _draw(entry, args)
    film = Image.fromarray(study.image)
    if args.embed_images:
        return study_row(entry, study, png_bytes(film), args.task)
    path = Path(out, "images", entry.subject_id, f"{entry.study_id}.png")
    save_png(film, path)
    return study_row(entry, study, str(path), args.task)


def _draw_all(entries: list[Entry], args: argparse.Namespace, out: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Rows in the order of `entries`, whatever the number of workers."""
    jobs = [(entry, args, str(out)) for entry in entries]
    workers = min(args.workers, os.cpu_count() or 1)  # more would only take memory
    return ordered_map(_work, jobs, workers, desc="drawing", unit="study", quiet=args.quiet)


def _counts(args: argparse.Namespace) -> dict[str, int]:
    given = {"train": args.n_train, "val": args.n_val, "test": args.n_test}
    if any(v is not None for v in given.values()):
        if args.n is not None:
            raise ValueError("--n and --n-train/--n-val/--n-test are both given; use one of them.")
        return {split: v or 0 for split, v in given.items()}
    shares = args.split.split("/")
    try:
        numbers = [float(s) for s in shares]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not (min(numbers) >= 0 and abs(sum(numbers) - 1) <= 1e-6):  # NaN too
        raise ValueError(f"--split is {args.split!r}; write three shares that sum to 1, for example .8/.1/.1.")
    return split_counts(1000 if args.n is None else args.n, numbers)


def _check(args: argparse.Namespace, counts: dict[str, int]) -> None:
    if sum(counts.values()) <= 0 or min(counts.values()) < 0:
        raise ValueError(f"the number of studies is {sum(counts.values())} ({counts}); use positive numbers.")
    if sum(counts.values()) > MAX_STUDIES:
        raise ValueError(f"the number of studies is {sum(counts.values())}; draw at most {MAX_STUDIES}.")
    if not MIN_SIZE <= args.size <= MAX_SIDE:
        raise ValueError(f"--size is {args.size}; draw from {MIN_SIZE} to {MAX_SIDE} pixels a side.")
    if args.seed < 0:
        raise ValueError(f"--seed is {args.seed}; use 0 or a positive number.")
    if args.workers < 1:
        raise ValueError(f"--workers is {args.workers}; use 1 or more.")
    if not 0 < args.cue <= MAX_CUE:  # False for NaN too
        raise ValueError(f"--cue is {args.cue}; use a number above 0 and up to {MAX_CUE:g}, 1 by default.")
    if args.balance and args.prevalence:
        raise ValueError("--balance and --prevalence contradict each other; use one of them.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m data_preprocess.simulated",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", required=True, help="folder for images, Parquet files and cards")
    add("--n", type=int, help="number of studies over all splits (default 1000)")
    add("--split", default=".8/.1/.1", help="shares of train/val/test (default %(default)s); subjects never cross")
    add("--n-train", type=int, help="number of training studies, instead of --n and --split")
    add("--n-val", type=int)
    add("--n-test", type=int)
    add("--size", type=int, default=224, help="image side in pixels (default %(default)s)")
    add("--seed", type=int, default=0)
    add("--balance", action="store_true", help="as many positives of each label as of any other")
    add("--prevalence", nargs="+", metavar="LABEL=P", help='"even", "long-tail" and/or Label=p; labels not named get 0')
    add("--style", choices=STYLES, default="prose", help="wording of the reports (default %(default)s)")
    add("--task", choices=TASKS, default="report", help="trace: regions with boxes and findings before the report")
    add("--cue", type=float, default=1.0, help="conspicuity of the findings (default 1.0)")
    add("--embed-images", action="store_true", help="store PNG bytes in the Parquet files, write no image files")
    add("--workers", type=int, default=1, help="processes; the result does not depend on it")
    add("--contact-sheet", action="store_true", help="also write contact_sheet.png")
    add("--quiet", action="store_true", help="no progress bar")
    return parser


if __name__ == "__main__":
    sys.exit(main())
