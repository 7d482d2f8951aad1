"""Many calls at once to a server that fails: every answer arrives or has its cause, and the counts fit."""

import asyncio
import multiprocessing
import threading
import time
from collections import Counter

import pytest

from radverl.judge import AnswerCache, JudgeClient, JudgeFailure, find_endpoint
from radverl.judge.limiter import LocalLimiter
from radverl.judge.prompt_files import load_prompt
from tests.judge_server import MODEL, Reply, answer, error, serve

pytest.importorskip("openai")

SCHEMA = {"type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]}
GOOD = {"fact": "No effusion."}
OK = answer(GOOD)
PROMPT = load_prompt("remove_priors", 1)
FAULTS = {
    "server_error": error(500),
    "rate_limit": error(429, headers={"Retry-After": "0"}),
    "auth": error(401),
    "connection": Reply(fault="reset"),
    "refused": error(404),
    "timeout": Reply(fault="hang"),
    "bad_json": Reply(body=OK.body[:-9]),
    "html": Reply(body=b"<html>busy</html>", headers={"Content-Type": "text/html"}),
    "NaN": answer('{"fact": NaN}'),
    "empty": answer(""),
    "wrong schema": answer({"fakt": "No effusion."}),
    "cut": Reply(body=OK.body, fault="cut"),
}
CAUSES = {"html": "bad_json", "NaN": "bad_json", "empty": "bad_json", "wrong schema": "bad_json", "cut": "connection"}


def client_of(url, **options):
    quick = {"call_timeout": 3.0, "deadline": 30.0, "tries": 2, "first_pause": 0.02}
    return JudgeClient(find_endpoint(url, MODEL, environment={}), **(quick | options))


def ask(client, *data):
    async def all_of_them():
        async with client:
            return await asyncio.gather(*(client.ask(PROMPT, d, SCHEMA) for d in data), return_exceptions=True)

    return asyncio.run(all_of_them())


def texts(count):
    return [{"a": f"text {i}"} for i in range(count)]


def test_a_fifth_of_the_texts_fails_for_good_and_no_other():
    faults = {f"text {5 * i}": name for i, name in enumerate(FAULTS)}

    def script(request):
        text = request.data_line.split('"')[3]
        return FAULTS[faults[text]] if text in faults else OK

    limiter, data = LocalLimiter(), texts(5 * len(FAULTS))
    with serve(script) as server:
        client = client_of(server.url, limiter=limiter)
        results = ask(client, *data)
        requests = len(server.requests)
    expected = {text: CAUSES.get(name, name) for text, name in faults.items()}
    for item, result in zip(data, results, strict=True):
        assert (result.cause if isinstance(result, JudgeFailure) else result) == expected.get(item["a"], GOOD)
    wanted = Counter(expected.values())
    assert {cause: client.counts[cause] for cause in wanted} == wanted
    assert client.counts["calls"] == limiter.ledger.spent.calls == requests
    assert limiter.ledger.spending()["under_way"] == 0


def test_what_fails_once_is_answered_the_second_time():
    seen, names, lock = Counter(), [name for name in FAULTS if name not in ("auth", "refused")], threading.Lock()

    def script(request):
        with lock:
            seen[request.data_line] += 1
            first = seen[request.data_line] == 1
        return FAULTS[names[len(seen) % len(names)]] if first else OK

    with serve(script) as server:
        client = client_of(server.url)
        assert ask(client, *texts(30)) == [GOOD] * 30
    assert set(seen.values()) == {2}
    assert (client.counts["calls"], client.counts["retries"]) == (60, 30)


def test_a_storm_of_429_passes():
    lock, times = threading.Lock(), []

    def script(request):  # ten calls in any 0.3 s
        with lock:
            now = time.monotonic()
            times[:] = [t for t in times if t > now - 0.3]
            if len(times) >= 10:
                return error(429, headers={"Retry-After": "0.3"})
            times.append(now)
        return OK

    with serve(script) as server:
        client = client_of(server.url, concurrency=32, tries=100, deadline=60.0)
        assert ask(client, *texts(60)) == [GOOD] * 60
    assert client.counts["calls"] == client.counts["retries"] + 60 > 60
    assert client.counts["rate_limit"] == 0


def test_a_server_that_restarts_in_the_middle(tmp_path):
    stop, data = threading.Event(), texts(40)

    def first(request):
        if len(server.requests) > 10:
            stop.set()
            return Reply(fault="reset")
        return OK

    def ask_all(results):
        client = client_of(f"http://127.0.0.1:{port}/v1", tries=200, cache=AnswerCache(tmp_path / "c.sqlite"))
        results.extend(ask(client, *data))

    results = []
    with serve(first) as server:
        port = server.server_address[1]
        asking = threading.Thread(target=ask_all, args=(results,))
        asking.start()
        assert stop.wait(20)
    time.sleep(0.3)
    with serve(OK, port=port) as second:
        asking.join()
        assert results == [GOOD] * 40
        assert len(second.requests) >= 30
    with serve(OK) as third:
        assert ask(client_of(third.url, cache=AnswerCache(tmp_path / "c.sqlite")), *data) == [GOOD] * 40
        assert third.requests == []


def test_a_report_of_a_megabyte():
    report = {"report": "Small left pleural effusion. " * 36_000}
    with serve([OK, error(400, "too long"), error(400, "too long")]) as server:
        client = client_of(server.url)
        assert ask(client, report) == [GOOD]
        assert len(server.requests[0].data_line) > 1_000_000
        (failure,) = ask(client, {"report": report["report"] + "No pneumothorax."})
    assert failure.cause == "refused"
    assert len(str(failure)) < 300


def test_emoji_and_control_characters_in_the_answer_are_kept(tmp_path):
    odd = {"fact": "No effusion \U0001f600 \x00\x1b[2J\u2028\u200b\u202e </s> 肺"}
    with serve(answer(odd)) as server:
        cache = AnswerCache(tmp_path / "c.sqlite")
        assert ask(client_of(server.url, cache=cache), {"a": "\U0001f600\x00\ud83d"}) == [odd]
        assert ask(client_of(server.url, cache=cache), {"a": "\U0001f600\x00\ud83d"}) == [odd]
    assert len(server.requests) == 1


def run_through(url, path, to_parent):
    client = client_of(url, cache=AnswerCache(path), tries=20)
    to_parent.send((ask(client, *texts(30)) == [GOOD] * 30, client.counts["calls"]))


def test_two_runs_with_one_cache_and_a_failing_server(tmp_path):
    count, lock, spawn = [0], threading.Lock(), multiprocessing.get_context("spawn")

    def script(request):
        with lock:
            count[0] += 1
            number = count[0]
        time.sleep(0.02)
        return FAULTS[("server_error", "connection", "rate_limit")[number % 3]] if number % 5 == 0 else OK

    with serve(script) as server:
        ours, theirs = spawn.Pipe()
        runs = [spawn.Process(target=run_through, args=(server.url, tmp_path / "c.sqlite", theirs)) for _ in range(2)]
        for run in runs:
            run.start()
        found = [ours.recv() for _ in runs]
        for run in runs:
            run.join()
        assert [right for right, _ in found] == [True, True]
        assert sum(calls for _, calls in found) == len(server.requests)
        assert len(server.requests) <= 30 / 0.8 + 2  # each text once, and the fifth that failed again
        before = len(server.requests)
        assert ask(client_of(server.url, cache=AnswerCache(tmp_path / "c.sqlite")), *texts(30)) == [GOOD] * 30
        assert len(server.requests) == before
