"""Remove references to prior studies from reports by a language model (`--priors llm`), as RadVLM and LLaVA-Rad did.

The model's word is not taken for it: every section must pass `rewrite_checks.problem`. A report that fails, or that the
judge could not be asked about, is given back as its `JudgeFailure`, so that the caller can leave the row out and count
it; it is never replaced by the original or by an empty text.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from radverl.judge.client import JudgeClient
from radverl.judge.failure import JudgeFailure
from radverl.judge.prompt_files import clean_text, load_prompt
from radverl.judge.rewrite_checks import problem

PROMPT = ("remove_priors", 1)
MAX_CHARS = 40_000  # of one report; the longest real ones have some 10,000
GIVE_UP_AFTER = 24  # failures in a row; three rounds of the default concurrency, so the server is gone or unfit

Progress = Callable[[int, int], None]
Rewritten = dict[str, str] | JudgeFailure


def rewrite_all(
    texts: Sequence[dict[str, str]],
    client: JudgeClient,
    *,
    progress: Progress | None = None,
    give_up_after: int = GIVE_UP_AFTER,
) -> list[Rewritten]:
    """Reports without references to prior studies, in the order of `texts`.

    Call it in the parent process, outside any event loop. With a cache in the client, an interrupted run goes on where
    it stopped.

    Args:
        texts: section -> text; blank sections stay as they are.
        client: not yet open.
        progress: called with (reports done, all reports) after each.
        give_up_after: stop when so many reports in a row got no answer at all, whatever the cause.
    Raises:
        JudgeFailure: the server cannot be asked at all: no model, or `give_up_after` or the budget is reached.
    """
    return asyncio.run(_rewrite_all(texts, client, progress, give_up_after))


async def rewrite_one(sections: dict[str, str], client: JudgeClient) -> dict[str, str]:
    """One report without references to prior studies, by an open client.

    Raises:
        JudgeFailure: invalid with the reason of `rewrite_checks.problem`, refused where the report is too long to be
            one, or as `JudgeClient.ask`.
    """
    asked = {name: clean_text(text) for name, text in sections.items() if text.strip()}
    if not asked:
        return dict(sections)
    length = sum(map(len, asked.values()))
    if length > MAX_CHARS:
        raise JudgeFailure("refused", f"the report has {length} characters; no more than {MAX_CHARS} are sent")
    # A token has two characters at least; the rest is for braces and names.
    answer = await client.ask(load_prompt(*PROMPT), {"report": asked}, _schema(asked), max_tokens=128 + length // 2)
    out = {name: " ".join(clean_text(text).split()) for name, text in answer["report"].items()}
    for name, text in asked.items():
        if reason := problem(text, out[name]):
            raise JudgeFailure("invalid", reason)
    return {name: out.get(name, text) for name, text in sections.items()}


def count_failures(results: Sequence[Rewritten]) -> dict[str, int]:
    """How many reports failed, by cause; the invalid ones by reason, as "invalid: lost finding"."""
    failures = (result for result in results if isinstance(result, JudgeFailure))
    counts = Counter(str(failure) if failure.cause == "invalid" else failure.cause for failure in failures)
    return dict(sorted(counts.items()))


async def _rewrite_all(
    texts: Sequence[dict[str, str]], client: JudgeClient, progress: Progress | None, give_up_after: int
) -> list[Rewritten]:
    results: list[Rewritten | None] = [None] * len(texts)
    numbers = iter(range(len(texts)))
    done = failed_in_a_row = 0

    async def work() -> None:
        nonlocal done, failed_in_a_row
        for number in numbers:  # the workers share one iterator
            try:
                result: Rewritten = await rewrite_one(texts[number], client)
            except JudgeFailure as failure:
                result = failure
                if failure.fatal:  # no further report would fare better
                    raise
            results[number] = result
            done += 1
            answered = not isinstance(result, JudgeFailure) or result.cause == "invalid"
            failed_in_a_row = 0 if answered else failed_in_a_row + 1
            if progress is not None:
                progress(done, len(texts))
            if isinstance(result, JudgeFailure) and failed_in_a_row >= give_up_after:
                detail = f"{result.detail}; {failed_in_a_row} reports in a row got no answer"
                raise JudgeFailure(result.cause, f"{detail} from {client.endpoint.url}; see to the server, start again")

    async with client:
        if any(text.strip() for sections in texts for text in sections.values()):
            await client.model_name()
        workers = [asyncio.create_task(work()) for _ in range(min(client.concurrency, len(texts)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    return [result for result in results if result is not None]


def _schema(sections: dict[str, str]) -> dict[str, Any]:
    parts = {name: {"type": "string"} for name in sections}
    report = {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
    return {"type": "object", "properties": {"report": report}, "required": ["report"], "additionalProperties": False}
