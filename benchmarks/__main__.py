"""`make bench`: every benchmark in turn; exit 0 if all goals hold."""

import argparse
import sys

from benchmarks import data_mimic, embed, gated, judge, labeller, orapo, priors, radgraph, sections, staleness, step

parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run all benchmarks.")
parser.add_argument("--baseline", help="another labeller to compare with: a Python file with label(text)")
args = parser.parse_args()
codes = [labeller.main(["--baseline", args.baseline] if args.baseline else []), step.main([])]
codes += [sections.main([]), priors.main([]), embed.main([]), judge.main([]), data_mimic.main([])]
codes += [gated.main([]), radgraph.main([])]
codes += [staleness.main([]), orapo.main([])]
sys.exit(max(codes))
