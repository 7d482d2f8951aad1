"""PadChest-GR as Parquet files for verl: the sentences of its reports with their boxes, or whole reports.

example: one row per sentence about something abnormal, in English
  python -m data_preprocess.padchest_gr --root PadChest_GR --out data/padchest_gr --max-pixels 401408 --workers 8
example: one row per report, in Spanish
  python -m data_preprocess.padchest_gr --root PadChest_GR --task report --language es --priors keep \\
      --out data/padchest_gr_reports_es

On disk:
  ROOT  grounded_reports_*.json (or --json), master_table.csv with PatientID and split (or --csv), and the PNG files
        (or --image-root), in this folder or up to three below it; they have 16 bits, so 8-bit copies go to OUT/images
--task phrase: the boxes of all findings with the same sentence make one row. A sentence about something abnormal
without boxes is left out, and so are normal ones (--negatives: these are asked for too, and the answer is None).
--task report: all sentences, normal ones too, are the findings; the data set has no impressions, so --target is
findings. Boxes keep the label of their finding, under CheXpert's name where that means the same.
Labels: of a sentence, those of its finding that CheXpert has; of a report, those our rules read in its English text.
--extra-boxes adds the boxes of the second reader (extra_boxes); those that overlap the first reader's are fused with
them (radverl/boxes/fusion.py). References to prior studies are dropped from English text (--priors), because a row has
no image of the prior study.
Splits: the official ones (validation is val).
The same input gives the same files, whatever its order and --workers. A run that was killed goes on where it stopped
when the same command is given again.
Exit status: 0 done, 1 nothing usable (or a damaged report under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_preprocess.core import pipeline
from data_preprocess.core.candidates import Candidate, Content, DataSet, Intake
from data_preprocess.core.content import grounding_content, report_content, unit_box
from data_preprocess.core.reports import words
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import TableError, cell
from data_preprocess.releases import padchest_tables
from data_preprocess.releases.padchest_tables import LANGUAGES, Sentence
from radverl.chexpert import label_report
from radverl.labels import CHEXPERT_14, normalise_labels
from radverl.text import remove_prior_references

MASTER = "master_table.csv"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return pipeline.run(DATASET, argv)


def check(args: argparse.Namespace) -> None:
    """See that the options fit.

    Raises:
        ValueError: they do not.
    """
    if args.language != "en" and args.priors != "keep":
        raise ValueError(f"--priors {args.priors} reads English; pass --priors keep with --language {args.language}.")
    if args.target != "findings":
        raise ValueError(f"--target {args.target}: the reports of PadChest-GR have findings only; leave it out.")
    if not args.root and not (args.json and args.image_root):
        raise ValueError("pass the folder of the release with --root, or its parts with --json and --image-root.")


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    """The sentences or reports of images whose split is known.

    Raises:
        TableError: a table or folder cannot be used.
    """
    file = Path(args.json) if args.json else padchest_tables.find_reports(Path(args.root))
    reports = padchest_tables.read_reports(file)
    members = padchest_tables.read_members(Path(args.csv or file.parent / MASTER), intake)
    names = [str(report.get("ImageID")) for report in reports]
    folder = padchest_tables.image_folder(Path(os.path.abspath(args.image_root or args.root)), names)
    if not set(names) & members.keys():
        raise TableError(f"{file}: no ImageID is in the master table; pass files of one release.")
    for name in sorted(members.keys() - set(names)):
        intake.add(name, "no report", f"{file.name} has no report of it", members[name].split)
    out: list[Candidate] = []
    done: set[str] = set()
    for report in sorted(reports, key=_order):
        name, member = "", None
        try:
            name = padchest_tables.image_id(cell(report, "ImageID"))
            member = members.get(name)
            if member is None:
                raise SkipRow("the master table has no usable row of it", "no split")
            if name in done:
                raise SkipRow("another report is about this image", "duplicate row")
            done.add(name)
            findings = padchest_tables.sentences(report, args.extra_boxes)
            study = cell(report, "StudyID") or name
            make = _phrases if args.task == "phrase" else _report
            base = Candidate(
                row_id=f"{study}/{Path(name).stem}",
                subject_id=member.subject_id,
                study_id=study,
                split=member.split,
                images=(str(folder / name),),
            )
            out += make(base, findings, args, intake)
        except SkipRow as error:
            intake.add(name or "report without ImageID", error.reason, str(error), member.split if member else None)
    return out


def content(candidate: Candidate, args: argparse.Namespace) -> Content:
    """Where the sentence is seen, or the report.

    Raises:
        SkipRow: a box without area, nothing but references to prior studies, or damaged text.
    """
    made = candidate.payload
    if args.task == "report":
        boxes = [{"label": item["label"], "box": unit_box(item["box"])} for item in made["boxes"]]
        labels = None if args.language == "en" else label_report(f"Findings: {made['english']}")
        return report_content({"findings": made["text"]}, args, labels=labels, boxes=boxes)
    text = words(remove_prior_references(made["text"])) if args.priors == "drop" else made["text"]
    if not text:
        message = f"nothing is left of {made['text'][:80]!r} without references to prior studies"
        raise SkipRow(message, "only prior references")
    row = grounding_content(text, made["boxes"], args, candidate.row_id, label=made["label"], labels=candidate.labels)
    row.priors, row.original_report = args.priors, "" if text == made["text"] else made["text"]
    return row


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this data set alone."""
    add = parser.add_argument
    add("--root", help="folder of the release")
    add("--json", help="grounded_reports_*.json (default: the one in ROOT)")
    add("--csv", help="master_table.csv (default: beside the JSON file)")
    add("--image-root", help="folder of the PNG files, or the one above it (default: ROOT)")
    add("--language", choices=LANGUAGES, default="en", help="of the sentences (default: %(default)s)")
    add("--extra-boxes", action="store_true", help="add the extra_boxes, a second reader's; fused where they overlap")
    add("--negatives", action="store_true", help="--task phrase: normal sentences too, with the answer None")


