"""Scope rules: is a mention stated, denied, doubted, or not about this image at all?

ConText-like, one small rule per phenomenon, on the prepared sentence. Words before the mention act up to it unless a
stop word, a new statement or a comma of the wrong kind lies between; words after it act only within the same clause.
"""

import re
from dataclasses import dataclass

from radverl.chexpert.lexicon import Lexicon

PRESENT, ABSENT, UNCERTAIN = 1, 0, -1

_CHOICE = re.compile(r"\b(?:or|nor|versus|vs)\b|/")
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|may|might|could|can|cannot|represents?|reflects?|suggests?|remains?)\b"
)
_COMMA_OR_AND = re.compile(r",|\band\b")
_ALTERNATIVE = re.compile(r"^(?: \w+){0,2},? (?:or|versus|vs\.?|and/or|/)(?: \w+){0,4} ?$")
_ASKS = re.compile(r"^(?:is|are|any|does|do|can|could|please|rule out|evaluate|assess|question of|r/o|eval)\b")
# A sentence about the patient, not the image: "56 year old woman with pneumonia".
_PATIENT = re.compile(
    r"^(?:this |the |is |an? )*(?:(?:\w+ ){0,2}(?:year|yr|y|month)s? old\b|\d+ ?(?:yo|y/o)\b"
    r"|(?:patient|pt|man|woman|male|female) (?:with|who|presents?|presenting)\b)"
)
_SIDED = re.compile(r",? and (?:the |an? |right |left |bilateral )+")
_PLURAL = re.compile(r"(?:have|had|are|were)\b")
_EARLIER = re.compile(
    r"(?: that| which)? (?:was|were) (?:\w+ly )?(?:seen|identified|noted|present|described|demonstrated|visuali[sz]ed)"
    r"(?: \w+)? (?:on|in|at) (?:the |an |a )?(?:prior|previous|earlier|old|outside)(?: \w+){0,2}?,?(?: but| which)?"
    r"(?= (?:is|are|has|have)\b)"
)
_POST_REACH = 70  # characters between a mention and a cue that follows it
_INNER_NOT = re.compile(r"\b(?:not|nonenlarged)\b")
_INNER_DOUBT = re.compile(r"\b(?:may|might|could|possibly|probably|likely)\b")  # "heart may be enlarged"


@dataclass(frozen=True)
class Cue:
    """A cue word in a prepared sentence."""

    kind: str
    start: int
    end: int
    text: str


def find_cues(text: str, lexicon: Lexicon) -> list[Cue]:
    """All cues of a prepared sentence, left to right; where two overlap, the kind of higher priority is kept."""
    found: list[Cue] = []
    for kind, pattern in lexicon.cues.items():
        for m in pattern.finditer(text):
            start, end = m.span()
            if all(end <= c.start or start >= c.end for c in found):
                found.append(Cue(kind, start, end, m.group()))
    return sorted(found, key=lambda c: c.start)


def judge(text: str, start: int, end: int, cues: list[Cue], lexicon: Lexicon) -> tuple[int | None, str]:
    """(status, cue) of the mention at text[start:end]; status None where the mention is history or a question."""
    if _ASKS.match(text) and text.rstrip().endswith("?"):
        return None, "question"
    if _PATIENT.match(text) and ";" not in text[:start]:
        return None, "patient"
    mention = text[start:end]
    inner = _INNER_DOUBT.search(mention)
    if _INNER_NOT.search(mention):
        return ABSENT, "not"
    before = [c for c in cues if c.end <= start and c.kind != "none"]
    before = _after_last_stop(before)
    if _VERB.search(mention):  # "no effusion, heart is enlarged": the mention is a clause of its own
        joint = [m.end() for m in _COMMA_OR_AND.finditer(text, 0, start)]
        before = [c for c in before if not joint or c.start >= joint[-1]]
    found = _read_before(text, start, end, before, lexicon)
    if found[0] in (ABSENT, None):
        return found
    after = _read_after(text, start, end, [c for c in cues if c.start >= end], lexicon)
    if after and (after[0] in (ABSENT, None) or found[0] == PRESENT):
        return after
    if found[0] == PRESENT and inner:
        return UNCERTAIN, inner.group()
    if found[0] == PRESENT and text.rstrip().endswith("?"):
        return UNCERTAIN, "?"
    return found


