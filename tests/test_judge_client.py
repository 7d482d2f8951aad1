"""The judge's client against a real HTTP server that fails in every way we know of."""

import asyncio
import json
import logging
import multiprocessing
import pickle
import resource
import socket
import sqlite3
import stat
import threading
import time
from datetime import UTC, datetime

import pytest

from radverl.judge import AnswerCache, JudgeClient, JudgeFailure, find_endpoint
from radverl.judge.answers import find_object
from radverl.judge.cache import cache_key
from radverl.judge.endpoint import is_local
from radverl.judge.prompt_files import load_prompt
from radverl.judge.transport import retry_after
from tests.judge_server import MODEL, Reply, Request, answer, error, serve

pytest.importorskip("openai")

PROMPT = load_prompt("remove_priors", 1)
SCHEMA = {"type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]}
GOOD = {"fact": "No effusion."}
OK = answer(GOOD)
DATA = {"report": "No effusion."}
KEY = "sk-very-secret-0123456789"
QUICK = {"call_timeout": 5.0, "deadline": 10.0, "tries": 3, "first_pause": 0.01}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("RADVERL_JUDGE_URL", "RADVERL_JUDGE_MODEL", "RADVERL_JUDGE_API_KEY", "RADVERL_JUDGE_CACHE"):
        monkeypatch.delenv(name, raising=False)


def client_of(url, model=MODEL, **options):
    return JudgeClient(find_endpoint(url, model), **(QUICK | options))


def ask(client, *data):
    """The answers, or failures, to all `data` asked at once."""

    async def all_of_them():
        async with client:
            return await asyncio.gather(*(client.ask(PROMPT, d, SCHEMA) for d in data), return_exceptions=True)

    return asyncio.run(all_of_them())


def failure_of(url, **options):
    (failure,) = ask(client_of(url, **options), DATA)
    assert isinstance(failure, JudgeFailure), failure
    return failure


# One call


def test_an_answer_and_what_was_sent_for_it():
    with serve(OK) as server:
        assert ask(client_of(server.url), DATA) == [GOOD]
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert (request.body["model"], request.body["temperature"]) == (MODEL, 0.0)
    assert request.body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert json.loads(request.data_line) == DATA


def test_the_only_model_of_the_server_is_found_once():
    with serve(OK) as server:
        assert ask(client_of(server.url, model=None), {"a": "1"}, {"a": "2"}) == [GOOD, GOOD]
    assert (server.model_requests, {r.body["model"] for r in server.requests}) == (1, {MODEL})


@pytest.mark.parametrize("models", [(), ("one", "two")])
def test_no_model_is_guessed(models):
    with serve(OK, models=models) as server:
        failure = failure_of(server.url, model=None)
    assert failure.cause == "refused"
    assert "RADVERL_JUDGE_MODEL" in str(failure)
    assert server.requests == []


def test_a_closed_client_says_how_to_open_it():
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(client_of("http://127.0.0.1:9/v1").ask(PROMPT, DATA, SCHEMA))


# Trying again


@pytest.mark.parametrize(
    "bad",
    [
        error(500), error(502), error(503), error(429), error(408), Reply(fault="reset"),
        Reply(body=OK.body, fault="cut"), answer("I think"),
        Reply(body=b"<html>busy</html>", headers={"Content-Type": "text/html"}),
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_again(bad):
    with serve([bad, OK]) as server:
        client = client_of(server.url)
        assert ask(client, DATA) == [GOOD]
    assert len(server.requests) == 2
    assert (client.counts["calls"], client.counts["retries"]) == (2, 1)


@pytest.mark.parametrize(
    ("bad", "cause", "calls"),
    [
        (error(500), "server_error", 3),
        (error(429), "rate_limit", 3),
        (error(429, code="insufficient_quota"), "rate_limit", 1),
        (error(429, headers={"Retry-After": "3600"}), "rate_limit", 1),
        (error(401), "auth", 1),
        (error(403), "auth", 1),
        (error(404), "refused", 1),
        (error(400), "refused", 2),  # the second without the schema, which may have been the reason
        (answer("", finish="content_filter"), "refused", 1),
        (answer(None, refusal="I cannot help with that."), "refused", 1),
        (Reply(fault="reset"), "connection", 3),
        (Reply(body=OK.body, fault="cut"), "connection", 3),
    ],
)
def test_failures_have_a_cause_and_end(bad, cause, calls):
    with serve(bad) as server:
        client = client_of(server.url)
        (failure,) = ask(client, DATA)
    assert (failure.cause, len(server.requests)) == (cause, calls)
    assert client.counts[cause] == 1


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_server_that_takes_for_ever_is_left(fault):
    with serve(Reply(body=OK.body, fault=fault)) as server:
        failure = failure_of(server.url, call_timeout=0.3, tries=2)
    assert (failure.cause, len(server.requests)) == ("timeout", 2)


def test_the_deadline_ends_all_tries():
    with serve(error(500)) as server:
        failure = failure_of(server.url, deadline=0.3, tries=10_000)
    assert failure.cause == "server_error"
    assert 1 < len(server.requests) < 1000


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    failure = failure_of(f"http://127.0.0.1:{port}/v1")
    assert (failure.cause, f":{port}" in str(failure)) == ("connection", True)


def test_a_server_that_restarts_is_found_again():
    with serve(OK) as server:
        port = server.server_address[1]
    later = []

    def restart():
        time.sleep(0.3)
        with serve(OK, port=port) as second:
            later.append(second)
            over.wait(20)

    over = threading.Event()
    thread = threading.Thread(target=restart)
    thread.start()
    assert ask(client_of(server.url, tries=100, first_pause=0.05), DATA) == [GOOD]
    over.set()
    thread.join()
    assert len(later[0].requests) == 1


def test_retry_after_holds_for_all_calls():
    opens = []

    def limited(request: Request) -> Reply:
        opens.append(time.monotonic() + 1.0) if not opens else None
        return OK if time.monotonic() >= opens[0] else error(429, headers={"Retry-After": "1"})

    with serve(limited) as server:
        client = client_of(server.url, concurrency=1)
        assert ask(client, *({"a": str(i)} for i in range(4))) == [GOOD] * 4
    assert (len(server.requests), client.counts["retries"]) == (5, 1)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("nan", None), ("inf", None), ("soon", None), ("", None), (None, None),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0), ("Wed, 21 Oct 2026 07:28:30 -0000", 30.0),
        ("Tue, 20 Oct 2026 07:28:00 GMT", 0.0),
    ],
)  # fmt: skip
def test_retry_after_in_seconds_or_as_a_date(header, seconds):
    assert retry_after(header, datetime(2026, 10, 21, 7, 28, tzinfo=UTC)) == seconds


