"""Label a report from the command line: `python -m radverl.chexpert "Small left effusion." --explain`."""

import argparse
import json
import sys
from collections.abc import Sequence

from radverl.chexpert import explain, label_report


def main(argv: Sequence[str] | None = None) -> int:
    """Print the labels as one JSON object; with --explain one line per mention on top. "-" reads standard input."""
    parser = argparse.ArgumentParser(
        prog="python -m radverl.chexpert",
        description="CheXpert labels of a report (rules, offline).",
        epilog='example: python -m radverl.chexpert "No effusion. Mild cardiomegaly." --explain',
    )
    parser.add_argument("text", help='report text, or "-" for standard input')
    parser.add_argument("--explain", action="store_true", help="show the span and the cue behind each label")
    args = parser.parse_args(argv)
    text = sys.stdin.read() if args.text == "-" else args.text
    if args.explain:
        for e in explain(text):
            marked = f"{e.sentence[: e.start]}[{e.text}]{e.sentence[e.end :]}"
            print(f"{e.status:+d} {e.label:26s} {e.kind:6s} cue: {e.cue or '-':20s} {marked}")
    print(json.dumps(label_report(text)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
