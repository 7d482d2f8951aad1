"""Finished rows on disk, so that a run that was killed goes on where it stopped, and memory holds no reports.

OUT/.unfinished/rows.jsonl has one line a row, {"id", "key", "row" or "skip"}, and is appended to after every chunk of
work. A later run with the same options takes the lines whose key still fits: the key hashes the candidate, the options
and the size and time of the files it is made from. A line without its end is what a killed run leaves; it is cut off.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from data_preprocess.core.candidates import Candidate, Row
from data_preprocess.core.skiplog import SkipRow

FOLDER = ".unfinished"
# dataclasses.asdict copies deeply, which takes longer than reading the report.
_NAMES = tuple(field.name for field in fields(Row))
_values = attrgetter(*_NAMES)
_values_of_candidate = attrgetter(*(field.name for field in fields(Candidate)))


@dataclass(slots=True)
class Entry:
    """A line of the journal: a finished row, or why there is none; made in a worker process."""

    row_id: str
    line: bytes
    skip: SkipRow | None


def entry(row_id: str, key: str, result: Row | SkipRow) -> Entry:
    """The line of a finished row."""
    what = {"skip": [str(result), result.reason]} if isinstance(result, SkipRow) else {"row": as_dict(result)}
    return Entry(
        row_id,
        json.dumps({"id": row_id, "key": key} | what).encode() + b"\n",
        result if isinstance(result, SkipRow) else None,
    )


def as_dict(row: Row) -> dict[str, Any]:
    """The fields of a row by name."""
    return dict(zip(_NAMES, _values(row), strict=True))


def row_key(salt: bytes, candidate: Candidate) -> str:
    """What a finished row must have been made from to be taken again."""
    digest = hashlib.sha256(salt + repr(_NAMES).encode())  # a line of another version has other fields
    digest.update(json.dumps(_values_of_candidate(candidate), sort_keys=True).encode())
    for file in (*candidate.images, *filter(_is_path, candidate.payload.values())):
        with contextlib.suppress(OSError, ValueError):
            state = os.stat(file)
            digest.update(f"{state.st_size} {state.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:32]


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and os.path.isabs(value)


class Journal:
    """The finished rows of one OUT; use it as a context manager, and `remove` it when the data files are written.

    Raises:
        ValueError: another run is at work in the same folder.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.folder = Path(out, FOLDER)
        self.images = self.folder / "images"  # converted images that will be embedded
        self.keys: dict[str, str] = {}
        self.skips: dict[str, SkipRow] = {}
        self._places: dict[str, int] = {}

    def __enter__(self) -> "Journal":
        self.images.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            where = self.folder.parent
            raise ValueError(f"{where}: another run is writing there; wait for it, or use another --out.") from error
        self._file = (self.folder / "rows.jsonl").open("a+b")
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._lock.close()

    def add(self, entries: Sequence[Entry]) -> None:
        """Append finished rows; they outlive this process when this returns."""
        place = self._file.seek(0, os.SEEK_END)
        for new in entries:
            self._note(new.row_id, place, new.skip)
            place += len(new.line)
        self._file.write(b"".join(new.line for new in entries))
        self._file.flush()

    def rows(self, row_ids: Sequence[str]) -> "FinishedRows":
        """The rows of these ids, none of them skipped, read from disk each time they are gone through."""
        return FinishedRows(self, row_ids)

    def row(self, row_id: str) -> Row:
        """One finished row."""
        self._file.seek(self._places[row_id])
        return Row(**json.loads(self._file.readline())["row"])

    def remove(self) -> None:
        """Delete everything; the data files hold it now."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _note(self, row_id: str, place: int, skip: SkipRow | None) -> None:
        self._places[row_id] = place
        self.skips.pop(row_id, None)
        if skip:
            self.skips[row_id] = skip

    def _read(self) -> None:
        self._file.seek(0)
        place = 0
        for line in self._file:
            try:
                found: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
                self._note(found["id"], place, SkipRow(*found["skip"]) if "skip" in found else None)
                self.keys[found["id"]] = found["key"] if self._images_are_there(found.get("row")) else ""
            except (ValueError, KeyError, TypeError, RecursionError):  # the end of a killed run
                self._file.truncate(place)
                return
            place += len(line)

    def _images_are_there(self, row: dict[str, Any] | None) -> bool:
        """Whether those that were converted into OUT are; originals are a part of the key."""
        made = os.path.abspath(self.folder.parent) + os.sep
        return all(os.path.isfile(path) for path in (row or {}).get("images", ()) if path.startswith(made))


class FinishedRows:
    """Rows in the order of their ids; holds nothing in memory but the ids."""

    def __init__(self, journal: Journal, row_ids: Sequence[str]) -> None:
        self._journal, self._ids = journal, row_ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Row]:
        return map(self._journal.row, self._ids)
