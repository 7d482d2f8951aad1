"""The bookkeeping of the judge's limiter: whose turn it is, who holds a slot, what was spent.

A call asks for a slot with the most it may cost, waits for its turn, and gives the slot back with what it did cost:
    granted   if  calls under way < concurrent,  and over the last 60 s  requests < limit,  tokens + its own <= limit
    refused   if  spent + its own > budget; from then on every call is
    waits     if  spent + all slots' + its own > budget, since the others may turn out cheaper
Turns are in order of asking, so that neither a worker nor a long report starves. A slot belongs to a worker that says
now and then that it lives; the slots of one that falls silent (kill -9) are taken back, their calls counted in full.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic

from radverl.judge.budget import Budget, Limits, Prices, Usage
from radverl.judge.failure import JudgeFailure

WINDOW = 60.0  # seconds of "per minute"
SILENCE = 20.0  # seconds without a word after which a worker counts as dead; four of its beats
_LOST = "lost"  # on whose account calls of killed workers go
_NAP = 1.0  # seconds at most between two looks at the clock


@dataclass
class _Slot:
    owner: str
    cost: Usage
    entry: list[float]  # [time, tokens] in the window


@dataclass
class _Turn:
    ticket: str
    owner: str
    cost: Usage
    future: "Future[None]"


class Ledger:
    """The bookkeeping, for any number of threads. Nothing here waits.

    Args:
        silence: seconds after which an owner that does not `beat` loses its slots; None: never.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        budget: Budget | None = None,
        prices: Prices | None = None,
        *,
        silence: float | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.limits, self.budget, self.prices = limits or Limits(), budget or Budget(), prices
        if self.budget.money is not None and prices is None:
            raise ValueError("judge budget: money needs prices; set RADVERL_JUDGE_PRICES, as in input=2,output=8.")
        self.exhausted: str | None = None  # why every further call is refused
        self._silence, self._clock, self._lock = silence, clock, threading.Lock()
        self._turns: deque[_Turn] = deque()
        self._slots: dict[str, _Slot] = {}
        self._reserved = Usage()
        self._spent: dict[str, Usage] = {}
        self._heard: dict[str, float] = {}
        self._told: set[str] = set()  # owners whose beats carry sums
        self._window: deque[list[float]] = deque()
        self._window_tokens = 0.0
        self._quiet_until = -1.0

    @property
    def spent(self) -> Usage:
        """What all owners spent, without calls under way."""
        return sum(list(self._spent.values()), Usage())

    def ask(self, owner: str, ticket: str, cost: Usage) -> "Future[None]":
        """Stand in line; the future is done when the slot is there, or fails with JudgeFailure.

        budget where no call is allowed any more, connection where the owner fell silent meanwhile.
        """
        turn = _Turn(ticket, owner, cost, Future())
        with self._lock:
            self._heard[owner] = self._clock()
            self._turns.append(turn)
            self._grant()
        return turn.future

    def settle(self, ticket: str, used: Usage, quiet: float = 0.0) -> None:
        """Give a slot back with what the call cost, or leave the line; no call starts for `quiet` seconds."""
        with self._lock:
            self._quiet_until = max(self._quiet_until, self._clock() + quiet) if quiet > 0 else self._quiet_until
            if (slot := self._slots.get(ticket)) is not None:
                self._heard[slot.owner] = self._clock()
                self._free(ticket, used)
                if slot.owner not in self._told:
                    self._add(slot.owner, used)
            else:
                self._turns = deque(turn for turn in self._turns if turn.ticket != ticket)
            self._grant()

    def beat(self, owner: str, spent: Usage) -> None:
        """An owner lives, and has spent so much in all.

        From then on its own sums count: they survive a ledger that is started anew, and arrive in any order.
        """
        with self._lock:
            self._heard[owner] = self._clock()
            self._told.add(owner)
            self._spent[owner] = self._spent.get(owner, Usage()) | spent

    def advance(self, ticket: str | None = None) -> float:
        """Grant what can be granted by now; seconds after which `ticket`'s turn may come by time alone."""
        with self._lock:
            pause = self._grant()
            return pause if self._turns and self._turns[0].ticket == ticket else _NAP

    def silent_for(self) -> float:
        """Seconds since any owner was heard."""
        with self._lock:
            return self._clock() - max(self._heard.values(), default=-1e9)

    def spending(self) -> dict[str, float]:
        """As `Limiter.spending`."""
        with self._lock:
            spent = self.spent
            money = self.prices.money(spent) if self.prices else 0.0
            out = {"calls": spent.calls, "input_tokens": spent.input_tokens, "output_tokens": spent.output_tokens}
            return out | {"money": money, "waiting": len(self._turns), "under_way": len(self._slots)}

    def _grant(self) -> float:
        now = self._clock()
        self._bury(now)
        while self._window and self._window[0][0] <= now - WINDOW:
            self._window_tokens -= self._window.popleft()[1]
        while self._turns:
            turn = self._turns[0]
            if refusal := self._refusal(turn.cost):
                self._turns.popleft()
                if turn.future.set_running_or_notify_cancel():
                    turn.future.set_exception(JudgeFailure("budget", refusal))
                continue
            if (pause := self._pause(turn.cost, now)) > 0:
                return pause
            self._turns.popleft()
            if not turn.future.set_running_or_notify_cancel():
                continue
            entry = [now, float(turn.cost.tokens)]
            self._slots[turn.ticket] = _Slot(turn.owner, turn.cost, entry)
            self._reserved += turn.cost
            self._window.append(entry)
            self._window_tokens += entry[1]
            turn.future.set_result(None)
        return _NAP

    def _refusal(self, cost: Usage) -> str | None:
        if self.exhausted is None and (cap := self.budget.exceeded_by(self.spent + cost, self.prices)):
            spent = self.spent
            money = f", {self.prices.money(spent):,.2f} in money" if self.prices else ""
            self.exhausted = (
                f"the judge's budget of {cap} has no room for another call ({spent.calls:,} calls, {spent.tokens:,} "
                f"tokens{money} spent); raise it and start again: what was answered is in the cache"
            )
        return self.exhausted

    def _pause(self, cost: Usage, now: float) -> float:
        """Seconds before the first in line may be let in by the clock; 0: now."""
        limits = self.limits
        if now < self._quiet_until:
            return min(_NAP, self._quiet_until - now)
        if limits.concurrent is not None and len(self._slots) >= limits.concurrent:
            return _NAP
        if self.budget.exceeded_by(self.spent + self._reserved + cost, self.prices):
            return _NAP
        full = limits.requests_per_minute is not None and len(self._window) >= limits.requests_per_minute
        if limits.tokens_per_minute is not None and self._window:  # a call above the limit goes alone
            full = full or self._window_tokens + cost.tokens > limits.tokens_per_minute
        return max(0.001, self._window[0][0] + WINDOW - now) if full else 0.0

    def _free(self, ticket: str, used: Usage) -> None:
        slot = self._slots.pop(ticket)
        self._reserved -= slot.cost
        if slot.entry[0] > self._clock() - WINDOW and used.calls:
            self._window_tokens += used.tokens - slot.entry[1]
            slot.entry[1] = float(used.tokens)
        elif not used.calls:  # the call was not made
            kept = deque(entry for entry in self._window if entry is not slot.entry)
            if len(kept) < len(self._window):
                self._window, self._window_tokens = kept, self._window_tokens - slot.entry[1]

    def _add(self, owner: str, used: Usage) -> None:
        self._spent[owner] = self._spent.get(owner, Usage()) + used

    def _bury(self, now: float) -> None:
        """Take back what belongs to owners that fell silent."""
        if self._silence is None:
            return
        dead = {owner for owner, heard in self._heard.items() if now - heard > self._silence}
        if not dead:
            return
        for turn in [turn for turn in self._turns if turn.owner in dead]:
            self._turns.remove(turn)
            if turn.future.set_running_or_notify_cancel():  # it may only have been slow, and still be waiting
                detail = f"the limiter has not heard of this worker for {self._silence:.0f} s"
                turn.future.set_exception(JudgeFailure("connection", detail, again=True, unsent=True))
        for ticket in [ticket for ticket, slot in self._slots.items() if slot.owner in dead]:
            cost = self._slots[ticket].cost
            self._free(ticket, cost)
            self._add(_LOST, cost)
        for owner in dead:
            del self._heard[owner]


async def wait_for_turn(ledger: Ledger, owner: str, ticket: str, cost: Usage) -> None:
    """Ask a ledger of this process for a slot and wait for it.

    Raises:
        JudgeFailure: as `Ledger.ask`.
    """
    future = asyncio.wrap_future(ledger.ask(owner, ticket, cost))
    try:
        while not future.done():
            await asyncio.wait({future}, timeout=ledger.advance(ticket))
        future.result()
    except asyncio.CancelledError:
        ledger.settle(ticket, Usage())
        raise