def test_calls_at_once_are_bounded():
    def slow(request: Request) -> Reply:
        time.sleep(0.05)
        return OK

    with serve(slow) as server:
        assert ask(client_of(server.url, concurrency=3), *({"a": str(i)} for i in range(12))) == [GOOD] * 12
    assert server.most_under_way == 3


# The form of the answer


@pytest.mark.parametrize(
    "bad",
    [
        Reply(body=b"<html>Sign in</html>", headers={"Content-Type": "text/html"}),
        Reply(body=OK.body[:-9]),
        Reply(body=b""),
        Reply(body=b"[]"),
        Reply(body=b'{"choices": []}'),
        Reply(body=b'{"choices": [{"message": null}]}'),
        Reply(body=b"[" * 100_000),
        answer(None),
        answer("   "),
        answer('{"fact": "No eff', finish="length"),
        answer({"fakt": "No effusion."}),
        answer({"fact": 1}),
        answer({"fact": "a", "more": "b"}),
        answer('{"fact": NaN}'),
        answer('{"fact": "\\ud83d"}'),
        answer('{"fact": "a"} or rather {"fact": "b"}'),
        answer({"fact": "a" * 300_000}),
        answer('{"a":' * 60_000),
        Reply(body=b"x" * 2_500_000),
    ],
)
def test_no_answer_is_made_up(bad):
    with serve(bad) as server:
        failure = failure_of(server.url)
    assert (failure.cause, len(server.requests)) == ("bad_json", 2)


