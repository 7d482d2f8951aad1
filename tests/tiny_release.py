"""A data set of four lines of text, for tests of the pipeline; its content can kill the process it runs in.

Run as a script it is a data script: `python -m tests.tiny_release --table T --out OUT ...`. A line of the table is
`row_id subject split report...`; there is one image for all.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from data_preprocess.core import pipeline
from data_preprocess.core.candidates import Candidate, Content, DataSet, Intake
from data_preprocess.core.content import report_content
from radverl.labels import CHEXPERT_14


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", required=True)
    parser.add_argument("--labels", choices=("none", "rules"), default="none")


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    if os.environ.get("HELD_OUT"):
        intake.hold_out(os.environ["HELD_OUT"], "test")
    out = []
    image = str(Path(args.table).with_name("film.png"))
    labels = None if args.labels == "rules" else dict.fromkeys(CHEXPERT_14)
    for line in Path(args.table).read_text(encoding="utf-8").splitlines():
        row_id, subject, split, report = line.split(" ", 3)
        texts = {"findings": report, "impression": "No other finding."}
        out.append(Candidate(row_id, subject, row_id, split, (image,), "PA", (24, 20), labels, texts))
    return out


def content(drawn: Candidate, args: argparse.Namespace) -> Content:
    """KILL_AT=row_id: as if the machine went down at that row; then the file of that name is there and it goes on."""
    marker = Path(args.table).with_name("killed")
    if os.environ.get("KILL_AT") == drawn.row_id and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return report_content(drawn.payload, args, labels=drawn.labels)


def dataset(cohort: str = "tiny", name: str = "tiny") -> DataSet:
    return DataSet(name, cohort, ("report",), "A test.\n\nexample: none", add_options, read, content, blanks="keep")


if __name__ == "__main__":
    sys.exit(pipeline.run(dataset()))
