"""Answers of the judge on disk: one SQLite file in WAL mode that any number of processes of a machine may share.

key = sha256(model, prompt name and digest, schema, text in normal form)

The file holds report text, so it is readable by its owner alone. A cache that cannot be used costs calls, never a run:
it warns once and is left alone.
"""

import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

PATH_VARIABLE = "RADVERL_JUDGE_CACHE"
_TABLE = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, model TEXT NOT NULL, prompt TEXT NOT NULL,"
    " answer TEXT NOT NULL, created REAL NOT NULL)"
)
_WAIT = 2.0  # seconds for another process's write
_log = logging.getLogger(__name__)


def cache_key(model: str, prompt: str, digest: str, schema: dict[str, Any], text: str) -> str:
    """The key of an answer; whatever may change the answer is in it."""
    parts = json.dumps([model, prompt, digest, schema, text], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def default_path() -> Path:
    """RADVERL_JUDGE_CACHE, else radverl/judge.sqlite in the user's cache folder."""
    if chosen := os.environ.get(PATH_VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "radverl" / "judge.sqlite"


class AnswerCache:
    """Answers by key. Nothing here raises: what cannot be read is asked again, what cannot be written is not kept."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else default_path()
        self.usable = True
        self._writable = True
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer, or None where there is none to be had."""
        with self._lock:
            try:
                if (connection := self._open()) is None:
                    return None
                row = connection.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
                answer = json.loads(row[0]) if row else None
            except (ValueError, TypeError):  # a row from elsewhere; the next answer takes its place
                return None
            except (sqlite3.Error, OSError) as error:
                if not _is_busy(error):
                    self._give_up(error)
                return None
        return answer if isinstance(answer, dict) else None

    def put(self, key: str, model: str, prompt: str, answer: dict[str, Any]) -> None:
        """Keep an answer."""
        with self._lock:
            if not self._writable:
                return
            try:
                if (connection := self._open()) is not None:
                    row = (key, model, prompt, json.dumps(answer), time.time())
                    connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
            except (sqlite3.Error, OSError) as error:
                if not _is_busy(error):
                    self._give_up(error, writing=True)

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection | None:
        if not self.usable:
            return None
        if self._connection is None or self._process != os.getpid():  # SQLite's handles must not cross a fork
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):  # closing a file that is there would drop SQLite's locks on it
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode=WAL")  # a file system without shared memory keeps its own mode
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute(_TABLE)
            except sqlite3.Error:
                connection.close()
                raise
            self._connection, self._process = connection, os.getpid()
        return self._connection

    def _give_up(self, error: Exception, writing: bool = False) -> None:
        """A file that takes no more is still read; one that cannot be read is left alone."""
        self._writable = False
        self.usable = self.usable and writing and self._connection is not None
        what = "takes no more answers" if self.usable else "cannot be used"
        _log.warning(
            "judge cache %s %s (%s); calls are made instead. Delete the file, make room, or set %s.",
            self.path, what, error, PATH_VARIABLE,
        )  # fmt: skip


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
