"""A queue before one model: callers hand in lists of items, a thread runs the model on batches of them.

    callers (threads, event loops) -> waiting, each item once -> at most `max_batch` items -> run(items) -> callers

A batch starts when the model is free and `wait` seconds have passed since its first item came, or it is full. An item
that is asked for while it waits or is computed is not computed again: equal items share one result, so nobody may write
into a result. If `run` raises, or gives a wrong number of results, its items are run singly and only the bad ones fail;
`run` may also give an exception in the place of one result. A deadline holds while the model computes, too.
"""

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any

from radverl.serve.entries import Call, Load
from radverl.serve.failure import ModelFailure
from radverl.serve.line import CLOSING, Line


class Batches:
    """The queue of one model; any number of threads and event loops may ask. In a forked child it is a new one.

    Args:
        load: gives `run`, a function from a list of items to as many results; called in the thread that will run it.
        max_batch: items of one run at most.
        wait: seconds to collect items.
        max_waiting: items that may wait; a call that would pass it fails with cause rate_limit.
        start: seconds for loading the model; they do not count against a call's deadline.
    Raises:
        ValueError: a bad setting.
    """

    def __init__(
        self,
        load: Load,
        *,
        max_batch: int = 64,
        wait: float = 0.005,
        max_waiting: int = 100_000,
        start: float = 300.0,
    ) -> None:
        if max_batch < 1 or max_waiting < 1 or not wait >= 0 or not start > 0:
            raise ValueError(
                f"batches: max_batch {max_batch}, wait {wait}, max_waiting {max_waiting} and start {start} cannot be "
                "used; they are at least 1, 0, 1, and above 0."
            )
        self._line, self._start = Line(load, max_batch, wait, max_waiting), start

    def ask(self, items: Sequence[Hashable], seconds: float) -> list[Any]:
        """Results in the order of `items`, with a `ModelFailure` in the place of each that has none in time."""
        if not items:
            return []
        call = Call(items)
        try:
            self._line.loaded().result(self._start)
            self._line.enter(call)
        except (TimeoutError, ModelFailure) as error:
            return self._refuse(items, self._why(error))
        try:
            call.done.result(seconds)
        except TimeoutError:
            return self._line.leave(call, f"no result within {seconds:g} s", late=seconds)
        except BaseException:  # an interrupt must not leave items that nobody wants
            self._line.leave(call, "interrupted")
            raise
        return self._line.leave(call, "")

    async def ask_async(self, items: Sequence[Hashable], seconds: float) -> list[Any]:
        """`ask` for callers in an event loop, which goes on meanwhile."""
        if not items:
            return []
        if failure := await self.load_async():
            return self._refuse(items, failure)
        call = Call(items)
        try:
            self._line.enter(call)
        except ModelFailure as failure:
            return self._refuse(items, failure)
        try:
            await asyncio.wait_for(asyncio.wrap_future(call.done), seconds)
        except TimeoutError:
            return self._line.leave(call, f"no result within {seconds:g} s", late=seconds)
        except BaseException:
            self._line.leave(call, "cancelled")
            raise
        return self._line.leave(call, "")

    async def load_async(self) -> ModelFailure | None:
        """Load the model, where it is not yet; why it cannot be."""
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._line.loaded()), self._start)
        except (TimeoutError, ModelFailure) as error:
            return self._why(error)
        return None

    def ready(self) -> bool:
        """Whether the model is loaded."""
        return self._line.ready()

    def counts(self) -> dict[str, float]:
        """calls, items, duplicates, batches, computed, failures (items), seconds in the model, waiting (items)."""
        return self._line.counts()

    def blocked(self) -> bool:
        """Whether no thread is left: each has a batch that nobody waits for and that does not end."""
        return self._line.blocked()

    def close(self, seconds: float = CLOSING) -> None:
        """Fail what waits, let the running batch end, forget the model; a later call starts anew."""
        self._line.close(seconds)

    def _why(self, error: TimeoutError | ModelFailure) -> ModelFailure:
        if isinstance(error, ModelFailure):
            return error
        return ModelFailure("timeout", f"the model was not loaded within {self._start:g} s", again=True)

    def _refuse(self, items: Sequence[Hashable], failure: ModelFailure) -> list[Any]:
        self._line.count(calls=1, items=len(items), failures=len(items))
        return [failure] * len(items)
