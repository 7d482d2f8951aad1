"""Time the judge takes beside its server: goals 1.25 x the ideal wall time, 0.2 ms for an answer in the cache.

    python -m benchmarks.judge [--samples 512] [--repeats 3]

    ideal = calls x latency / slots

The server runs in a process of its own, answers after 200 ms and works on 32 calls at once; others wait there. All
samples differ and are asked for at once, through the cache as in a run, with a limiter whose limits are never met; then
once more, when every answer is in the cache, one after the other. First the client alone, one call a sample; then the
judge of FactS, two calls a sample.
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.result import write
from benchmarks.sections import make_reports
from radverl.labels import CHEXPERT_14

GOAL_RATIO = 1.25
GOAL_CACHED_SECONDS = 0.0002
LATENCY, SLOTS = 0.2, 32
CONCURRENCY = 40  # a few more than the server takes: they wait there, so it never waits for us
SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
    "required": ["facts"],
    "additionalProperties": False,
}
FACTS = ["The heart is normal in size.", "There is a small left pleural effusion."] * 4


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; exit 0 if both goals hold, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3, help="the fastest of so many passes counts")
    args = parser.parse_args(argv)
    reports = [report for report, _ in make_reports(args.samples)]
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    server = spawn.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{ours.recv()}/v1"
        passes = [_pass(url, reports) for _ in range(args.repeats)]
        judged = [_judge_pass(url, reports) for _ in range(args.repeats)]
    finally:
        server.terminate()
        server.join()
    held = [_report("judge", passes, args.samples, 1), _report("judge_facts", judged, args.samples, 2)]
    return 0 if all(held) else 1


def _report(name: str, passes: list[tuple[float, float]], samples: int, calls: int) -> bool:
    """Write both results of the fastest pass; whether their goals hold."""
    asked, cached = (min(seconds) for seconds in zip(*passes, strict=True))
    ideal, each = samples * calls * LATENCY / SLOTS, cached / samples
    detail: dict[str, Any] = {"wall_seconds": round(asked, 3), "ideal_seconds": round(ideal, 3)}
    detail |= {"calls": samples * calls, "slots": SLOTS}
    holds = write(name, asked / ideal, GOAL_RATIO, detail, f"{asked:.2f} s, ideal {ideal:.2f} s")
    detail = {"cached_ms": round(each * 1e3, 4), "goal_ms": GOAL_CACHED_SECONDS * 1e3}
    text = f"{each * 1e3:.3f} ms, goal {GOAL_CACHED_SECONDS * 1e3:g} ms"
    return write(f"{name}_cached", each / GOAL_CACHED_SECONDS, 1.0, detail, text) and holds


def _judge_pass(url: str, reports: list[str]) -> tuple[float, float]:
    """As `_pass`, for all answers of the judge of FactS."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_judge_seconds(url, Path(folder) / "judge.sqlite", reports))


async def _judge_seconds(url: str, path: Path, reports: list[str]) -> tuple[float, float]:
    from radverl.judge import AnswerCache, JudgeClient, find_endpoint
    from radverl.judge.facts_judge import judge_report

    async with JudgeClient(find_endpoint(url, "bench"), concurrency=CONCURRENCY, cache=AnswerCache(path)) as client:
        await judge_report("The first call opens what later ones use. Small effusion.", client)
        start = time.perf_counter()
        await asyncio.gather(*(judge_report(report, client) for report in reports))
        asked, calls = time.perf_counter() - start, client.counts["calls"] - 2
        start = time.perf_counter()
        for report in reports:
            await judge_report(report, client)
        cached = time.perf_counter() - start
        if (calls, client.counts["calls"] - 2) != (2 * len(reports), calls):
            raise RuntimeError(f"judge benchmark: {calls} calls for {len(reports)} reports; expected two each.")
        return asked, cached


def _pass(url: str, reports: list[str]) -> tuple[float, float]:
    """Seconds for all reports, then for all of them again."""
    with tempfile.TemporaryDirectory() as folder:
        asked, calls = asyncio.run(_seconds(url, Path(folder) / "judge.sqlite", reports, at_once=True))
        cached, none = asyncio.run(_seconds(url, Path(folder) / "judge.sqlite", reports, at_once=False))
    if (calls, none) != (len(reports), 0):
        raise RuntimeError(f"judge benchmark: {calls} calls for {len(reports)} samples, then {none}; expected 0 more.")
    return asked, cached


async def _seconds(url: str, path: Path, reports: list[str], at_once: bool) -> tuple[float, int]:
    """Seconds for all reports by an open client, and the calls it made."""
    from radverl.judge import AnswerCache, JudgeClient, find_endpoint
    from radverl.judge.budget import Budget, Limits
    from radverl.judge.limiter import LocalLimiter
    from radverl.judge.prompt_files import load_prompt

    prompt = load_prompt("remove_priors", 1)
    settings = {"cache": AnswerCache(path), "limiter": LocalLimiter(Limits(10**6, 10**6, 10**9), Budget(10**6))}
    async with JudgeClient(find_endpoint(url, "bench"), concurrency=CONCURRENCY, **settings) as client:
        await client.ask(prompt, {"report": "the first call opens what later ones use"}, SCHEMA)
        before = client.counts["calls"]
        start = time.perf_counter()
        if at_once:
            await asyncio.gather(*(client.ask(prompt, {"report": report}, SCHEMA) for report in reports))
        else:
            for report in reports:
                await client.ask(prompt, {"report": report}, SCHEMA)
        return time.perf_counter() - start, client.counts["calls"] - before


def _serve(to_parent: Connection) -> None:
    asyncio.run(_answer_all(to_parent))


async def _answer_all(to_parent: Connection) -> None:
    slots = asyncio.Semaphore(SLOTS)
    numbers = itertools.count()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request: Any = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            fields = dict(line.lower().split(b": ", 1) for line in request.split(b"\r\n")[1:] if line)
            asked = await reader.readexactly(int(fields[b"content-length"]))
            async with slots:
                await asyncio.sleep(LATENCY)
            states = dict.fromkeys(CHEXPERT_14, "entailed") if b"not_mentioned" in asked else None
            # Facts that differ: equal ones would be asked about once.
            writer.write(_answer(states or {"facts": [*FACTS, f"The film has the number {next(numbers)}."]}))

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    to_parent.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _answer(content: dict[str, Any]) -> bytes:
    message = {"role": "assistant", "content": json.dumps(content)}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 700, "completion_tokens": 90, "total_tokens": 790}
    body = json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return head + body


if __name__ == "__main__":
    sys.exit(main())
