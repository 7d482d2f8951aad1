"""What a judge will cost before it is asked: calls, tokens and money of a run, call by call.

    reports = distinct x (prompts seen x rollouts + validation rows x validations)
    input   = tokens of our prompt around the data + tokens of the data
    output  = answer per report token x report tokens + fixed tokens

Ours: English has 4 characters a token; the facts of a report are 1.4 times as long as it, since each is a sentence of
its own in a JSON array; an edited report is as long as it was; 14 states take 170 tokens. A server may count a few more
for roles and for the JSON schema. Tries that fail, and answers that are in a cache already, are not in the estimate.
"""

from dataclasses import dataclass
from typing import Any

from radverl.judge.budget import Prices, Usage
from radverl.judge.prompt_files import load_prompt

CHARS_PER_TOKEN = 4.0
REPORT_CHARS = 600  # where nothing is known; findings with impression of the usual sets have 400 to 700 in the mean


@dataclass(frozen=True)
class Question:
    """One call per report: the prompt's file, and data and answer in report lengths, the answer with a fixed part."""

    prompt: tuple[str, int]
    data: float
    answer: float
    fixed: int


QUESTIONS: dict[str, tuple[Question, ...]] = {
    "facts": (Question(("extract_facts", 1), 1.0, 1.4, 10), Question(("entail_labels", 1), 1.4, 0.0, 170)),
    "priors": (Question(("remove_priors", 1), 1.0, 1.0, 20),),
}


@dataclass(frozen=True)
class Plan:
    """How many reports a run judges.

    Args:
        prompts: prompts seen in training, each as often as it is seen: rows x epochs, or batch x steps.
        distinct: share of the reports that nobody asked about before, 0 to 1.
        validation: rows x validations; one report each.
    """

    prompts: int
    rollouts: int = 1
    validation: int = 0
    distinct: float = 1.0

    @property
    def reports(self) -> int:
        """Reports to be judged."""
        return self.prompts * self.rollouts + self.validation

    @property
    def asked(self) -> int:
        """Reports that the server is asked about."""
        return round(self.reports * self.distinct)


def estimate(
    plan: Plan, task: str, report_chars: float = REPORT_CHARS, chars_per_token: float = CHARS_PER_TOKEN
) -> dict[str, Usage]:
    """Usage by prompt, as "extract_facts.v1"; tokens are rounded once, for all calls of a prompt together.

    Args:
        task: facts | priors.
    """
    report = report_chars / chars_per_token
    out = {}
    for question in QUESTIONS[task]:
        prompt = load_prompt(*question.prompt)
        around = sum(len(message["content"]) for message in prompt.messages('{"report": ""}')) / chars_per_token
        sent = round(plan.asked * (around + question.data * report))
        answered = round(plan.asked * (question.answer * report + question.fixed))
        out[prompt.name] = Usage(plan.asked, sent, answered)
    return out


def as_record(plan: Plan, usage: dict[str, Usage], prices: Prices | None, **more: Any) -> dict[str, Any]:
    """The estimate as JSON; money is null without prices."""

    def record(used: Usage) -> dict[str, Any]:
        numbers = {"calls": used.calls, "input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
        return numbers | {"money": round(prices.money(used), 6) if prices else None}

    total = sum(usage.values(), Usage())
    asked = {"reports": plan.reports, "distinct_reports": plan.asked}
    return asked | {"questions": {name: record(used) for name, used in usage.items()}} | record(total) | more
