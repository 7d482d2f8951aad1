"""The command line that the data scripts share, and its values: whole numbers, image sizes, the prompt."""

import argparse
import math
from pathlib import Path
from typing import get_args

from data_preprocess.core import prompts
from data_preprocess.core.candidates import GROUNDING_TASKS, REPORT_TASKS, DataSet
from data_preprocess.core.content import PRIORS, TARGETS
from data_preprocess.core.guard import ON_LEAK
from data_preprocess.core.images import MIN_SIDE
from data_preprocess.core.outputs import usable_text
from data_preprocess.core.rows import PLACEHOLDER, SPECIAL_TOKEN
from data_preprocess.core.splits import SPLITS, hash_split
from data_preprocess.core.views import VIEWS
from data_preprocess.core.work import CHECKS
from radverl.labels import UncertainPolicy
from radverl.text.blanks import POLICIES as BLANKS

SHEET_CELLS = 12
MAX_CELLS = 400  # a sheet of 50 million pixels


def parser_of(dataset: DataSet) -> argparse.ArgumentParser:
    """The command line of a data set: its own options, then the common ones."""
    description, _, rest = dataset.description.partition("\n\n")
    parser = argparse.ArgumentParser(
        f"data_preprocess.{dataset.name}", description=description, epilog=rest,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--out", required=True, help="folder for the Parquet files, skip logs, cards, sheets and converted images")
    dataset.add_options(parser)
    if len(dataset.tasks) > 1:
        add(
            "--task",
            choices=dataset.tasks,
            default=dataset.tasks[0],
            help="what the model learns (default: %(default)s)",
        )
    else:
        parser.set_defaults(task=dataset.tasks[0])
    if set(dataset.tasks) & set(REPORT_TASKS):
        add_report_options(parser, dataset)
    else:
        parser.set_defaults(target="any", priors="keep", indication=False, blanks="keep")
    add("--split", nargs="+", choices=SPLITS, default=list(SPLITS), help="files to write (default: all three)")
    add("--balance", type=positive, metavar="N", help="draw N training rows, label-balanced")
    add("--uncertain", choices=get_args(UncertainPolicy), default="ones", help="ones (default): count for --balance")
    add("--limit", type=positive, metavar="N", help="draw at most N rows of each split; with --balance: val, test")
    add(
        "--train-part", type=part, metavar="A:B",
        help="training rows of these subjects alone, by hash: 0:.15 and .15:1 share none, in any data set",
    )  # fmt: skip
    add("--seed", type=int, default=0, help="of --balance and --limit; splits do not depend on it")
    add("--max-pixels", type=pixels, help="shrink larger images to this many pixels, keeping their shape")
    add("--embed-images", action="store_true", help="store image bytes in the Parquet files instead of paths")
    add(
        "--check-images", choices=CHECKS, default="decode",
        help="decode (default): open every image and convert what is no plain 8-bit PNG or JPEG;\n"
        "exists: only see that the file is there; no: believe the table, and read the header where it states no size",
    )  # fmt: skip
    add(
        "--held-out",
        nargs="+",
        default=[],
        metavar="FILE",
        help="val and test subjects of other data sets (see the guard)",
    )
    add(
        "--on-leak",
        choices=ON_LEAK,
        default="refuse",
        help="known held-out subjects in train: refuse (default), drop, allow",
    )
    add(
        "--contact-sheet",
        type=int,
        default=SHEET_CELLS,
        metavar="N",
        help="pictures on OUT/SPLIT.png (default: %(default)s)",
    )
    add("--workers", type=positive, default=1, help="processes; the result does not depend on it")
    text = parser.add_mutually_exclusive_group().add_argument
    text("--prompt", help="user text; one <image> per image is put before it; {name} is what to find")
    text("--prompt-file", help="UTF-8 text file with the user text")
    add("--skip-bad", action=argparse.BooleanOptionalAction, default=True, help="skip and count damage, or stop at it")
    return parser


def add_report_options(parser: argparse.ArgumentParser, dataset: DataSet) -> None:
    """The options of tasks whose answer is a report."""
    add = parser.add_argument
    add(
        "--target",
        choices=TARGETS,
        default=dataset.target,
        help="sections to write; both needs both, any takes what is there (default: %(default)s)",
    )
    add("--indication", action="store_true", help="put the indication of the examination before the prompt")
    add(
        "--priors", choices=PRIORS, default="drop",
        help="references to prior studies: drop (default, by rules), keep, or llm (a local model rewrites the report)",
    )  # fmt: skip
    add(
        "--judge-url",
        default=None,
        help="OpenAI-compatible server for --priors llm (default: RADVERL_JUDGE_URL or localhost)",
    )
    add("--judge-model", default=None, help="its model (default: RADVERL_JUDGE_MODEL or the only one it has)")
    add("--judge-remote-ok", action="store_true", help="allow a server outside this site: report text leaves it")
    add(
        "--blanks", choices=BLANKS, default=dataset.blanks,
        help="marks of de-identification (___, XXXX): keep, drop the mark, or drop the sentence (default: %(default)s)",
    )  # fmt: skip


def add_view_option(parser: argparse.ArgumentParser, default: str = "frontal") -> None:
    """`--views`, for data sets whose studies have several images."""
    parser.add_argument(
        "--views", choices=VIEWS, default=default,
        help="frontal: one, PA before AP; pair: a frontal and a lateral one where there is (default: %(default)s)",
    )  # fmt: skip


def add_hash_split_options(parser: argparse.ArgumentParser, val: float, test: float) -> None:
    """Fractions of the subjects that a hash moves out of training."""
    add = parser.add_argument
    add("--val-fraction", type=float, default=val, help="of the subjects, by hash (default: %(default)s)")
    add("--test-fraction", type=float, default=test, help="likewise (default: %(default)s)")


def settle(args: argparse.Namespace) -> None:
    """Fill in what the options leave open, and see that they make sense together.

    Raises:
        ValueError: they do not.
    """
    args.prompt = _prompt(args)
    if hasattr(args, "val_fraction"):
        hash_split("", val_fraction=args.val_fraction, test_fraction=args.test_fraction)
    if args.balance and "train" not in args.split:
        raise ValueError("--balance draws training rows, but --split does not name train; add it.")
    if args.check_images != "decode" and (args.max_pixels or args.embed_images):
        raise ValueError("--max-pixels and --embed-images open the images; leave --check-images out.")
    if not 0 <= args.contact_sheet <= MAX_CELLS:
        raise ValueError(f"--contact-sheet is {args.contact_sheet}; use 0 for none, and at most {MAX_CELLS}.")
    if args.task in GROUNDING_TASKS and args.priors == "llm":
        raise ValueError(f"--priors llm rewrites reports; pass --priors drop or keep with --task {args.task}.")
    for option, value in vars(args).items():  # an empty shell variable is no choice
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and option not in ("prompt", "prompt_file"):
                usable_text(text, f"--{option.replace('_', '-')}")


def _prompt(args: argparse.Namespace) -> str:
    if args.prompt_file is not None:
        text = prompt_file(args.prompt_file)
    elif args.prompt is not None:
        text = prompt_text(args.prompt)
    elif args.task == "report":
        return prompts.report_prompt(TARGETS[args.target])
    else:
        return prompts.trace_prompt(TARGETS[args.target]) if args.task == "trace" else ""
    if args.task not in GROUNDING_TASKS and "{name}" in text:
        raise ValueError(f"the prompt {text[:60]!r} has {{name}}, which only grounding tasks fill in; leave it out.")
    if args.task in GROUNDING_TASKS and "{name}" not in text:
        raise ValueError(f"the prompt {text[:60]!r} has no {{name}}; write it where the region or phrase belongs.")
    return text


def positive(text: str, least: int = 1) -> int:
    """A whole number of at least `least`, for argparse."""
    if not text.isdecimal() or int(text[:20]) < least:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number of at least {least}")
    return int(text[:20])  # beyond any table or picture; Python refuses to read thousands of digits


def part(text: str) -> tuple[float, float]:
    """A part of all subjects as two places in 0-1, for argparse."""
    try:
        start, stop = map(float, text.split(":"))
    except ValueError:
        start, stop = math.nan, math.nan
    if not 0 <= start < stop <= 1:  # False for NaN too
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no part of 0-1; write 0:.15, for example")
    return start, stop


def pixels(text: str) -> int:
    """A number of pixels that leaves a picture, for argparse."""
    return positive(text, MIN_SIDE * MIN_SIDE)


def prompt_text(text: str, option: str = "--prompt") -> str:
    """The user text without the `<image>` it may start with.

    Raises:
        ValueError: blank, not UTF-8, or a placeholder or special token in it.
    """
    text = text.strip().removeprefix("<image>")
    if found := PLACEHOLDER.search(text) or SPECIAL_TOKEN.search(text):
        raise ValueError(f"{option} contains {found[0]}; leave it out, one <image> per image is put before the text.")
    return usable_text(text, option)


def prompt_file(path: str, option: str = "--prompt-file") -> str:
    """The prompt in a UTF-8 text file.

    Raises:
        ValueError: no such file, not UTF-8, or as `prompt_text`.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ValueError(f"{option} {path!r}: cannot be read ({reason}); name a text file.") from error
    return prompt_text(text, f"{option} {path!r}")
