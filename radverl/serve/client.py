"""`shared`: a client of a model that lives in this process, or under Ray in one actor for all workers of the node.

A client holds no state of its process. It may be pickled and outlives a fork and a new `ray.init`: each call takes the
model of the process and Ray job it is made in.
"""

import importlib
import json
import os
import sys
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from radverl.serve.batches import Batches
from radverl.serve.entries import Run
from radverl.serve.failure import ModelFailure

Where = Literal["auto", "process", "ray"]


@dataclass(frozen=True)
class Model:
    """What to load and how to feed it.

    Attributes:
        factory: "package.module:name" of a function.
        settings: its keywords, as JSON.
        num_cpus, num_gpus: what the actor takes of the node.
        threads: of the model in its actor; None: half of the node's cores, at most 8.
    """

    factory: str
    settings: str
    max_batch: int
    wait: float
    start: float
    num_cpus: float
    num_gpus: float
    threads: int | None

    def load(self) -> Run:
        """Call the factory."""
        module, _, name = self.factory.partition(":")
        run: Run = getattr(importlib.import_module(module), name)(**json.loads(self.settings))
        return run

    def queue(self) -> Batches:
        """A queue in this process."""
        return Batches(self.load, max_batch=self.max_batch, wait=self.wait, start=self.start)


class Backend(Protocol):
    """`Batches`, or the actor that has them."""

    def ask(self, items: Sequence[Hashable], seconds: float) -> list[Any]: ...
    async def ask_async(self, items: Sequence[Hashable], seconds: float) -> list[Any]: ...
    def counts(self) -> dict[str, float]: ...


class Client:
    """Asks one model; made by `shared`."""

    def __init__(self, model: Model, where: Where, timeout: float) -> None:
        self.model, self.where, self.timeout = model, where, timeout

    def ask(self, items: Sequence[Hashable], *, return_failures: bool = False) -> list[Any]:
        """The results, in the order of `items`; blocks. Results of equal items are shared: do not write into them.

        Args:
            return_failures: put a `ModelFailure` in the place of each item that has no result, instead of raising.
        Raises:
            ModelFailure: the first of the items' failures.
        """
        return _settled(self._backend().ask(list(items), self.timeout), return_failures)

    async def ask_async(self, items: Sequence[Hashable], *, return_failures: bool = False) -> list[Any]:
        """`ask` for callers in an event loop, which goes on meanwhile."""
        return _settled(await self._backend().ask_async(list(items), self.timeout), return_failures)

    def counts(self) -> dict[str, float]:
        """calls, items, duplicates, batches, computed, failures (items), seconds in the model, waiting: of all clients.

        Raises:
            ModelFailure: the actor does not answer.
        """
        return self._backend().counts()

    def _backend(self) -> Backend:
        return _backend_of(self.model, self.where)


def shared(
    factory: str,
    settings: Mapping[str, Any] | None = None,
    *,
    where: Where = "auto",
    timeout: float = 60.0,
    max_batch: int = 64,
    wait: float = 0.005,
    start: float = 300.0,
    num_cpus: float = 0,
    num_gpus: float = 0,
    threads: int | None = None,
) -> Client:
    """A client of the one model with this factory and these settings. Nothing is loaded before the first call.

    Args:
        factory: "package.module:name" of a function that returns `run(items) -> results`.
        settings: its keywords, plain JSON values.
        where: auto (the node's actor where this process belongs to a Ray job, else this process) | process | ray.
        timeout: seconds for a call; waiting for other callers' items counts, loading the model does not.
        max_batch, wait: items of a run at most, and seconds to collect them. The first client's are in force, as with
            all that follows.
        start: seconds for loading the model.
        num_cpus, num_gpus: what the actor takes of its node. A Ray job whose placement groups hold all CPUs or GPUs has
            none left for it, so 0 is the safe value; more than there is ends in a failure after `start`.
        threads: CPU threads of the model in its actor, where Ray would give it one. None: half of the node's cores, at
            most 8 (ours).
    Raises:
        ValueError: a bad setting.
    """
    if ":" not in factory:
        raise ValueError(f'serve: factory is {factory!r:.80}; write "package.module:name".')
    if where not in get_args(Where):
        raise ValueError(f"serve: where is {where!r:.40}; use one of {', '.join(get_args(Where))}.")
    for name, value, least in (("wait", wait, 0), ("num_cpus", num_cpus, 0), ("num_gpus", num_gpus, 0)):
        if not _is_number(value) or not least <= value < float("inf"):
            raise ValueError(f"serve: {name} is {value!r:.40}; use {least} or more.")
    for name, value in (("timeout", timeout), ("start", start)):
        if not _is_number(value) or not 0 < value < threading.TIMEOUT_MAX:
            raise ValueError(f"serve: {name} is {value!r:.40}; use a number of seconds above 0.")
    for name, count in (("max_batch", max_batch), ("threads", 1 if threads is None else threads)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"serve: {name} is {count!r:.40}; use a whole number of at least 1.")
    try:
        written = json.dumps(dict(settings or {}), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"serve: the settings of {factory} are not plain JSON values ({error}).") from None
    model = Model(factory, written, max_batch, float(wait), float(start), float(num_cpus), float(num_gpus), threads)
    return Client(model, where, float(timeout))


_lock = threading.Lock()
_backends: dict[tuple[str | None, str, str], Backend] = {}
_ray_of_parent = False


def _backend_of(model: Model, where: Where) -> Backend:
    place = _ray_place() if where != "process" else None
    if place is None and where == "ray":
        raise ModelFailure("connection", 'where is "ray", but this process has no Ray; call ray.init first')
    key = (place, model.factory, model.settings)
    with _lock:
        if key not in _backends and place is None:
            _backends[key] = model.queue()
        elif key not in _backends:
            from radverl.serve.actor import NodeActor

            _backends[key] = NodeActor(model)
        return _backends[key]


def _ray_place() -> str | None:
    """Ray job and node of this process, None without Ray. A forked child has its parent's in name only: it would hang.

    A process that starts Ray twice has the same job number again, but another node.
    """
    ray = sys.modules.get("ray")
    if ray is None or _ray_of_parent or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return f"{context.get_job_id()}_{context.get_node_id()}"


def _settled(outcomes: list[Any], return_failures: bool) -> list[Any]:
    if not return_failures:
        for outcome in outcomes:
            if isinstance(outcome, ModelFailure):  # a new one: callers of the same item would share its traceback
                raise ModelFailure(outcome.cause, outcome.detail, again=outcome.again)
    return outcomes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _forget_parent() -> None:
    global _lock, _ray_of_parent
    _lock = threading.Lock()
    _backends.clear()
    ray = sys.modules.get("ray")
    _ray_of_parent = ray is not None and ray.is_initialized()


os.register_at_fork(after_in_child=_forget_parent)