@pytest.mark.parametrize(
    "content",
    [
        '{"fact": "No effusion."}',
        '```json\n{"fact": "No effusion."}\n```',
        'Sure! Here it is:\n{"fact": "No effusion."}\nIs there anything else?',
        '<think>{"fact": "Effusion."} no, wait</think>{"fact": "No effusion."}',
        'reasoning without its opening tag {"fact": "x"}</think>\n{"fact": "No effusion."}',
        '{"answer": {"fact": "No effusion."}}',
        '{"note": "{x}"} {"fact": "No effusion."}',
        '{"fact": "No effusion."} I repeat: {"fact": "No effusion."}',
    ],
)
def test_the_object_is_found_in_what_models_say(content):
    assert find_object(content, SCHEMA) == GOOD


def test_a_server_without_constrained_output_is_asked_plainly_from_then_on():
    def old(request: Request) -> Reply:
        return error(400, "json_schema is not supported") if "response_format" in request.body else OK

    with serve(old) as server:
        client = client_of(server.url, concurrency=1)
        assert ask(client, {"a": "1"}, {"a": "2"}) == [GOOD, GOOD]
    assert ["response_format" in r.body for r in server.requests] == [True, False, False]


def test_a_refused_text_does_not_cost_the_schema():
    with serve([error(400, "too long"), error(400, "too long"), OK]) as server:
        first, second = ask(client_of(server.url, concurrency=1), {"a": "1"}, {"a": "2"})
    assert (first.cause, second) == ("refused", GOOD)
    assert "response_format" in server.requests[2].body


def test_a_setting_the_model_does_not_know_is_left_out():
    def picky(request: Request) -> Reply:
        if "max_tokens" in request.body:
            return error(400, code="unsupported_parameter", param="max_tokens")
        return error(400, code="unsupported_value", param="temperature") if "temperature" in request.body else OK

    with serve(picky) as server:
        assert ask(client_of(server.url), DATA) == [GOOD]
    assert server.requests[2].body["max_completion_tokens"] == 1024


# Once is enough


def test_equal_texts_make_one_call():
    def slow(request: Request) -> Reply:
        time.sleep(0.1)
        return OK

    texts = ["No effusion.", "No  effusion.", " No effusion. ", "No effusion.\u200b"] * 2
    with serve(slow) as server:
        client = client_of(server.url)
        answers = ask(client, *({"report": text} for text in texts))
    assert answers == [GOOD] * 8
    assert (len(server.requests), client.counts["shared"]) == (1, 7)
    assert len({id(a) for a in answers}) == 8  # each may change its own


def test_a_shared_failure_reaches_all():
    with serve(error(401)) as server:
        assert [f.cause for f in ask(client_of(server.url), DATA, DATA, DATA)] == ["auth"] * 3
    assert len(server.requests) == 1


def test_who_gives_up_does_not_take_the_answer_from_the_others():
    def slow(request: Request) -> Reply:
        time.sleep(0.3)
        return OK

    async def two():
        async with client_of(server.url) as client:
            first = asyncio.create_task(client.ask(PROMPT, DATA, SCHEMA))
            second = asyncio.create_task(client.ask(PROMPT, DATA, SCHEMA))
            await asyncio.sleep(0.1)
            first.cancel()
            return await second

    with serve(slow) as server:
        assert asyncio.run(two()) == GOOD
    assert len(server.requests) == 1


