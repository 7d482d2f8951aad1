"""Reads a table of reports: CSV, TSV (the delimiter is recognised) or JSON lines, UTF-8.

A row that cannot be parsed comes out as a `MalformedRow`, so that the caller can count it; only a file that cannot
be used at all raises.
"""

import csv
import io
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_preprocess.core.skiplog import SkipRow

FIELD_LIMIT = 10_000_000  # characters in one cell; csv's default of 131072 is below some exported reports
_END = "\0end of table"  # a line of our own: a quote that nobody closes swallows it
PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")  # gzip, zip, bzip2, xz, zstd
EMPTY_WORDS = {"", "nan", "none", "null", "n/a", "na", "nil"}  # what exports write for a missing value


class TableError(ValueError):
    """A table that cannot be used."""


@dataclass
class MalformedRow:
    """A row that could not be parsed, and why."""

    detail: str


def read_table(path: str | os.PathLike[str]) -> tuple[list[str], list[dict[str, Any] | MalformedRow]]:
    """Columns and rows of a .csv, .tsv or .jsonl file; row i of the list is row i + 1 of the data.

    Raises:
        TableError: the file is missing, not UTF-8 text, or has no header.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise TableError(f"{path}: is a folder; pass the table in it with --csv.")
    if not os.path.isfile(path):
        raise TableError(f"{path}: no such file; pass the table with --csv.")
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise TableError(f"{path}: cannot be opened ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        packed = any(data.startswith(magic) for magic in PACKED)
        how = "it is packed; unpack it first" if packed else "save the table as UTF-8"
        raise TableError(f"{path}: is not UTF-8 text (byte {error.start}); {how}.") from error
    rows = _json_lines(text) if path.suffix.lower() in (".jsonl", ".ndjson") else _csv(text, path)
    columns = list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))
    if path.suffix.lower() not in (".jsonl", ".ndjson"):
        columns = _header(text, path)
    return columns, rows


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


def _delimiter(text: str) -> str:
    """Comma, semicolon or tab: whichever the header line has most of."""
    header = re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0]
    return max(",;\t", key=header.count)


def _header(text: str, path: Path) -> list[str]:
    try:
        header = next(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)), [])
    except csv.Error as error:
        raise TableError(f"{path}: the header cannot be read ({error}).") from error
    names = [name.strip() for name in header]
    if not any(names):
        raise TableError(f"{path}: is empty; the first line must name the columns.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(f"{path}: has the column {twice[0]!r} more than once; rename one of them.")
    return names


def _csv(text: str, path: Path) -> list[dict[str, Any] | MalformedRow]:
    names = _header(text, path)
    previous = csv.field_size_limit(FIELD_LIMIT)
    rows: list[dict[str, Any] | MalformedRow] = []
    try:
        reader = csv.reader(io.StringIO(f"{text}\n{_END}", newline=""), delimiter=_delimiter(text))
        next(reader)
        first = reader.line_num + 1
        for values in reader:
            lines, first = f"{first}-{reader.line_num}", reader.line_num + 1
            if values == [_END]:
                break
            if values and values[-1].endswith(_END):
                start = lines.split("-")[0]
                message = f"a quote opened in row {len(rows) + 1} (line {start}) is never closed; close or double it."
                raise TableError(f"{path}: {message}")
            if not values:
                continue  # a blank line is no row
            if len(values) != len(names):
                fields = f"{len(values)} fields where the header has {len(names)}"
                rows.append(MalformedRow(f"{fields} (lines {lines}); is a quote missing?"))
            else:
                rows.append(dict(zip(names, values, strict=True)))
    except csv.Error as error:
        raise TableError(f"{path}: cannot be parsed after row {len(rows)} ({error}).") from error
    finally:
        csv.field_size_limit(previous)
    return rows


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
