"""The model's queue for all workers of a node: one named actor that keeps the `Batches`.

The first worker to ask starts it. It is detached, since an actor dies with the worker that started it and that one may
be killed; its name carries the job and the node, and it ends itself when it has heard of no worker for a while. Each
worker beats from a thread: a trainer may not need the model for half an hour, and loading it again takes time.

If the actor's process dies, Ray starts it again and the calls under way are made once more; then they fail with cause
connection. An actor whose model never comes back ends its own process, the one way to stop a hanging thread.

This module is the only one of `radverl.serve` that imports Ray.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from radverl.serve.client import Model
from radverl.serve.failure import ModelFailure

BEAT = 15.0  # seconds
LONELY = 120.0  # seconds without any worker after which the actor ends
LATE = 5.0  # seconds that an answer may take from the actor to its caller
THREADS = 8  # CPU threads of a model at most, unless asked for (ours)
_PREFIX = "radverl_serve"
_log = logging.getLogger(__name__)


class ServingActor:
    """`Batches` behind Ray; failures are returned, since Ray wraps what is raised."""

    def __init__(self, model: Model, lonely: float) -> None:
        # Ray sets it to num_cpus, 1 for none; it counts when torch is first imported, by the model's factory.
        os.environ["OMP_NUM_THREADS"] = str(model.threads or min(THREADS, max(1, (os.cpu_count() or 1) // 2)))
        self.batches, self.lonely = model.queue(), lonely
        self._heard = time.monotonic()
        self._watch: asyncio.Task[None] | None = None

    @ray.method(max_task_retries=3)  # after a death the next call may come before Ray knows of it
    async def load(self) -> ModelFailure | None:
        """Load the model; why it cannot be."""
        await self.beat()
        return await self.batches.load_async()

    async def ask(self, items: list[Hashable], seconds: float) -> list[Any] | None:
        """As `Batches.ask`; None where the model must be loaded first, for which a caller has other patience."""
        await self.beat()
        return await self.batches.ask_async(items, seconds) if self.batches.ready() else None

    async def beat(self) -> None:
        """A worker lives."""
        self._heard = time.monotonic()
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_alone())

    async def counts(self) -> dict[str, float]:
        """As `Batches.counts`."""
        return self.batches.counts()

    async def process(self) -> int:
        """The actor's process id."""
        return os.getpid()

    async def end(self) -> None:
        """End for good; who asks next starts another."""
        ray.actor.exit_actor()

    async def _end_alone(self) -> None:
        myself = ray.get_runtime_context().current_actor
        while time.monotonic() - self._heard < self.lonely:
            if self.batches.blocked():
                _log.error("the model does not come back from %s batches; its process ends.", self.batches.counts())
                os._exit(1)  # Ray starts it again
            await asyncio.sleep(min(1.0, self.lonely / 4))
        myself.end.remote()  # exit_actor works in a call only


class NodeActor:
    """A worker's side of the actor; one per process and model."""

    def __init__(self, model: Model, *, beat: float = BEAT, lonely: float = LONELY) -> None:
        context = ray.get_runtime_context()
        node, words = context.get_node_id(), f"{model.factory} {model.settings}"
        digest = hashlib.sha256(words.encode()).hexdigest()[:16]
        self.name, self._node = f"{_PREFIX}_{context.get_job_id()}_{node}_{digest}", node
        self._model, self._lonely = model, lonely
        self._lock = threading.Lock()
        self._actor: Any = None
        self._ready = False
        threading.Thread(target=self._keep_beating, args=(beat,), daemon=True, name="radverl serve beat").start()

    def ask(self, items: Sequence[Hashable], seconds: float) -> list[Any]:
        """As `Batches.ask`."""
        try:
            for last in (False, True) if items else ():
                with self._failures(last):
                    if not self._ready:
                        self._loaded(ray.get(self.actor().load.remote(), timeout=self._model.start + LATE))
                    answer = ray.get(self.actor().ask.remote(items, seconds), timeout=seconds + LATE)
                    if (outcomes := self._outcomes(answer)) is not None:
                        return outcomes
        except ModelFailure as failure:
            return [failure] * len(items)
        return [_gone("its process began again twice")] * len(items)

    async def ask_async(self, items: Sequence[Hashable], seconds: float) -> list[Any]:
        """As `Batches.ask_async`."""
        try:
            for last in (False, True) if items else ():
                with self._failures(last):
                    if not self._ready:
                        self._loaded(await _wait(self.actor().load.remote(), self._model.start + LATE))
                    answer = await _wait(self.actor().ask.remote(items, seconds), seconds + LATE)
                    if (outcomes := self._outcomes(answer)) is not None:
                        return outcomes
        except ModelFailure as failure:
            return [failure] * len(items)
        return [_gone("its process began again twice")] * len(items)

    def counts(self) -> dict[str, float]:
        """As `Batches.counts`, of all workers since the actor's process began."""
        with self._failures(last=True):
            found = ray.get(self.actor().counts.remote(), timeout=self._model.start)
        return dict(found)

    def actor(self) -> Any:
        """The handle; starts the actor where there is none."""
        with self._lock:
            if self._actor is None:
                # Waiting calls must never keep beats out of the actor.
                self._actor = (
                    ray.remote(ServingActor)
                    .options(
                        name=self.name,
                        get_if_exists=True,
                        lifetime="detached",
                        max_restarts=-1,
                        max_concurrency=100_000,
                        num_cpus=self._model.num_cpus,
                        num_gpus=self._model.num_gpus,
                        scheduling_strategy=NodeAffinitySchedulingStrategy(self._node, soft=False),
                    )
                    .remote(self._model, self._lonely)
                )
            return self._actor

    def _loaded(self, failure: ModelFailure | None) -> None:
        if failure is not None:
            raise failure
        self._ready = True

    def _outcomes(self, answer: list[Any] | None) -> list[Any] | None:
        if answer is None:  # a process without a model has begun since we last heard of the actor
            self._ready = False
        return answer

    @contextlib.contextmanager
    def _failures(self, last: bool) -> Iterator[None]:
        """Turns what Ray raises into a `ModelFailure`; unless it is the last try, a dead actor just ends the block."""
        try:
            yield
        except (ray.exceptions.GetTimeoutError, TimeoutError):
            what = "the model's actor did not answer in time" if self._ready else "the model's actor did not start"
            detail = f"{what} (num_cpus {self._model.num_cpus:g}, num_gpus {self._model.num_gpus:g} on this node)"
            raise ModelFailure("timeout", detail, again=True) from None
        except ray.exceptions.RayTaskError as error:
            raise ModelFailure("server_error", f"the model's actor raised {error.cause!r:.300}") from None
        except ray.exceptions.RayError as error:
            with self._lock:
                self._actor, self._ready = None, False
            if last:
                raise _gone(type(error).__name__) from None

    def _keep_beating(self, seconds: float) -> None:
        over = threading.Event()
        while not over.wait(seconds):
            if not ray.is_initialized():
                return
            with contextlib.suppress(Exception):  # Ray may be going down; a thread's traceback would hide why
                if self._actor is not None:
                    self._actor.beat.remote()


def _gone(why: str) -> ModelFailure:
    return ModelFailure("connection", f"the model's actor does not answer ({why})", again=True)


async def _wait(ref: Any, seconds: float) -> Any:
    return await asyncio.wait_for(asyncio.wrap_future(ref.future()), seconds)
