"""Entities and relations of a report by rules, in the form that RadGraph writes: the annotator `rules`.

It needs no weights and no network. It is NOT RadGraph: it knows the words of `rules.json` and of the labeller's lexicon
and nothing else, so its scores are never to be reported as RadGraph-F1. The schema is RadGraph's (Jain et al. 2021,
arXiv 2106.14463):
  Observation   findings, devices, and the words for size, severity and normality; definitely present, definitely
                absent or uncertain by the scopes of `radverl.chexpert`; what modifies an observation has its status
  Anatomy       structures and, as entities that modify them, sides and positions; always definitely present
  modify        small -> effusion, left -> lung, size -> heart
  located_at    effusion -> pleural, clear -> lungs
  suggestive_of opacity -> pneumonia in "opacity concerning for pneumonia"
Ours: "left-sided" and "on the left" give the entity "left"; a finding of the patient's history, of another image or of
a question is left out, as the labeller does it.

All that is given is read: give findings and impression, as for RadGraph. Tokens are words and single signs of
punctuation in lower case. Sentence by sentence, in `rules_entities` and `rules_relations`; the time is linear.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from radverl.chexpert.labeller import MAX_CHARS
from radverl.radgraph.rules_entities import find_items, set_status
from radverl.radgraph.rules_relations import relate
from radverl.text.normal import plain
from radverl.text.sentences import split_sentences

# A runaway sentence is cut at spaces, so that the work stays linear; the labeller cuts at the same length.
_PIECE = re.compile(r"\S.{0,598}(?=\s|$)|\S.{0,599}", re.S)
_TOKEN = re.compile(r"\w+|[^\w\s]")

# (first token, last token, label, ((relation, place of the target in this list), ...)), tokens counted in the sentence
_Entity = tuple[int, int, str, tuple[tuple[str, int], ...]]


class RulesAnnotator:
    """Annotates without a model. It keeps no state, so one may be shared by threads."""

    name = "rules"

    def annotate(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """One annotation a text, in order. Never fails; a text without known words has no entities.

        The first 100,000 characters of a text are read; "text" holds their tokens, joined by spaces.
        """
        return [_annotate(text) for text in texts]


def _annotate(text: str) -> dict[str, Any]:
    tokens: list[str] = []
    entities: dict[str, dict[str, Any]] = {}
    for sentence in split_sentences(plain(text[:MAX_CHARS])):
        for piece in [sentence] if len(sentence) <= 600 else _PIECE.findall(sentence):
            words, found = _read(piece)
            at, before = len(tokens), len(entities)
            for first, last, label, relations in found:
                entities[str(len(entities) + 1)] = {
                    "tokens": " ".join(words[first : last + 1]),
                    "label": label,
                    "start_ix": at + first,
                    "end_ix": at + last,
                    "relations": [[kind, str(before + target + 1)] for kind, target in relations],
                }
            tokens += words
    return {"text": " ".join(tokens), "entities": entities, "data_source": None, "data_split": "inference"}


@lru_cache(maxsize=16384)
def _read(sentence: str) -> tuple[tuple[str, ...], tuple[_Entity, ...]]:
    """(tokens, entities) of one sentence; the rollouts of a group share many."""
    spans = [m.span() for m in _TOKEN.finditer(sentence)]
    words = tuple(sentence[a:b].lower() for a, b in spans)
    text, items, mentions = find_items(sentence, spans)
    relate(text, items)
    set_status(text, items, mentions)
    kept = [item for item in items if item.role and item.status is not None]
    place = {id(item): i for i, item in enumerate(kept)}
    return words, tuple(
        (
            item.first,
            item.last,
            item.label,
            tuple((kind, place[id(target)]) for kind, target in item.relations if id(target) in place),
        )
        for item in kept
    )


def forget() -> None:
    """Empty the sentence cache (for time measurements and long-running processes)."""
    _read.cache_clear()
