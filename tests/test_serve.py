"""The queue before a model, in threads and event loops, then the actor that has it under Ray."""

import asyncio
import contextlib
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radverl.rewards.base import failed
from radverl.serve import ModelFailure, shared
from radverl.serve.batches import Batches

UPPER = "tests.served_models:upper"
LONG = 30.0  # seconds; a deadline that no test should reach


class Recorded:
    """A model of ours that keeps its batches, and may be held."""

    def __init__(self, run=lambda items: [item.upper() for item in items], held=False):
        self.batches, self.loads, self._run, self.go, self.busy = [], 0, run, threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def load(self):
        self.loads += 1

        def run(items):
            self.batches.append(list(items))
            self.busy.set()
            self.go.wait(LONG)
            return self._run(items)

        return run


@pytest.fixture
def queue():
    made = []

    def make(model, **options):
        made.append(Batches(model.load if isinstance(model, Recorded) else lambda: model, **options))
        return made[-1]

    yield make
    for batches in made:
        batches.close(seconds=1.0)


def causes(outcomes):
    return [getattr(outcome, "cause", None) for outcome in outcomes]


def in_thread(work, *args):
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work, *args)
    pool.shutdown(wait=False)
    return future


def until(true):
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not become true")


# Results


@settings(max_examples=15, deadline=None)
@given(
    asked=st.lists(st.lists(st.text("abcd", max_size=3), max_size=12), min_size=1, max_size=30),
    max_batch=st.integers(1, 9),
    loops=st.booleans(),
)
def test_results_are_those_of_direct_calls(asked, max_batch, loops):
    model = Recorded()
    batches = Batches(model.load, max_batch=max_batch, wait=0.001)
    if loops:

        async def all_of_them():
            return await asyncio.gather(*(batches.ask_async(items, LONG) for items in asked))

        found = asyncio.run(all_of_them())
    else:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda items: batches.ask(items, LONG), asked))
    batches.close()
    assert found == [[item.upper() for item in items] for items in asked]
    assert max(map(len, model.batches), default=0) <= max_batch
    assert all(len(set(batch)) == len(batch) for batch in model.batches)
    counts = batches.counts()
    assert counts["computed"] == counts["items"] - counts["duplicates"] == sum(map(len, model.batches))
    assert (counts["items"], counts["failures"], counts["waiting"]) == (sum(map(len, asked)), 0, 0)


def test_eight_threads_and_an_event_loop_at_once(queue):
    batches, rng = queue(Recorded(), max_batch=16), random.Random(5)
    asked = [[f"item {rng.randrange(200)}" for _ in range(rng.randrange(1, 20))] for _ in range(400)]

    async def in_loop():
        return await asyncio.gather(*(batches.ask_async(items, LONG) for items in asked[200:]))

    with ThreadPoolExecutor(8) as pool:
        loop = in_thread(asyncio.run, in_loop())
        found = list(pool.map(lambda items: batches.ask(items, LONG), asked[:200])) + loop.result()
    assert found == [[item.upper() for item in items] for items in asked]
    assert batches.counts()["calls"] == 400
    assert batches.counts()["batches"] < 400


def test_an_item_in_flight_is_computed_once(queue):
    model = Recorded(held=True)
    batches = queue(model, wait=0.0)
    first = in_thread(batches.ask, ["a"], LONG)
    model.busy.wait(LONG)
    others = [in_thread(batches.ask, items, LONG) for items in (["a", "b", "b"], ["b", "a"], ["a"])]
    until(lambda: batches.counts()["calls"] == 4)
    model.go.set()
    assert [future.result(LONG) for future in (first, *others)] == [["A"], ["A", "B", "B"], ["B", "A"], ["A"]]
    assert model.batches == [["a"], ["b"]]
    assert batches.counts()["duplicates"] == 5


def test_nothing_is_kept_once_it_was_given(queue):
    model = Recorded()
    batches = queue(model)
    assert batches.ask(["a"], LONG) == batches.ask(["a"], LONG) == ["A"]
    assert model.batches == [["a"], ["a"]]


def test_an_empty_list_loads_nothing(queue):
    model = Recorded()
    batches = queue(model)
    assert batches.ask([], LONG) == asyncio.run(batches.ask_async([], LONG)) == []
    assert model.loads == 0


