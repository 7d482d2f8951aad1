"""Reads a table: CSV, TSV (the delimiter is recognised) or JSON lines, UTF-8, gzipped or not.

A row that cannot be parsed comes out as a `MalformedRow`, so that the caller can count it; only a file that cannot
be used at all raises.
"""

import contextlib
import csv
import gzip
import itertools
import json
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from data_preprocess.core.skiplog import SkipRow

FIELD_LIMIT = 100_000_000  # characters in one cell; csv's default of 131072 is below some exported reports
_END = "\0end of table"  # a line of our own: a quote that nobody closes swallows it
GZIP = b"\x1f\x8b"
PACKED = (b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")  # zip, bzip2, xz, zstd
EMPTY_WORDS = {"", "nan", "none", "null", "n/a", "na", "nil"}  # what exports write for a missing value


Records: TypeAlias = Any  # what csv.reader gives; its type has no name before Python 3.13


class TableError(ValueError):
    """A table that cannot be used."""


@dataclass
class MalformedRow:
    """A row that could not be parsed, and why."""

    detail: str


def read_table(path: str | os.PathLike[str]) -> tuple[list[str], list[dict[str, Any] | MalformedRow]]:
    """Columns and rows of a table, as `open_table`; row i of the list is row i + 1 of the data."""
    columns, rows = open_table(path)
    return columns, list(rows)


def open_table(path: str | os.PathLike[str]) -> tuple[list[str], Iterator[dict[str, Any] | MalformedRow]]:
    """Columns and rows of a .csv, .tsv or .jsonl file, gzipped or not; rows of a CSV or TSV are read as they are used.

    Raises:
        TableError: the file is missing, not UTF-8 text, damaged, or has no header; some of it only when the row is
            reached.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise TableError(f"{path}: is a folder; name the table in it.")
    if not os.path.isfile(path):
        raise TableError(f"{path}: no such file; check the name of the table.")
    if path.name.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        rows = _json_lines("".join(_lines(path)))
        return list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row)), iter(rows)
    lines = _lines(path)
    first = next((line for line in lines if line.strip()), "")
    reader = csv.reader(itertools.chain([first], lines, [_END]), delimiter=max(",;\t", key=first.count))
    names = _header(reader, path)
    return names, _csv(reader, names, path)


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file, gzipped or not, with their ends.

    Raises:
        TableError: as `open_table`.
    """
    number = 0
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
        packed = magic.startswith(GZIP)
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if packed
            else path.open(encoding="utf-8-sig", newline="") as file
        ):
            for line in file:
                number += 1
                yield line
    except UnicodeDecodeError as error:
        how = "it is packed; unpack it first" if magic.startswith(PACKED) else "save the table as UTF-8"
        raise TableError(f"{path}: is not UTF-8 text (after line {number}); {how}.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        message = f"is damaged after line {number} ({error}), perhaps half downloaded; fetch it again."
        raise TableError(f"{path}: {message}") from error
    except OSError as error:
        raise TableError(f"{path}: cannot be opened ({error.strerror}).") from error


def require_columns(path: str | os.PathLike[str], columns: list[str], wanted: dict[str, str]) -> None:
    """Check that every wanted column exists; `wanted` maps an option ("--report-column") to the column it names.

    Raises:
        TableError: names the missing column, the option that sets it and the columns there are.
    """
    for option, column in wanted.items():
        if column not in columns:
            there = ", ".join(repr(c) for c in columns) or "none"
            raise TableError(f"{path}: has no column {column!r} (set by {option}); the columns are {there}.")


def cell(row: dict[str, Any], column: str | None) -> str:
    """A cell as stripped text; "" where it is missing or says so (None, NaN, "nan", "None", "N/A", ...).

    Raises:
        SkipRow: a JSON value that is no text or number, or text that is not valid Unicode.
    """
    value = row.get(column) if column is not None else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = plain_text(value, str(column))
    return "" if text.lower() in EMPTY_WORDS else text


def number(row: dict[str, Any], column: str, reason: str) -> float:
    """A finite number in a cell.

    Raises:
        SkipRow: there is none; `reason` is the phrase to count it under.
    """
    text = cell(row, column)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SkipRow(f"{column} is {text[:40]!r}, not a number", reason)
    return value


def plain_text(value: Any, column: str) -> str:
    """A text or number of a row, stripped; an object or a list would be stored as its Python spelling."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise SkipRow(f"{column} holds a JSON {type(value).__name__}, not text", "not text")
    text = str(value).strip()
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SkipRow(f"{column} is not valid Unicode ({error.reason})", "malformed text") from error
    return text


def _header(reader: Records, path: Path) -> list[str]:
    with _wide_cells():
        try:
            names = [name.strip() for name in next(reader, [])]
        except csv.Error as error:
            raise TableError(f"{path}: the header cannot be read ({error}).") from error
    if not any(names) or names[0].endswith(_END):
        raise TableError(f"{path}: is empty; the first line must name the columns.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(f"{path}: has the column {twice[0]!r} more than once; rename one of them.")
    return names


def _csv(reader: Records, names: list[str], path: Path) -> Iterator[dict[str, Any] | MalformedRow]:
    number, first = 0, reader.line_num + 1
    while True:
        try:
            previous = csv.field_size_limit(FIELD_LIMIT)  # as _wide_cells, in less time
            try:
                values = next(reader, [_END])
            finally:
                csv.field_size_limit(previous)
        except csv.Error as error:
            raise TableError(f"{path}: cannot be parsed after row {number} ({error}).") from error
        lines, start, first = f"{first}-{reader.line_num}", first, reader.line_num + 1
        if values == [_END]:
            return
        if values and values[-1].endswith(_END):
            message = f"a quote opened in row {number + 1} (line {start}) is never closed; close or double it."
            raise TableError(f"{path}: {message}")
        if not values:
            continue  # a blank line is no row
        number += 1
        if len(values) != len(names):
            fields = f"{len(values)} fields where the header has {len(names)}"
            yield MalformedRow(f"{fields} (lines {lines}); is a quote missing?")
        else:
            yield dict(zip(names, values, strict=True))


@contextlib.contextmanager
def _wide_cells() -> Iterator[None]:
    """csv's limit of a cell is of the whole process; it is raised only while a row of ours is read."""
    previous = csv.field_size_limit(FIELD_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(previous)


def _json_lines(text: str) -> list[dict[str, Any] | MalformedRow]:
    rows: list[dict[str, Any] | MalformedRow] = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            rows.append(MalformedRow(f"not JSON ({error})"))
            continue
        rows.append(value if isinstance(value, dict) else MalformedRow(f"a JSON {type(value).__name__}, not an object"))
    return rows
