"""One limiter for all calls to a server: calls under way, requests and tokens per minute, and the budget of the run.

`limiter_ledger` says who is let in and when. In one process a `LocalLimiter` holds the ledger; under Ray all workers of
the job ask one actor (`limiter_ray`).
"""

import logging
import os
import sys
import uuid
from typing import Protocol

from radverl.judge.budget import Budget, Limits, Prices, Usage
from radverl.judge.limiter_ledger import Ledger, wait_for_turn

_log = logging.getLogger(__name__)


class Limiter(Protocol):
    """Give a slot, take it back, say what was spent."""

    async def acquire(self, cost: Usage) -> str:
        """Wait for a slot for a call that costs at most `cost`; its ticket.

        Raises:
            JudgeFailure: budget, or connection where the limiter itself cannot be reached.
        """
        ...

    def settle(self, ticket: str, used: Usage, quiet: float = 0.0) -> None:
        """Give the slot back; no call starts for `quiet` seconds, as the server asked."""
        ...

    async def spending(self) -> dict[str, float]:
        """calls, input_tokens, output_tokens, money of all workers, waiting, under_way."""
        ...


class LocalLimiter:
    """The limiter of one process, for any number of event loops in it."""

    def __init__(self, limits: Limits | None = None, budget: Budget | None = None, prices: Prices | None = None):
        self.ledger = Ledger(limits, budget, prices)

    async def acquire(self, cost: Usage) -> str:
        """As `Limiter.acquire`."""
        ticket = uuid.uuid4().hex
        await wait_for_turn(self.ledger, "", ticket, cost)
        return ticket

    def settle(self, ticket: str, used: Usage, quiet: float = 0.0) -> None:
        """As `Limiter.settle`."""
        self.ledger.settle(ticket, used, quiet)

    async def spending(self) -> dict[str, float]:
        """As `Limiter.spending`."""
        return self.ledger.spending()


_Settings = tuple[Limits, Budget, Prices | None]
_limiters: dict[tuple[str | None, str], tuple[Limiter, _Settings]] = {}
os.register_at_fork(after_in_child=_limiters.clear)  # slots of the parent's calls would never come back


def shared_limiter(url: str, limits: Limits, budget: Budget, prices: Prices | None) -> Limiter | None:
    """The limiter of a server: one for the Ray job that this process belongs to, else one for the process.

    None where there is nothing to limit. The first to ask sets the limits; others are told where theirs differ.
    """
    if limits == Limits() and budget == Budget():
        return None
    ray = sys.modules.get("ray")
    job = ray.get_runtime_context().get_job_id() if ray is not None and ray.is_initialized() else None
    settings, key = (limits, budget, prices), (job, url)
    if key not in _limiters and job is None:
        _limiters[key] = (LocalLimiter(*settings), settings)
    elif key not in _limiters:
        from radverl.judge.limiter_ray import RayLimiter

        _limiters[key] = (RayLimiter(url, *settings), settings)
    limiter, first = _limiters[key]
    if first != settings:
        _log.warning("judge limits of %s stay as first set: %s, not %s.", url, first, settings)
    return limiter


def budget_reached() -> str | None:
    """Why no further call of the judge is allowed in this process or Ray job; None while calls are.

    For the driver of a run: it makes no calls itself, and the failed samples do not say why they failed. May take some
    milliseconds under Ray.
    """
    local = [limiter.ledger.exhausted for limiter, _ in _limiters.values() if isinstance(limiter, LocalLimiter)]
    refusals = [refusal for refusal in local if refusal is not None]
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        from radverl.judge import limiter_ray

        refusals += limiter_ray.refusals()
    return refusals[0] if refusals else None
