"""CheXpert labels that come with a data set: JSON lines or a table, one row an image or a study.

    {"path_to_image": "train/patient00001/study1/view1_frontal.jpg", "Edema": 1.0, "Pneumonia": null, ...}

Labels are mapped by name, never by position: the published files disagree on the order.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from data_preprocess.core.tabular import MalformedRow, TableError, read_table
from radverl.labels import CHEXPERT_14, Labels, canonical_name, normalise_labels

Key = Callable[[Mapping[str, Any]], str | None]
TABLES = (".csv", ".tsv")


def read_labels(path: str | os.PathLike[str], key: Key) -> dict[str, Labels]:
    """The labels of every row of a file: a .csv or .tsv table, anything else JSON lines.

    Args:
        key: what to file a row's labels under; None leaves the row out.
    Raises:
        TableError: the file is missing, is not what its name says, lacks a label, holds a value that is none, or
            gives two different sets of labels to one key.
    """
    path = Path(path)
    if path.suffix.lower() in TABLES:
        return labels_of_rows(enumerate(read_table(path)[1], 1), key, str(path), "row")
    return labels_of_rows(_json_lines(path), key, str(path), "line")


def labels_of_rows(
    rows: Iterable[tuple[int, Mapping[str, Any] | MalformedRow]], key: Key, where: str, unit: str = "row"
) -> dict[str, Labels]:
    """The labels in numbered rows, whose other columns are ignored; errors as `read_labels`."""
    out: dict[str, Labels] = {}
    columns, known, number = list[str](), None, 0
    made: dict[tuple[str, ...], Labels] = {}  # few sets of labels are different, and equal ones share a dict
    for number, row in rows:
        if isinstance(row, MalformedRow):
            raise TableError(f"{where}: {unit} {number} cannot be read ({row.detail}); restore the file.")
        if row.keys() != known:  # a line of JSON may have other keys than the one before
            known, columns = row.keys(), label_columns(row)
            made.clear()
            there = {canonical_name(column) for column in columns}
            if missing := [name for name in CHEXPERT_14 if name not in there]:
                message = f"{unit} {number} has no label {missing[0]!r}; pass a file with the 14 CheXpert labels."
                raise TableError(f"{where}: {message}")
        try:
            name = key(row)
            if name is None:
                continue
            values = tuple(repr(row[column]) for column in columns)
            if values not in made:
                made[values] = normalise_labels({column: row[column] for column in columns})
            labels = made[values]
        except ValueError as error:  # a TableError of the key's too
            raise TableError(f"{where}: {unit} {number}: {error}") from error
        if out.setdefault(name, labels) != labels:
            raise TableError(f"{where}: {unit} {number} has other labels for {name} than a row before; remove one.")
    if not number:
        raise TableError(f"{where}: has no rows; restore the file.")
    return out


def label_columns(columns: Iterable[str]) -> list[str]:
    """The columns that hold one of the 14 labels, in any spelling; two of one label must agree in every row."""
    return [column for column in columns if _is_label(column)]


def _is_label(column: str) -> bool:
    try:
        canonical_name(column)
    except ValueError:
        return False
    return True


def _json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any] | MalformedRow]]:
    if not os.path.isfile(path):
        raise TableError(f"{path}: no such file; pass the labels with --labels.")
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError) as error:
                    yield number, MalformedRow(f"not JSON: {error}")
                    continue
                yield number, value if isinstance(value, dict) else MalformedRow("not a JSON object")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: cannot be read as UTF-8 text ({error}).") from error
