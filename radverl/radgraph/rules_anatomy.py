"""The anatomy of a sentence: which words are structures, and which modify them.

"Right lower lobe" is a structure with two places, "size of the heart" one with a part; a place or a part that has no
structure stands for one ("left effusion", "the bases"). `Sentence` holds what all steps of `rules_relations` look at:
the items and the text between neighbours, by the patterns under `gaps` in `rules.json`.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from radverl.radgraph.rules_entities import (
    ANATOMY,
    DESCRIPTOR,
    FINDING,
    NORMAL,
    PART,
    PLACE,
    PREDICATE,
    STRUCTURE,
    Item,
    words,
)

MODIFY = "modify"
AND = re.compile(r"\b(?:and|or|nor|then)\b|/|&")
_OF = re.compile(r" ?of (?:the |both )*")
_IN = re.compile(r" in (?:overall )?")


class Sentence:
    """The items with what stands between them; gap i lies between items i - 1 and i."""

    def __init__(self, text: str, items: list[Item]) -> None:
        self.text, self.items = text, items
        self.gaps = [""] + [text[a.end : max(a.end, b.start)] for a, b in pairwise(items)]
        self.tight, self.joint, self.linked, self.place, self.verb, self.broken = zip(
            *map(_gap, self.gaps), strict=True
        )
        self.claimed: set[int] = set()  # anatomy that stands before its own finding

    def of(self, *roles: str) -> Iterator[tuple[int, Item]]:
        """Items that have one of the roles when their turn comes."""
        return ((i, item) for i, item in enumerate(self.items) if item.role in roles)

    def structures_up_to(self, i: int, through_parts: bool = True) -> list[Item]:
        """The structures of the list that ends with item i: "cardiac and mediastinal" -> both."""
        out: list[Item] = []
        while i >= 0:
            item = self.items[i]
            if item.role == STRUCTURE and (not out or not self.tight[i + 1]):
                out += [item] if item not in out else []
            elif item.role == PART and out and not (self.tight[i] and through_parts):
                break  # "heart is normal in size, the aorta"
            elif item.role == PART:
                out += [target for target in item.to(MODIFY) if target not in out]
            elif item.role not in (*ANATOMY, DESCRIPTOR):
                break
            if not (self.tight[i] or (self.joint[i] and i and self.items[i - 1].role in ANATOMY)):
                break
            i -= 1
        return out[::-1]


def relate_anatomy(s: Sentence) -> None:
    """Set the modify relations among anatomy, and make structures of places and parts that stand alone."""
    _places(s)
    _parts(s)
    _structures(s)


@lru_cache(maxsize=4096)
def _gap(gap: str) -> tuple[bool, bool, bool, bool, bool, bool]:
    """(nothing between, a comma or conjunction, a conjunction, a preposition, a verb, a new clause)."""
    known = words().gaps
    joint = known["joint"].fullmatch(gap) is not None
    return (
        known["tight"].fullmatch(gap) is not None,
        joint,
        joint and AND.search(gap) is not None,
        known["preposition"].search(gap) is not None,
        known["verb"].search(gap) is not None,
        known["break"].search(gap) is not None,
    )


def _places(s: Sentence) -> None:
    alone: set[int] = set()  # places that stand for a structure: "left effusion"
    for i in range(len(s.items) - 1, -1, -1):
        item = s.items[i]
        if item.role != PLACE:
            continue
        listed, target = False, None
        for j in range(i + 1, len(s.items)):
            other = s.items[j]
            if not s.tight[j] and not s.linked[j] and not (s.joint[j] and other.role == PLACE):
                break
            listed = listed or not s.tight[j]
            if other.role in (STRUCTURE, PART, PLACE):
                target = next(iter(other.to(MODIFY)), other)
                break
            if other.role != DESCRIPTOR:
                if s.tight[j] and not listed:
                    item.role = STRUCTURE
                    alone.add(id(item))
                break
        if target is not None and listed and id(target) in alone:
            item.role = STRUCTURE  # "left and right effusions" are in two places
            alone.add(id(item))
        elif target is not None and target.role != PLACE:
            item.relations.append((MODIFY, target))


def _parts(s: Sentence) -> None:
    for i, item in s.of(PART):
        targets: list[Item] = []
        if i and s.tight[i] and s.items[i - 1].role in (STRUCTURE, PART):
            targets = s.structures_up_to(i - 1, through_parts=False)
        elif i + 1 < len(s.items) and _OF.fullmatch(s.gaps[i + 1]):
            ahead = (s.items[j] for j in range(i + 1, len(s.items)))
            targets = [next((x for x in ahead if x.role not in (PLACE, DESCRIPTOR)), item)]
            targets = [x for x in targets if x.role == STRUCTURE]
        elif i and s.tight[i] and (owner := _said_of(s, i)) is not None:
            targets = [owner]
        elif i and _IN.fullmatch(s.gaps[i]):  # "heart is normal in size", "effusion, small in size"
            back = next((x for x in s.items[i - 1 :: -1] if x.role in (STRUCTURE, FINDING)), None)
            if back is None or back.role == FINDING:
                item.role = ""
                continue
            targets = [back]
        if targets:
            item.relations += [(MODIFY, target) for target in targets]
            _hand_on(s.items[:i], item, targets[0])
        else:
            item.role = STRUCTURE


def _said_of(s: Sentence, i: int) -> Item | None:
    """The heart in "heart: normal size" and "the heart is of normal size"."""
    while i and s.tight[i] and s.items[i - 1].role in (NORMAL, PREDICATE, DESCRIPTOR):
        i -= 1
    before = s.items[i - 1] if i else None
    said = before is not None and before.role == STRUCTURE and (s.verb[i] or ":" in s.gaps[i])
    return before if said else None


def _hand_on(items: Iterable[Item], part: Item, structure: Item) -> None:
    """A place before a part ("left base of the lung") modifies the part; nothing is left pointing at nowhere."""
    for item in items:
        if item.role == PLACE and (MODIFY, part) in item.relations and structure.start < part.start:
            item.relations = [(MODIFY, structure)]


def _structures(s: Sentence) -> None:
    for i, item in s.of(STRUCTURE):
        ahead = s.items[i + 1] if i + 1 < len(s.items) and s.tight[i + 1] else None
        if ahead is not None and ahead.role == STRUCTURE and not item.to(MODIFY):
            item.relations.append((MODIFY, ahead))