def test_items_that_come_within_the_wait_are_one_batch(queue):
    model = Recorded()
    batches = queue(model, wait=0.3)
    batches.ask(["loads"], LONG)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda i: batches.ask([f"item {i}"], LONG), range(6)))
    assert sorted(map(len, model.batches)) == [1, 6]


def test_a_full_batch_does_not_wait(queue):
    batches = queue(Recorded(), wait=3600.0, max_batch=2)
    assert batches.ask(["a", "b"], LONG) == ["A", "B"]


# Failures


def test_only_the_bad_items_of_a_batch_fail(queue):
    def run(items):
        if any(item.startswith("bad") for item in items):
            raise RuntimeError("CUDA error")
        return [item.upper() for item in items]

    batches = queue(Recorded(run), wait=0.3)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda items: batches.ask(items, LONG), (["a", "bad 1"], ["b"], ["bad 2", "a", "c"])))
    assert causes(found[0] + found[2]) == [None, "server_error", "server_error", None, None]
    assert [found[0][0], found[1], found[2][1:]] == ["A", ["B"], ["A", "C"]]
    assert "RuntimeError: CUDA error" in found[0][1].detail
    assert batches.counts()["failures"] == 2
    assert batches.ask(["d"], LONG) == ["D"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), StopIteration()])
def test_whatever_a_model_raises_the_queue_goes_on(queue, error):
    def run(items):
        if "bad" in items:
            raise error
        return items

    batches = queue(Recorded(run))
    assert causes(batches.ask(["bad"], LONG)) == ["server_error"]
    assert batches.ask(["a"], LONG) == ["a"]


@pytest.mark.parametrize("results", [[], ["A"], ["A", "B", "C"], None, 7])
def test_a_wrong_number_of_results_is_a_failure(queue, results):
    batches = queue(Recorded(lambda items: ["single"] if items == ["b"] else results), wait=0.05)
    first, second = batches.ask(["a", "b"], LONG)
    if isinstance(results, list) and len(results) != 1:
        assert first.cause == "invalid"
        assert f"{len(results)} results for 1 items" in first.detail
    elif results is None or isinstance(results, int):
        assert first.cause == "server_error"
    assert second == "single"  # asked for alone after the batch had failed


def test_a_model_may_fail_single_items_and_name_the_cause(queue):
    class OutOfBudget(Exception):
        cause, detail = "budget", "no more"

    def run(items):
        return [OutOfBudget() if item == "b" else ValueError("odd") if item == "c" else item for item in items]

    model = Recorded(run)
    batches = queue(model)
    outcomes = batches.ask(["a", "b", "c"], LONG)
    assert causes(outcomes) == [None, "budget", "server_error"]
    assert len(model.batches) == 1
    assert failed(("failed_budget", "failed_other"), outcomes[1])["failed_budget"] == 1.0


def test_a_cause_nobody_counts_is_the_model_s_failure(queue):
    class Odd(Exception):
        cause = "bad_luck"

    assert causes(queue(Recorded(lambda items: [Odd()])).ask(["a"], LONG)) == ["server_error"]


def test_a_deadline_holds_while_the_model_computes(queue):
    model = Recorded(held=True)
    batches = queue(model)
    (outcome,) = batches.ask(["a"], 0.1)
    assert (outcome.cause, outcome.again) == ("timeout", True)
    assert causes(asyncio.run(batches.ask_async(["b"], 0.1))) == ["timeout"]
    model.go.set()
    assert batches.ask(["c"], LONG) == ["C"]


def test_while_one_item_hangs_others_are_answered(queue):
    stuck = threading.Event()

    def run(items):
        if "hang" in items:
            stuck.wait(LONG)
        return [item.upper() for item in items]

    model = Recorded(run)
    batches = queue(model, wait=0.0)
    hanging = in_thread(batches.ask, ["hang"], 0.5)
    until(lambda: model.batches)
    others = [in_thread(batches.ask, [f"item {i}"], LONG) for i in range(3)]
    assert causes(hanging.result(LONG)) == ["timeout"]
    assert [future.result(LONG) for future in others] == [[f"ITEM {i}"] for i in range(3)]
    assert model.loads == 2  # the hanging thread keeps the first; no model is run by two threads
    stuck.set()
    assert batches.ask(["hang"], LONG) == ["HANG"]


