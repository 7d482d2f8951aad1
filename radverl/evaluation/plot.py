"""`radverl plot`: the curves of one or several training runs in one picture."""

import argparse
import sys
from pathlib import Path

from data_preprocess.core.outputs import output_file
from radverl.evaluation.verl_log import merge, read_log, rollout_rates


def parse_run(item: str) -> tuple[str, str, str]:
    """Name, log and rollout folder of "[NAME=]LOG[:ROLLOUTS]"; paths may themselves hold "=" and ":"."""
    name, sign, paths = item.partition("=")
    if not sign or "/" in name or Path(item).is_file():
        name, paths = "", item
    log, sign, rollouts = paths.rpartition(":")
    return (name, paths, "") if not sign or Path(paths).is_file() else (name, log, rollouts)


def main(argv: list[str] | None = None) -> int:
    """0 drawn, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="radverl plot",
        description="Curves of training runs: reward, zero-reward rate, groups without signal, validation.",
        epilog="example: radverl plot --run outputs/demo/rl/metrics.jsonl:outputs/demo/rl/rollouts --out curves.png",
    )
    parser.add_argument(
        "--run",
        action="append",
        required=True,
        metavar="[NAME=]LOG[:ROLLOUTS]",
        help="verl's file-logger JSON lines or console output, and its rollout dumps for the zero-reward curves",
    )
    parser.add_argument("--out", required=True, help="PNG file to write")
    args = parser.parse_args(argv)
    from radverl.evaluation.pictures import curves

    try:
        runs = {}
        output_file(args.out)
        for item in args.run:
            name, log, rollouts = parse_run(item)
            name = name or Path(log).parent.name
            if name in runs:
                raise ValueError(f"two runs are called {name!r}; name them NAME=LOG.")
            runs[name] = merge(read_log(log), rollout_rates(rollouts) if rollouts else [])
        panels = curves(runs, args.out)
    except (ValueError, OSError) as error:
        print(f"radverl plot: {error}", file=sys.stderr)
        return 2
    print(f"wrote {args.out}: {', '.join(panels)}")
    return 0
