"""Usage, prices and caps of the judge; what a call is counted as; one call for equal questions of several processes."""

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import sqlite3
import time

import pytest

from radverl.judge import AnswerCache, JudgeClient, JudgeFailure, find_endpoint, judge_client
from radverl.judge.budget import (
    Budget,
    Limits,
    Prices,
    Usage,
    estimate_tokens,
    read_budget,
    read_limits,
    read_prices,
    read_usage,
)
from radverl.judge.limiter import LocalLimiter, budget_reached
from radverl.judge.network_mounts import file_system, on_network
from radverl.judge.prompt_files import load_prompt
from tests.judge_server import MODEL, Reply, answer, error, serve

pytest.importorskip("openai")

SCHEMA = {"type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]}
GOOD = {"fact": "No effusion."}
OK = answer(GOOD)
PROMPT = load_prompt("remove_priors", 1)
MOST_OUT = 50


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("RADVERL_JUDGE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("radverl.judge.limiter._limiters", {})


def with_usage(prompt_tokens, completion_tokens, reply=OK):
    body = json.loads(reply.body)
    body["usage"] = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return Reply(body=json.dumps(body).encode())


def client_of(url, limiter=None, **options):
    quick = {"call_timeout": 5.0, "deadline": 10.0, "tries": 3, "first_pause": 0.01, "limiter": limiter}
    return JudgeClient(find_endpoint(url, MODEL, environment={}), **(quick | options))


def ask(client, *data):
    async def all_of_them():
        async with client:
            asked = (client.ask(PROMPT, d, SCHEMA, max_tokens=MOST_OUT) for d in data)
            return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of_them())


def texts(count):
    return [{"a": str(i)} for i in range(count)]


# Settings


@pytest.mark.parametrize(
    "given",
    [
        "concurrent=4, requests_per_minute=60,tokens_per_minute=2e5",
        {"concurrent": 4, "requests_per_minute": "60", "tokens_per_minute": 200000.0},
        '{"concurrent": 4, "requests_per_minute": 60, "tokens_per_minute": 200000}',
        Limits(4, 60, 200_000),
    ],
)
def test_settings_in_every_form(given):
    assert read_limits(given) == Limits(4, 60, 200_000)


def test_settings_from_a_file_and_from_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "prices.json"
    file.write_text('{"small": {"input": 0.5, "output": 2}, "large": {"input": 2, "output": 8}}')
    assert read_prices(str(file), "large") == Prices(2, 8)
    monkeypatch.setenv("RADVERL_JUDGE_PRICES", "input=0,output=1.5")
    monkeypatch.setenv("RADVERL_JUDGE_BUDGET", "money=2.5,calls=1e3")
    assert (read_prices(None), read_budget(None)) == (Prices(0, 1.5), Budget(calls=1000, money=2.5))
    assert (read_limits(None), read_limits({"concurrent": None})) == (Limits(), Limits())


@pytest.mark.parametrize(
    ("read", "given", "says"),
    [
        (read_limits, "requests=3", "requests_per_minute"),
        (read_limits, "concurrent=0", "above 0"),
        (read_limits, "concurrent=2.5", "whole number"),
        (read_limits, "concurrent", "cannot be read"),
        (read_limits, {"concurrent": True}, "above 0"),
        (read_budget, "money=nan", "above 0"),
        (read_budget, "tokens=-1", "above 0"),
        (read_budget, "/nowhere/budget.json", "cannot be read"),
        (read_budget, '{"tokens": ', "cannot be read"),
        (read_prices, "input=2", "needs input and output"),
        (read_prices, {"m": {"input": 1, "output": 1}}, "is not named"),
    ],
)
def test_settings_that_make_no_sense(read, given, says):
    with pytest.raises(ValueError, match=says):
        read(given)


def test_a_client_with_a_bad_budget_is_not_made(monkeypatch):
    monkeypatch.setenv("RADVERL_JUDGE_BUDGET", "money=5")
    with pytest.raises(ValueError, match="money needs prices"):
        judge_client("http://127.0.0.1:9/v1", MODEL)
    assert judge_client("http://127.0.0.1:9/v1", MODEL, prices="input=2,output=8").limiter is not None


def test_money():
    assert Prices(2, 8).money(Usage(3, 500_000, 250_000)) == 3.0
    assert (estimate_tokens("no effusion"), estimate_tokens("")) == (4, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"usage": null}', b'{"usage": {"prompt_tokens": 3}}', b"<html>",
        b'{"usage": {"prompt_tokens": NaN, "completion_tokens": 1}}',
        b'{"usage": {"prompt_tokens": -1, "completion_tokens": 1}}',
        b'{"usage": {"prompt_tokens": "3", "completion_tokens": 1}}',
        b'{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_usage_that_makes_no_sense_is_none(body):
    assert read_usage(body) is None


# What a call is counted as


def spent_on(reply, asked=1, **options):
    limiter = LocalLimiter()
    with serve(reply) as server:
        client = client_of(server.url, limiter, **options)
        ask(client, *texts(asked))
    return limiter.ledger.spent, client


def input_estimate():
    text = "".join(m["content"] for m in PROMPT.messages('{"a": "0"}'))
    return estimate_tokens(text)


def test_the_server_s_word_counts():
    spent, client = spent_on(with_usage(700, 30), asked=3)
    assert spent == Usage(3, 2100, 90)
    assert (client.counts["input_tokens"], client.counts["output_tokens"]) == (2100, 90)


def test_without_it_the_estimate_counts():
    spent, _ = spent_on(OK)
    assert spent == Usage(1, input_estimate(), MOST_OUT)


@pytest.mark.parametrize(
    ("reply", "usage"),
    [
        (error(500), (2, 0, 0)),
        (error(429), (2, 0, 0)),
        (error(401), (1, 0, 0)),
        (with_usage(700, 30, answer("no JSON")), (2, 1400, 60)),
        (Reply(body=OK.body, fault="cut"), (2, "estimate", 2 * MOST_OUT)),  # it was answered, and will be charged
        (Reply(fault="hang"), (2, "estimate", 2 * MOST_OUT)),
    ],
)
def test_failed_calls_cost_what_they_may_have_cost(reply, usage):
    spent, _ = spent_on(reply, tries=2, call_timeout=0.3)
    calls, sent, received = usage
    assert spent == Usage(calls, 2 * input_estimate() if sent == "estimate" else sent, received)


def test_a_server_that_is_not_there_costs_no_tokens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    limiter = LocalLimiter()
    assert ask(client_of(url, limiter), *texts(1))[0].cause == "connection"
    assert limiter.ledger.spent == Usage(3, 0, 0)


def test_answers_from_the_cache_cost_nothing(tmp_path):
    path = tmp_path / "c.sqlite"
    with serve(OK) as server:
        ask(client_of(server.url, cache=AnswerCache(path)), *texts(4))
        limiter = LocalLimiter(budget=Budget(calls=1))
        client = client_of(server.url, limiter, cache=AnswerCache(path))
        assert ask(client, *texts(4)) == [GOOD] * 4
    assert limiter.ledger.spent == Usage()
    assert (client.counts["cached"], len(server.requests)) == (4, 4)


def test_the_run_stops_at_the_cap_and_says_so(tmp_path):
    with serve(with_usage(100, 10)) as server:
        settings = {"limits": "concurrent=2", "budget": "money=0.01", "prices": "input=10,output=20"}
        client = judge_client(server.url, MODEL, cache=None, **settings)  # 0.0012 a call
        results = ask(client, *texts(20))
    refused = [r for r in results if isinstance(r, JudgeFailure)]
    assert 0 < len(server.requests) <= 8
    assert len(results) - len(refused) == len(server.requests)
    assert {(f.cause, f.fatal) for f in refused} == {("budget", True)}
    assert client.counts["budget"] == len(refused)
    assert "raise it and start again" in str(refused[0])
    assert budget_reached() == refused[0].detail


def test_retries_count_too():
    limiter = LocalLimiter(budget=Budget(calls=2))
    with serve(error(500)) as server:
        (failure,) = ask(client_of(server.url, limiter, tries=5), *texts(1))
    assert (failure.cause, len(server.requests)) == ("budget", 2)


# Several processes


def ask_the_same(url, path, together, to_parent):
    client = JudgeClient(find_endpoint(url, MODEL, environment={}), cache=AnswerCache(path), first_pause=0.01)
    together.wait(60)
    to_parent.send(ask(client, *texts(4)) == [GOOD] * 4)


def test_equal_questions_of_several_processes_make_one_call(tmp_path):
    path, spawn = tmp_path / "c.sqlite", multiprocessing.get_context("spawn")
    AnswerCache(path).get("")

    def slow(request):
        time.sleep(0.5)
        return OK

    with serve(slow) as server:
        (ours, theirs), together = spawn.Pipe(), spawn.Barrier(3)
        processes = [spawn.Process(target=ask_the_same, args=(server.url, path, together, theirs)) for _ in range(3)]
        for process in processes:
            process.start()
        assert [ours.recv() for _ in processes] == [True] * 3
        for process in processes:
            process.join()
        assert len(server.requests) == 4


def claim_and_stay(path, to_parent):
    to_parent.send(AnswerCache(path).claim("k", seconds=0.5))
    time.sleep(60)


def test_the_claim_of_a_killed_process_ends(tmp_path):
    path, spawn = tmp_path / "c.sqlite", multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=claim_and_stay, args=(path, theirs))
    process.start()
    assert ours.recv()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    cache = AnswerCache(path)
    assert not cache.claim("k")
    time.sleep(0.6)
    assert cache.claim("k")


