"""What a rewritten report must hold before it may replace the original: a language model may invent.

Per section: not empty, at most 1.2 times as long, no control tokens, at least 80 % of its words from the original, no
new number and no new word of side, size or negation, no reference to an earlier examination left, and the labels of our
own labeller unchanged but for what the removal by rules (`radverl.text.remove_prior_references`) changes too.
"""

import re

from radverl.chexpert import label_report
from radverl.text import normalise, remove_prior_references

MAX_GROWTH = 1.2
MIN_KNOWN_WORDS = 0.8
_WORD = re.compile(r"\d+(?:[.,:/]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)?")
# Joining words that a shortened sentence may need; they state no finding.
_JOINING = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "has", "have", "in", "is", "it", "of", "on", "or", "seen", "the",
    "there", "this", "to", "was", "were", "with",
))  # fmt: skip
# Words that turn a finding into another one; none of them may be new.
_GUARDED = frozenset((
    "no", "not", "without", "never", "none", "absent", "negative", "normal", "clear", "left", "right", "bilateral",
    "both", "upper", "lower", "middle", "mid", "apical", "basal", "basilar", "small", "large", "tiny", "trace", "mild",
    "mildly", "moderate", "moderately", "severe", "severely", "marked", "massive", "minimal", "slight", "extensive",
    "acute", "chronic", "subtle", "possible", "possibly", "probable", "probably", "likely", "may", "might", "could",
    "cannot", "definite",
))  # fmt: skip
_TOKEN = re.compile(
    r"<\|.*?\|>|<[|｜].*?[|｜]>|</?s>|<(?:pad|unk|bos|eos|image|video|audio)>|<(?:start|end)_of_turn>|\[/?INST\]"
    r"|<<?/?SYS>>?|</?think>|=== (?:DATA|END) ",
    re.I,
)
_STILL_COMPARES = re.compile(
    r"\bcompar(?:ed|ison)\b.{0,30}\b(?:prior|previous|earlier|stud|exam|radiograph|film|___|xxxx)"
    r"|\b(?:prior|previous|earlier|preceding) (?:chest |portable |frontal )?"
    r"(?:stud|exam|radiograph|film|x-?ray|ct\b|image)"
    r"|\b(?:unchanged|stable|persist(?:s|ent|ing)|worsen(?:ed|ing)|improv(?:ed|ing|ement)|new(?! york))\b"
    r"|\b(?:has|have) (?:\w+ )?(?:increased|decreased|changed|progressed|resolved|cleared)\b"
    r"|\binterval (?:change|increase|decrease|improvement|worsening|development|removal|placement)"
    r"|\bsince (?:the )?(?:prior|previous|last)\b|\bagain (?:seen|noted|demonstrated)\b",
    re.I,
)


def problem(before: str, after: str) -> str | None:
    """Why `after` may not replace the section `before`: a few fixed words to count by; None where it may."""
    if not any(map(str.isalpha, after)):
        return "nothing left"
    if _TOKEN.search(after):
        return "control token"
    if len(after) > MAX_GROWTH * len(before):
        return "too long"
    if _STILL_COMPARES.search(after):
        return "still compares"
    return _words_problem(before, after) or _labels_problem(before, after)


def _words_problem(before: str, after: str) -> str | None:
    known = set(_words(before))
    words = _words(after)
    new = [word for word in words if word not in known]
    if any(word[0].isdigit() for word in new):
        return "new number"
    if any(word in _GUARDED for word in new):
        return "new side, size or negation"
    if sum(word not in _JOINING for word in new) > (1 - MIN_KNOWN_WORDS) * len(words):
        return "words not in the report"
    return None


def _labels_problem(before: str, after: str) -> str | None:
    old, new, ruled = label_report(before), label_report(after), label_report(remove_prior_references(before))
    reasons = set()
    for label, value in new.items():
        was = (old[label], ruled[label])
        if {old[label], value} == {0, 1} and value != ruled[label]:
            reasons.add("flipped finding")
        elif value in (None, 0) and all(v in (1, -1) for v in was):
            reasons.add("lost finding")
        elif value == 1 and 1 not in was:
            reasons.add("new finding")
    # A finding that is lost or flipped makes "No Finding" look new; the cause comes first.
    return next((r for r in ("flipped finding", "lost finding", "new finding") if r in reasons), None)


def _words(text: str) -> list[str]:
    return _WORD.findall(normalise(text))
