"""What a data script hands to the pipeline, and what the pipeline hands to the writer.

`Candidate`: a row that could be written, known from tables alone; nobody has opened its report or images.
`Content`: what its report or annotation says, made from the candidate in a worker process.
`Row`: all of a Parquet row but its place in the file; goes through the journal as JSON.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from data_preprocess.core.skiplog import SkipLog
from radverl.labels import Labels

REPORT_TASKS = ("report", "trace")  # what is learned is a report
GROUNDING_TASKS = ("anatomy", "abnormality", "phrase")  # what is learned are boxes


@dataclass(slots=True)
class Candidate:
    """One row as the tables know it.

    row_id: unique in the data set and the same in every run; rows are written in its order.
    images: paths, the first is the one that boxes refer to.
    size: width and height of the first image by the tables, None where they do not say.
    labels: of the data set; None where they are to be read from the report.
    payload: whatever `DataSet.content` needs, JSON-serialisable; absolute paths in it are files it is read from.
    number: of its row in the table, where people know the row by that and not by an id.
    """

    row_id: str
    subject_id: str
    study_id: str
    split: str
    images: tuple[str, ...]
    view: str = ""
    size: tuple[int, int] | None = None
    labels: Labels | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    number: int | None = None

    @property
    def shown(self) -> int | str:
        """What a skip log calls it."""
        return self.row_id if self.number is None else self.number


@dataclass(slots=True)
class Content:
    """What a row asks and what the true answer is.

    prompt: user text without `<image>`.
    target: the answer that supervised training aims at.
    truth: the ground truth, boxes in 0-1 of the first image as a viewer shows it.
    """

    prompt: str
    target: str
    truth: dict[str, Any]
    priors: str = ""
    original_report: str = ""


@dataclass(slots=True)
class Row:
    """All of a Parquet row but its place in the file; `width` and `height` are those of the first image as stored."""

    prompt_id: str
    subject_id: str
    study_id: str
    images: list[str]
    width: int
    height: int
    prompt: str
    target: str
    truth: dict[str, Any]
    ability: str = "report"
    view: str = ""
    priors: str = ""
    original_report: str = ""


class Intake:
    """What reading the tables leaves besides candidates: rows that make none, and subjects that are held out.

    logs: split -> skip log, of the splits that will be written, in order.
    """

    def __init__(self, logs: dict[str, SkipLog]) -> None:
        self.logs = logs
        self.held_out: dict[str, str] = {}

    def add(self, row: str | int, reason: str, detail: str = "", split: str | None = None) -> None:
        """Note a row that makes no candidate; one of unknown split is listed with the first."""
        log = self.logs.get(split) if split else next(iter(self.logs.values()))
        if log is not None:
            log.add(row, reason, detail)

    def hold_out(self, subject_id: str, split: str) -> None:
        """Note that a subject is in val or test, whether or not its rows can be used; of both, test counts."""
        if split != "train" and self.held_out.get(subject_id) != "test":
            self.held_out[subject_id] = split


@dataclass(frozen=True)
class DataSet:
    """A data set, as its script describes it to `pipeline.run`.

    name: of the script, and the data_source of its report rows.
    cohort: data sets of one cohort name the same patients by the same subject_id; "": nobody knows (--cohort may say).
    tasks: the first is the default.
    add_options: its own options; the common ones are there already (`options.add_common`).
    check: sees that the command line makes sense (ValueError: it does not) before anything is read.
    read: all candidates with their splits; rows that make none go to the intake. ValueError, OSError: bad input.
    content: of a candidate, in a worker process; SkipRow: the row cannot be used. A function of a module's top level.
    leak_hint: what else may help where the guard refuses.
    blanks, target: defaults of --blanks and --target.
    unwanted: reasons for which a row is not wanted, as opposed to damaged; `--no-skip-bad` does not stop at these.
    """

    name: str
    cohort: str
    tasks: tuple[str, ...]
    description: str
    add_options: Callable[[ArgumentParser], None]
    read: Callable[[Namespace, Intake], list[Candidate]]
    content: Callable[[Candidate, Namespace], Content]
    check: Callable[[Namespace], None] = lambda args: None
    unwanted: frozenset[str] = frozenset()
    blanks: str = "drop"
    target: str = "both"
    leak_hint: str = ""


def data_source(name: str, task: str) -> str:
    """What rewards are chosen by: the data set's name for reports, `name_task` for its other tasks."""
    return name if task == "report" else f"{name}_{task}"