def test_a_claim_is_renewed_released_and_ends_with_the_answer(tmp_path):
    one, two = AnswerCache(tmp_path / "c.sqlite"), AnswerCache(tmp_path / "c.sqlite")
    assert one.claim("k", seconds=0.0)
    one.renew_claims()
    assert one.claim("k")
    assert not two.claim("k")
    two.release("k")
    assert not two.claim("k")
    one.release("k")
    assert two.claim("k")
    two.put("k", "m", "p", GOOD)
    assert one.claim("k")


def test_a_failed_question_is_asked_by_the_next(tmp_path):
    cache = AnswerCache(tmp_path / "c.sqlite")
    with serve([error(401), OK]) as server:
        (failure,) = ask(client_of(server.url, cache=cache), *texts(1))
        assert failure.cause == "auth"
        assert ask(client_of(server.url, cache=AnswerCache(cache.path)), *texts(1)) == [GOOD]


# A cache on a disk that machines share

MOUNTS = """/dev/sda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/nvme0n1 /home/me/fast\\040disk xfs rw 0 0
scratch /scratch lustre rw,flock 0 0
tmpfs /scratch/tmp tmpfs rw 0 0
me@host: /home/me/far fuse.sshfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/root/c.sqlite", "ext4", False),
        ("/home/me/.cache/radverl/judge.sqlite", "nfs4", True),
        ("/home/me/fast disk/c.sqlite", "xfs", False),
        ("/homes/c.sqlite", "ext4", False),
        ("/scratch/c.sqlite", "lustre", True),
        ("/scratch/tmp/c.sqlite", "tmpfs", False),
        ("/home/me/far/c.sqlite", "fuse.sshfs", True),
    ],
)
def test_where_a_file_lies(tmp_path, path, kind, network):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert (file_system(path, mounts), on_network(path, mounts)) == (kind, network)
    assert not on_network(path, tmp_path / "no list of mounts")


def journal_of(path):
    with contextlib.closing(sqlite3.connect(path)) as other:
        return other.execute("PRAGMA journal_mode").fetchone()[0]


def test_the_journal_follows_the_disk_or_the_user(tmp_path, monkeypatch):
    path = tmp_path / "c.sqlite"
    near = AnswerCache(path)
    near.put("k", "m", "p", GOOD)
    near.close()
    assert journal_of(path) == "wal"
    monkeypatch.setattr("radverl.judge.cache.on_network", lambda path: True)
    far = AnswerCache(path)
    assert far.get("k") == GOOD
    assert journal_of(path) == "delete"
    assert far.claim("k") and AnswerCache(path).claim("k")  # noqa: PT018  everyone may ask
    monkeypatch.setenv("RADVERL_JUDGE_CACHE_JOURNAL", "WAL")
    far.close()
    AnswerCache(path).get("k")
    assert journal_of(path) == "wal"
    with pytest.raises(ValueError, match="auto, wal or delete"):
        AnswerCache(path, journal="off")


def keep_twenty(path, who):
    cache = AnswerCache(path, journal="delete")
    for i in range(20):
        cache.put(f"{who}-{i}", "m", "p", {"fact": f"{who} {i}"})


def test_processes_share_a_cache_without_a_write_ahead_log(tmp_path):
    path, spawn = tmp_path / "c.sqlite", multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=keep_twenty, args=(path, who)) for who in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    cache = AnswerCache(path, journal="delete")
    assert all(cache.get(f"{who}-{i}") == {"fact": f"{who} {i}"} for who in range(2) for i in range(20))
