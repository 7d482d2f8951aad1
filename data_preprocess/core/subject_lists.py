"""Lists of subjects: what each run leaves in OUT/subjects.json, and the files of --held-out."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_preprocess.core.skiplog import write_text
from data_preprocess.core.splits import split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table

SUBJECTS = "subjects.json"
HELD_OUT = ("val", "test")
_MIMIC_PATH = re.compile(r"(?:^|/)p\d{2}/p(\d{8})/")
_MIMIC_SUBJECT = re.compile(r"p?(\d{8})(?:\.0)?")
_SUBJECT_COLUMNS = ("subject_id", "patient_id", "PatientID", "deid_patient_id")

Splits = dict[str, set[str]]  # split -> subjects; what a list only calls held out is "test"


@dataclass
class Known:
    """Subjects of other data, each with the place that says so."""

    cohort: str
    held_out: dict[str, str] = field(default_factory=dict)
    trained: dict[str, str] = field(default_factory=dict)

    def add(self, splits: Mapping[str, Iterable[Any]], place: str) -> None:
        """Note the subjects of a list."""
        for split, subjects in splits.items():
            known = self.held_out if split in HELD_OUT else self.trained
            for subject in subjects:
                known.setdefault(spelled(str(subject), self.cohort), f"{place} ({split})")

    def place(self, subject: str, split: str) -> str | None:
        """Where a subject of `split` is on the other side, None where it is not."""
        return (self.held_out if split == "train" else self.trained).get(spelled(subject, self.cohort))


def known_subjects(out: str | os.PathLike[str], cohort: str, splits: Sequence[str], files: Sequence[str]) -> Known:
    """What the folders beside OUT, OUT's own files of splits that will stay, and the files of --held-out say.

    Raises:
        TableError: a file of --held-out or a subjects.json cannot be used.
    """
    known = Known(cohort)
    folder = Path(os.path.abspath(out))
    for path in sorted(folder.parent.glob(f"*/{SUBJECTS}")):
        own = path.parent == folder or (folder.is_dir() and path.parent.samefile(folder))
        if not own and not cohort:
            continue
        record = read_record(path)
        if record["cohort"] != cohort:
            continue
        there = record["splits"]
        if own:
            there = {s: names for s, names in there.items() if s not in splits and (folder / f"{s}.parquet").is_file()}
        known.add(there, path.parent.name)
    for file in files:
        known.add(read_list(file), file)
    return known


def write_record(out: str | os.PathLike[str], name: str, cohort: str, splits: Mapping[str, Iterable[str]]) -> None:
    """Leave the subjects of a run in OUT/subjects.json; those of splits it does not name stay while their file does.

    Call it before the data files are written: a run that is killed in between holds out too many, never too few.

    Args:
        splits: empty where the run has no rows: it holds nobody out.
    """
    path = Path(out, SUBJECTS)
    earlier: dict[str, Any] = {}
    if path.is_file():
        record = read_record(path)
        earlier = record["splits"] if record["cohort"] == cohort else {}
    there = {
        split: list(map(str, known)) for split, known in earlier.items() if Path(out, f"{split}.parquet").is_file()
    }
    there |= {split: sorted(set(subjects)) for split, subjects in splits.items()}
    text = json.dumps({"data": name, "cohort": cohort, "splits": dict(sorted(there.items()))}, ensure_ascii=False)
    write_text(path, text + "\n")


def spelled(subject: str, cohort: str) -> str:
    """A subject as the cohort spells it: lists of MIMIC's patients have p10000032 and 10000032.0 too."""
    match = _MIMIC_SUBJECT.fullmatch(subject) if cohort == "mimic" else None
    return match[1] if match else subject


def read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(subjects, list) for subjects in record["splits"].values()):
            raise ValueError("its splits are no lists")
        record["cohort"] = str(record["cohort"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableError(f"{path}: is no list of subjects ({error}); delete it, or make that data set anew.") from error
    return dict(record)


def read_list(file: str) -> Splits:
    """The subjects of a Parquet file of ours, a subjects.json, a table or a text file with one subject a line.

    Raises:
        TableError: it is none of these.
    """
    if file.lower().endswith(".parquet"):
        return _of_parquet(file)
    if file.lower().endswith(".json"):
        return {split: set(map(str, names)) for split, names in read_record(Path(file))["splits"].items()}
    if not re.search(r"\.(csv|tsv|jsonl)(\.gz)?$", file, re.I):
        try:
            lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise TableError(f"--held-out {file}: cannot be read ({error}).") from error
        if not re.search("[,;\t]", "".join(lines[:1])):
            return {"test": {line.strip() for line in lines if line.strip()}}
        if (subjects := _of_tabbed(lines)) is not None:
            return {"test": subjects}
    return _of_table(file)


def _of_table(file: str) -> Splits:
    columns, rows = open_table(file)
    column = next((name for name in _SUBJECT_COLUMNS if name in columns), None)
    if column is None and "path" not in columns:
        wanted = ", ".join(_SUBJECT_COLUMNS)
        raise TableError(f"--held-out {file}: has none of the columns {wanted} or path; pass another file.")
    out: Splits = {}
    for row in rows:
        if isinstance(row, MalformedRow):
            raise TableError(f"--held-out {file}: a row cannot be read ({row.detail}); restore the file.")
        path = _MIMIC_PATH.search(cell(row, "path"))
        subject = cell(row, column) or (path[1] if path else "")
        if not subject:
            raise TableError(f"--held-out {file}: a row names no subject; restore the file.")
        out.setdefault(split_name(cell(row, "split")) or "test", set()).add(subject)
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


def _of_parquet(file: str) -> Splits:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        extras = pq.read_table(file, columns=["extra_info"]).column("extra_info").to_pylist()
        out: Splits = {}
        for extra in extras:
            out.setdefault(str(extra["split"]), set()).add(str(extra["subject_id"]))
        return out
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise TableError(f"--held-out {file}: is no Parquet file of ours ({error}).") from error
