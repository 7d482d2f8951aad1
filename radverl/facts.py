"""Atomic facts of a report and what they say about each CheXpert label (FactS, arXiv 2509.18600, eqs 13-14).

A fact is one statement about one label: status, side, place, severity, and the span it was read from. The facts of a
report map every label to one of three states: entailed, contradicted, not_mentioned.

Rules (ours, where the paper is silent):
  - Hedged facts ("may be pneumonia") follow the uncertain policy: `ones` entails; `zeros` and `ignore` say nothing.
  - A label both asserted and denied in the same words ("Effusion. No effusion.") is contradicted. A denial of another
    side, place or kind ("no left effusion", "no acute fracture") does not clash with an assertion.
  - "No Finding" is entailed where no other label but Support Devices is entailed or hedged and the text says something
    about a chest image; it is never contradicted, since it follows from the others.

A `Judge` is anything that maps reports to states; an LLM judge takes the place of `RulesJudge` by the same interface.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from radverl.chexpert.labeller import Evidence, explain, label_report
from radverl.labels import CHEXPERT_14, NO_FINDING, SUPPORT_DEVICES, UncertainPolicy, check_policy

State = Literal["entailed", "contradicted", "not_mentioned"]
ENTAILED: State = "entailed"
CONTRADICTED: State = "contradicted"
NOT_MENTIONED: State = "not_mentioned"

_SIDE = re.compile(r"\b(?:(left)|(right)|(bilateral\w*|both|bibasilar|biapical|bibasal))\b", re.I)
_PLACE = re.compile(
    r"\b(?:upper lobes?|lower lobes?|middle lobe|lingula\w*|ap(?:ex|ices|ical)|bas(?:e|es|al|ilar)|bibasilar"
    r"|retrocardiac|perihilar|hil(?:um|ar)|costophrenic|(?:upper|lower|mid) (?:lung )?zones?|(?:upper|lower|mid) lungs?"
    r"|midlung|ribs?"
    r"|clavic\w+|sternum|vertebra\w*|spine|fissures?|svc|carina|atri\w+|stomach|apical|subpulmonic)\b",
    re.I,
)
_SEVERITY = re.compile(
    r"\b(?:trace|tiny|minimal(?:ly)?|small|mild(?:ly)?|slight(?:ly)?|moderate(?:ly)?|large|severe(?:ly)?|marked(?:ly)?"
    r"|massive|extensive|subtle|borderline)\b",
    re.I,
)
# A denial with one of these denies a kind or size of the finding, not the finding.
_QUALIFIED = re.compile(
    r"\b(?:acute|new|large|significant|displaced|focal|definite|other|additional|overt|frank|lobar|tension|sizable|further"
    r"|gross|discrete|dense|confluent|evident|superimposed|pulmonary|interstitial|moderate|substantial|obvious)\b",
    re.I,
)
# What stands before "and" in "small left and large right effusions", "right upper and lower lobe opacities".
_HEAD = re.compile(
    rf"(?:(?P<severity>{_SEVERITY.pattern})\s+)?(?<!on the )(?<!at the )(?<!in the )\b(?P<side>left|right)"
    r"(?:[- ]sided)?(?:\s+(?P<place>upper|lower|middle|mid|basilar|apical))?\s+and\s*\Z",
    re.I,
)
_AFTER = re.compile(rf"\s+(?:is|are|remains?|appears?)\s+(?:\w+\s+)?(?P<severity>{_SEVERITY.pattern})", re.I)
_NEAR = 48  # characters around a mention in which its side and place are looked for
_CLAUSE_END = re.compile(r"[,;:.]|\b(?:and|but|with|without|no)\b", re.I)


@dataclass(frozen=True)
class Fact:
    """One atomic statement. `sides` is a subset of {"left", "right"}; `span` are offsets in `sentence`."""

    label: str
    status: int  # 1 stated, 0 denied, -1 hedged
    sides: frozenset[str]
    places: frozenset[str]
    severity: str | None
    sentence: str
    span: tuple[int, int]
    cue: str

    def entails(self, label: str, uncertain: UncertainPolicy = "ones") -> State:
        """What this one fact says about `label`; a fact is silent about every label but its own."""
        if label != self.label or (self.status == -1 and uncertain != "ones"):
            return NOT_MENTIONED
        return CONTRADICTED if self.status == 0 else ENTAILED


@runtime_checkable
class Judge(Protocol):
    """Maps reports to label states. Implementations batch inside `states_batch`; failure is raised, never a state.

    An implementation that waits for a server also offers `async def states_async(report) -> dict[str, State]`; callers
    in an event loop use it where present and otherwise run `states` in a thread.
    """

    name: str

    def states(self, report: str) -> dict[str, State]:
        """All 14 labels -> state of one report."""
        ...

    def states_batch(self, reports: Sequence[str]) -> list[dict[str, State]]:
        """States of many reports, in order; len(out) == len(reports)."""
        ...


class RulesJudge:
    """The offline judge: `extract_facts` and `label_states`. Deterministic, about a millisecond a report."""

    name = "rules"

    def __init__(self, uncertain: UncertainPolicy = "ones") -> None:
        check_policy(uncertain)
        self.uncertain: UncertainPolicy = uncertain

    def states(self, report: str) -> dict[str, State]:
        """All 14 labels -> state of one report."""
        return label_states(report, self.uncertain)

    def states_batch(self, reports: Sequence[str]) -> list[dict[str, State]]:
        """States of many reports, in order."""
        return [self.states(report) for report in reports]


def get_judge(
    judge: str | Judge, uncertain: UncertainPolicy = "ones", settings: Mapping[str, Any] | None = None
) -> Judge:
    """The judge of that name, or the one that is given.

    Args:
        judge: "rules", offline; "openai", a language model behind a server (`radverl.judge.facts_judge`);
            "chexbert", the user's checkpoint (`radverl.judge.chexbert`); or an object.
        settings: of a judge by name. openai: url, model, allow_remote, cache, concurrency, ...; chexbert: checkpoint,
            sha256, tokenizer, device (docs/judge.md). rules: none.
    Raises:
        ValueError: any other name, no judge, or a setting that the judge does not have.
    """
    settings = settings or {}
    if not isinstance(settings, Mapping):
        raise ValueError(f"judge_settings is {settings!r:.60}; give names and values, as judge_settings.model=NAME.")
    if judge == "openai":
        from radverl.judge.facts_judge import OpenAIJudge

        return OpenAIJudge(uncertain, **{str(key): value for key, value in settings.items()})
    if judge == "chexbert":
        from radverl.judge.chexbert_judge import CheXbertJudge

        return CheXbertJudge(uncertain, **{str(key): value for key, value in settings.items()})
    if isinstance(judge, str) and judge != "rules":
        raise ValueError(f'judge "{judge}" is unknown; use "rules", "openai" or "chexbert".')
    if settings:
        raise ValueError(
            f'judge_settings are for judge "openai" or "chexbert", and judge is {judge!r:.60}; leave them out.'
        )
    if isinstance(judge, str):
        return RulesJudge(uncertain)
    if not callable(getattr(judge, "states", None)):
        raise ValueError(
            f'judge is {judge!r:.60}; use "rules", "openai", "chexbert" or an object with the Judge interface.'
        )
    return judge


def check_states(answer: Mapping[str, State]) -> Mapping[str, State]:
    """The answer of a judge, if it has a state for each label; what a judge leaves open is not guessed.

    Raises:
        KeyError, ValueError: a label is missing, or its state is none.
    """
    for label in CHEXPERT_14:
        if answer[label] not in get_args(State):
            raise ValueError(f"{label} is {answer[label]!r:.40}, which is no state")
    return answer


def extract_facts(report: str) -> list[Fact]:
    """Atomic facts of a report in reading order (eq. 13); repeated statements appear once."""
    facts: dict[tuple[object, ...], Fact] = {}
    for e in explain(report):
        for fact in _facts(e) if e.label in CHEXPERT_14 else ():
            facts.setdefault((fact.label, fact.status, fact.sides, fact.places, fact.severity, e.text.lower()), fact)
    return list(facts.values())


def label_states(report: str, uncertain: UncertainPolicy = "ones") -> dict[str, State]:
    """All 14 labels -> state of the report (eq. 14); {} never, an empty report mentions nothing."""
    check_policy(uncertain)
    labels = label_report(report)
    clashing = _clashing(extract_facts(report))
    hedged = ENTAILED if uncertain == "ones" else NOT_MENTIONED
    by_value: dict[int | None, State] = {1: ENTAILED, 0: CONTRADICTED, -1: hedged, None: NOT_MENTIONED}
    states = {label: CONTRADICTED if label in clashing else by_value[labels[label]] for label in CHEXPERT_14}
    states[NO_FINDING] = ENTAILED if labels[NO_FINDING] == 1 else NOT_MENTIONED
    return states


def _facts(e: Evidence) -> list[Fact]:
    """The facts of one mention: one, or two where two sides share its noun."""
    left, right = e.sentence[: e.start], e.sentence[e.end :]
    near_left = _CLAUSE_END.split(left[-_NEAR:])[-1]
    near_right = _CLAUSE_END.split(right[:_NEAR])[0]
    near = f"{near_left}{e.text}{near_right}"
    sides: set[str] = set()
    for m in _SIDE.finditer(near):
        sides |= {"left"} if m[1] else {"right"} if m[2] else {"left", "right"}
    places = {m.group().lower() for m in _PLACE.finditer(near)}
    severity = _SEVERITY.search(f"{near_left}{e.text}")
    after = _AFTER.match(right)
    grade = severity.group().lower() if severity else after["severity"].lower() if after else None
    head = _HEAD.search(left[-2 * _NEAR :].removesuffix(near_left))

    def fact(sides: set[str], places: set[str], severity: str | None) -> Fact:
        span = (e.start, e.end)
        return Fact(e.label, e.status, frozenset(sides), frozenset(places), severity, e.sentence, span, e.cue)

    if head is None or not (sides or head["place"]):
        return [fact(sides, places, grade)]
    other, place = {head["side"].lower()}, head["place"]
    before = head["severity"].lower() if head["severity"] else None
    return [
        fact(other, {f"{place.lower()} lobe"} if place else places, before),
        fact(sides or other, places, grade or before),
    ]


def _clashing(facts: list[Fact]) -> set[str]:
    """Labels that are stated and plainly denied by the same noun, for the same side and place."""
    findings = [f for f in facts if f.label != SUPPORT_DEVICES]  # one tube is out, another is in
    stated = {_claim(f) for f in findings if f.status == 1}
    denied = {_claim(f) for f in findings if f.status == 0 and not _is_qualified(f)}
    return {label for label, *_ in stated & denied}


def _claim(fact: Fact) -> tuple[str, str, frozenset[str], frozenset[str]]:
    noun = fact.sentence[slice(*fact.span)].lower().split()[-1].rstrip("s")
    return fact.label, noun, fact.sides, fact.places


def _is_qualified(fact: Fact) -> bool:
    start, end = fact.span
    return _QUALIFIED.search(fact.sentence[max(0, start - 30) : end]) is not None
