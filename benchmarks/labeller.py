"""Time of `label_report` per report: goal at most 1 ms for a typical 60-word report on one core, with cold caches.

    python -m benchmarks.labeller [--reports 400] [--baseline path/to/other.py]

The reports are made here from parts, all different. Caches are emptied before every report, so that no sentence is
ever seen twice. `--baseline` times another labeller, a file with `label(text)`, on the same reports in alternation; the
ratio ours / baseline is a result of its own.
"""

import argparse
import importlib.util
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.result import write

GOAL_MS = 1.0

_SIDES = ("left", "right", "bilateral")
_SIZES = ("small", "mild", "moderate", "trace", "large", "minimal")
_PARTS = (
    (
        "The heart size is normal.",
        "Heart is {size}ly enlarged, unchanged.",
        "The cardiac silhouette is within normal limits.",
    ),
    (
        "There is a {size} {side} pleural effusion.",
        "No pleural effusion is seen.",
        "{side} pleural effusion has resolved.",
    ),
    (
        "No focal consolidation, pneumothorax, or edema.",
        "Patchy {side} basilar opacity may represent atelectasis or pneumonia.",
    ),
    (
        "The mediastinal contours are unremarkable.",
        "Aorta is tortuous and calcified.",
        "Widened mediastinum, likely technical.",
    ),
    (
        "A {side} picc line ends in the mid SVC.",
        "Endotracheal tube is {number} cm above the carina.",
        "No support devices.",
    ),
    ("There is a {number} mm nodule in the {side} upper lobe.", "Calcified granuloma in the {side} lung."),
    ("Pulmonary vasculature is normal without edema.", "{size} pulmonary vascular congestion is again noted."),
    (
        "No acute osseous abnormality.",
        "Old {side} rib fractures are present.",
        "Degenerative changes of the thoracic spine.",
    ),
    ("IMPRESSION: {size} {side} effusion and adjacent atelectasis.", "IMPRESSION: No acute cardiopulmonary process."),
)


def make_reports(count: int, seed: int = 0) -> list[str]:
    """`count` different reports of nine sentences, about 60 words each."""
    rng = random.Random(seed)
    out: dict[str, None] = {}
    for _ in itertools.repeat(None):
        sentences = [
            rng.choice(options).format(side=rng.choice(_SIDES), size=rng.choice(_SIZES), number=rng.randint(2, 30))
            for options in _PARTS
        ]
        out[f"FINDINGS: {' '.join(sentences[:-1])}\n{sentences[-1]}"] = None
        if len(out) >= count:
            break
    return list(out)


def load_baseline(path: Path) -> Callable[[str], object]:
    """The function `label` of a Python file."""
    spec = importlib.util.spec_from_file_location("baseline", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded as a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    label: Callable[[str], object] = module.label
    return label


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; exit 0 if the goal holds, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5, help="the fastest of so many passes counts, per report")
    parser.add_argument("--baseline", type=Path, help="Python file with label(text)")
    args = parser.parse_args(argv)

    from radverl.chexpert import label_report
    from radverl.chexpert.labeller import forget

    reports = make_reports(args.reports)
    baseline = load_baseline(args.baseline) if args.baseline else None
    label_report("No effusion.")  # compiles the lexicon; a process pays for it once
    ours, theirs = [], []
    for report in reports:
        ours.append(min(_milliseconds(label_report, report, forget) for _ in range(args.repeats)))
        if baseline:
            theirs.append(min(_milliseconds(baseline, report, lambda: None) for _ in range(args.repeats)))
    mean = statistics.fmean(ours)
    words = statistics.fmean(len(r.split()) for r in reports)
    detail = {
        "ms_per_report": round(mean, 4),
        "ms_p95": round(sorted(ours)[int(0.95 * len(ours))], 4),
        "reports": len(reports),
        "words_per_report": round(words, 1),
    }
    holds = write("labeller", mean / GOAL_MS, 1.0, detail, f"{mean:.3f} ms per report of {words:.0f} words")
    if theirs:
        their_mean = statistics.fmean(theirs)
        detail = {"ms_per_report": round(mean, 4), "baseline_ms_per_report": round(their_mean, 4)}
        text = f"{mean:.3f} ms against {their_mean:.3f} ms"
        holds = write("labeller_against_baseline", mean / their_mean, 1.0, detail, text) and holds
    return 0 if holds else 1


def _milliseconds(label: Callable[[str], object], report: str, forget: Callable[[], None]) -> float:
    forget()
    start = time.perf_counter()
    label(report)
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    sys.exit(main())
