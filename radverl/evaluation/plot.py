"""`radverl plot`: the curves of one or several training runs in one picture."""

import argparse
import sys
from pathlib import Path

from radverl.evaluation.verl_log import merge, read_log, rollout_rates


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
        for item in args.run:
            name, _, paths = item.rpartition("=")
            log, _, rollouts = paths.partition(":")
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