DATASET = DataSet(
    name="padchest_gr",
    cohort="padchest",
    tasks=("phrase", "report"),
    description=__doc__,
    add_options=add_options,
    read=read,
    content=content,
    check=check,
    unwanted=frozenset({"no boxes", "normal finding"}),
    target="findings",
)


def _report(
    base: Candidate, findings: Sequence[Sentence | SkipRow], args: argparse.Namespace, intake: Intake
) -> Iterator[Candidate]:
    """The one candidate of a report; one that has a damaged finding is none."""
    sound: list[Sentence] = []
    for finding in findings:
        if isinstance(finding, SkipRow):
            raise finding
        if blank := [name for name in dict.fromkeys((args.language, "en")) if not finding.texts[name]]:
            raise SkipRow(f"sentence_{blank[0]} of finding {len(sound) + 1} is blank", "no sentence")
        sound.append(finding)
    text, english = (_joined(finding.texts[language] for finding in sound) for language in (args.language, "en"))
    boxes = [{"label": ", ".join(finding.labels), "box": box} for finding in sound for box in finding.boxes]
    yield replace(base, payload={"text": text, "english": english, "boxes": boxes})


def _phrases(
    base: Candidate, findings: Sequence[Sentence | SkipRow], args: argparse.Namespace, intake: Intake
) -> Iterator[Candidate]:
    """A candidate per sentence that is asked for; the others go to the intake."""
    same: dict[str, list[Sentence]] = defaultdict(list)
    for number, finding in enumerate(findings, 1):
        if isinstance(finding, SkipRow):
            intake.add(f"{base.row_id}/finding {number}", finding.reason, str(finding), base.split)
        elif text := finding.texts[args.language]:
            same[text].append(finding)
        else:
            message = f"sentence_{args.language} is blank"
            intake.add(f"{base.row_id}/finding {number}", "no sentence", message, base.split)
    for text, group in same.items():
        row_id = f"{base.row_id}/{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        boxes = list(dict.fromkeys(box for finding in group for box in finding.boxes))
        abnormal = any(finding.abnormal for finding in group)
        if not boxes and (abnormal or not args.negatives):
            intake.add(row_id, "no boxes" if abnormal else "normal finding", text, base.split)
            continue
        names = list(dict.fromkeys(label for finding in group for label in finding.labels))
        labels = normalise_labels(dict.fromkeys(set(names) & set(CHEXPERT_14), 1)) if boxes else None
        payload = {"text": text, "boxes": boxes, "label": ", ".join(names)}
        yield replace(base, row_id=row_id, labels=labels, payload=payload)


def _joined(texts: Iterable[str]) -> str:
    """Sentences as one text, each with its full stop."""
    return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in texts if text)


def _order(report: dict[str, Any]) -> tuple[str, str]:
    return str(report.get("ImageID")), json.dumps(report, sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
