"""The commands `evaluate`, `report` and `page` of every comparison that a CPU recipe makes, and its three files."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from data_preprocess.core.outputs import output_folder
from data_preprocess.core.skiplog import write_text
from radverl.evaluation.files import parse_json
from radverl.evaluation.pages import settings_of, to_json

Result = dict[str, Any]


def write(
    result: Result, folder: Path, name: str, draw: Callable[[Result, Path], object], markdown: Callable[[Result], str]
) -> None:
    """<name>.json, .png and .md of a result, into a folder."""
    write_text(folder / f"{name}.json", to_json(result) + "\n")
    draw(result, folder / f"{name}.png")
    write_text(folder / f"{name}.md", markdown(result))


def run_command(
    argv: Sequence[str] | None,
    *,
    module: str,
    recipe: str,
    arms: Iterable[str],
    seeds: Sequence[int],
    max_new_tokens: int,
    evaluate: Callable[..., object],
    compare: Callable[[argparse.Namespace, dict[str, str]], Result],
    write: Callable[[Result, Path], None],
    add_options: Callable[[argparse.ArgumentParser], None] = lambda report: None,
) -> int:
    """One command of `python -m radverl.evaluation.<module>`; 0 done, 1 generation failed, 2 bad input.

    Args:
        recipe: that calls it. arms, seeds: of `report`, unless given. max_new_tokens: of `evaluate`, unless given.
        evaluate: called with source, data, out and max_new_tokens=.
        compare: the result, from the arguments of `report` and its --setting.
        add_options: adds what only this comparison has to `report`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m radverl.evaluation.{module}", description=f"The comparison of {recipe}."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("evaluate", help="measure every checkpoint of a run on the held-out studies")
    one.add_argument("source", type=Path, help="folder of a run, or of a model")
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--max-new-tokens", type=int, default=max_new_tokens)
    report = commands.add_parser("report", help="compare the arms: JSON, picture, Markdown")
    report.add_argument("out", type=Path, help="folder of the experiment")
    report.add_argument("--arms", nargs="+", choices=list(arms), default=list(arms))
    report.add_argument("--seeds", nargs="+", type=int, default=list(seeds))
    report.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="shown in the report")
    report.add_argument("--docs", type=Path, help="also write the three files there")
    add_options(report)
    again = commands.add_parser("page", help="write picture and Markdown anew from the JSON, beside it")
    again.add_argument("json", type=Path)
    args = parser.parse_args(argv)
    try:
        if args.command == "evaluate":
            evaluate(args.source, args.data, output_folder(args.out), max_new_tokens=args.max_new_tokens)
        elif args.command == "page":
            write(parse_json(args.json.read_text(encoding="utf-8")), args.json.parent)
        else:
            result = compare(args, settings_of(args.setting))
            for folder in filter(None, (args.out, args.docs)):
                write(result, output_folder(folder))
                print(f"wrote {folder}/{module}.json, .png and .md")
    except (ValueError, OSError) as error:
        print(f"{module}: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"{module}: generation or annotation failed: {error}", file=sys.stderr)
        return 1
    return 0
