"""Answers of the judge on disk: one SQLite file that any number of processes may share.

key = sha256(model, prompt name and digest, schema, text in normal form)

On a disk of this machine SQLite keeps a write-ahead log (WAL). That log needs memory which all processes share, so on a
network file system it loses answers or damages the file; there the older rollback journal (DELETE) is used, which is
slower and needs file locks that work. `journal` or RADVERL_JUDGE_CACHE_JOURNAL decides where the choice is wrong.

With WAL a process may also claim a key before it asks the server, so that others wait for its answer. A claim ends
after a while unless it is renewed: its process may have been killed.

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
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from radverl.judge.network_mounts import on_network

PATH_VARIABLE = "RADVERL_JUDGE_CACHE"
JOURNAL_VARIABLE = "RADVERL_JUDGE_CACHE_JOURNAL"
CLAIM_SECONDS = 45.0  # ours; a client renews its claims three times in this time
_TABLE = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, model TEXT NOT NULL, prompt TEXT NOT NULL,"
    " answer TEXT NOT NULL, created REAL NOT NULL)"
)
_CLAIMS = "CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL)"
_CLAIM = (
    "INSERT INTO claims VALUES (:key, :owner, :until) ON CONFLICT (key) DO UPDATE SET owner = :owner, until = :until"
    " WHERE until < :now OR owner = :owner"
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
    """Answers by key. Nothing here raises: what cannot be read is asked again, what cannot be written is not kept.

    Args:
        journal: wal, delete, or auto: delete on a network file system. None: by RADVERL_JUDGE_CACHE_JOURNAL, else auto.
    Raises:
        ValueError: another journal.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, journal: str | None = None) -> None:
        self.path = Path(path) if path is not None else default_path()
        self.journal = (journal or os.environ.get(JOURNAL_VARIABLE) or "auto").lower()
        if self.journal not in ("auto", "wal", "delete"):
            raise ValueError(f"{JOURNAL_VARIABLE} is {self.journal!r:.40}; use auto, wal or delete.")
        self.usable = True
        self._id, self._claimed, self._claiming = uuid.uuid4().hex, set[str](), False
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
                    with _transaction(connection):
                        connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
                        if key in self._claimed:
                            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self._owner))
                    self._claimed.discard(key)
            except (sqlite3.Error, OSError) as error:
                if not _is_busy(error):
                    self._give_up(error, writing=True)

    def claim(self, key: str, seconds: float = CLAIM_SECONDS) -> bool:
        """Whether the caller should ask the server; False where another process is asking and its claim holds.

        Where claims cannot be kept (no WAL, no room, busy) everyone may ask.
        """
        now = time.time()
        values = {"key": key, "owner": self._owner, "until": now + seconds, "now": now}
        with self._lock:
            if (changed := self._write_claims(_CLAIM, values)) != 0:
                self._claimed.add(key)
        return changed != 0

    def release(self, key: str) -> None:
        """End a claim without an answer."""
        with self._lock:
            if key in self._claimed:
                self._claimed.discard(key)
                self._write_claims("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self._owner))

    def renew_claims(self, seconds: float = CLAIM_SECONDS) -> None:
        """The caller still works on what it has claimed."""
        with self._lock:
            if self._claimed:
                until = time.time() + seconds
                self._write_claims("UPDATE claims SET until = ? WHERE owner = ?", (until, self._owner))

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    @property
    def _owner(self) -> str:
        return f"{self._id} {os.getpid()}"  # a fork is another owner

    def _write_claims(self, statement: str, values: Any) -> int:
        """Rows that were changed; -1 where claims are not kept."""
        try:
            if not self._writable or (connection := self._open()) is None or not self._claiming:
                return -1
            return connection.execute(statement, values).rowcount
        except (sqlite3.Error, OSError) as error:
            if not _is_busy(error):
                self._claiming = False  # `put` finds out what is wrong with the file, and says so
            return -1

    def _open(self) -> sqlite3.Connection | None:
        if not self.usable:
            return None
        if self._connection is None or self._process != os.getpid():  # SQLite's handles must not cross a fork
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):  # closing a file that is there would drop SQLite's locks on it
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            try:
                mode = self._set_journal(connection)
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute(_TABLE)
            except sqlite3.Error:
                connection.close()
                raise
            self._connection, self._process, self._claimed = connection, os.getpid(), set()
            self._claiming = mode == "wal"
            with contextlib.suppress(sqlite3.Error):
                if self._claiming:
                    connection.execute(_CLAIMS)
        return self._connection

    def _set_journal(self, connection: sqlite3.Connection) -> str:
        """The journal in force; one that others keep the file in, or that its file system cannot do, stays."""
        mode = self.journal
        if mode == "auto":
            mode = "delete" if on_network(self.path) else "wal"
        there = ""
        for pause in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0):  # SQLite does not wait here by itself
            time.sleep(pause)
            try:
                there = str(connection.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]).lower()
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
                there = str(connection.execute("PRAGMA journal_mode").fetchone()[0]).lower()
            if there == mode:
                break
        return there

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


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
