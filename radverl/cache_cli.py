"""`radverl cache`: what is in the judge's cache of answers, take answers out, write them to a file.

The answers hold report text. Keep the cache and what is exported from it where the data set may be kept.
"""

import argparse
import json
import os
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data_preprocess.core.outputs import output_file
from radverl.judge.cache import PATH_VARIABLE, default_path
from radverl.judge.cache_file import answers, open_file, prune, size, statistics

_EXAMPLE = """example:
  radverl cache stats
  radverl cache prune --older-than 90d --prompt extract_facts.v1
  radverl cache prune --max-bytes 2G --dry-run
  radverl cache export --out answers.jsonl --model my-model"""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def main(argv: list[str] | None = None) -> int:
    """Run; 0 done, 1 failed, 2 bad input."""
    args = _parser().parse_args(argv)
    path = Path(args.cache) if args.cache else default_path()
    try:
        code: int = args.run(args, path)
    except ValueError as error:
        print(f"radverl cache: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"radverl cache: {error}; make room, or wait for the process that uses it.", file=sys.stderr)
        return 1
    return code


def _stats(args: argparse.Namespace, path: Path) -> int:
    with open_file(path) as connection:
        found = statistics(connection, path)
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    print(f"{path}: {found['entries']:,} answers, {_bytes(found['bytes'])}" + _ages(found))
    for group in found["by"]:
        amount = f"{group['entries']:,} answers, {_bytes(group['bytes'])}"
        print(f"  {group['model']}  {group['prompt']}: {amount}" + _ages(group))
    return 0


def _prune(args: argparse.Namespace, path: Path) -> int:
    wanted = {name: getattr(args, name) for name in ("older_than", "model", "prompt", "max_bytes")}
    if all(value is None for value in wanted.values()):
        raise ValueError(
            "prune what? give --older-than, --model, --prompt or --max-bytes; to take all, delete the file."
        )
    with open_file(path, write=True) as connection:
        count = prune(connection, path, **wanted, dry_run=args.dry_run)
    print(
        f"{path}: {count:,} answers {'would be ' * args.dry_run}taken out"
        + f", {_bytes(size(path))} now" * (not args.dry_run)
    )
    return 0


def _export(args: argparse.Namespace, path: Path) -> int:
    count = 0
    with open_file(path) as connection:
        rows = answers(connection, args.model, args.prompt)
        if args.out is None:
            for count, row in enumerate(rows, 1):  # noqa: B007
                print(_line(row))
        else:
            out = output_file(args.out)
            if out.exists():
                raise ValueError(f"--out {out} is there already; name another file.")
            part = out.with_name(f"{out.name}.{os.getpid()}.part")
            try:
                with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                    for count, row in enumerate(rows, 1):  # noqa: B007
                        file.write(_line(row) + "\n")
                part.rename(out)
            finally:
                part.unlink(missing_ok=True)
    where = f" to {args.out}" if args.out else ""
    print(f"{count:,} answers written{where}; they hold report text: keep them where the data may be.", file=sys.stderr)
    return 0


def _line(row: dict[str, Any]) -> str:
    try:
        answer = json.loads(row["answer"])
    except (ValueError, TypeError):
        answer = None  # a damaged row, as a run would ask again
    return json.dumps({**row, "answer": answer}, ensure_ascii=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="radverl cache", description=__doc__, epilog=_EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="stats | prune | export")
    stats = commands.add_parser("stats", help="answers, bytes, age, by model and prompt")
    stats.add_argument("--json", action="store_true", help="print JSON")
    stats.set_defaults(run=_stats)
    less = commands.add_parser("prune", help="take out what every given condition holds for, then the oldest")
    less.add_argument("--older-than", type=_age, metavar="AGE", help="as 90d, 12h, 4w")
    less.add_argument("--max-bytes", type=_amount, metavar="SIZE", help="the oldest go until the file is no larger; 2G")
    less.add_argument("--dry-run", action="store_true", help="only say how many")
    less.set_defaults(run=_prune)
    export = commands.add_parser("export", help="JSON lines of key, model, prompt, created, answer; REPORT TEXT")
    export.add_argument("--out", metavar="FILE", help="a new file, readable by you alone (default: standard output)")
    export.set_defaults(run=_export)
    for command in (less, export):
        command.add_argument("--model", help="answers of this model")
        command.add_argument("--prompt", help="of this prompt: extract_facts.v1, or extract_facts for all versions")
    for command in (stats, less, export):
        command.add_argument("--cache", metavar="FILE", help=f"default: {PATH_VARIABLE}, else the user's cache folder")
    return parser


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no age; write 90d, 12h or 4w")
    return float(found[1]) * _SECONDS[found[2]]


def _amount(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)B?", text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 500M or 2G")
    return int(float(found[1]) * _UNITS[found[2]])


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count = count / 1000  # type: ignore[assignment]
    return f"{count:,.3g} GB"


def _ages(found: dict[str, Any]) -> str:
    if not found["entries"]:
        return ""
    day = datetime.fromtimestamp(found["oldest"], UTC).date()
    return f", kept {day} to {datetime.fromtimestamp(found['newest'], UTC).date()}, newest {_ago(found['newest'])} ago"


def _ago(then: float) -> str:
    seconds = max(0.0, time.time() - then)
    unit = next((unit for unit in "wdhm" if seconds >= _SECONDS[unit]), "s")
    return f"{seconds / _SECONDS[unit]:.0f}{unit}"


if __name__ == "__main__":
    sys.exit(main())
