"""Reads a Parquet file row by row, whoever wrote it."""

import os
from collections.abc import Iterator
from typing import Any

from radverl.datacheck.report import DataFileError

ROWS_AT_ONCE = 64  # embedded images are held in memory


def open_parquet(path: str | os.PathLike[str]) -> Any:
    """The file as a pyarrow ParquetFile.

    Raises:
        DataFileError: it is missing or not Parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not os.path.isfile(path):
        raise DataFileError(f"{path}: no such file; write it with radverl data <name>.")
    try:
        table = pq.ParquetFile(path)
        # Names and writer are decoded when they are first asked for, and may be damaged like all else.
        table.schema_arrow.to_string()
        table.metadata.created_by  # noqa: B018
        return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataFileError(f"{path}: is not a readable Parquet file ({_first_line(error)}).") from error


def rows_of(table: Any, name: str, wanted: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of a file, of the wanted columns that it has once.

    Raises:
        DataFileError: its data pages are damaged.
    """
    import pyarrow as pa

    names = table.schema_arrow.names
    columns = [column for column in wanted if names.count(column) == 1]
    try:
        for batch in table.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataFileError(f"{name}: its data pages cannot be read ({_first_line(error)}); write it anew.") from error


def text_of(value: Any) -> str:
    """An id as text, "" where there is none."""
    return "" if value is None else str(value)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
