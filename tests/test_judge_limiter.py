"""The limiter of the judge's calls: its ledger by a clock of ours, then shared by threads, clients and Ray workers."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radverl.judge import JudgeClient, JudgeFailure, find_endpoint
from radverl.judge.budget import Budget, Limits, Prices, Usage
from radverl.judge.limiter import LocalLimiter, shared_limiter
from radverl.judge.limiter_ledger import WINDOW, Ledger, wait_for_turn
from radverl.judge.prompt_files import load_prompt
from tests.judge_server import MODEL, answer, error, serve

SCHEMA = {"type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]}
PROMPT = load_prompt("remove_priors", 1)
OK = answer({"fact": "No effusion."})
ONE = Usage(1, 10, 10)


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ledger_of(limits=None, budget=None, prices=None, silence=None):
    hand = Hand()
    return Ledger(limits, budget, prices, silence=silence, clock=hand), hand


# The ledger


def test_slots_are_bounded_and_given_in_order_of_asking():
    ledger, _ = ledger_of(Limits(concurrent=2))
    asked = {name: ledger.ask("w", name, ONE) for name in "abcd"}
    assert [name for name, f in asked.items() if f.done()] == ["a", "b"]
    ledger.settle("b", ONE)
    assert [name for name, f in asked.items() if f.done()] == ["a", "b", "c"]
    ledger.settle("a", ONE)
    ledger.settle("c", ONE)
    assert asked["d"].done()
    assert (ledger.spending()["calls"], ledger.spending()["under_way"]) == (3, 1)


def test_requests_per_minute_holds_in_any_window():
    ledger, hand = ledger_of(Limits(requests_per_minute=3))
    asked = [ledger.ask("w", str(i), ONE) for i in range(5)]
    for i in range(3):
        ledger.settle(str(i), ONE)
    assert [f.done() for f in asked] == [True] * 3 + [False] * 2
    assert ledger.advance("3") == WINDOW
    hand.now = 59.9
    ledger.advance()
    assert not asked[3].done()
    hand.now = 60.0
    ledger.advance()
    assert asked[3].done()
    assert asked[4].done()


def test_tokens_per_minute_are_estimated_then_corrected():
    ledger, _ = ledger_of(Limits(tokens_per_minute=100))
    first, second = ledger.ask("w", "a", Usage(1, 20, 60)), ledger.ask("w", "b", Usage(1, 20, 60))
    assert (first.done(), second.done()) == (True, False)
    ledger.settle("a", Usage(1, 15, 5))  # 20 of the 80; the rest is free again
    assert second.done()


def test_a_call_above_the_token_limit_goes_alone():
    ledger, hand = ledger_of(Limits(tokens_per_minute=100))
    big, small = ledger.ask("w", "big", Usage(1, 500, 500)), ledger.ask("w", "small", Usage(1, 1, 1))
    assert (big.done(), small.done()) == (True, False)
    hand.now = WINDOW
    ledger.advance()
    assert small.done()


def test_a_big_call_is_not_overtaken():
    ledger, _ = ledger_of(Limits(tokens_per_minute=100))
    ledger.ask("w", "a", Usage(1, 30, 30))
    big, small = ledger.ask("w", "big", Usage(1, 30, 30)), ledger.ask("w", "small", Usage(1, 1, 1))
    assert (big.done(), small.done()) == (False, False)


def test_who_leaves_the_line_or_never_called_costs_nothing():
    ledger, _ = ledger_of(Limits(concurrent=1, requests_per_minute=2))
    ledger.ask("w", "a", ONE)
    ledger.ask("w", "b", ONE)
    third = ledger.ask("w", "c", ONE)
    ledger.settle("b", Usage())
    ledger.settle("a", Usage())
    assert third.done()
    assert ledger.ask("w", "d", ONE).done() is False  # by the slot; the rate has room
    ledger.settle("c", ONE)
    assert ledger.spending() | {"money": 0} == {
        "calls": 1, "input_tokens": 10, "output_tokens": 10, "money": 0, "waiting": 0, "under_way": 1
    }  # fmt: skip


def test_the_server_s_wait_holds_for_all():
    ledger, hand = ledger_of(Limits(concurrent=5))
    ledger.ask("w", "a", ONE)
    ledger.settle("a", Usage(1), quiet=7.0)
    other = ledger.ask("v", "b", ONE)
    hand.now = 6.9
    ledger.advance()
    assert not other.done()
    hand.now = 7.0
    ledger.advance()
    assert other.done()


def test_a_worker_that_falls_silent_loses_its_slots_and_turns():
    ledger, hand = ledger_of(Limits(concurrent=1), silence=20)
    ledger.ask("killed", "a", ONE)
    late = ledger.ask("killed", "b", ONE)
    living = ledger.ask("alive", "c", ONE)
    hand.now = 15
    ledger.beat("alive", Usage())
    ledger.advance()
    assert not living.done()
    hand.now = 21
    ledger.advance()
    assert living.done()
    assert (late.exception().cause, late.exception().again) == ("connection", True)  # should it live after all
    assert ledger.spent == ONE  # the killed worker's call may have been made, and is counted in full
    ledger.settle("a", Usage(1, 1, 1))  # it was only slow: too late
    assert ledger.spent == ONE


def test_a_new_ledger_learns_what_was_spent():
    ledger, _ = ledger_of(budget=Budget(calls=10))
    ledger.beat("w", Usage(9, 90, 90))
    ledger.beat("w", Usage(9, 90, 90))
    assert ledger.ask("w", "a", ONE).exception() is None
    assert ledger.spent == Usage(9, 90, 90)
    ledger.beat("w", Usage(10, 100, 100))  # overtakes the word that the slot is free
    ledger.settle("a", ONE)
    assert ledger.spent == Usage(10, 100, 100)
    assert ledger.ask("v", "b", ONE).exception().cause == "budget"


# The budget


@pytest.mark.parametrize(
    ("budget", "calls", "says"),
    [
        (Budget(calls=3), 3, "3 calls"),
        (Budget(tokens=65), 3, "65 tokens"),
        (Budget(money=0.00025), 2, "0.00 in money"),
        (Budget(calls=2, tokens=10**9), 2, "2 calls"),
    ],
)
def test_the_cap_is_hard_and_says_what_was_reached(budget, calls, says):
    ledger, _ = ledger_of(budget=budget, prices=Prices(2, 8))  # a call costs 100 / 1e6
    for i in range(calls):
        assert ledger.ask("w", str(i), ONE).exception() is None
        ledger.settle(str(i), ONE)
    for name in ("next", "and any later one"):
        failure = ledger.ask("w", name, ONE).exception()
        assert (failure.cause, failure.fatal, failure.again) == ("budget", True, False)
        assert says in str(failure)
        assert f"{calls} calls" in str(failure)
    assert ledger.exhausted
    assert ledger.ask("w", "a cheap one", Usage(1)).exception().cause == "budget"


def test_near_the_cap_calls_wait_for_what_others_really_cost():
    ledger, _ = ledger_of(budget=Budget(tokens=100))
    first, second = ledger.ask("w", "a", Usage(1, 10, 80)), ledger.ask("w", "b", Usage(1, 10, 80))
    assert (first.done(), second.done()) == (True, False)
    ledger.settle("a", Usage(1, 10, 0))
    assert second.exception() is None


def test_a_budget_of_money_needs_prices():
    with pytest.raises(ValueError, match="RADVERL_JUDGE_PRICES"):
        Ledger(budget=Budget(money=1))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(1, 8), st.integers(20, 120), st.integers(50, 800), st.randoms())
def test_whatever_happens_no_limit_is_broken(slots, per_minute, tokens, cap, rng: random.Random):
    ledger, hand = ledger_of(Limits(slots, per_minute, tokens), Budget(tokens=cap))
    starts, asked, running, spent = [], {}, {}, 0

    def look():
        for ticket in [t for t, (future, _) in asked.items() if future.done()]:
            future, cost = asked.pop(ticket)
            if future.exception() is None:
                running[ticket] = cost
                starts.append(hand.now)
        assert len(running) <= slots
        assert sum(s > hand.now - WINDOW for s in starts) <= per_minute
        assert spent <= cap

    for number in range(60):
        if rng.random() < 0.5:
            cost = Usage(1, rng.randint(1, 20), rng.randint(0, 20))
            asked[str(number)] = (ledger.ask(rng.choice("vw"), str(number), cost), cost)
        elif running:
            ticket = rng.choice(sorted(running))
            cost = running.pop(ticket)
            used = Usage(1, rng.randint(0, cost.input_tokens), rng.randint(0, cost.output_tokens))
            spent += used.tokens
            ledger.settle(ticket, used)
        look()
        hand.now += rng.choice((0.0, 0.5, 20.0))
        ledger.advance()
        look()
    assert ledger.spent.tokens == spent


# Waiting


def test_waiting_takes_no_time_of_its_own_and_can_be_given_up():
    async def scene():
        ledger = Ledger(Limits(concurrent=1))
        await wait_for_turn(ledger, "", "a", ONE)
        second = asyncio.create_task(wait_for_turn(ledger, "", "b", ONE))
        third = asyncio.create_task(wait_for_turn(ledger, "", "c", ONE))
        await asyncio.sleep(0.05)
        assert not second.done()
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        ledger.settle("a", ONE)
        await asyncio.wait_for(third, 5)
        return ledger.spending()

    assert asyncio.run(scene())["waiting"] == 0


def test_threads_with_loops_of_their_own_share_a_limiter():
    limiter, most, under_way, lock = LocalLimiter(Limits(concurrent=3)), [0], [0], threading.Lock()

    async def call():
        ticket = await limiter.acquire(ONE)
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0.005)
        with lock:
            under_way[0] -= 1
        limiter.settle(ticket, ONE)

    async def many():
        await asyncio.gather(*(call() for _ in range(20)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [3]
    assert limiter.ledger.spent == Usage(80, 800, 800)


def client_of(url, limiter, **options):
    quick = {"call_timeout": 5.0, "deadline": 10.0, "tries": 3, "first_pause": 0.01, "limiter": limiter}
    return JudgeClient(find_endpoint(url, MODEL, environment={}), **(quick | options))


def ask(client, count):
    async def all_of_them():
        async with client:
            asked = (client.ask(PROMPT, {"a": str(i)}, SCHEMA, max_tokens=50) for i in range(count))
            return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_two_clients_share_the_slots():
    pytest.importorskip("openai")
    limiter = LocalLimiter(Limits(concurrent=2))

    def slow(request):
        time.sleep(0.03)
        return OK

    with serve(slow) as server:

        async def both():
            async with client_of(server.url, limiter) as one, client_of(server.url, limiter) as two:
                asked = [c.ask(PROMPT, {"a": str(i)}, SCHEMA) for c in (one, two) for i in range(8)]
                await asyncio.gather(*asked)

        asyncio.run(both())
        assert (len(server.requests), server.most_under_way) == (16, 2)


def test_waiting_for_our_own_limits_is_not_the_server_s_delay():
    pytest.importorskip("openai")

    def slow(request):
        time.sleep(0.15)
        return OK

    with serve(slow) as server:
        # The last of six waits 0.75 s for its slot, more than its deadline.
        answers = ask(client_of(server.url, LocalLimiter(Limits(concurrent=1)), deadline=0.6), 6)
    assert [a for a in answers if isinstance(a, JudgeFailure)] == []


def test_retry_after_stops_the_other_clients_too():
    pytest.importorskip("openai")
    limiter, times = LocalLimiter(Limits(concurrent=8)), []

    def limited(request):
        times.append(time.monotonic())
        return error(429, headers={"Retry-After": "1"}) if len(times) == 1 else OK

    with serve(limited) as server:

        async def both():
            async with client_of(server.url, limiter) as one, client_of(server.url, limiter) as two:
                first = asyncio.create_task(one.ask(PROMPT, {"a": "1"}, SCHEMA))
                while not one.counts["retries"]:
                    await asyncio.sleep(0.01)
                await asyncio.gather(first, two.ask(PROMPT, {"a": "2"}, SCHEMA))

        asyncio.run(both())
    assert len(times) == 3
    assert min(times[1:]) - times[0] >= 0.95


def test_one_limiter_a_server_in_a_process(caplog, monkeypatch):
    monkeypatch.setattr("radverl.judge.limiter._limiters", {})
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    some, other = Limits(concurrent=2), Limits(concurrent=3)
    assert shared_limiter("http://a/v1", Limits(), Budget(), None) is None
    first = shared_limiter("http://a/v1", some, Budget(), None)
    assert shared_limiter("http://a/v1", some, Budget(), None) is first
    assert shared_limiter("http://b/v1", some, Budget(), None) is not first
    assert not caplog.records
    assert shared_limiter("http://a/v1", other, Budget(), None) is first
    assert "stay as first set" in caplog.text


def test_the_judge_imports_neither_ray_nor_openai():
    code = "import sys, radverl.judge, radverl.judge.limiter; print([m for m in ('ray', 'openai') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# Under Ray


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def worker_class(ray):
    from radverl.judge.limiter_ray import RayLimiter

    class Worker:
        """A reward worker."""

        def __init__(self, url, *settings, silence=2.0):
            self.limiter = RayLimiter(url, *settings, silence=silence, beat=silence / 4, lonely=60.0)
            self.pid = os.getpid()

        async def calls(self, count, seconds, used=ONE):
            """Intervals in which calls were under way; the budget's word in place of those it refused."""

            async def one():
                try:
                    ticket = await self.limiter.acquire(ONE)
                except JudgeFailure as failure:
                    return (failure.cause, failure.detail, failure.fatal)
                start = time.time()
                await asyncio.sleep(seconds)
                end = time.time()
                self.limiter.settle(ticket, used)
                return (start, end)

            return await asyncio.gather(*(one() for _ in range(count)))

        async def spending(self):
            return await self.limiter.spending()

        def process(self):
            return self.pid

        async def actor_process(self):
            return await self.limiter.actor.process.remote()

        def shared(self, url, *settings):
            return type(shared_limiter(url, *settings)).__name__

    return ray.remote(num_cpus=0)(Worker)