def test_what_is_in_the_batch_of_a_hanging_item_is_answered(queue):
    stuck = threading.Event()

    def run(items):
        if "hang" in items:
            stuck.wait(LONG)
        return [item.upper() for item in items]

    model = Recorded(run)
    batches = queue(model, wait=0.3)
    batches.ask(["loads"], LONG)
    others = [in_thread(batches.ask, items, LONG) for items in (["a", "b"], ["b", "c"])]
    assert causes(batches.ask(["hang"], 2.0)) == ["timeout"]
    assert [future.result(LONG) for future in others] == [["A", "B"], ["B", "C"]]
    assert model.batches[-3:] == [["a"], ["b"], ["c"]] or len(model.batches) == 3
    stuck.set()


def test_a_deadline_that_passed_in_the_line_does_not_disturb_the_run(queue):
    def run(items):
        time.sleep(0.2)
        return items

    model = Recorded(run)
    batches = queue(model, wait=0.0, max_batch=1)
    asked = in_thread(batches.ask, list(map(str, range(12))), LONG)
    until(lambda: batches.counts()["waiting"])
    assert causes(batches.ask(["late"], 1.5)) == ["timeout"]
    assert asked.result(LONG) == list(map(str, range(12)))
    assert model.loads == 1


def test_the_threads_that_may_hang_are_few(queue):
    stuck = threading.Event()
    model = Recorded(lambda items: stuck.wait(LONG) and items)
    batches = queue(model, wait=0.0)
    before = threading.active_count()
    assert [causes(batches.ask([f"hang {i}"], 0.1)) for i in range(6)] == [["timeout"]] * 6
    assert threading.active_count() - before <= 3
    assert batches.blocked()
    stuck.set()
    until(lambda: not batches.blocked())
    assert batches.ask(["a"], LONG) == ["a"]


def test_what_nobody_waits_for_is_not_computed(queue):
    model = Recorded(held=True)
    batches = queue(model, wait=0.0)
    first = in_thread(batches.ask, ["a"], LONG)
    model.busy.wait(LONG)

    async def give_up():
        asked = asyncio.create_task(batches.ask_async(["b", "c"], LONG))
        while batches.counts()["waiting"] < 2:
            await asyncio.sleep(0.01)
        late = await batches.ask_async(["c", "d"], 0.05)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        return late

    assert causes(asyncio.run(give_up())) == ["timeout", "timeout"]
    model.go.set()
    assert first.result(LONG) == ["A"]
    assert batches.ask(["e"], LONG) == ["E"]
    assert {item for batch in model.batches for item in batch} == {"a", "e"}


def test_a_cancelled_caller_takes_nothing_from_others(queue):
    model = Recorded(held=True)
    batches = queue(model)

    async def two():
        one, other = (asyncio.create_task(batches.ask_async(["a", "b"], LONG)) for _ in range(2))
        await asyncio.sleep(0.05)
        one.cancel()
        model.go.set()
        return await other

    assert asyncio.run(two()) == ["A", "B"]


def test_no_call_is_lost_where_everything_goes_wrong_at_once(queue):
    rng = random.Random(11)

    def run(items):
        time.sleep(rng.random() * 0.02)
        if rng.random() < 0.2:
            raise RuntimeError("now and then")
        return [item.upper() for item in items][: None if rng.random() < 0.9 else 1]

    batches = queue(Recorded(run), max_batch=5, wait=0.001, max_waiting=40)
    asked = [[f"item {rng.randrange(30)}" for _ in range(rng.randrange(1, 8))] for _ in range(240)]
    limits = [rng.choice((0.001, 0.01, LONG)) for _ in asked]

    async def in_loop(places):
        calls = [asyncio.create_task(batches.ask_async(asked[i], limits[i])) for i in places]
        await asyncio.sleep(0.02)
        for call in calls[::9]:
            call.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    with ThreadPoolExecutor(8) as pool:
        loop = in_thread(asyncio.run, in_loop(range(120, 240)))
        found = list(pool.map(batches.ask, asked[:120], limits[:120])) + loop.result(LONG)
    whole = [(items, out) for items, out in zip(asked, found, strict=True) if isinstance(out, list)]
    assert len(whole) >= 200
    for items, outcomes in whole:
        for item, outcome in zip(items, outcomes, strict=True):
            assert outcome == item.upper() or outcome.cause in ("timeout", "server_error", "rate_limit", "invalid")
    answered = sum(outcome == item.upper() for items, outs in whole for item, outcome in zip(items, outs, strict=True))
    assert answered > 100
    assert batches.counts()["waiting"] == 0
    until(lambda: batches.ask(["last"], LONG) == ["LAST"])


