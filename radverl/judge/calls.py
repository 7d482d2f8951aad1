"""One try of the judge's client: a request the server understands, within the limiter's limits, its usage counted."""

from collections import Counter
from time import monotonic
from typing import Any

from radverl.judge.budget import Usage, estimate_tokens, read_usage
from radverl.judge.failure import JudgeFailure
from radverl.judge.limiter import Limiter
from radverl.judge.transport import Transport

_SCHEMA_REFUSED = (400, 422, 501)  # what servers without constrained output answer
_OPTIONAL = ("response_format", "temperature", "max_tokens")


class Clock:
    """Seconds left for one answer. Waiting for our own limits stops it: that is no fault of the server."""

    def __init__(self, seconds: float) -> None:
        self.ends = monotonic() + seconds

    def left(self, most: float) -> float:
        """Seconds left, `most` at most."""
        return min(most, self.ends - monotonic())


class Calls:
    """The calls of one client; remembers which settings its server does not know.

    Args:
        counts: calls, input_tokens and output_tokens are added to it.
        call_timeout: seconds for one call.
        longest_wait: a server that asks to wait longer does not stop the other calls.
    """

    def __init__(
        self, limiter: Limiter | None, counts: "Counter[str]", call_timeout: float, longest_wait: float
    ) -> None:
        self.limiter, self._counts = limiter, counts
        self._call_timeout, self._longest_wait = call_timeout, longest_wait
        self._constrained = False  # whether a call has shown that the server takes a schema
        self._refused: set[str] = set()  # settings the server does not know

    async def complete(self, transport: Transport, request: dict[str, Any], clock: Clock) -> bytes:
        """One try; a setting the server does not know is left out, for this and later calls, and the call repeated.

        Raises:
            JudgeFailure: any cause but invalid.
        """
        guessed = False
        while True:
            sent = {name: value for name, value in request.items() if name not in self._refused}
            if "max_tokens" in self._refused:
                sent["max_completion_tokens"] = request["max_tokens"]
            try:
                body = await self._limited(transport, sent, request["max_tokens"], clock)
            except JudgeFailure as failure:
                name = failure.parameter
                if name is None and failure.status in _SCHEMA_REFUSED and not self._constrained and not guessed:
                    name, guessed = "response_format", True
                if name not in _OPTIONAL or name not in sent:
                    if guessed:  # it was not the schema's fault
                        self._refused.discard("response_format")
                    raise
                self._refused.add(name)
            else:
                self._constrained = self._constrained or "response_format" in sent
                return body

    async def _limited(self, transport: Transport, sent: dict[str, Any], max_tokens: int, clock: Clock) -> bytes:
        """One HTTP call within the limiter's limits, its usage counted: as the server says, else as estimated."""
        most = Usage(1, estimate_tokens("".join(m["content"] for m in sent["messages"])), max_tokens)
        ticket = None
        if self.limiter is not None:
            asked = monotonic()
            ticket = await self.limiter.acquire(most)
            clock.ends += monotonic() - asked
        self._counts["calls"] += 1
        used, quiet = most, 0.0
        try:
            body = await transport.complete(sent, clock.left(self._call_timeout))
            answered = min(max_tokens, estimate_tokens(body.decode("utf-8", "replace")))
            used = read_usage(body) or Usage(1, most.input_tokens, answered)
            return body
        except JudgeFailure as failure:
            if failure.unsent or failure.status is not None:
                used = Usage(1)
            quiet = failure.wait if failure.wait is not None and failure.wait < self._longest_wait else 0.0
            raise
        finally:
            self._counts.update(input_tokens=used.input_tokens, output_tokens=used.output_tokens)
            if self.limiter is not None and ticket is not None:
                self.limiter.settle(ticket, used, quiet)
