"""Which section a header names: "REASON FOR EXAM" -> indication, "CHEST, TWO VIEWS" -> findings, "LUNGS" -> none.

A header is a short phrase. It is known if a word of it names a section and the other words only qualify that word
("CLINICAL history", "TYPE OF examination"); of several such words the first of `_ORDER` counts, so "findings and
impression" is an impression. A misspelt word counts as the word it is near to. Besides the section names there are:

    views      a film and its projections ("PA AND LATERAL CHEST"): opens the findings
    close      ends the report ("END OF IMPRESSION", "ACCESSION NUMBER")
    narrative  CheXpert Plus's name of the whole text
"""

import re
from functools import lru_cache
from typing import NamedTuple


class Header(NamedTuple):
    """What a header phrase names."""

    name: str  # a section, or views, close, narrative
    strong: bool  # no everyday word: counts in the middle of a line too
    soft: bool  # opens its section only if that has no text yet, otherwise it is a sub-header


_SECTION_WORDS = {
    "findings": "findings finding",
    "impression": "impression impressions imp conclusion conclusions concl interpretation",
    "indication": "indication indications reason reasons",
    "history": "history histories hx",
    "comparison": "comparison comparisons",
    "technique": "technique techniques procedure procedures",
    "examination": "examination examinations exam exams study studies",
    "recommendation": "recommendation recommendations",
    "notification": "notification notifications",
    "addendum": "addendum addenda",
    "wet read": "wetread preliminary provisional prelim pfi",
}
_SECTION = {word: name for name, words in _SECTION_WORDS.items() for word in words.split()}
_ORDER = (
    "wet read", "addendum", "impression", "history", "indication", "comparison", "notification", "findings",
    "recommendation", "technique", "examination",
)  # fmt: skip
_EVERYDAY = {
    "finding", "imp", "concl", "interpretation", "reason", "reasons", "procedure", "procedures", "exam",
    "exams", "study", "studies", "preliminary", "provisional", "prelim",
}  # fmt: skip
_QUALIFIERS = {
    "of", "for", "the", "this", "that", "and", "or", "a", "an", "s", "clinical", "relevant", "pertinent",
    "brief", "patient", "past", "present", "current", "medical", "surgical", "additional", "other", "final",
    "overall", "radiologic", "radiological", "radiographic", "radiology", "imaging", "diagnostic", "type",
    "name", "number", "date", "dates", "time", "title", "comment", "comments", "note", "notes", "data",
    "statement", "information", "info", "details", "description", "provided", "request", "requested",
    "requesting", "order", "ordered", "ordering", "available", "recent", "most", "performed", "read", "version",
    "result", "results", "critical", "communication", "report", "plan", "discussion", "continued", "cont",
    "key", "detailed", "illness",
}  # fmt: skip
# Qualifiers that turn an examination into one to compare with, and phrases that no single word decides.
_EARLIER = {"prior", "previous", "reference", "old", "outside"}
_PHRASES: dict[str, Header] = {
    **dict.fromkeys(("wet read", "wet reading"), Header("wet read", True, False)),
    **dict.fromkeys(
        ("report", "radiology report", "final report", "result", "results", "observation", "observations",
         "description", "discussion", "report text", "interpretive report"),
        Header("findings", False, True),
    ),
    **dict.fromkeys(
        ("summary", "opinion", "assessment", "diagnosis", "diagnoses", "radiological diagnosis",
         "radiologic diagnosis", "radiographic diagnosis", "assessment and plan", "final diagnosis"),
        Header("impression", False, True),
    ),
    **dict.fromkeys(
        ("clinical", "clinical information", "clinical info", "clinical data", "clinical details", "clinical statement",
         "clinical notes", "clinical note", "clinical context", "clinical background", "clinical summary",
         "clinical presentation", "clinical diagnosis", "clinical problem", "clinical findings", "medical condition",
         "underlying medical condition", "admitting diagnosis", "preoperative diagnosis", "provisional diagnosis",
         "chief complaint", "signs and symptoms", "patient information"),
        Header("history", True, False),
    ),
    **dict.fromkeys(
        ("clinical question", "question", "clinical concern", "request"), Header("indication", False, False)
    ),
    **dict.fromkeys(("compared to", "compared with", "priors"), Header("comparison", False, False)),
    **dict.fromkeys(
        ("views", "view", "number of views", "procedure views", "projection", "projections", "protocol", "method"),
        Header("technique", False, False),
    ),
    **dict.fromkeys(("modality", "test"), Header("examination", False, False)),
    **dict.fromkeys(
        ("communication", "communication of results", "communications", "critical results", "critical result",
         "critical result communication"),
        Header("notification", False, False),
    ),
    **dict.fromkeys(("end of impression", "accession number", "end of report"), Header("close", True, False)),
    "narrative": Header("narrative", True, False),
    "preliminary report": Header("wet read", False, False),
}  # fmt: skip
_VIEW_NOUNS = {
    "chest", "cxr", "thorax", "view", "views", "radiograph", "radiographs", "xray", "film", "films", "ribs", "rib",
    "portable", "lateral", "frontal",
}  # fmt: skip
_VIEW_WORDS = _VIEW_NOUNS | {
    "pa", "ap", "lat", "and", "or", "of", "the", "a", "an", "with", "x", "ray", "rays", "xr", "cr", "dx", "dr",
    "one", "two", "three", "four", "single", "upright", "supine", "erect", "semi", "semierect", "semiupright",
    "prone", "decubitus", "left", "right", "bilateral", "both", "oblique", "apical", "lordotic", "series",
    "study", "studies", "exam", "examination", "examinations", "radiography", "radiographic", "imaging",
    "image", "images", "inspiratory", "expiratory", "inspiration", "expiration", "bedside", "only", "at", "on",
    "am", "pm", "m", "p", "hours", "hrs", "time", "times", "dated", "date", "for", "to", "total", "limited",
    "complete", "stat", "repeat", "standard", "conventional", "abdomen", "kub", "hemithorax", "sternum",
    "clavicle", "line", "placement",
}  # fmt: skip
_KNOWN = {*_SECTION, *_QUALIFIERS, *_VIEW_WORDS}
# A phrase with one of these speaks about a section and is no header.
_TALKING = {
    "see", "above", "below", "no", "not", "per", "as", "is", "are", "was", "were", "has", "end", "in", "from",
}  # fmt: skip
_MISSPELT = (
    "findings", "impression", "conclusion", "indication", "history", "comparison", "technique", "examination",
    "recommendation", "recommendations", "notification", "addendum", "clinical",
)  # fmt: skip
_OWN_WORDS = {
    "contusion", "confusion", "occlusion", "induction", "indicator", "infusion", "hysteria", "bindings", "conclusive",
}  # fmt: skip
_EDITS = {6: 1, 9: 2}  # from this length on, so many edits still name the word
_WORD = re.compile(r"[a-z]+")
_BRACKETS = re.compile(r"\([^()]*\)")