def alternatives(text: str, spans: list[tuple[int, int]], cues: list[Cue]) -> set[int]:
    """Indices of mentions joined by "or" or "versus", each of which is only one of the possible readings.

    "No change in the effusion or the atelectasis" offers no readings.
    """
    out: set[int] = set()
    unchanged = [c.end for c in cues if c.kind == "none" and c.text.startswith(("no ", "without ", "not "))]
    for i in range(len(spans) - 1):
        if any(end <= spans[i][0] for end in unchanged):
            continue
        if spans[i + 1][0] >= spans[i][1] and _ALTERNATIVE.match(text[spans[i][1] : spans[i + 1][0]]):
            out |= {i, i + 1}
    return out


def _after_last_stop(before: list[Cue]) -> list[Cue]:
    last = max((i for i, c in enumerate(before) if c.kind == "stop"), default=-1)
    return before[last + 1 :]


def _read_before(text: str, start: int, end: int, before: list[Cue], lexicon: Lexicon) -> tuple[int | None, str]:
    doubt: Cue | None = None
    blocked = False  # a "due to" between here and the mention
    for cue in reversed(before):
        gap = text[cue.end : start]
        if cue.kind == "stop_negation":
            blocked = True
        elif cue.kind.startswith("ignored") and "," not in gap:
            return None, cue.text
        elif cue.kind.startswith("negated") and not blocked and _negation_reaches(cue, gap, text, end, lexicon):
            return ABSENT, cue.text
        elif (
            (cue.kind == "uncertain" or _works_both_ways(cue))
            and doubt is None
            and (cue.text.startswith("differential") or _doubt_reaches(gap, text, end, lexicon))
        ):
            doubt = cue
    return (UNCERTAIN, doubt.text) if doubt else (PRESENT, "")


def _negation_reaches(cue: Cue, gap: str, text: str, end: int, lexicon: Lexicon) -> bool:
    """Over a list, but not into a new statement: "no consolidation, mild edema", "opacity without X is Y"."""
    if cue.kind == "negated_near":
        return not _COMMA_OR_AND.search(gap)
    if cue.kind == "negated_list":
        if _VERB.search(gap) or _VERB.search(text, end):  # "removal of the tube and the effusion is larger"
            return not _COMMA_OR_AND.search(gap)
        gap = _SIDED.sub(" and", gap)
    if cue.text in ("without", "w/o") and _VERB.search(gap):
        return False
    opener = lexicon.openers.search(gap)
    if not opener:
        return True
    return bool(_CHOICE.search(gap[opener.start() :] + text[end : end + 60]))


def _doubt_reaches(gap: str, text: str, end: int, lexicon: Lexicon) -> bool:
    """Over "atelectasis or pneumonia", but not past a comma, nor into "and small effusion"."""
    if lexicon.openers.search(gap) and not _CHOICE.search(gap):
        return False
    return "," not in gap.lstrip(" ,") or bool(_CHOICE.search(gap + text[end : end + 30]))


def _read_after(text: str, start: int, end: int, after: list[Cue], lexicon: Lexicon) -> tuple[int | None, str] | None:
    earlier = _EARLIER.match(text, end)  # "the opacity that was seen on the prior study" has cleared
    if earlier:
        end = earlier.end()
        after = [c for c in after if c.start >= end]
    for cue in after:
        gap = text[end : cue.start]
        if cue.kind == "stop" or len(gap) > _POST_REACH:
            return None
        if not cue.kind.startswith("post_"):
            continue
        # "opacity, effusion and small nodule have resolved": a plural verb speaks about the whole list.
        listed = _PLURAL.match(cue.text) is not None and " and " in gap
        if (_VERB.search(gap) and not cue.text.startswith("if ")) or (not listed and lexicon.openers.search(gap)):
            return None
        if _COMMA_OR_AND.search(gap) and (_VERB.search(text, 0, start) or "there" in text[:start]):
            return None
        if not listed and "," in gap and gap.strip(" ,") and (cue.kind == "post_uncertain" or not _CHOICE.search(gap)):
            return None  # "opacity, pneumonia is possible": the cue is about the pneumonia
        if cue.kind == "post_ignored":
            return None, cue.text
        if cue.kind == "post_negated":
            return ABSENT, cue.text
        if not _is_versus(cue) or len(gap.split()) <= 3:
            return UNCERTAIN, cue.text
    return None


def _works_both_ways(cue: Cue) -> bool:
    return _is_versus(cue) or cue.text in ("if any", "if present", "less likely")


def _is_versus(cue: Cue) -> bool:
    return cue.text.startswith(("versus", "vs"))
