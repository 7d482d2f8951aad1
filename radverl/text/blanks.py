"""Marks left by de-identification: `___` (MIMIC), `XXXX` (Open-i), `[**...**]` (older MIMIC) and `<unk>`.

A model that learns from them writes them. Three policies:

    keep      the text as it is
    drop      the mark goes with what hangs on it ("compared to ___", "___-year-old", "___ cm"), so that the sentence
              stays grammatical; a sentence that cannot do without the mark goes, and so do messages to a physician
    sentence  every sentence with a mark goes

A header stays while its section has text. A text without marks is returned byte for byte, and so is every paragraph
without one. English only.
"""

import re
from functools import lru_cache

from radverl.text.header_words import is_title, read_header
from radverl.text.sentences import split_sentences, unwrap

POLICIES = ("keep", "drop", "sentence")

_MARK = re.compile(
    r"\[\*\*[^\[\]]{0,200}\*\*\]|<unk>|<UNK>|(?<!_)_{3,9}(?!_)"
    r"|(?<![A-Za-z0-9])(?:X{1,2}/X{1,2}/X{2,4}|X{2,}|x{3,})(?![A-RT-Za-rt-z0-9])"
)
_MARKS = re.compile(f"(?:{_MARK.pattern})+")
_PARAGRAPH = re.compile(r"(\n[ \t]*\n[ \t\n]*)")
_HEADER = re.compile(r"[#* ]{0,4}([A-Za-z][A-Za-z()/&, -]{2,50}):\**\s*")
_NUMBER = re.compile(r"(?:\d{1,2}[.)]|[-*\u2022])\s+")

_M = "___"
_RULE = re.compile(r"_{10,}")
_LONGEST = 1000  # of a longer sentence only the marks go
_STUDY = (
    r"stud(?:y|ies)|exam(?:ination)?s?|radiographs?|radiography|x-?rays?|films?|cts?|scans?|mris?|images?|imaging|cxrs?"
    r"|chest|portable|frontal|reports?|views?"
)
_ADJECTIVE = (
    r"prior|previous|earlier|(?:most )?recent|last|old|outside|same|right|left|upper|lower|mid|middle|bilateral|both"
    r"|inferior|superior|posterior|anterior|lateral|medial|proximal|distal"
)
_ANATOMIC = (
    r"(?:costo|cardio)phrenic|pleural|pulmonary|mediastinal|hilar|thoracic|cardiac|vascular|bony|osseous|apical|basilar"
    r"|bibasilar|basal|interstitial|degenerative|abdominal|cervical|lumbar|spinal|retrocardiac|subsegmental"
)
_DETERMINER = r"the|a|an|his|her|its|their|this|that|these|those|no|any|some|another|other"
_INSIDE = (
    rf"(?:(?:{_DETERMINER}|{_ADJECTIVE}|{_ANATOMIC}|{_STUDY}|of|from|dated|on|performed|obtained|done|taken|at),? )"
)
_VERB = (
    r"is|are|was|were|has|have|had|been|be|appears?|remains?|shows?|demonstrates?|reveals?|may|can|could|should|would"
    r"|will|does|do|seems?|projects?|overl(?:ies|ay)|represents?|consists?|measures?|contains?|includes?|suggests?"
)
# The mark is the head of its phrase where one of these follows; before another word it is like an adjective.
_HEAD = (
    r"(?= ?(?:$|[.,;:)?!/]|(?:and|or|but|with|without|in|of|at|on|to|from|that|which|who|as|for|by|the|there|when|while"
    rf"|since|again|a|an|no|than|per|via|through|into|over|under|above|below|status|{_VERB})\b))"
)
_CONTACT = re.compile(
    r"\b(?:discussed|communicated|conveyed|notified|notification|informed|paged|telephoned?|phone|called|relayed"
    r"|reported (?:to|by)|e-?mailed|dashboard|dictated|transcribed|signed|approved by|reviewed by|acknowledged)\b",
    re.I,
)
_PERSON_FIRST = re.compile(rf"^(?:Drs?|Mrs?|Ms|Prof|Doctor)\.? {_M}", re.I)
_PERSON = re.compile(
    rf"\b(?:Drs?|Mrs?|Ms|Prof|Doctor)\.? {_M}|{_M}, ?(?:M\.?D\.?|R\.?N\.?|N\.?P\.?|D\.?O\.?)(?!\w)", re.I
)
_CLOCK = r"\d{1,2}:\d{2}(?: ?[ap]\.?m\b\.?)?"
_UNIT = r"(?:cm|mm|centimeters?|millimeters?|inch(?:es)?|%|percent|french|degrees?)(?!\w)"
_ABOUT = r"(?:approximately|approx\.|about|roughly|nearly|at least|up to|measuring|less than|more than|by|of|only|now)"