@lru_cache(maxsize=8192)
def read_header(phrase: str, loose: bool = False) -> Header | None:
    """The section that a header phrase names (without its colon), or None.

    Args:
        loose: the phrase stands at the start of a line: misspelt words count, and in capitals unknown words as well
            ("COMPARISON CT TORSO").
    """
    lowered = phrase.lower()
    words = _WORD.findall(lowered)
    if not words or len(words) > 12 or words[0] in ("the", "this", "that", "a", "an"):
        return None
    capitals = phrase.isupper()
    found = _read_words(words, capitals)
    if found is None and "(" in lowered:
        outside = _WORD.findall(_BRACKETS.sub(" ", lowered))
        found = _read_words(outside, capitals) if outside else None
    if found is None and (loose or capitals) and sum(word not in _KNOWN for word in words) == 1:
        found = _read_words([_spelling(word) for word in words], capitals)
    if found is None and loose and capitals:
        found = _read_loosely(words)
    return found


def is_title(text: str) -> bool:
    """Whether the text only names a film and its date ("Chest, 2 views, 1-1-2000 9:15 AM")."""
    return len(text) < 200 and all(word in _VIEW_WORDS for word in _WORD.findall(text.lower()))


def _read_words(words: list[str], capitals: bool) -> Header | None:
    joined = " ".join(words)
    if joined in _PHRASES:
        return _PHRASES[joined]
    names = {_SECTION[word] for word in words if word in _SECTION}
    others = [word for word in words if word not in _SECTION and word not in _QUALIFIERS]
    if names == {"examination"} and others and all(word in _EARLIER for word in others):
        return Header("comparison", capitals and "reference" in words, False)
    if others and all(word in _VIEW_WORDS for word in words) and not _VIEW_NOUNS.isdisjoint(words):
        return Header("views", capitals and len(words) > 1, True)
    if "comparison" in names:  # "Comparison to ___:" in a sentence is none
        fitting = _EARLIER | {"film", "films"} | ({"to", "with"} if capitals else set())
        others = [word for word in others if word not in fitting]
    if not names or others or len(words) > 8:
        return None
    name = next(name for name in _ORDER if name in names)
    strong = any(word in _SECTION and word not in _EVERYDAY for word in words) or (
        len(words) > 1 and name in ("indication", "technique")
    )
    continued = not {"continued", "cont"}.isdisjoint(words)
    sub_header = name == "findings" and len(set(words) - {"s", "the"}) > 1
    return Header(name, strong, continued or sub_header)


def _read_loosely(words: list[str]) -> Header | None:
    """A header in capitals that begins or ends with a section's name."""
    if len(words) > 6 or not _TALKING.isdisjoint(words):
        return None
    for word in (words[-1], words[0]):
        if word in _SECTION and word not in _EVERYDAY:
            return Header(_SECTION[word], False, True)
    return None


def _spelling(word: str) -> str:
    if word in _KNOWN or word in _OWN_WORDS or not min(_EDITS) <= len(word) <= 20:
        return word
    for known in _MISSPELT:
        edits = max((n for length, n in _EDITS.items() if len(known) >= length), default=0)
        if abs(len(known) - len(word)) > edits or len(set(known) ^ set(word)) > 2 * edits:
            continue
        if edits > 1 and word[0] not in known[:2]:
            continue
        if _distance(word, known) <= edits:
            return known
    return word


def _distance(a: str, b: str) -> int:
    """Edit distance with swaps of neighbours (optimal string alignment)."""
    rows = [list(range(len(b) + 1))]
    for i, ca in enumerate(a, 1):
        row = [i]
        for j, cb in enumerate(b, 1):
            cost = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (ca != cb))
            if i > 1 and j > 1 and ca == b[j - 2] and a[i - 2] == cb:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
