"""`make bench`: every benchmark in turn; exit 0 if all goals hold."""

import argparse
import sys

from benchmarks import labeller, orapo, staleness, step

parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run all benchmarks.")
parser.add_argument("--baseline", help="another labeller to compare with: a Python file with label(text)")
args = parser.parse_args()
codes = [labeller.main(["--baseline", args.baseline] if args.baseline else []), step.main([])]
codes += [staleness.main([]), orapo.main([])]
sys.exit(max(codes))
