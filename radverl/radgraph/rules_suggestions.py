"""What a finding suggests: "opacity concerning for pneumonia", "opacity, likely atelectasis or infection".

The finding before a connector (`connectors` in `rules.json`) suggests the one that begins right behind it, and those
that are offered with "or".
"""

import re

from radverl.radgraph.rules_anatomy import AND, Sentence
from radverl.radgraph.rules_entities import words

SUGGESTIVE_OF = "suggestive_of"
_ALTERNATIVE = re.compile(r"\b(?:or|versus|vs)\b|/")
_LIST_REACH = 60  # characters in which an "or" makes a list one of alternatives (ours)
_ARTICLES = re.compile(
    r"(?: (?:an?|the|any|some|developing|evolving|either|possible|probable|element of|component of))* ?"
)


def relate_suggestions(s: Sentence) -> None:
    """Set the suggestive_of relations; the findings and their roles are known by then."""
    for m in words().connectors.finditer(s.text):
        ahead = [k for k, item in enumerate(s.items) if item.start >= m.end()]
        behind = [k for k, item in enumerate(s.items) if item.end <= m.start() and item.observed]
        if not ahead or not behind:
            continue
        i, j = behind[-1], ahead[0]
        start = s.items[j - 1].end if j else 0
        if ";" in s.text[s.items[i].end : m.start()] or AND.match(s.text[start : m.start()].strip(" ,")):
            continue  # "effusion and likely atelectasis"
        if not _ARTICLES.fullmatch(s.text, m.end(), s.items[j].start):
            continue
        while j < len(s.items) and not s.items[j].observed:
            j += 1
            if j < len(s.items) and not s.tight[j]:
                j = len(s.items)
        while j < len(s.items):
            if (SUGGESTIVE_OF, s.items[j]) not in s.items[i].relations:
                s.items[i].relations.append((SUGGESTIVE_OF, s.items[j]))
            j = _next_alternative(s, j)


def _next_alternative(s: Sentence, j: int) -> int:
    """The finding after "or"; the number of items where there is none."""
    end = len(s.items)
    j += 1
    if j >= end or not s.joint[j]:
        return end
    start = s.items[j - 1].end
    if not _ALTERNATIVE.search(s.text, start, start + (_LIST_REACH if "," in s.gaps[j] else len(s.gaps[j]))):
        return end
    while j < end and not s.items[j].observed:
        j += 1
        if j < end and not s.tight[j]:
            return end
    return j