def most_at_once(intervals):
    changes = sorted([(start, 1) for start, _ in intervals] + [(end, -1) for _, end in intervals])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def await_calls(ray, worker, count):
    """What workers say arrives a little later."""
    calls = None
    for _ in range(200):
        with contextlib.suppress(ray.exceptions.RayError):
            if (calls := ray.get(worker.spending.remote())["calls"]) >= count:
                break
        time.sleep(0.1)
    assert calls == count


@pytest.mark.slow
def test_ray_workers_share_slots_and_budget(ray):
    from radverl.judge.limiter import budget_reached

    worker = worker_class(ray)
    settings = (Limits(concurrent=3), Budget(calls=30), None)
    workers = [worker.remote("http://shared/v1", *settings) for _ in range(2)]
    assert ray.get(workers[0].shared.remote("http://shared/v1", *settings)) == "RayLimiter"
    found = [f for part in ray.get([w.calls.remote(12, 0.02) for w in workers]) for f in part]
    assert most_at_once(found) <= 3
    await_calls(ray, workers[1], 24)
    assert budget_reached() is None
    found = [f for part in ray.get([w.calls.remote(5, 0.01) for w in workers]) for f in part]
    refused = [f for f in found if f[0] == "budget"]
    assert (len(refused), all(f[2] for f in refused)) == (4, True)
    assert "30 calls" in refused[0][1]
    assert "30 calls" in budget_reached()
    # The actor that holds the ledger is killed; the workers' beats tell the next one what was spent.
    os.kill(ray.get(workers[0].actor_process.remote()), signal.SIGKILL)
    await_calls(ray, workers[0], 30)
    assert ray.get(workers[1].calls.remote(1, 0.0))[0][0] == "budget"