def test_a_warm_replay_makes_no_call(tmp_path):
    path = tmp_path / "new" / "judge.sqlite"
    texts = [{"a": str(i)} for i in range(5)]
    with serve(OK) as server:
        ask(client_of(server.url, cache=AnswerCache(path)), *texts)
        assert len(server.requests) == 5
    client = client_of(server.url, cache=AnswerCache(path))  # the server is gone
    assert ask(client, *texts) == [GOOD] * 5
    assert (client.counts["cached"], client.counts["calls"]) == (5, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_holds_all_that_may_change_an_answer():
    base = ["m", "p.v1", "d1", SCHEMA, "text"]
    other = ["n", "p.v2", "d2", {"type": "object"}, "Text"]
    keys = {cache_key(*base)} | {cache_key(*[*base[:i], other[i], *base[i + 1 :]]) for i in range(5)}
    assert len(keys) == 6


def test_failures_are_not_kept(tmp_path):
    cache = AnswerCache(tmp_path / "c.sqlite")
    with serve([answer("?"), answer("?"), OK]) as server:
        assert ask(client_of(server.url, cache=cache), DATA)[0].cause == "bad_json"
        assert ask(client_of(server.url, cache=cache), DATA) == [GOOD]


def asked_with(path, caplog, texts=6):
    with serve(OK) as server:
        assert ask(client_of(server.url, cache=AnswerCache(path)), *({"a": str(i)} for i in range(texts))) == (
            [GOOD] * texts
        )
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    return len(server.requests), [r.getMessage() for r in warnings]


def test_a_cache_that_is_no_cache_costs_calls_and_one_warning(tmp_path, caplog):
    path = tmp_path / "c.sqlite"
    path.write_bytes(b"this is not a database" * 500)
    calls, warnings = asked_with(path, caplog)
    assert (calls, len(warnings)) == (6, 1)
    assert str(path) in warnings[0]
    assert path.read_bytes()[:4] == b"this"


def test_a_damaged_page_costs_calls_and_one_warning(tmp_path, caplog):
    path = tmp_path / "c.sqlite"
    cache = AnswerCache(path)
    for i in range(200):
        cache.put(f"{i:064}", "m", "p", {"fact": "x" * 500})
    cache.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    calls, warnings = asked_with(path, caplog)
    assert (calls, len(warnings)) == (6, 1)


@pytest.mark.parametrize("place", ["/proc/nowhere/c.sqlite", "file/c.sqlite", "."])
def test_a_place_that_cannot_be_written_costs_calls_and_one_warning(tmp_path, caplog, place):
    (tmp_path / "file").write_text("")
    calls, warnings = asked_with(tmp_path / place, caplog)
    assert (calls, len(warnings)) == (6, 1)


def test_a_read_only_file_still_answers(tmp_path, caplog):
    path = tmp_path / "c.sqlite"
    assert asked_with(path, caplog) == (6, [])
    folder = path.parent
    path.chmod(0o400)
    folder.chmod(0o500)
    try:
        calls, _ = asked_with(path, caplog)
    finally:
        folder.chmod(0o700)
    assert calls in (0, 6)  # 6 where SQLite may not make its shared-memory file


def test_a_full_disk_keeps_what_is_there(tmp_path, caplog):
    path = tmp_path / "c.sqlite"
    assert asked_with(path, caplog, texts=3) == (3, [])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64_000, hard))  # room for SQLite's shared memory, not for `big`
    try:
        cache = AnswerCache(path)
        big = {"fact": "x" * 100_000}
        for i in range(3):
            cache.put(f"{i}", "m", "p", big)
        client = client_of("http://127.0.0.1:9/v1", cache=cache)
        assert ask(client, {"a": "0"}, {"a": "1"}, {"a": "2"}) == [GOOD] * 3
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_a_row_from_elsewhere_is_replaced(tmp_path, caplog):
    path = tmp_path / "c.sqlite"
    asked_with(path, caplog, texts=1)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE answers SET answer = '{\"fact'")
    assert asked_with(path, caplog, texts=1) == (1, [])
    assert asked_with(path, caplog, texts=1) == (0, [])


def keep_fifty(path, who):
    cache = AnswerCache(path)
    for i in range(50):
        cache.put(f"{who}-{i}", "m", "p", {"fact": f"{who} {i}"})


def test_processes_share_a_cache(tmp_path):
    path = tmp_path / "c.sqlite"
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=keep_fifty, args=(path, who)) for who in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    cache = AnswerCache(path)
    assert all(cache.get(f"{who}-{i}") == {"fact": f"{who} {i}"} for who in range(3) for i in range(50))
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# Where reports may go

PUBLIC = ["8.8.8.8", "16843009", "0x08080808", "[2606:4700::1111]", "[::ffff:8.8.8.8]", "[2002:808:808::1]",
          "203.0.113.5", "100.64.0.1", "198.18.0.1", "172.32.0.1", "[64:ff9b::808:808]"]  # fmt: skip
