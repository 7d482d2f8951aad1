"""Leakage guard: no subject in two splits, and none of a known held-out subject in training.

Known held-out subjects are those in the val and test splits of
- this run,
- the other folders beside OUT: each run leaves its subjects in OUT/subjects.json, with the cohort, because
  Chest ImaGenome and MS-CXR hold the patients of MIMIC-CXR under the same numbers,
- the files of --held-out: Parquet files of ours, tables with a subject_id (or a MIMIC path) and perhaps a split, or one
  subject a line.
What is in training there counts the other way round: a subject that is in somebody's training split must not be in
this run's val or test.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_preprocess.core.candidates import Candidate, Intake
from data_preprocess.core.skiplog import write_text
from data_preprocess.core.splits import split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table

SUBJECTS = "subjects.json"
ON_LEAK = ("refuse", "drop", "allow")
HELD_OUT = ("val", "test")
LEAK = "known held-out subject"
OWN_OVERLAP = "subject of a held-out split"
SHOWN = 3
_MIMIC_PATH = re.compile(r"(?:^|/)p\d{2}/p(\d{8})/")
_MIMIC_SUBJECT = re.compile(r"p?(\d{8})(?:\.0)?")
_SUBJECT_COLUMNS = ("subject_id", "patient_id", "PatientID", "deid_patient_id")

Seen = dict[str, str]  # subject -> where it is held out (or trained on)


class LeakError(ValueError):
    """A train split holds known held-out subjects, or the other way round."""


def drop_own_overlap(candidates: Iterable[Candidate], intake: Intake) -> list[Candidate]:
    """The candidates without those of subjects that are held out in another split of this data set: test goes first,
    then val."""
    candidates = list(candidates)
    for candidate in candidates:
        intake.hold_out(candidate.subject_id, candidate.split)
    kept = []
    for candidate in candidates:
        split = intake.held_out.get(candidate.subject_id, "train")
        if candidate.split == split:
            kept.append(candidate)
        else:
            message = f"{candidate.subject_id} has rows in the data set's {split} split too"
            intake.add(candidate.shown, OWN_OVERLAP, message, candidate.split)
    return kept


def known_subjects(out: str | os.PathLike[str], cohort: str, files: Sequence[str]) -> tuple[Seen, Seen]:
    """Subjects known to be held out, and subjects known to be trained on, each with the place that says so.

    Raises:
        TableError: a file of --held-out or a subjects.json cannot be used.
    """
    held_out: Seen = {}
    trained: Seen = {}
    folder = Path(os.path.abspath(out))
    for path in sorted(folder.parent.glob(f"*/{SUBJECTS}")):
        own = path.parent == folder or (folder.is_dir() and path.parent.samefile(folder))
        if not own and not cohort:
            continue
        record = _read_record(path)  # our own, too, which will be written again when the work is done
        if own:
            continue
        if record["cohort"] != cohort:
            continue
        for split, subjects in record["splits"].items():
            known = held_out if split in HELD_OUT else trained
            known.update((_spelled(str(subject), cohort), f"{path.parent.name} ({split})") for subject in subjects)
    for file in files:
        held_out.update((_spelled(subject, cohort), file) for subject in _subjects_of_file(file))
    return held_out, trained


def check_leaks(
    candidates: Sequence[Candidate], cohort: str, held_out: Seen, trained: Seen, on_leak: str, intake: Intake
) -> list[Candidate]:
    """The candidates that may be written.

    Args:
        on_leak: refuse (raise), drop (the rows go to the log) or allow.
    Raises:
        LeakError: under "refuse", there are leaks; names some and where they come from.
    """
    leaks = {c.row_id: place for c in candidates if (place := _place(c, cohort, held_out, trained))}
    if not leaks or on_leak == "allow":
        return list(candidates)
    if on_leak == "refuse":
        raise LeakError(_refusal(candidates, leaks))
    for candidate in candidates:
        if candidate.row_id in leaks:
            message = f"{candidate.subject_id} is in {leaks[candidate.row_id]}"
            intake.add(candidate.shown, LEAK, message, candidate.split)
    return [candidate for candidate in candidates if candidate.row_id not in leaks]


def write_record(out: str | os.PathLike[str], name: str, cohort: str, splits: Mapping[str, Iterable[str]]) -> None:
    """Leave the subjects of the splits written in OUT/subjects.json; those of splits not written this time stay."""
    path = Path(out, SUBJECTS)
    earlier: dict[str, Any] = {}
    if path.is_file():
        record = _read_record(path)
        earlier = record["splits"] if record["cohort"] == cohort else {}
    there = {
        split: list(map(str, known)) for split, known in earlier.items() if Path(out, f"{split}.parquet").is_file()
    }
    there |= {split: sorted(set(subjects)) for split, subjects in splits.items()}
    text = json.dumps({"data": name, "cohort": cohort, "splits": dict(sorted(there.items()))}, ensure_ascii=False)
    write_text(path, text + "\n")


def _place(candidate: Candidate, cohort: str, held_out: Seen, trained: Seen) -> str | None:
    return (held_out if candidate.split == "train" else trained).get(_spelled(candidate.subject_id, cohort))


def _refusal(candidates: Sequence[Candidate], leaks: Mapping[str, str]) -> str:
    leaking = [c for c in candidates if c.row_id in leaks]
    subjects = sorted({c.subject_id for c in leaking})
    splits = ", ".join(f"{split} {n}" for split, n in sorted(Counter(c.split for c in leaking).items()))
    places = ", ".join(sorted(set(leaks.values()))[:SHOWN])
    shown = ", ".join(subjects[:SHOWN]) + (", ..." if len(subjects) > SHOWN else "")
    return (
        f"{len(subjects)} subjects ({shown}; rows: {splits}) are in {places}, so training would see who it is tested "
        "on; pass --on-leak drop to leave their rows out, or --on-leak allow to write them all the same."
    )


def _spelled(subject: str, cohort: str) -> str:
    """A subject as the cohort spells it: lists of MIMIC's patients have p10000032 and 10000032.0 too."""
    match = _MIMIC_SUBJECT.fullmatch(subject) if cohort == "mimic" else None
    return match[1] if match else subject


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(subjects, list) for subjects in record["splits"].values()):
            raise ValueError("its splits are no lists")
        record["cohort"] = str(record["cohort"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableError(f"{path}: is no list of subjects ({error}); delete it, or make that data set anew.") from error
    return dict(record)


def _subjects_of_file(file: str) -> set[str]:
    if file.lower().endswith(".parquet"):
        return _of_parquet(file)
    if file.lower().endswith(".json"):
        splits = _read_record(Path(file))["splits"]
        return {str(subject) for split in HELD_OUT for subject in splits.get(split, [])}
    if not re.search(r"\.(csv|tsv|jsonl)(\.gz)?$", file, re.I):
        try:
            lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise TableError(f"--held-out {file}: cannot be read ({error}).") from error
        if not re.search("[,;\t]", "".join(lines[:1])):
            return {line.strip() for line in lines if line.strip()}
        if (subjects := _of_tabbed(lines)) is not None:
            return subjects
    columns, rows = open_table(file)
    column = next((name for name in _SUBJECT_COLUMNS if name in columns), None)
    if column is None and "path" not in columns:
        wanted = ", ".join(_SUBJECT_COLUMNS)
        raise TableError(f"--held-out {file}: has none of the columns {wanted} or path; pass another file.")
    out = set()
    for row in rows:
        if isinstance(row, MalformedRow):
            raise TableError(f"--held-out {file}: a row cannot be read ({row.detail}); restore the file.")
        if split_name(cell(row, "split")) == "train":
            continue
        path = _MIMIC_PATH.search(cell(row, "path"))
        subject = cell(row, column) or (path[1] if path else "")
        if not subject:
            raise TableError(f"--held-out {file}: a row names no subject; restore the file.")
        out.add(subject)
    return out


def _of_tabbed(lines: Sequence[str]) -> set[str] | None:
    """The subjects of a table as Chest ImaGenome's gold data set has: tabs, and texts with quotes that nobody closes.

    None: it is no such table.
    """
    names = lines[0].split("\t")
    place = next((names.index(name) for name in _SUBJECT_COLUMNS if name in names), None)
    if place is None or "split" in names:
        return None
    rows = [line.split("\t", place + 1) for line in lines[1:]]
    return {cells[place].strip() for cells in rows if len(cells) > place and cells[place].strip()}


def _of_parquet(file: str) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        extras = pq.read_table(file, columns=["extra_info"]).column("extra_info").to_pylist()
        return {str(extra["subject_id"]) for extra in extras if extra["split"] != "train"}
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise TableError(f"--held-out {file}: is no Parquet file of ours ({error}).") from error
