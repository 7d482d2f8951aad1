"""What a line before a model holds: calls, the items they want, and the thread that computes them."""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from radverl.serve.failure import ModelFailure, failure_of

Run = Callable[[list[Any]], Sequence[Any]]
Load = Callable[[], Run]

MISSING = object()


class Call:
    """One caller's items on their way. `outcomes`: a result, a failure or MISSING for each, in order."""

    def __init__(self, items: Iterable[Hashable]) -> None:
        self.places: dict[Hashable, list[int]] = {}
        for place, item in enumerate(items):
            self.places.setdefault(item, []).append(place)
        self.outcomes: list[Any] = [MISSING] * sum(map(len, self.places.values()))
        self.done = unstoppable()
        self._open = len(self.places)

    def missing(self) -> list[Hashable]:
        """The items without an outcome."""
        return [item for item, places in self.places.items() if self.outcomes[places[0]] is MISSING]

    def give(self, item: Hashable, outcome: Any) -> None:
        """An item's outcome, once."""
        for place in self.places[item]:
            self.outcomes[place] = outcome
        self._open -= 1
        if not self._open:
            self.done.set_result(None)


class Entry:
    """An item that waits or is computed, and the calls that want it; `alone`: in a run of its own."""

    def __init__(self, item: Hashable) -> None:
        self.item, self.since, self.calls, self.alone = item, time.monotonic(), set[Call](), False

    def again(self) -> "Entry":
        """The same for another try, alone; this one's outcome will reach nobody."""
        other = Entry(self.item)
        other.calls, self.calls, other.alone = self.calls, set(), True
        return other

    def give(self, outcome: Any) -> None:
        """Tell all who wait."""
        for call in self.calls:
            call.give(self.item, outcome)
        self.calls.clear()


class Worker:
    """A thread with a model of its own; `running` are the items of its batch, `since` says when the run began."""

    def __init__(self, work: Callable[["Worker"], None]) -> None:
        self.running: dict[Hashable, Entry] = {}
        self.since = time.monotonic()
        self.loaded = unstoppable()
        self.thread = threading.Thread(target=work, args=(self,), daemon=True, name="radverl serve")
        self.thread.start()

    def for_nobody(self) -> bool:
        """Whether it computes what nobody waits for any more."""
        return bool(self.running) and not any(entry.calls for entry in self.running.values())


class WholeRun:
    """In the place of the results of a run that failed as such."""

    def __init__(self, failure: ModelFailure) -> None:
        self.failure = failure


def outcomes_of(run: Run, items: list[Hashable]) -> list[Any]:
    """Results and failures of one run; a `WholeRun` for every item where it failed as such."""
    try:
        outcomes: list[Any] = list(run(items))
        if len(outcomes) != len(items):
            raise ModelFailure("invalid", f"the model gave {len(outcomes)} results for {len(items)} items")
    except BaseException as error:  # SystemExit too: the callers would wait for a thread that has ended
        return [WholeRun(failure_of(error))] * len(items)
    return [failure_of(outcome) if isinstance(outcome, BaseException) else outcome for outcome in outcomes]


def unstoppable() -> "Future[None]":
    """A future that a caller's cancelling leaves alone: set_result must not raise in the thread that works for all."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future