def test_a_full_line_refuses(queue):
    model = Recorded(held=True)
    batches = queue(model, wait=0.0, max_waiting=3)
    first = in_thread(batches.ask, ["a"], LONG)
    model.busy.wait(LONG)
    waiting = in_thread(batches.ask, ["b", "c"], LONG)
    until(lambda: batches.counts()["waiting"] == 2)
    assert causes(batches.ask(["d", "e"], LONG)) == ["rate_limit"] * 2
    known = in_thread(batches.ask, ["a", "b", "c", "d"], LONG)  # only one of them is new
    until(lambda: batches.counts()["waiting"] == 3)
    model.go.set()
    assert [future.result(LONG) for future in (first, waiting, known)] == [["A"], ["B", "C"], ["A", "B", "C", "D"]]


def test_loading_that_fails_is_tried_again_by_the_next_call(queue):
    model = Recorded()

    def load():
        if not model.loads:
            model.loads = 1
            raise OSError("no space left")
        return model.load()

    batches = Batches(load)
    (outcome,) = batches.ask(["a"], LONG)
    assert outcome.cause == "server_error"
    assert "cannot be loaded: OSError: no space left" in outcome.detail
    assert batches.ask(["a"], LONG) == ["A"]
    batches.close()


def test_loading_has_its_own_time(queue):
    ready = threading.Event()

    def slow():
        ready.wait(LONG)
        return lambda items: items

    batches = Batches(slow, start=0.1)
    assert "not loaded within 0.1 s" in batches.ask(["a"], LONG)[0].detail
    assert causes(asyncio.run(batches.ask_async(["a"], LONG))) == ["timeout"]
    ready.set()
    until(batches.ready)
    assert batches.ask(["a"], 0.5) == ["a"]
    batches.close()


def test_closing_fails_what_waits_and_a_later_call_begins_anew(queue):
    model = Recorded(held=True)
    batches = queue(model, wait=0.0)
    asked = [in_thread(batches.ask, [item], LONG) for item in "abc"]
    until(lambda: batches.counts()["calls"] == 3)
    closing = in_thread(batches.close)
    assert [causes(future.result(LONG)) for future in asked] == [["connection"]] * 3
    model.go.set()
    closing.result(LONG)
    assert batches.ask(["d"], LONG) == ["D"]
    assert model.loads == 2


# Clients


def test_clients_of_one_model_share_it(tmp_path):
    log = tmp_path / "items"
    one, two = (shared(UPPER, {"log": str(log)}, where="process", timeout=LONG) for _ in range(2))
    copy = pickle.loads(pickle.dumps(one))
    assert one.ask(["a", "a"]) == ["A", "A"]
    assert asyncio.run(two.ask_async(["b"])) == ["B"]
    assert copy.ask(["c"]) == ["C"]
    assert one.counts() | {"seconds": 0} == two.counts() | {"seconds": 0} | {
        "calls": 3, "items": 4, "duplicates": 1, "batches": 3, "computed": 3, "failures": 0, "waiting": 0
    }  # fmt: skip
    assert log.read_text().split() == ["a", "b", "c"]


def test_a_client_raises_the_first_failure_or_gives_them_all():
    client = shared(UPPER, where="process", timeout=LONG)
    with pytest.raises(ModelFailure, match="cannot read bad 1") as found:
        client.ask(["a", "bad 1", "bad 2"])
    assert found.value.cause == "server_error"
    outcomes = client.ask(["a", "bad 1", "b"], return_failures=True)
    assert (outcomes[0], outcomes[1].cause, outcomes[2]) == ("A", "server_error", "B")
    with pytest.raises(ModelFailure, match=r"weights.tar.gz is not there"):
        shared("tests.served_models:never", where="process").ask(["a"])
    with pytest.raises(ModelFailure, match="ModuleNotFoundError"):
        shared("tests.no_such:model", where="process").ask(["a"])


