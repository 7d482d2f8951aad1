"""What the answers for one sample cost: calls and tokens, counted where the client gives its slot back.

The client is shared by all samples of a process. A call runs in the context of the sample that made it, so a context
variable tells whose it is; who waits for another sample's equal call pays nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from radverl.judge.budget import Usage
from radverl.judge.limiter import Limiter


@dataclass
class Spent:
    """Calls, retries among them, and tokens sent and received."""

    calls: int = 0
    tokens: int = 0


_sample: ContextVar[Spent | None] = ContextVar("what the sample at hand has spent", default=None)


@contextmanager
def metering() -> Iterator[Spent]:
    """Count what is asked inside, in this task and those it starts."""
    spent = Spent()
    token = _sample.set(spent)
    try:
        yield spent
    finally:
        _sample.reset(token)


class Metered:
    """A limiter that counts for the sample at hand; without a limiter inside it limits nothing."""

    def __init__(self, limiter: Limiter | None) -> None:
        self._limiter = limiter

    async def acquire(self, cost: Usage) -> str:
        """As the limiter inside."""
        return await self._limiter.acquire(cost) if self._limiter is not None else ""

    def settle(self, ticket: str, used: Usage, quiet: float = 0.0) -> None:
        """As the limiter inside."""
        if (spent := _sample.get()) is not None:
            spent.calls += used.calls
            spent.tokens += used.tokens
        if self._limiter is not None:
            self._limiter.settle(ticket, used, quiet)

    async def spending(self) -> dict[str, float]:
        """As the limiter inside."""
        return await self._limiter.spending() if self._limiter is not None else {}