PRIVATE = ["localhost", "127.0.0.1", "127.1", "10.1.2.3", "172.31.9.9", "192.168.0.7", "[::1]", "[fd00::5]", "0.0.0.0",
           "[::ffff:10.0.0.1]"]  # fmt: skip


@pytest.mark.parametrize("host", PUBLIC)
def test_a_remote_server_needs_the_opt_in(host):
    url = f"http://{host}:8000/v1"
    with pytest.raises(ValueError, match=r"report text must not leave the site.*--judge-remote-ok"):
        find_endpoint(url)
    assert find_endpoint(url, allow_remote=True).local is False


@pytest.mark.parametrize("host", PRIVATE)
def test_a_local_server_needs_none(host):
    try:
        endpoint = find_endpoint(f"http://{host}:8000/v1/")
    except ValueError as error:  # a machine without IPv6
        if not host.startswith("[") or "no address" not in str(error):
            raise
        return
    assert endpoint.local
    assert endpoint.url.endswith(":8000/v1")


def test_the_opt_in_does_not_make_a_local_server_remote():
    assert find_endpoint("http://127.0.0.1:8000/v1", allow_remote=True).local


@pytest.mark.parametrize(
    ("addresses", "local"),
    [
        (["10.0.0.5"], True),
        (["10.0.0.5", "93.184.216.34"], False),
        (["fe80::1%eth0"], True),
        (["fd00::1", "::1"], True),
    ],
)
def test_every_address_of_a_name_counts(monkeypatch, addresses, local):
    found = [(0, 0, 0, "", (address, 80)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert find_endpoint("http://judge.example/v1", allow_remote=True).local is local
    assert all(is_local(a) for a in addresses) is local


def test_a_name_without_address(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ValueError, match=r"has no address.*RADVERL_JUDGE_URL"):
        find_endpoint("http://judge.example/v1")
    assert not find_endpoint("http://judge.example/v1", allow_remote=True).local  # a proxy may know it


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000/v1", "ftp://localhost/v1", "http://", "http:///v1", "http://localhost:x/v1", "http://[::1/v1",
        "http://localhost/v1?key=hunter2", "http://user:hunter2@localhost/v1", "http://localhost\\@8.8.8.8/v1",
        "http://localhost#@8.8.8.8/v1", "http://local\nhost/v1", "http://lоcalhost/v1", "http://8.8.8.8@localhost/v1",
        "http://localhost/@8.8.8.8",
    ],
)  # fmt: skip
def test_a_strange_address_is_refused_without_quoting_secrets(url):
    with pytest.raises(ValueError, match="judge") as caught:
        find_endpoint(url, allow_remote=True)
    assert "hunter2" not in str(caught.value)


def test_settings_come_from_arguments_then_from_the_environment():
    found = find_endpoint(environment={})
    assert (found.url, found.model, found.key) == ("http://localhost:8000/v1", None, "EMPTY")
    set_ = {"RADVERL_JUDGE_URL": "http://127.0.0.1:1/v1", "RADVERL_JUDGE_MODEL": "m", "RADVERL_JUDGE_API_KEY": KEY}
    found = find_endpoint(environment=set_)
    assert (found.url, found.model, found.key) == ("http://127.0.0.1:1/v1", "m", KEY)
    found = find_endpoint("http://127.0.0.1:2/v1", "n", environment=set_)
    assert (found.url, found.model, found.key) == ("http://127.0.0.1:2/v1", "n", KEY)


@pytest.mark.parametrize("key", [f"{KEY}\nX-More: 1", f"{KEY} x", f"{KEY}é"])
def test_a_key_that_no_header_can_carry(key):
    with pytest.raises(ValueError, match="RADVERL_JUDGE_API_KEY") as caught:
        find_endpoint(environment={"RADVERL_JUDGE_API_KEY": key})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status):
    with serve(OK) as elsewhere:
        for target in (f"{elsewhere.url}/chat/completions", "https://judge.example/v1/chat/completions"):
            with serve(Reply(status, headers={"Location": target})) as server:
                failure = failure_of(server.url)
            assert (failure.cause, "redirect" in str(failure), len(server.requests)) == ("refused", True, 1)
    assert (elsewhere.requests, elsewhere.model_requests) == ([], 0)


