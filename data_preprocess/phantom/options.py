"""The command line of data_preprocess.simulated: its options, and which of their values make no sense together."""

from __future__ import annotations

import argparse
import math

from data_preprocess.phantom.cohort import check_prevalence, split_counts
from data_preprocess.phantom.placement import MAX_BORDER
from data_preprocess.phantom.report import STYLES
from data_preprocess.phantom.study import EVEN_PREVALENCE, LONG_TAIL, MIN_SIZE
from data_preprocess.phantom.trace import CORE, REGION_NAMES

TASKS = ("report", "trace")
PRESETS = {"even": EVEN_PREVALENCE, "long-tail": LONG_TAIL}
MAX_SIDE, MAX_STUDIES = 4096, 1_000_000  # larger than any detector; study numbers have six digits
MAX_CUE = 100.0
EXAMPLE = """example:
  python -m data_preprocess.simulated --out data/sim --n 1000 --size 224 --seed 0 --balance --contact-sheet
  python -m data_preprocess.simulated --out data/tail --n 5000 --prevalence long-tail Pneumothorax=0.01
  python -m data_preprocess.simulated --out data/tiny --n-train 6000 --n-val 128 --size 112 --style template
"""


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options, with their help."""
    options = argparse.ArgumentParser(
        prog="python -m data_preprocess.simulated",
        description=description,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = options.add_argument
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
    add("--trace-regions", nargs="+", metavar="NAME", help="what a trace names (default: six, and all with a finding)")
    add("--border", type=float, default=0.0, help="films smaller than the image by up to this share (default 0)")
    add("--cue", type=float, default=1.0, help="conspicuity of the findings (default 1.0)")
    add("--embed-images", action="store_true", help="store PNG bytes in the Parquet files, write no image files")
    add("--workers", type=int, default=1, help="processes; the result does not depend on it")
    add("--contact-sheet", action="store_true", help="also write contact_sheet.png")
    add("--quiet", action="store_true", help="no progress bar")
    return options


def counts_of(args: argparse.Namespace) -> dict[str, int]:
    """Studies per split.

    Raises:
        ValueError: --n beside --n-train and the like, or shares that do not sum to 1.
    """
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


def check(args: argparse.Namespace, counts: dict[str, int]) -> None:
    """Refuse values that make no sense.

    Raises:
        ValueError: one sentence that says which.
    """
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
    if not 0 <= args.border <= MAX_BORDER:
        raise ValueError(f"--border is {args.border}; use a share from 0 to {MAX_BORDER:g} of the image side.")
    if args.trace_regions and args.task != "trace":
        raise ValueError("--trace-regions is for --task trace; add that, or leave it out.")
    for name in args.trace_regions or []:
        if name not in REGION_NAMES or args.trace_regions.count(name) > 1:
            wrong = "given twice" if name in REGION_NAMES else "unknown"
            raise ValueError(f"--trace-regions: {name!r} is {wrong}; take of {', '.join(CORE)}, or the region names.")
    if args.balance and args.prevalence:
        raise ValueError("--balance and --prevalence contradict each other; use one of them.")


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
