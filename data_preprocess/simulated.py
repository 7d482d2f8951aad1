"""Simulated chest radiographs with reports, labels, boxes and region traces, in the Parquet of the real data sets.

No credentialed data may be shipped, so this draws a cohort. The films are schematic: use them to test and to teach the
machinery, never to judge a clinical model.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_preprocess.core.images import png_bytes, save_png
from data_preprocess.core.outputs import output_folder
from data_preprocess.core.parallel import ordered_map
from data_preprocess.core.rows import DEFAULT_PROMPT, report_row, sft_row, write_rows
from data_preprocess.core.sheet import write_sheet
from data_preprocess.core.skiplog import SkipLog
from data_preprocess.core.summary import write_card
from data_preprocess.phantom import Study, draw_study
from data_preprocess.phantom.cohort import SPLITS, Entry, plan
from data_preprocess.phantom.options import check, counts_of, parse_prevalence, parser
from data_preprocess.phantom.trace import select

TRACE_PROMPT = (
    "<image>List the regions of this chest radiograph with box and finding inside <think>, then write the report "
    "inside <answer>."
)
SHEET_CELLS = 24


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 done, 1 failed (a full disk, say), 2 an argument makes no sense, 130 Ctrl-C."""
    args = parser(__doc__).parse_args(argv)
    try:
        counts = counts_of(args)
        prevalence = parse_prevalence(args.prevalence) if args.prevalence else None
        check(args, counts)
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
        **({"border": args.border} if args.border else {}),
        **({"trace_regions": ", ".join(args.trace_regions)} if args.trace_regions else {}),
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


def study_row(
    entry: Entry,
    study: Study,
    image: str | bytes,
    task: str = "report",
    trace_regions: Sequence[str] | None = None,
) -> tuple[dict[str, Any], str]:
    """The RL row of a study and the text that supervised training aims at."""
    regions = select(study.regions, trace_regions) if task == "trace" else study.regions
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
    return draw_study(
        entry.seed,
        args.size,
        kinds=entry.kinds,
        patient=entry.patient,
        style=args.style,
        cue=args.cue,
        border=args.border,
        trace_regions=args.trace_regions,
    )


def _work(job: tuple[Entry, argparse.Namespace, str]) -> tuple[dict[str, Any], str]:
    """Draw one study and store its film; a pool's unit of work."""
    from PIL import Image

    entry, args, out = job
    study = _draw(entry, args)
    film = Image.fromarray(study.image)
    if args.embed_images:
        return study_row(entry, study, png_bytes(film), args.task, args.trace_regions)
    path = Path(out, "images", entry.subject_id, f"{entry.study_id}.png")
    save_png(film, path)
    return study_row(entry, study, str(path), args.task, args.trace_regions)


def _draw_all(entries: list[Entry], args: argparse.Namespace, out: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Rows in the order of `entries`, whatever the number of workers."""
    jobs = [(entry, args, str(out)) for entry in entries]
    workers = min(args.workers, os.cpu_count() or 1)  # more would only take memory
    return ordered_map(_work, jobs, workers, desc="drawing", unit="study", quiet=args.quiet)


if __name__ == "__main__":
    sys.exit(main())
