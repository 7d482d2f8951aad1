"""Removal of references to prior studies: precision, recall and exact results on labelled sentences, and its speed.

    python -m benchmarks.priors [--sentences tests/data/prior_sentences.tsv] [--errors]

A sentence counts as found if it changes or goes; a result is exact if it is one of the accepted ones. The goal for
errors: at most 10 % of the results of the last held-out part, which was written after the rules were frozen. The goal
for time: 0.5 ms per report of nine sentences on one core, with an empty cache.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.labeller import make_reports
from benchmarks.result import write

SENTENCES = Path("tests/data/prior_sentences.tsv")
BLIND = "held_out_3"
GOAL_ERRORS = 0.10
GOAL_MS = 0.5
_DROPPED = "<dropped>"


class Labelled(NamedTuple):
    """A sentence, whether it refers to a prior study, and what may be left of it ("" for nothing)."""

    part: str
    kind: str
    text: str
    accepted: tuple[str, ...]


def read_sentences(path: Path) -> list[Labelled]:
    """The labelled sentences of a file like tests/data/prior_sentences.tsv."""
    out = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith(("# ", "part\t")):
            continue
        part, kind, text, *rest = line.split("\t")
        if kind not in ("keep", "drop", "rewrite"):
            raise SystemExit(f"line {number} of {path}: class {kind!r}; write keep, drop or rewrite.")
        accepted = [item for item in "".join(rest).split(" || ") if item]
        if kind == "keep":
            accepted.append(text)
        out.append(Labelled(part, kind, text, tuple("" if item == _DROPPED else item for item in accepted)))
    return out


def measure(sentences: Iterable[Labelled]) -> dict[str, Any]:
    """Counts, precision and recall of finding a reference, share of exact results, and the errors."""
    from radverl.text import remove_prior_references

    results = [(s, remove_prior_references(s.text)) for s in sentences]
    found = sum(s.kind != "keep" and s.text != left for s, left in results)
    false = sum(s.kind == "keep" and s.text != left for s, left in results)
    missed = sum(s.kind != "keep" and s.text == left for s, left in results)
    errors = [(s, left) for s, left in results if left not in s.accepted]
    return {
        "sentences": len(results),
        "with_reference": found + missed,
        "precision": round(found / max(1, found + false), 3),
        "recall": round(found / max(1, found + missed), 3),
        "exact": round(1 - len(errors) / max(1, len(results)), 3),
        "errors": [{"sentence": s.text, "accepted": list(s.accepted), "result": left} for s, left in errors],
    }


def milliseconds_per_report(count: int = 400) -> float:
    """Mean time of a report, all different, each with an empty cache; the fastest of three passes counts."""
    from radverl.text import remove_prior_references
    from radverl.text.priors import forget

    times = []
    for report in make_reports(count):
        passes = []
        for _ in range(3):
            forget()
            start = time.perf_counter()
            remove_prior_references(report)
            passes.append((time.perf_counter() - start) * 1e3)
        times.append(min(passes))
    return statistics.fmean(times)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; exit 0 if both goals hold, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="labelled sentences (default: %(default)s)")
    parser.add_argument("--errors", action="store_true", help="print the results that are not accepted")
    args = parser.parse_args(argv)

    sentences = read_sentences(args.sentences)
    parts = {part: measure(s for s in sentences if s.part == part) for part in dict.fromkeys(s.part for s in sentences)}
    print(f"{'part':12} {'sentences':>9} {'precision':>9} {'recall':>7} {'exact':>6}")
    for part, m in parts.items():
        print(f"{part:12} {m['sentences']:9} {m['precision']:9.3f} {m['recall']:7.3f} {m['exact']:6.3f}")
        for error in m["errors"] if args.errors else ():
            print(f"  {error['sentence']!r}: {error['result']!r}")
    last = BLIND if BLIND in parts else list(parts)[-1]
    wrong = 1 - parts[last]["exact"]
    holds = write("priors", wrong / GOAL_ERRORS, 1.0, parts, f"{wrong:.1%} of {last} not exact")
    ms = milliseconds_per_report()
    return (
        0 if write("priors_speed", ms / GOAL_MS, 1.0, {"ms_per_report": round(ms, 4)}, f"{ms:.3f} ms") and holds else 1
    )


if __name__ == "__main__":
    sys.exit(main())
