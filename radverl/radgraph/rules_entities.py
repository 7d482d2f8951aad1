"""The candidates for entities in a sentence: words of `rules.json` and what the labeller's lexicon finds, with status.

An item is a span of tokens and of characters with a role. Which descriptors modify and which stand alone, and what is
located where, is decided in `rules_relations`.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from radverl.chexpert.labeller import Mention, read_sentence
from radverl.chexpert.lexicon import Lexicon, load, prepare
from radverl.chexpert.scope import ABSENT, PRESENT, UNCERTAIN, Cue, find_cues, judge

FINDING, DESCRIPTOR, PREDICATE, NORMAL, TIP = "finding", "descriptor", "predicate", "normal", "tip"
STRUCTURE, PART, PLACE = "structure", "part", "place"
ANATOMY = (STRUCTURE, PART, PLACE)
_STATUS = {PRESENT: "definitely present", ABSENT: "definitely absent", UNCERTAIN: "uncertain"}
_MEASURE = r"\d+(?: ?\. ?\d+)?(?: ?(?:x|by) ?\d+(?: ?\. ?\d+)?){0,2} ?(?:mm|cm)\b(?: (?:above|below))?"
_HEADER = re.compile(
    r"[\W_]*(?:findings?|impressions?|conclusions?|findings and impression|opinion)[*_ ]*(?::|$)", re.I
)
_NOT_NORMAL = re.compile(r"\b(?:not|no longer|n't|never)(?: \w+)? $")
_DOUBTED_NORMAL = re.compile(r"\b(?:probably|likely|possibly|may be|might be|could be|presumably) $")
_NO_CHANGE = ("no ", "without ", "not ")
_FUNCTION = re.compile(r"(?:the|an?|of|in|on|at|to|and|or|with|is|are|no|for|from|by)")


@dataclass(slots=True, eq=False)
class Item:
    """A span of a sentence that is or may become an entity."""

    first: int  # token
    last: int
    start: int  # character
    end: int
    role: str
    status: int | None = PRESENT  # None: said of the past, of another image or asked
    relations: list[tuple[str, "Item"]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """RadGraph's name of the entity's kind."""
        if self.role in ANATOMY:
            return "Anatomy::definitely present"
        return f"Observation::{_STATUS[PRESENT if self.status is None else self.status]}"

    @property
    def observed(self) -> bool:
        """Whether it can be modified and located: a finding, not a descriptor."""
        return self.role in (FINDING, PREDICATE, NORMAL)

    def to(self, relation: str) -> list["Item"]:
        """Targets of its relations of this kind."""
        return [target for kind, target in self.relations if kind == relation]


@dataclass(frozen=True)
class Words:
    """`rules.json`, compiled."""

    roles: dict[str, str]
    phrases: re.Pattern[str]
    connectors: re.Pattern[str]
    gaps: dict[str, re.Pattern[str]]


@lru_cache(maxsize=1)
def words() -> Words:
    """The word lists; read once per process."""
    data: dict[str, Any] = json.loads(files("radverl.radgraph").joinpath("rules.json").read_text(encoding="utf-8"))
    roles = {word: role for role, lines in data["words"].items() for word in " ".join(lines).split()}
    # "ill-defined" may come as "ill - defined"
    groups = [
        f"(?P<{role}>{re.sub(' (?![?])', ' {1,3}', '|'.join(listed))})" for role, listed in data["phrases"].items()
    ]
    return Words(
        roles,
        re.compile(rf"(?<!\w)(?:(?P<measure>{_MEASURE})|{'|'.join(groups)})(?!\w)"),
        re.compile(rf"\b(?:{data['connectors']})\b"),
        {name: re.compile(pattern) for name, pattern in data["gaps"].items()},
    )


def find_items(sentence: str, spans: Sequence[tuple[int, int]]) -> tuple[str, list[Item], list[Mention]]:
    """(the sentence as the patterns read it, its items in order, what the labeller found).

    Args:
        spans: where its tokens stand, in characters.
    """
    text, known = prepare(sentence), words()
    header = _HEADER.match(sentence)
    begin = header.end() if header else 0
    items = _phrases(text, spans, known)
    taken = {i for item in items for i in range(item.first, item.last + 1)}
    for i, (a, b) in enumerate(spans):
        role = known.roles.get(text[a:b])
        if role and i not in taken:
            items.append(Item(i, i, a, b, role))
    items = [item for item in items if item.start >= begin]
    mentions = [m for m in read_sentence(sentence)[0] if m.kind != "normal" and m.start >= begin]
    items += _unlisted(text, spans, items, mentions)
    items.sort(key=lambda item: item.first)
    return text, items, mentions


def _phrases(text: str, spans: Sequence[tuple[int, int]], known: Words) -> list[Item]:
    starts = [a for a, _ in spans]
    items = []
    for m in known.phrases.finditer(text):
        first, last = bisect_left(starts, m.start()), bisect_left(starts, m.end()) - 1
        if first <= last and starts[first] == m.start():
            role = m.lastgroup or DESCRIPTOR
            items.append(Item(first, last, *m.span(), DESCRIPTOR if role == "measure" else role))
    return items


def _unlisted(
    text: str, spans: Sequence[tuple[int, int]], items: list[Item], mentions: Sequence[Mention]
) -> list[Item]:
    """Findings that only the labeller knows: the last unlisted word of a mention without any observation."""
    out: list[Item] = []
    taken = {i for item in items for i in range(item.first, item.last + 1)}
    observed = [item.start for item in items if item.role not in ANATOMY]
    starts = [a for a, _ in spans]
    for m in mentions:
        if any(m.start <= start < m.end for start in observed):
            continue
        for i in range(bisect_left(starts, m.end) - 1, bisect_left(starts, m.start) - 1, -1):
            a, b = spans[i]
            if i not in taken and text[a:b].isalpha() and not _FUNCTION.fullmatch(text, a, b):
                out.append(Item(i, i, a, b, FINDING))
                taken.add(i)
                break
    return out


def set_status(text: str, items: Sequence[Item], mentions: Sequence[Mention]) -> None:
    """Judge the findings of a sentence, after `rules_relations`; what modifies an observation has its status."""
    lexicon = load()
    cues: list[Cue] | None = None  # found where the labeller has not judged
    for item in items:
        if item.role == NORMAL:
            before = text[max(0, item.start - 40) : item.start]
            if _NOT_NORMAL.search(before):
                item.status = ABSENT
            elif _DOUBTED_NORMAL.search(before):
                item.status = UNCERTAIN
        elif item.observed:
            labelled = next((m for m in mentions if m.start <= item.start < m.end), None)
            if labelled is None:
                cues = find_cues(text, lexicon) if cues is None else cues
                item.status = _judge(text, item, cues, lexicon)
            else:
                item.status = labelled.status
    for m in mentions:
        if m.kind == "hint":  # "borderline" in "borderline cardiac enlargement" makes the finding uncertain
            for item in items:
                if m.start <= item.start < m.end and item.role == DESCRIPTOR:
                    for head in item.to("modify"):
                        head.status = m.status
    for item in reversed(items):
        heads = item.to("modify") if item.role not in ANATOMY else []
        if heads:
            item.status = heads[0].status


def _judge(text: str, item: Item, cues: list[Cue], lexicon: Lexicon) -> int | None:
    for cue in cues:
        if cue.start < item.start < cue.end and cue.kind == "none" and cue.text.startswith(_NO_CHANGE):
            return ABSENT  # "no significant change"
    return judge(text, item.start, item.end, cues, lexicon)[0]