_SEVERAL = re.compile(rf"{_M}(?:(?:[\s/,:&-]|\b(?:and|or)\b)*{_M})+")
_LOST_DISTANCE = re.compile(rf"{_M}[- ]?{_UNIT} (?:from|of|to)\b", re.I)
# Without the mark these have no subject or no object.
_BROKEN = re.compile(
    rf"^(?:(?:{_DETERMINER}|{_ADJECTIVE}|{_ANATOMIC}) )*{_M} (?:{_VERB})\b"
    rf"|\b(?:{_VERB})(?: (?:{_DETERMINER}|{_ADJECTIVE}|{_ANATOMIC}))* {_M}(?= ?(?:$|[.,;:)?!]))"
    rf"|\b(?:{_DETERMINER}|{_ADJECTIVE}|{_ANATOMIC}) {_M}{_HEAD}",
    re.I,
)
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.I), replacement)
    for pattern, replacement in (
        (rf" \b(?:in|within|over|for|after|every)(?: the)?(?: (?:last|past|next))? (?:{_ABOUT} )?{_M}"
         rf"(?: ?(?:to|-) ?{_M})?"
         r"[- ](?:years?|months?|weeks?|days?|hours?|minutes?)\b(?![- ]old)", ""),
        # Age, and the letter that stands for the sex: "___F", "a ___-year-old man".
        (rf"(?:\baged? )?{_M}[- ]*(?:years?|yrs?|yo|y/o|y\.o\.|months?|weeks?|days?|hours?)\b"
         r"(?:[- ]*(?:old|of age|ago|earlier|prior))?-?", ""),
        (rf"{_M} ?(?=[FM]\b)", ""),
        (rf"{_M},? at {_CLOCK}|\b{_CLOCK},? on {_M}", _M),
        (rf"{_M} ?(?:a\.?m\b\.?|p\.?m\b\.?|hours)(?=[\s.,;]|$)", _M),
        (rf"(?:{_ABOUT} )*{_M}(?: ?(?:x|by|to|-) ?{_M})*[- ]?{_UNIT}"
         r"(?: in (?:diameter|size|length|width|(?:greatest|maximum) (?:dimension|diameter)))?", ""),
        # The rest of the word that holds the mark: "x-XXXX", "XXXX-sided".
        (rf"(?<![a-z0-9'/-])[a-z0-9'/-]*{_M}(?:-[\w'-]+|'?s\b|\w+)?", _M),
        # Dates and comparisons, then lists, then other phrases.
        (rf",? ?\b(?:as |when )?(?:compared|comparison|in comparison|relative|similar|in relation|with reference)"
         rf" (?:to|with) {_INSIDE}{{0,10}}{_M}{_HEAD}", ""),
        (rf",? ?\b(?:since|from|than|dated|until|through|as of|on|at) {_INSIDE}{{0,10}}{_M}(?: (?:{_STUDY}))?{_HEAD}",
         ""),
        (rf"\b({_DETERMINER}) {_M} of (?:the |an? |any )?(?=\w)", r"\1 "),
        (rf"{_M} of (?=\w)", ""),
        (rf"\b({_VERB})\b([^.;]*?),? (?:and|but) (?:(?:{_DETERMINER}|{_ADJECTIVE}|{_ANATOMIC}) )*{_M} (?:{_VERB})\b"
         r"[^,;.]*", r"\1\2"),
        (rf",? ?\b(?:and/or|and|or|nor) (?:(?:{_DETERMINER}|{_ADJECTIVE}|{_ANATOMIC}) )*{_M}{_HEAD}", ""),
        (rf"{_M} ?(?:and|or) (?=\w)", ""),
        (r",? ?\b(?:(?:consistent|compatible|in keeping) with|(?:suggestive|indicative|because|evidence|history) of"
         r"|(?:suspicious|concerning) for|(?:due|secondary|related) to|status post|s/p|in (?:the )?setting of|with|to"
         r"|of|in|for|by|per|via|after|before|during|between|near|over|without|into|under|above|below) "
         rf"(?:{_INSIDE}|\w+(?:ic|al|ary) ){{0,6}}{_M}{_HEAD}", ""),
    )
)  # fmt: skip
_ARTICLE = re.compile(rf"\b([Aa])n? {_M} (?=([A-Za-z]))")
_DANGLING = re.compile(
    rf"(?:\b(?:{_DETERMINER}|{_VERB}|with|of|in|to|from|at|on|by|for|as|than|since|that|which|into|per))[ .,;]*$", re.I
)
_HOLLOW = re.compile(
    rf"^\W*(?:(?:{_DETERMINER}|{_ADJECTIVE}|{_ANATOMIC}|{_STUDY}|is|are|was|were|has|have|been|there|it|and|or|with|of|in|to|from|at|on|by"
    r"|for|as|compared|comparison|comparisons|correlation|made|also|again|[a-z])\b\W*)*$",
    re.I,
)


