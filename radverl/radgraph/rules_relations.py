"""Who modifies whom, what is located where, what suggests what: the relations between the items of a sentence.

In this order, as each step needs the one before:
  1. places and parts of anatomy find their structure ("right lower lobe", "size of the heart") or stand for one
  2. descriptors before a finding modify it; before anatomy alone they become findings ("low lung volumes")
  3. findings are located at the anatomy before them ("pleural effusion") and behind a preposition ("in the left lobe")
  4. what is left looks back: "effusion ... on the left", "effusion is unchanged", "heart is enlarged"
  5. "opacity concerning for pneumonia"
The text between two neighbours decides (`gaps` in `rules.json`). Every step is linear in the number of items but for
looks at neighbours, and a sentence has at most 600 characters.
"""

import re
from collections.abc import Iterable

from radverl.radgraph.rules_anatomy import MODIFY, Sentence, relate_anatomy
from radverl.radgraph.rules_entities import (
    ANATOMY,
    DESCRIPTOR,
    FINDING,
    NORMAL,
    PART,
    PLACE,
    PREDICATE,
    STRUCTURE,
    TIP,
    Item,
    words,
)
from radverl.radgraph.rules_suggestions import relate_suggestions

LOCATED_AT = "located_at"
_OF = re.compile(r" ?of (?:the |both )*")
_COLON = re.compile(r"[ *_]*:[ *_]*(?:no )?")


def relate(text: str, items: list[Item]) -> None:
    """Set the relations of the items of a sentence, and the roles of those that stand for something else.

    Args:
        text: the sentence as `rules_entities.find_items` gives it.
    """
    if not items:
        return
    sentence = Sentence(text, items)
    for step in (relate_anatomy, _attributes, _before, _behind, _looking_back, relate_suggestions):
        step(sentence)


def _attributes(s: Sentence) -> None:
    """Words before a finding: "small left pleural effusion", "calcified granuloma", "mildly enlarged"."""
    for i in range(len(s.items) - 1, -1, -1):
        item = s.items[i]
        if item.role == FINDING and i + 1 < len(s.items) and s.tight[i + 1] and s.items[i + 1].role == FINDING:
            item.role = DESCRIPTOR  # "tracheostomy tube"
        if item.role not in (DESCRIPTOR, PREDICATE, NORMAL):
            continue
        heads = (FINDING, PREDICATE, NORMAL, TIP) if item.role == DESCRIPTOR else (FINDING,)
        for j in range(i + 1, len(s.items)):
            other, before = s.items[j], s.items[j - 1]
            listed = s.joint[j] and before.role == DESCRIPTOR and other.role in (DESCRIPTOR, PLACE)
            place = words().roles.get(s.text[before.start : before.end]) == PLACE
            # "moderate right and small left", "fourth to sixth"
            shared = place and s.joint[j] and (s.linked[j] or other.role in ANATOMY)
            if not (s.tight[j] or listed or shared):
                break
            if other.role in heads:
                item.role = DESCRIPTOR
                item.relations.append((MODIFY, other))
                break
            if other.role not in (DESCRIPTOR, *ANATOMY):
                break
        before_anatomy = i + 1 < len(s.items) and s.tight[i + 1] and s.items[i + 1].role in ANATOMY
        if before_anatomy and not item.relations and item.role == DESCRIPTOR and item.first == item.last:
            item.role = PREDICATE  # "low lung volumes"


def _before(s: Sentence) -> None:
    """Anatomy directly before a finding: "pleural effusion", "right lower lobe opacity", "heart size normal"."""
    for i, item in s.of(FINDING, PREDICATE, NORMAL):
        j = i
        while j and s.tight[j] and s.items[j - 1].role == DESCRIPTOR:
            j -= 1
        if j and s.tight[j] and s.items[j - 1].role in (STRUCTURE, PART):
            targets = s.structures_up_to(j - 1)
            if item.role == FINDING:  # "lungs, pleural effusion"
                targets = targets[-1:] if "," in s.text[targets[0].end : item.start] else targets
            _locate(item, targets)
            s.claimed |= {id(target) for target in targets}


def _behind(s: Sentence) -> None:
    """Anatomy after a preposition, or after a predicate: "opacity in the left lobe", "enlarged heart"."""
    for i, item in s.of(FINDING, PREDICATE, NORMAL, TIP):
        attributive = item.role in (PREDICATE, NORMAL) and not item.to(LOCATED_AT) and not _has_subject(s, i)
        reached = taken = False
        for j in range(i + 1, len(s.items)):
            other, before = s.items[j], s.items[j - 1]
            if s.broken[j] or (taken and s.verb[j] and not s.place[j]):
                break
            reached = reached or s.place[j] or (before.role == DESCRIPTOR and before.last > before.first)
            near = s.tight[j] or (s.linked[j] and taken)
            if other.role in (FINDING, PREDICATE, NORMAL) or id(other) in s.claimed:
                break
            measure = other.role == DESCRIPTOR and other.last > other.first  # "terminates 4 cm above the carina"
            if not (s.place[j] or s.tight[j] or s.joint[j] or s.verb[j] or measure):
                break
            listed = taken and item.role == FINDING  # "in the right lung, left base", not "normal in size, the aorta"
            if "," in s.gaps[j] and not s.place[j] and not listed and other.role != DESCRIPTOR:
                break
            if other.role == DESCRIPTOR and other.to(MODIFY) and item not in other.to(MODIFY):
                break
            if other.role == STRUCTURE and not _goes_on(other, s, j) and (reached or (attributive and near)):
                _locate(item, [other])
                taken = True
            elif other.role == PART and (reached or (attributive and near)):
                _locate(item, other.to(MODIFY))
                taken = True
            elif other.role in ANATOMY and attributive and near:
                taken = True  # its structure follows