@pytest.mark.slow
def test_a_killed_ray_worker_holds_its_slot_for_a_while_only(ray):
    worker = worker_class(ray)
    settings = (Limits(concurrent=1), Budget(), None)
    # The first one also started the actor, which must outlive it.
    killed, alive = (worker.remote("http://killed/v1", *settings) for _ in range(2))
    pid = ray.get(killed.process.remote())
    holding = killed.calls.remote(3, 600.0)
    while ray.get(alive.spending.remote())["under_way"] < 1:
        time.sleep(0.05)
    waiting = alive.calls.remote(1, 0.0)
    assert ray.wait([waiting], timeout=1.0)[0] == []
    os.kill(pid, signal.SIGKILL)
    (interval,) = ray.get(waiting, timeout=20)
    assert isinstance(interval[0], float)
    with pytest.raises(ray.exceptions.RayError):
        ray.get(holding)
    await_calls(ray, alive, 2)


FORK = """
import asyncio, os
from radverl.judge.budget import Budget, Limits, Usage
from radverl.judge.limiter import shared_limiter

limiter = shared_limiter("http://fork/v1", Limits(concurrent=1), Budget(), None)
asyncio.run(limiter.acquire(Usage(1)))
child = os.fork()
own = shared_limiter("http://fork/v1", Limits(concurrent=1), Budget(), None)
under_way = own.ledger.spending()["under_way"]
if child == 0:
    os._exit(int(under_way))
print("parent", under_way, "child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_does_not_wait_for_its_parent_s_slots():
    """In an interpreter of its own: a fork of one that has Ray's threads may hang at a lock of theirs."""
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.split() == ["parent", "1", "child", "0"]