def test_a_failure_keeps_its_fields_between_processes():
    failure = ModelFailure("timeout", "no result", again=True)
    copy = pickle.loads(pickle.dumps(failure))
    assert (copy.cause, copy.detail, copy.again, str(copy)) == ("timeout", "no result", True, str(failure))


@pytest.mark.parametrize(
    "bad",
    [
        {"factory": "tests.served_models.upper"},
        {"where": "cloud"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": "60"},
        {"start": -1},
        {"wait": -0.1},
        {"max_batch": 0},
        {"max_batch": 2.5},
        {"max_batch": True},
        {"threads": 0},
        {"num_gpus": -1},
        {"num_cpus": float("inf")},
        {"settings": {"device": object()}},
        {"settings": {"scale": float("nan")}},
    ],
)
def test_bad_settings(bad):
    with pytest.raises(ValueError, match="serve: "):
        shared(**{"factory": UPPER, **bad})


def test_ray_where_there_is_none(monkeypatch):
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(ModelFailure, match=r"ray.init") as found:
        shared(UPPER, where="ray").ask(["a"])
    assert found.value.cause == "connection"
    assert shared(UPPER, where="auto", timeout=LONG).ask(["a"]) == ["A"]


def test_importing_it_takes_no_ray_and_no_torch():
    code = "import sys, radverl.serve; print([m for m in ('ray', 'torch', 'numpy') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


FORK = """
import os, threading
from radverl.serve import shared
from radverl.serve.batches import Batches

client = shared("tests.served_models:process_id", where="process", timeout=20)
held = threading.Event()
own = Batches(lambda: lambda items: [held.wait(20) and None or os.getpid() for _ in items], wait=0.0)
threading.Thread(target=own.ask, args=(["a"], 20), daemon=True).start()
while not own.counts()["calls"]:
    pass
client.ask(["a"])
child = os.fork()
held.set()
same = client.ask(["b"]) == [("b", os.getpid())] and own.ask(["c"], 20) == [os.getpid()]
if child == 0:
    os._exit(0 if same else 1)
print(same, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_has_a_model_of_its_own():
    """In an interpreter of its own: a fork of one that has Ray's threads may hang at a lock of theirs."""
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.split() == ["True", "0"]


HANGING_END = """
import threading
from radverl.serve import ModelFailure, shared

client = shared("tests.served_models:upper", where="process", timeout=0.2)
try:
    client.ask(["hang"])
except ModelFailure as failure:
    print(failure.cause)
"""


def test_a_process_ends_though_its_model_hangs():
    run = subprocess.run([sys.executable, "-c", HANGING_END], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "timeout"


# Under Ray


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def workers(ray, count, client):
    class Worker:
        """A reward worker."""

        def __init__(self, client):
            self.client = client

        async def ask(self, items):
            return await self.client.ask_async(items, return_failures=True)

        def ask_in_thread(self, items):
            return self.client.ask(items, return_failures=True)

        def counts(self):
            return self.client.counts()

    return [ray.remote(num_cpus=0)(Worker).remote(client) for _ in range(count)]


def actor_of(client):
    from radverl.serve.client import _backend_of

    return _backend_of(client.model, client.where).actor()


@pytest.mark.slow
def test_ray_workers_of_a_node_share_one_model(ray):
    client = shared("tests.served_models:process_id", timeout=LONG)
    one, two = workers(ray, 2, client)
    asked = [one.ask.remote(["a"]), one.ask.remote(["b", "b"]), two.ask.remote(["c"]), two.ask_in_thread.remote(["d"])]
    found = [outcome for part in ray.get(asked, timeout=180) for outcome in part]
    assert [item for item, _ in found] == ["a", "b", "b", "c", "d"]
    (pid,) = {pid for _, pid in found}
    assert pid not in (os.getpid(), *ray.get([w.__ray_call__.remote(lambda self: os.getpid()) for w in (one, two)]))
    assert client.ask(["e"]) == [("e", pid)]  # the driver is a worker like any other
    assert ray.get(two.counts.remote())["calls"] == client.counts()["calls"] == 5
    ray.kill(one)  # it may have started the actor, which must not end with it
    assert ray.get(two.ask.remote(["f"])) == [("f", pid)]


@pytest.mark.slow
def test_ray_answers_and_failures(ray):
    client, other = shared(UPPER, timeout=1.0), shared(UPPER, timeout=LONG)
    (worker,) = workers(ray, 1, other)
    rng = random.Random(7)
    asked = [[f"item {rng.randrange(50)}" for _ in range(rng.randrange(8))] for _ in range(60)]
    assert ray.get([worker.ask.remote(items) for items in asked], timeout=180) == [
        [item.upper() for item in items] for items in asked
    ]
    assert causes(client.ask(["a", "bad", "b"], return_failures=True)) == [None, "server_error", None]
    hanging = in_thread(lambda: client.ask(["hang"], return_failures=True))
    answered = worker.ask.remote(["c"])
    assert causes(hanging.result(LONG)) == ["timeout"]
    assert ray.get(answered, timeout=LONG) == ["C"]
    with pytest.raises(ModelFailure, match="cannot be loaded: FileNotFoundError"):
        shared("tests.served_models:never").ask(["a"])
    with pytest.raises(ModelFailure) as found:
        shared("tests.served_models:unsendable", timeout=LONG).ask(["a"])
    assert found.value.cause == "server_error"


@pytest.mark.slow
def test_a_killed_actor_comes_back(ray):
    client = shared(UPPER, {"seconds": 0.5}, timeout=LONG)
    (worker,) = workers(ray, 1, client)
    assert ray.get(worker.ask.remote(["a"])) == ["A"]
    pid = ray.get(actor_of(client).process.remote())
    under_way = [worker.ask.remote(["b", "c"]), worker.ask.remote(["d"])]
    until(lambda: client.counts()["calls"] == 3)
    os.kill(pid, signal.SIGKILL)
    assert ray.get(under_way, timeout=180) == [["B", "C"], ["D"]]  # made once more
    assert client.ask(["e"]) == ["E"]  # and this process, which had no call under way
    assert ray.get(actor_of(client).process.remote()) != pid


@pytest.mark.slow
def test_an_item_that_kills_the_actor_is_a_failure_and_the_next_call_works(ray):
    client = shared(UPPER, {"seconds": 0.01}, timeout=LONG)
    (worker,) = workers(ray, 1, client)
    assert causes(ray.get(worker.ask.remote(["die"]), timeout=180)) == ["connection"]
    assert ray.get(worker.ask.remote(["a"]), timeout=180) == ["A"]
    assert asyncio.run(client.ask_async(["b"])) == ["B"]


@pytest.mark.slow
def test_a_model_that_never_comes_back_is_started_again(ray):
    client = shared(UPPER, {"seconds": 0.02}, timeout=0.3)
    client.ask(["a"])
    pid = ray.get(actor_of(client).process.remote())
    for _ in range(3):  # three threads
        assert causes(client.ask(["hang"], return_failures=True)) == ["timeout"]

    def again():
        with contextlib.suppress(ModelFailure):
            return client.ask(["b"]) == ["B"]

    until(again)
    assert ray.get(actor_of(client).process.remote()) != pid


@pytest.mark.slow
def test_resources_that_the_node_has_not_are_a_failure(ray):
    client = shared(UPPER, {"seconds": 0.03}, num_gpus=0.5, timeout=1.0, start=1.0)
    (outcome,) = client.ask(["a"], return_failures=True)
    assert outcome.cause in ("timeout", "connection")
    ray.kill(actor_of(client))


@pytest.mark.slow
def test_an_actor_without_workers_ends_and_another_takes_its_place(ray):
    from radverl.serve.actor import NodeActor

    model = shared(UPPER, {"seconds": 0.04}).model
    silent = NodeActor(model, beat=3600.0, lonely=0.5)
    assert silent.ask(["a"], LONG) == ["A"]
    first = ray.get(silent.actor().process.remote())
    until(lambda: silent.name not in ray.util.list_named_actors())
    assert silent.ask(["b"], LONG) == ["B"]
    until(lambda: silent.name not in ray.util.list_named_actors())
    beating = NodeActor(model, beat=0.1, lonely=1.0)
    assert beating.ask(["c"], LONG) == ["C"]
    second = ray.get(beating.actor().process.remote())
    time.sleep(2.5)
    assert beating.ask(["d"], LONG) == ["D"]
    assert ray.get(beating.actor().process.remote()) == second != first