def _goes_on(item: Item, s: Sentence, i: int) -> bool:
    """Whether a structure only modifies the next one ("pulmonary" in "pulmonary vein")."""
    return i + 1 < len(s.items) and s.items[i + 1] in item.to(MODIFY) and s.items[i + 1].role == STRUCTURE


def _has_subject(s: Sentence, i: int) -> bool:
    while i and s.items[i - 1].role == DESCRIPTOR and not s.verb[i]:
        i -= 1
    return bool(i) and s.verb[i] and not s.broken[i] and s.items[i - 1].role in ANATOMY


def _looking_back(s: Sentence) -> None:
    for i, item in enumerate(s.items):
        if item.role == PLACE and not item.relations:
            _place_back(s, i)
        elif item.role == DESCRIPTOR and not item.relations:
            _describe_back(s, i)
        elif item.role == TIP:
            _tip_back(s, i)
        if item.role in (PREDICATE, NORMAL, FINDING) and not item.to(LOCATED_AT):
            _subject(s, i)


def _place_back(s: Sentence, i: int) -> None:
    """ "Pleural effusion on the left", "effusions, right greater than left"."""
    item = s.items[i]
    item.role = STRUCTURE
    for j in range(i, 0, -1):
        if s.broken[j]:
            break
        other = s.items[j - 1]
        if other.role in (FINDING, PREDICATE, NORMAL):
            at = [x for x in other.to(LOCATED_AT) if x is not item]
            if at and at[-1].start < other.start:
                item.relations.append((MODIFY, at[-1]))
                other.relations = [r for r in other.relations if r != (LOCATED_AT, item)]
            elif item not in other.to(LOCATED_AT):
                _locate(other, [item])
            break


def _describe_back(s: Sentence, i: int) -> None:
    """ "The effusion in the left chest is unchanged"; where nothing is to be described, the word is a finding."""
    item = s.items[i]
    for j in range(i, 0, -1):
        if s.broken[j] and not (j == i and s.gaps[j].strip() == ","):
            break
        other = s.items[j - 1]
        if other.role in (FINDING, TIP) or (other.observed and not (j == i and s.linked[j])):
            item.relations.append((MODIFY, other))
            return
        if other.observed:  # "the aorta is tortuous and calcified"
            break
        if other.role == STRUCTURE and not other.to(MODIFY) and not _is_location(s, other):
            break
    item.role = PREDICATE
    if i + 1 < len(s.items) and s.tight[i + 1]:
        ahead = s.items[i + 1]
        if ahead.role == DESCRIPTOR and not ahead.relations:  # "status post median sternotomy"
            ahead.role, item.role = PREDICATE, DESCRIPTOR
            item.relations.append((MODIFY, ahead))


def _is_location(s: Sentence, structure: Item) -> bool:
    """Whether a finding before the structure is located there: "opacity in the lung is unchanged"."""
    return any(x.role == FINDING and x.start < structure.start and structure in x.to(LOCATED_AT) for x in s.items)


def _tip_back(s: Sentence, i: int) -> None:
    item = s.items[i]
    if i and s.tight[i] and s.items[i - 1].role == FINDING:
        item.relations.append((MODIFY, s.items[i - 1]))
    item.role = FINDING


def _subject(s: Sentence, i: int) -> None:
    """What a predicate is said of: "heart is enlarged", "lungs are expanded and clear", "lobe: clear"."""
    item = s.items[i]
    said = False
    for j in range(i, 0, -1):
        other = s.items[j - 1]
        listed = _COLON.fullmatch(s.gaps[j]) is not None  # "right lung: patchy opacity"
        if s.broken[j] and not listed:
            return
        said = said or s.verb[j] or listed
        if other.role in (STRUCTURE, PART):
            if s.place[j] and not s.verb[j]:
                return
            if said or item.role != FINDING:
                targets = s.structures_up_to(j - 1)
                if not any(_is_location(s, target) for target in targets):
                    _locate(item, targets)
            return
        if other.observed:
            follows = s.joint[j] and item.role != FINDING and other.role != FINDING
            if (follows or (other.role == NORMAL and _OF.match(s.gaps[j]))) and other.to(LOCATED_AT):
                _locate(item, other.to(LOCATED_AT))
            elif item.role != FINDING and other.role == FINDING and (s.verb[j] or s.tight[j]):
                item.role = DESCRIPTOR  # "the wires are intact"
                item.relations.append((MODIFY, other))
            return


def _locate(item: Item, targets: Iterable[Item]) -> None:
    item.relations += [(LOCATED_AT, t) for t in targets if t is not item and (LOCATED_AT, t) not in item.relations]