def test_no_proxy_stands_between_us_and_a_local_server(monkeypatch):
    with serve(OK) as proxy, serve(OK) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
            monkeypatch.setenv(name.lower(), proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert ask(client_of(server.url, model=None), DATA) == [GOOD]
    assert (proxy.requests, proxy.model_requests) == ([], 0)


def test_nothing_of_another_service_is_sent(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, f"other-secret-{name}")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://judge.example/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Other: other-secret\nAuthorization: Bearer other-secret")
    with serve(OK) as server:
        assert ask(client_of(server.url), DATA) == [GOOD]
    (request,) = server.requests
    assert "other-secret" not in str(request.headers)
    assert request.headers["authorization"] == "Bearer EMPTY"


def test_the_key_is_sent_and_shows_up_nowhere_else(monkeypatch, tmp_path, caplog, capfd):
    monkeypatch.setenv("RADVERL_JUDGE_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "c.sqlite"

    def parrot(request: Request) -> Reply:
        case = json.loads(request.data_line)["a"]
        said = f"bad header: {request.headers['authorization']} and {KEY[:30]}"
        return {"400": error(400, said), "401": error(401, said), "500": error(500, said), "text": answer(said),
                "html": Reply(body=said.encode()), "ok": OK}[case]  # fmt: skip

    with serve(parrot) as server:
        client = client_of(server.url, cache=AnswerCache(path))
        results = ask(client, *({"a": case} for case in ("400", "401", "500", "text", "html", "ok")))
    assert {r.headers["authorization"] for r in server.requests} == {f"Bearer {KEY}"}
    assert [getattr(r, "cause", r) for r in results] == (
        ["refused", "auth", "server_error", "bad_json", "bad_json", GOOD]
    )
    shown = " ".join(map(repr, [*results, *map(str, results), client, client.endpoint, vars(client)]))
    chained = [r.__cause__ for r in results if isinstance(r, JudgeFailure)]
    assert chained == [None] * 5
    logged = caplog.text + "".join(capfd.readouterr())
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert (KEY in shown, KEY in logged, KEY.encode() in stored) == (False, False, False)
    assert b"No effusion." in stored


def test_a_failure_passes_between_processes():
    failure = JudgeFailure("rate_limit", "HTTP 429", again=True, wait=2.0, status=429)
    copied = pickle.loads(pickle.dumps(failure))
    assert (str(copied), copied.cause, copied.wait) == ("rate_limit: HTTP 429", "rate_limit", 2.0)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"tries": 0}, {"deadline": 0}, {"call_timeout": -1}])
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="judge:"):
        client_of("http://127.0.0.1:9/v1", **wrong)


@pytest.mark.parametrize("word", ["false", "true", 1, None])
def test_the_opt_in_is_no_word(word):
    with pytest.raises(ValueError, match=r"allow_remote is .*; give true or false"):
        find_endpoint("http://8.8.8.8/v1", allow_remote=word)


def test_a_message_that_quotes_what_was_sent_is_not_passed_on():
    told = ("context length exceeded", "input: {messages}")

    def refuse(request):
        return error(422, told[1].format(messages=request.user[-300:]) if "Doe" in request.user else told[0])

    with serve(refuse) as server:
        long, quoted = ask(client_of(server.url, tries=1), DATA, {"report": "Ms. Doe has a small left effusion."})
    assert "Doe" not in quoted.detail
    assert "effusion" not in quoted.detail
    assert "quotes what was sent" in quoted.detail
    assert told[0] in long.detail


def test_a_key_is_not_shown_in_part_where_a_message_is_cut(monkeypatch):
    monkeypatch.setenv("RADVERL_JUDGE_API_KEY", KEY)
    with serve(lambda _: error(500, "x" * 150 + " " + KEY)) as server:
        detail = failure_of(server.url, tries=1).detail
    assert "xxx" in detail
    assert KEY[:5] not in detail
