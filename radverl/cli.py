"""Console script `radverl`: a table of subcommands, each of which parses its own arguments when it is called."""

import importlib
import os
import sys
from collections.abc import Callable

COMMANDS = {
    "doctor": ("radverl.doctor", "is radverl loaded in verl's Ray workers, and is everything it needs in place"),
    "data": ("radverl.data_cli", "make a verl Parquet from a data set, or check one"),
    "score": ("radverl.evaluation.score", "reward reports in a file"),
    "eval": ("radverl.evaluation.run", "generate reports with a model and compare them with the true ones"),
    "cost": ("radverl.cost_cli", "what a language model as judge will cost: calls, tokens, money"),
    "cache": ("radverl.cache_cli", "the judge's answers on disk: stats, prune, export"),
    "plot": ("radverl.evaluation.plot", "draw the curves of a training run"),
}
USAGE = "usage: radverl COMMAND [arguments]   (radverl COMMAND --help shows an example)"


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand; exit codes 0 done, 1 failed, 2 bad input, 130 interrupted."""
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a file name that is not UTF-8 must not stop a message
            stream.reconfigure(errors="backslashreplace")
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        for name, (_, what) in COMMANDS.items():
            print(f"  {name:<8} {what}")
        return 0 if argv else 2
    if argv[0] == "--version":
        from radverl import __version__

        print(f"radverl {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        print(f"radverl: no command {argv[0]!r}; choose one of {', '.join(COMMANDS)}.", file=sys.stderr)
        return 2
    command: Callable[[list[str]], int] = importlib.import_module(COMMANDS[argv[0]][0]).main
    try:
        code = command(argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"radverl {argv[0]}: interrupted; run it again to finish.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `radverl ... | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ImportError as error:
        print(
            f"radverl {argv[0]}: {error}; install radverl with the extra it belongs to (README, Install).",
            file=sys.stderr,
        )
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
