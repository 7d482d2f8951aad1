"""The judge "openai" of the FactS reward: two questions to a language model per report (arXiv 2509.18600, eqs 13-14).

1. Which atomic facts does the report state?           prompts/extract_facts.v1.md -> {"facts": [...]}
2. What do these facts state about each of 14 labels?  prompts/entail_labels.v1.md -> {label: state}

The second question sees the facts, not the report. An empty report, and one without facts, needs no second question.
Ours: hedged facts have a state of their own in the model's answer, "uncertain", which follows the uncertain policy:
`ones` entails, `zeros` and `ignore` say nothing. So the policy can change without a new question.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from radverl.chexpert import label_report
from radverl.facts import CONTRADICTED, ENTAILED, NOT_MENTIONED, State
from radverl.judge.answers import conforms
from radverl.judge.background import SharedClient, run, run_async, shared_client
from radverl.judge.client import JudgeClient
from radverl.judge.failure import JudgeFailure
from radverl.judge.meter import metering
from radverl.judge.prompt_files import clean_text, load_prompt
from radverl.labels import CHEXPERT_14, NO_FINDING, SUPPORT_DEVICES, UncertainPolicy, check_policy

EXTRACT, ENTAIL = ("extract_facts", 1), ("entail_labels", 1)
MAX_CHARS = 40_000  # of one report; a rollout of 4,096 tokens has about half of it
UNCERTAIN = "uncertain"
FACTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
    "required": ["facts"],
    "additionalProperties": False,
}
STATES_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        label: {"type": "string", "enum": [ENTAILED, UNCERTAIN, CONTRADICTED, NOT_MENTIONED]} for label in CHEXPERT_14
    },
    "required": list(CHEXPERT_14),
    "additionalProperties": False,
}
_STATES_TOKENS = 512  # 14 names and states have some 170
_FINDINGS = tuple(label for label in CHEXPERT_14 if label not in (NO_FINDING, SUPPORT_DEVICES))


class Judgement(dict[str, State]):
    """All 14 labels -> state, with the facts they were read from and what they cost.

    calls: to the server, retries among them. cached: of the two answers, those that took no call of this sample: from
    the cache, or shared with an equal report. tokens: sent and received.
    """

    facts: tuple[str, ...] = ()
    calls = cached = tokens = 0


class OpenAIJudge:
    """Asks a server with OpenAI's interface; implements `radverl.facts.Judge`, with `states_async`.

    All judges of a process with the same settings share one client: its cache, its limits, its calls under way.

    Args:
        uncertain: ones | zeros | ignore.
        settings: as of `radverl.judge.background.shared_client`.
    Raises:
        ValueError: a setting that is not known, or an address that may not have the reports.
    """

    name = "openai"

    def __init__(self, uncertain: UncertainPolicy = "ones", **settings: Any) -> None:
        check_policy(uncertain)
        self.uncertain: UncertainPolicy = uncertain
        self._client: SharedClient = shared_client(settings)

    def states(self, report: str) -> Judgement:
        """All 14 labels -> state of one report; from any thread.

        Raises:
            JudgeFailure: no usable answer.
        """
        return run(self._states(report))

    def states_batch(self, reports: Sequence[str]) -> list[dict[str, State]]:
        """States of many reports, in order, asked about at once; the first failure ends it."""
        return run(self._states_batch(reports))

    async def states_async(self, report: str) -> Judgement:
        """As `states`, for callers in an event loop."""
        return await run_async(self._states(report))

    async def _states_batch(self, reports: Sequence[str]) -> list[dict[str, State]]:
        tasks = [asyncio.ensure_future(self._states(report)) for report in reports]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _states(self, report: str) -> Judgement:
        return await judge_report(report, await self._client.get(), self.uncertain)


async def judge_report(report: str, client: JudgeClient, uncertain: UncertainPolicy = "ones") -> Judgement:
    """The states of one report, by an open client.

    Raises:
        JudgeFailure: as `JudgeClient.ask`; refused where the report is too long to be one; invalid where the model
            finds nothing in a report in which the rules read a finding.
    """
    if len(report) > MAX_CHARS:
        raise JudgeFailure("refused", f"the report has {len(report)} characters; no more than {MAX_CHARS} are sent")
    judgement = Judgement(dict.fromkeys(CHEXPERT_14, NOT_MENTIONED))
    if not clean_text(report):
        return judgement
    with metering() as spent:

        async def ask(prompt: tuple[str, int], data: Any, schema: dict[str, Any], max_tokens: int) -> dict[str, Any]:
            before = spent.calls
            answer = await client.ask(load_prompt(*prompt), data, schema, max_tokens=max_tokens)
            if not conforms(answer, schema):  # a row of the cache that somebody wrote by hand
                raise JudgeFailure("bad_json", "the cached answer has another form; prune the cache")
            judgement.cached += spent.calls == before
            judgement.calls, judgement.tokens = spent.calls, spent.tokens
            return answer

        # Half a token for each character is twice what the facts take; the rest is for braces.
        found = await ask(EXTRACT, {"report": report}, FACTS_SCHEMA, 256 + len(report) // 2)
        judgement.facts = tuple(dict.fromkeys(fact for text in found["facts"] if (fact := clean_text(text))))
        states = dict.fromkeys(CHEXPERT_14, str(NOT_MENTIONED))
        if judgement.facts:
            states = await ask(ENTAIL, {"facts": judgement.facts}, STATES_SCHEMA, _STATES_TOKENS)
    if set(states.values()) == {NOT_MENTIONED} and any(value in (1, -1) for value in label_report(report).values()):
        raise JudgeFailure("invalid", "nothing is mentioned, it says, by a report in which the rules read a finding")
    judgement.update(map_states(states, uncertain))
    return judgement


def map_states(answer: Mapping[str, str], uncertain: UncertainPolicy) -> dict[str, State]:
    """The model's 14 states under a policy. "No Finding" gives way to any finding that is stated or suspected, and is
    never contradicted, since it follows from the others."""
    hedged = ENTAILED if uncertain == "ones" else NOT_MENTIONED
    mapped: dict[str, State] = {
        ENTAILED: ENTAILED, UNCERTAIN: hedged, CONTRADICTED: CONTRADICTED, NOT_MENTIONED: NOT_MENTIONED
    }  # fmt: skip
    states = {label: mapped[answer[label]] for label in CHEXPERT_14}
    if answer[NO_FINDING] != ENTAILED or any(answer[label] in (ENTAILED, UNCERTAIN) for label in _FINDINGS):
        states[NO_FINDING] = NOT_MENTIONED
    return states
