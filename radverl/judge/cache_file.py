"""What is in a file of the judge's answers, and taking old answers out of it. Errors are raised here, not hidden."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ROW_BYTES = "length(key) + length(model) + length(prompt) + length(CAST(answer AS BLOB)) + 32"
_BUSY_SECONDS = 30.0  # a run that uses the file writes some milliseconds at a time


@contextlib.contextmanager
def open_file(path: str | os.PathLike[str], write: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to a cache that is there.

    Raises:
        ValueError: no such file, not a cache, damaged, or, with `write`, not writable.
        OSError: no room for the change, or another process holds the file.
    """
    where = Path(path)
    if not where.is_file():
        raise ValueError(f"{where} does not exist; name the cache with --cache or RADVERL_JUDGE_CACHE.")
    if write and not os.access(where, os.W_OK):
        raise ValueError(f"{where} cannot be written to; change its mode or its owner.")
    try:
        uri = f"{where.resolve().as_uri()}?mode={'rw' if write else 'ro'}"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as found:
            found.execute("SELECT key, model, prompt, answer, created FROM answers LIMIT 1").fetchone()
            yield found
    except sqlite3.OperationalError as error:
        if "full" in str(error) or "locked" in str(error):
            raise OSError(f"{where}: {error}") from None
        raise ValueError(f"{where}: {error}; name a cache of the judge that can be read.") from None
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{where}: {error}; a damaged cache can only be deleted.") from None


def statistics(connection: sqlite3.Connection, path: str | os.PathLike[str]) -> dict[str, Any]:
    """entries, bytes (with the log beside the file), oldest, newest (seconds since 1970), by model and prompt."""
    entries, oldest, newest = connection.execute("SELECT count(*), min(created), max(created) FROM answers").fetchone()
    groups = connection.execute(
        f"SELECT model, prompt, count(*), sum({_ROW_BYTES}), min(created), max(created) FROM answers"
        " GROUP BY model, prompt ORDER BY model, prompt"
    )
    names = ("model", "prompt", "entries", "bytes", "oldest", "newest")
    return {
        "path": str(path),
        "entries": entries,
        "bytes": size(path),
        "oldest": oldest,
        "newest": newest,
        "by": [dict(zip(names, group, strict=True)) for group in groups],
    }


def size(path: str | os.PathLike[str]) -> int:
    """Bytes of the file and of the write-ahead log beside it."""
    return sum(part.stat().st_size for part in (Path(path), Path(f"{path}-wal")) if part.exists())


def answers(
    connection: sqlite3.Connection, model: str | None = None, prompt: str | None = None
) -> Iterator[dict[str, Any]]:
    """Rows in the order in which they were kept: key, model, prompt, created, answer (JSON text)."""
    where, values = _where(None, model, prompt)
    names = ("key", "model", "prompt", "created", "answer")
    for row in connection.execute(f"SELECT {', '.join(names)} FROM answers{where} ORDER BY created, key", values):
        yield dict(zip(names, row, strict=True))


def prune(
    connection: sqlite3.Connection,
    path: str | os.PathLike[str],
    *,
    older_than: float | None = None,
    model: str | None = None,
    prompt: str | None = None,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> int:
    """Take out answers that are older (seconds), and of this model, and of this prompt; then the oldest until the file
    has no more than `max_bytes`. The number of answers taken out, or that would be.

    `prompt` with its version takes one version, as "extract_facts.v1", without it all.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        count = 0
        if (older_than, model, prompt) != (None, None, None):
            where, values = _where(older_than, model, prompt)
            count += connection.execute(f"DELETE FROM answers{where}", values).rowcount
        if max_bytes is not None:
            count += _delete_oldest(connection, max_bytes)
        connection.execute("ROLLBACK" if dry_run else "COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    if not dry_run:
        _shrink(connection)
        goal = float(max_bytes or 0)
        # Pages are never full, so the file is larger than its rows; by how much shows only now. Not by `size`: a reader
        # may keep the log from being emptied, which is no reason to take out more.
        while max_bytes is not None and (there := _paged(connection)) > max_bytes and _entries(connection):
            goal *= max_bytes / there
            count += _delete_oldest(connection, int(goal))
            _shrink(connection)
    return count


def _entries(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM answers").fetchone()[0])


def _paged(connection: sqlite3.Connection) -> int:
    """Bytes of the file without the log."""
    pages, page_size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages) * int(page_size)


def _delete_oldest(connection: sqlite3.Connection, max_bytes: int) -> int:
    newest_first = f"SELECT key, sum({_ROW_BYTES}) OVER (ORDER BY created DESC, key) AS so_far FROM answers"
    return connection.execute(
        f"DELETE FROM answers WHERE key IN (SELECT key FROM ({newest_first}) WHERE so_far > ?)", (max_bytes,)
    ).rowcount


def _shrink(connection: sqlite3.Connection) -> None:
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _where(older_than: float | None, model: str | None, prompt: str | None) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if older_than is not None:
        parts, values = [*parts, "created < ?"], [*values, time.time() - older_than]
    if model is not None:
        parts, values = [*parts, "model = ?"], [*values, model]
    if prompt is not None:
        parts, values = [*parts, "(prompt = ? OR prompt GLOB ? || '.v[0-9]*')"], [*values, prompt, prompt]
    return (" WHERE " + " AND ".join(parts) if parts else ""), values