def apply_blanks(text: str, policy: str) -> str:
    """The text with its de-identification marks treated by `policy`: "keep", "drop" or "sentence".

    "The tube ends ___ cm above the carina. Compared to ___, no change." -> "The tube ends above the carina. No change."
    Idempotent; a list keeps its numbers, so that a dropped item leaves a gap.

    Raises:
        ValueError: an unknown policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"blanks policy {policy!r} is not known; use one of {', '.join(POLICIES)}.")
    if policy == "keep" or not _MARK.search(text):
        return text
    out: list[str] = []
    waiting = ""  # a header, with the break before it, whose section has no text yet
    pieces = _PARAGRAPH.split(text)
    for i in range(0, len(pieces), 2):
        gap, paragraph = pieces[i - 1] if i else "", pieces[i]
        marked = _MARK.search(paragraph) is not None
        blocks = _blocks(paragraph, policy) if marked else [(paragraph, "")]
        indent = " " if marked and paragraph.startswith((" ", "\t")) else ""  # MIMIC's parser looks for it
        for block, header in blocks:
            if block.strip():
                if waiting and not _split_header(block.lstrip())[0]:
                    out.append(waiting)
                out.append(gap + indent + block)
                gap, waiting = "\n", ""
            if header:
                gap, waiting = "\n", gap + indent + header
    result = "".join(out)
    if _MARK.search(result):  # marks inside marks
        result = _MARK.sub("", result.replace("[**", " ").replace("**]", " "))
    if not text.startswith("\n"):
        result = result.lstrip("\n")
    return result.rstrip() + text[len(text.rstrip()) :] if result.strip() else ""


def _blocks(paragraph: str, policy: str) -> list[tuple[str, str]]:
    """(text kept, header at its end that is left without text) per line of a paragraph, wrapped lines joined."""
    out = []
    for block in unwrap(_MARKS.sub(_M, paragraph)).split("\n"):
        kept: list[str] = []
        waiting = ""
        for sentence in split_sentences(block):
            header, body = _split_header(sentence)
            waiting = header or waiting
            number = _NUMBER.match(body)
            start = number.end() if number else 0
            new = _without(body[start:], policy) if _M in body else body[start:]
            if new:
                kept.append(f"{waiting} {body[:start]}{new}".lstrip())
                waiting = ""
        out.append((" ".join(kept), waiting))
    return out


def _split_header(text: str) -> tuple[str, str]:
    match = _HEADER.match(text)
    if match is None or read_header(match[1].strip(), True) is None:
        return "", text
    return match[0].rstrip(), text[match.end() :]


@lru_cache(maxsize=8192)
def _without(sentence: str, policy: str) -> str:
    """The sentence without its marks, "" where nothing of it can stand."""
    if _RULE.search(sentence):
        return " ".join(_MARK.sub(" ", sentence).split())
    if policy == "sentence":
        return ""
    out = _SEVERAL.sub(_M, sentence)
    if len(out) > _LONGEST:
        return " ".join(out.replace(_M, " ").replace("_", " ").split())
    if _PERSON_FIRST.match(out) or _CONTACT.search(out) or _LOST_DISTANCE.search(out):
        return ""
    out = _PERSON.sub(_M, out)
    for pattern, replacement in _REWRITES:
        out = " ".join(pattern.sub(replacement, out).split())
    if _BROKEN.search(out):
        return ""
    out = _ARTICLE.sub(lambda m: m[1] + ("n " if m[2] in "aeiouAEIOU" else " "), out)
    out = _tidy(out.replace(_M, " ").replace("__", " "))
    if _DANGLING.search(out) or _HOLLOW.match(out) or (sentence[-1] == ":" and is_title(out)):
        return ""
    if sentence[0].isupper() and out[0].islower():
        out = out[0].upper() + out[1:]
    return out + sentence[-1] if sentence[-1] in ".?!:" and out[-1].isalnum() else out


def _tidy(text: str) -> str:
    """Without the empty brackets, doubled stops and loose joints that a mark left."""
    text = re.sub(r"[(<\[][\s,;:./-]*[)>\]]", " ", text)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" (?=[.,;:?!)])", "", text)
    text = re.sub(r"[,;:](?=[,;:.?!])", "", text)
    text = re.sub(r"^(?:[\s,;:.?!)/-]|(?:and|or|but|with)\b(?=[ ,]))+", "", text, flags=re.I)
    return re.sub(r"(?:[\s,;:/(-]|\b(?:and|or|but))+(?=[.?!]?$)", "", text, flags=re.I).strip()
