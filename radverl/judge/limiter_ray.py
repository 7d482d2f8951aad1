"""The judge's limiter for all workers of a Ray job: one named actor per server that keeps the `Ledger`.

The first worker to need it starts it. It is detached, since an actor dies with the worker that started it and that one
may be killed; it carries the job's number in its name and ends itself when it has heard of no worker for a while. Each
worker beats from a thread, whatever its event loop does. If the actor dies, Ray starts it again, and the beats bring
back what each living worker has spent.

This module is the only one of `radverl.judge` that imports Ray.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import threading
import uuid
from typing import Any

import ray

from radverl.judge.budget import Budget, Limits, Prices, Usage
from radverl.judge.failure import Cause, JudgeFailure
from radverl.judge.limiter_ledger import SILENCE, Ledger, wait_for_turn

BEAT = SILENCE / 4
LONELY = 120.0  # seconds without any worker after which the actor ends; a job whose workers live is never so silent
_PREFIX = "radverl_judge_limiter"
_log = logging.getLogger(__name__)


class LedgerActor:
    """A `Ledger` behind Ray; failures are returned, since Ray wraps what is raised."""

    def __init__(self, settings: tuple[Limits, Budget, Prices | None], silence: float, lonely: float) -> None:
        self.ledger, self.settings, self.lonely = Ledger(*settings, silence=silence), settings, lonely
        self._watch: asyncio.Task[None] | None = None

    async def hello(self, owner: str, spent: Usage) -> tuple[Limits, Budget, Prices | None]:
        """A worker begins; the settings in force."""
        self.ledger.beat(owner, spent)
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_alone())
        return self.settings

    async def beat(self, owner: str, spent: Usage) -> None:
        """A worker lives."""
        await self.hello(owner, spent)

    async def acquire(self, owner: str, ticket: str, cost: Usage) -> tuple[Cause, str] | None:
        """Wait for a slot; None, or cause and detail of the failure."""
        try:
            await wait_for_turn(self.ledger, owner, ticket, cost)
        except JudgeFailure as failure:
            return failure.cause, failure.detail
        return None

    async def settle(self, owner: str, ticket: str, used: Usage, quiet: float, spent: Usage) -> None:
        """Give a slot back; `spent` is the worker's sum with it."""
        self.ledger.beat(owner, spent)
        self.ledger.settle(ticket, used, quiet)

    async def spending(self) -> dict[str, float]:
        """As `Limiter.spending`."""
        return self.ledger.spending()

    async def exhausted(self) -> str | None:
        """Why no call is allowed any more; None while calls are."""
        return self.ledger.exhausted

    async def process(self) -> int:
        """The actor's process id."""
        return os.getpid()

    async def _end_alone(self) -> None:
        while self.ledger.silent_for() < self.lonely:
            self.ledger.advance()
            await asyncio.sleep(min(1.0, self.lonely / 4))
        ray.actor.exit_actor()


class RayLimiter:
    """A worker's side of the limiter; one per process and server."""

    def __init__(
        self,
        url: str,
        limits: Limits,
        budget: Budget,
        prices: Prices | None,
        *,
        silence: float = SILENCE,
        beat: float = BEAT,
        lonely: float = LONELY,
    ) -> None:
        Ledger(limits, budget, prices)  # says here, not in a far process, that settings do not fit
        self.owner, self._url, self._settings = uuid.uuid4().hex, url, (limits, budget, prices)
        self._lock, self._spent, self._greeted = threading.Lock(), Usage(), False
        # Waiting calls must never keep the beats and the slots that come back out of the actor.
        options = {"num_cpus": 0, "max_concurrency": 100_000, "max_restarts": -1, "lifetime": "detached"}
        name = f"{_prefix()}{hashlib.sha256(url.encode()).hexdigest()[:16]}"
        self.actor: Any = (
            ray.remote(LedgerActor)
            .options(name=name, get_if_exists=True, **options)
            .remote(self._settings, silence, lonely)
        )
        self._over = threading.Event()
        threading.Thread(target=self._keep_beating, args=(beat,), daemon=True, name="radverl judge limiter").start()

    async def acquire(self, cost: Usage) -> str:
        """As `Limiter.acquire`."""
        ticket = uuid.uuid4().hex
        try:
            if not self._greeted:
                await self._greet()
            refusal = await self.actor.acquire.remote(self.owner, ticket, cost)
        except asyncio.CancelledError:
            self.settle(ticket, Usage())
            raise
        except ray.exceptions.RayError as error:
            detail = f"the limiter's actor does not answer ({type(error).__name__})"
            raise JudgeFailure("connection", detail, again=True, unsent=True) from None
        if refusal is not None:
            raise JudgeFailure(*refusal, again=refusal[0] != "budget", unsent=True)
        return ticket

    def settle(self, ticket: str, used: Usage, quiet: float = 0.0) -> None:
        """As `Limiter.settle`."""
        with self._lock:
            self._spent += used
            spent = self._spent
        self.actor.settle.remote(self.owner, ticket, used, quiet, spent)

    async def spending(self) -> dict[str, float]:
        """As `Limiter.spending`."""
        return dict(await self.actor.spending.remote())

    def close(self) -> None:
        """Stop the beats; the slots of this worker are taken back after a while."""
        self._over.set()

    async def _greet(self) -> None:
        in_force = await self.actor.hello.remote(self.owner, self._spent)
        if in_force != self._settings and not self._greeted:
            _log.warning("judge limits of %s stay as first set: %s, not %s.", self._url, in_force, self._settings)
        self._greeted = True

    def _keep_beating(self, seconds: float) -> None:
        while not self._over.wait(seconds):
            if not ray.is_initialized():
                return
            with self._lock:
                spent = self._spent
            with contextlib.suppress(Exception):  # Ray may be going down; a thread's traceback would hide why
                self.actor.beat.remote(self.owner, spent)


def refusals() -> list[str]:
    """Why the limiters of this job allow no further call; empty while they do, or where there are none."""
    names = [name for name in ray.util.list_named_actors() if name.startswith(_prefix())]
    found = []
    for name in names:
        try:
            found.append(ray.get(ray.get_actor(name).exhausted.remote(), timeout=BEAT))
        except (ValueError, ray.exceptions.RayError):  # it is just starting or ending; the next question will tell
            continue
    return [refusal for refusal in found if refusal is not None]


def _prefix() -> str:
    return f"{_PREFIX}_{ray.get_runtime_context().get_job_id()}_"
