"""The waiting line before a model, and the threads that take batches from it.

One thread works at a time. Python cannot stop it where a run does not end. So when a deadline passes and the run has
taken half of that call's time or more, another thread takes over, and what others want of the batch is run singly. It
loads the model anew, since no model may be run by two threads. This happens `ABANDONED` times at most.
"""

import atexit
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import Future
from typing import Any

from radverl.serve.entries import Call, Entry, Load, Run, WholeRun, Worker, outcomes_of
from radverl.serve.failure import ModelFailure

ABANDONED = 2  # threads left to a batch that does not end (ours); each keeps a model in memory
CLOSING = 5.0  # seconds that the end of the process waits for a running batch
_COUNTS = ("calls", "items", "duplicates", "batches", "computed", "failures")
_log = logging.getLogger(__name__)


class Line:
    """Items that wait, each once, and their worker; arguments as of `radverl.serve.batches.Batches`."""

    def __init__(self, load: Load, max_batch: int, wait: float, max_waiting: int) -> None:
        self._load, self._max_batch, self._wait, self._max_waiting = load, max_batch, wait, max_waiting
        self._worker: Worker | None = None
        self.begin()
        _lines.add(self)

    def begin(self) -> None:
        """The state of a new line, also of one that a fork has copied: its thread and model are the parent's."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: OrderedDict[Hashable, Entry] = OrderedDict()
        self._lost: set[Worker] = set()
        self._worker = None
        self._counts, self._seconds = dict.fromkeys(_COUNTS, 0), 0.0

    def loaded(self) -> "Future[None]":
        """Done when the model is loaded; where no thread is, one starts to load it."""
        with self._lock:
            if self._worker is None:
                self._worker = Worker(self._work)
            return self._worker.loaded

    def ready(self) -> bool:
        """Whether the model is loaded."""
        with self._lock:
            return self._worker is not None and self._worker.loaded.done()

    def enter(self, call: Call) -> None:
        """Put a call's items into the line.

        Raises:
            ModelFailure: rate_limit, where the line is too long.
        """
        with self._lock:
            self.loaded()  # it may have been closed meanwhile
            running = self._worker.running if self._worker else {}
            known = {item: self._waiting.get(item) or running.get(item) for item in call.places}
            new = sum(entry is None for entry in known.values())
            if len(self._waiting) + new > self._max_waiting:
                detail = f"{len(self._waiting)} items wait and {new} more would pass {self._max_waiting}"
                raise ModelFailure("rate_limit", detail, again=True)
            for item, entry in known.items():
                if entry is None:
                    entry = self._waiting[item] = Entry(item)
                entry.calls.add(call)
            self.count(calls=1, items=len(call.outcomes), duplicates=len(call.outcomes) - new)
            self._changed.notify_all()

    def leave(self, call: Call, why: str, late: float | None = None) -> list[Any]:
        """The call's outcomes. What is missing has failed, and is not computed where nobody else wants it.

        Args:
            late: the seconds that the call has waited, where that was its deadline.
        """
        with self._lock:
            running = self._worker.running if self._worker else {}
            for item in call.missing():
                for entries in (self._waiting, running):
                    if (entry := entries.get(item)) is not None:
                        entry.calls.discard(call)
                if item in self._waiting and not self._waiting[item].calls:
                    del self._waiting[item]
                call.give(item, ModelFailure("timeout", why, again=True))
            self.count(failures=sum(isinstance(outcome, ModelFailure) for outcome in call.outcomes))
            if late is not None and running and len(self._lost) < ABANDONED:
                self._hand_over(late / 2)
        return call.outcomes

    def count(self, **more: int) -> None:
        """Add to the counts."""
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number

    def counts(self) -> dict[str, float]:
        """As `Batches.counts`."""
        with self._lock:
            return {**self._counts, "seconds": round(self._seconds, 3), "waiting": len(self._waiting)}

    def blocked(self) -> bool:
        """As `Batches.blocked`."""
        with self._lock:
            return len(self._lost) >= ABANDONED and self._worker is not None and self._worker.for_nobody()

    def close(self, seconds: float) -> None:
        """As `Batches.close`."""
        with self._lock:
            worker, self._worker = self._worker, None
            failure = ModelFailure("connection", "the queue was closed", again=True)
            for entry in [*self._waiting.values(), *(worker.running.values() if worker else ())]:
                entry.give(failure)
            self._waiting.clear()
            self._changed.notify_all()
        if worker is not None and worker.thread is not threading.current_thread():
            worker.thread.join(seconds)

    def _hand_over(self, patience: float) -> None:
        worker = self._worker
        if worker is None or time.monotonic() - worker.since < patience:
            return
        _log.warning("a run of %d items takes over %.3g s; another model is loaded.", len(worker.running), patience)
        for item, entry in reversed(worker.running.items()):
            if entry.calls:
                self._waiting[item] = entry.again()
                self._waiting.move_to_end(item, last=False)
        worker.running = {}
        self._lost.add(worker)
        self._worker = None
        self.loaded()

    # The thread

    def _work(self, worker: Worker) -> None:
        try:
            run = self._load()
        except BaseException as error:
            detail = f"the model cannot be loaded: {type(error).__name__}: {error!s:.300}"
            failure = ModelFailure("server_error", detail)
            with self._lock:
                if self._worker is worker:
                    self._worker = None  # so that the next call tries again
                    for entry in self._take(len(self._waiting)).values():
                        entry.give(failure)
            worker.loaded.set_exception(failure)
            return
        worker.loaded.set_result(None)
        while entries := self._collect(worker):
            self._run(run, entries, worker)
        with self._lock:
            self._lost.discard(worker)

    def _collect(self, worker: Worker) -> list[Entry]:
        """Wait for the next batch; empty where another thread has taken over or the line is closed."""
        with self._lock:
            while self._worker is worker:
                if not self._waiting:
                    self._changed.wait()
                    continue
                first = next(iter(self._waiting.values()))
                left = first.since + self._wait - time.monotonic()
                if left <= 0 or len(self._waiting) >= self._max_batch or first.alone:
                    worker.running = self._take(1 if first.alone else self._max_batch)
                    return list(worker.running.values())
                self._changed.wait(left)
            return []

    def _take(self, most: int) -> dict[Hashable, Entry]:
        return dict(self._waiting.popitem(last=False) for _ in range(min(most, len(self._waiting))))

    def _run(self, run: Run, entries: list[Entry], worker: Worker) -> None:
        for entry, outcome in zip(entries, self._timed(run, entries, worker), strict=True):
            if isinstance(outcome, WholeRun) and len(entries) > 1:
                with self._lock:
                    if not entry.calls or self._worker is not worker:
                        worker.running.pop(entry.item, None)
                        continue
                (outcome,) = self._timed(run, [entry], worker)
            with self._lock:
                worker.running.pop(entry.item, None)
                entry.give(outcome.failure if isinstance(outcome, WholeRun) else outcome)

    def _timed(self, run: Run, entries: list[Entry], worker: Worker) -> list[Any]:
        worker.since = start = time.monotonic()
        outcomes = outcomes_of(run, [entry.item for entry in entries])
        with self._lock:
            self.count(batches=1, computed=len(entries))
            self._seconds += time.monotonic() - start
        return outcomes


_lines: "weakref.WeakSet[Line]" = weakref.WeakSet()


def _begin_all() -> None:
    for line in list(_lines):
        line.begin()


def _close_all() -> None:
    for line in list(_lines):
        line.close(CLOSING)


os.register_at_fork(after_in_child=_begin_all)
atexit.register(_close_all)
