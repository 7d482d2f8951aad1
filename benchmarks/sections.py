"""Time of `split_sections` beside a plain splitter: goals at most 20 x its time, and 5,000 reports/s on one core.

    python -m benchmarks.sections [--reports 2000]

The reports are made here from parts, laid out like MIMIC-CXR's (a space before each line, lines wrapped at 79, some
700 characters), all different. The plain splitter is one expression that knows headers in capitals after a line break
and collapses white space: what a script would do without care for what goes wrong in real reports.
"""

import argparse
import itertools
import random
import re
import sys
import textwrap
import time
from collections.abc import Callable

from benchmarks.result import write
from radverl.text import split_sections

GOAL_RATIO = 20.0
GOAL_REPORTS_PER_SECOND = 5000

_HEADERS = {
    "examination": ("EXAMINATION", "EXAM", "TYPE OF EXAMINATION"),
    "indication": ("INDICATION", "REASON FOR EXAMINATION", "REASON FOR EXAM", "CLINICAL INDICATION"),
    "history": ("HISTORY", "CLINICAL HISTORY", "CLINICAL INFORMATION", "PATIENT HISTORY"),
    "technique": ("TECHNIQUE",),
    "comparison": ("COMPARISON", "COMPARISONS", "REFERENCE EXAM", "COMPARISON EXAM", "COMPARISON FILM"),
    "findings": ("FINDINGS", "FINDINGS", "FINDINGS", "CHEST, TWO VIEWS", "PA AND LATERAL CHEST", "PORTABLE AP CHEST"),
    "impression": ("IMPRESSION", "IMPRESSION", "CONCLUSION", "FINDINGS AND IMPRESSION", "FINDINGS/IMPRESSION"),
    "recommendation": ("RECOMMENDATION(S)", "RECOMMENDATIONS"),
    "notification": ("NOTIFICATION",),
}
_ORDERS = (
    ("examination", "indication", "technique", "comparison", "findings", "impression"),
    ("history", "comparison", "findings", "impression"),
    ("indication", "comparison", "findings", "impression", "recommendation"),
    ("examination", "history", "technique", "findings", "impression", "notification"),
    ("indication", "comparison", "impression"),
    ("history", "technique", "findings"),
)
_TEXTS = {
    "examination": ("CHEST (PA AND LAT)", "CHEST (PORTABLE AP)", "Chest, single AP view."),
    "indication": ("___-year-old woman with cough  // infiltrate?", "History: ___M with fever  // Pneumonia?"),
    "history": ("Shortness of breath.", "___-year-old male with dyspnea. Rule out: pneumonia."),
    "technique": ("Chest PA and lateral", "Frontal and lateral views of the chest were obtained."),
    "comparison": ("___.", "Chest radiograph ___.  CT chest: ___.", "None.", "Several, the last of ___ at 5:40."),
    "recommendation": ("Follow-up PA and lateral radiographs in six weeks.",),
    "notification": (
        "Discussed with Dr. ___ by Dr. ___ on the telephone on ___ at 9:42 AM, at the time of discovery.",
    ),
}
_FINDINGS = (
    "The heart is {size} in size.",
    "There is a {size} {side} pleural effusion.",
    "No focal consolidation, pneumothorax, or pulmonary edema is seen.",
    "The mediastinal and hilar contours are within normal limits.",
    "{side} internal jugular catheter terminates in the mid SVC, {number} cm below the carina.",
    "Patchy opacity at the {side} base may represent atelectasis or early pneumonia in the right setting.",
    "As compared to the previous radiograph from ___ at 9:{number} a.m., there is no relevant change.",
    "LUNGS: Volumes are low, with {size} atelectasis.",
    "No acute osseous abnormality.",
)
_CONCLUSIONS = (
    "No acute cardiopulmonary process.",
    "{size} {side} pleural effusion.",
    "{size} cardiomegaly without edema.",
    "Lines and tubes are unchanged compared to ___.",
)


def make_reports(count: int, seed: int = 0) -> list[tuple[str, dict[str, str]]]:
    """`count` different reports, each with its sections, white space collapsed."""
    rng = random.Random(seed)
    out: dict[str, dict[str, str]] = {}
    for _ in itertools.repeat(None):
        lines = ["                                 FINAL REPORT"]
        truth = {}
        for name in rng.choice(_ORDERS):
            paragraphs = _paragraphs(rng, name)
            truth[name] = " ".join(" ".join(paragraphs).split())
            header = f"{rng.choice(_HEADERS[name])}:"
            if rng.random() < 0.3:
                lines += [f" {header}  ", " "]
            else:
                paragraphs[0] = f"{header}  {paragraphs[0]}"
            for paragraph in paragraphs:
                for line in paragraph.split("\n"):
                    lines += textwrap.wrap(line, 78, initial_indent=" ", subsequent_indent=" ", break_on_hyphens=False)
                lines.append(" ")
        out["\n".join(lines) + "\n"] = truth
        if len(out) >= count:
            break
    return list(out.items())


def plain_split(report: str) -> dict[str, str]:
    """The plain splitter of the comparison."""
    pieces = re.split(r"\n ([A-Z ()/,-]+):\s", report)
    sections = {"preamble": pieces[0]}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        sections[name.lower()] = " ".join(body.split())
    return sections


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; exit 0 if the goals hold, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5, help="the fastest of so many passes counts")
    args = parser.parse_args(argv)

    reports = [report for report, _ in make_reports(args.reports)]
    ours, plain = [], []
    for _ in range(args.repeats):
        ours.append(_seconds(split_sections, reports))
        plain.append(_seconds(plain_split, reports))
    speed = len(reports) / min(ours)
    detail = {
        "reports_per_second": round(speed),
        "goal_reports_per_second": GOAL_REPORTS_PER_SECOND,
        "plain_reports_per_second": round(len(reports) / min(plain)),
        "characters_per_report": round(sum(map(len, reports)) / len(reports)),
        "reports": len(reports),
    }
    text = f"{speed:,.0f} reports/s, goal {GOAL_REPORTS_PER_SECOND:,}"
    holds = write("sections", min(ours) / min(plain), GOAL_RATIO, detail, text)
    return 0 if holds and speed >= GOAL_REPORTS_PER_SECOND else 1


def _paragraphs(rng: random.Random, name: str) -> list[str]:
    def fill(sentence: str) -> str:
        text = sentence.format(
            size=rng.choice(("small", "normal", "moderate", "large", "minimal")),
            side=rng.choice(("left", "right", "bilateral")),
            number=rng.randint(10, 59),
        )
        return text[0].upper() + text[1:]

    if name == "findings":
        return ["  ".join(map(fill, rng.sample(_FINDINGS, rng.randint(3, 6)))) for _ in range(rng.randint(1, 2))]
    if name == "impression":
        points = [fill(point) for point in rng.sample(_CONCLUSIONS, rng.randint(1, 3))]
        return points if len(points) == 1 else ["\n".join(f"{i}.  {point}" for i, point in enumerate(points, 1))]
    return [rng.choice(_TEXTS[name])]


def _seconds(split: Callable[[str], object], reports: list[str]) -> float:
    start = time.perf_counter()
    for report in reports:
        split(report)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
