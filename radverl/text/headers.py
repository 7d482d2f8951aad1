"""Where the headers of a report stand: with a colon, alone on a line, before a dash, as a tag, misspelt, glued.

At the start of a line every known header counts. Inside a line one in capitals does ("effusion. IMPRESSION: Clear");
one in small letters must follow the end of a sentence, and in a report whose headers open lines it must be "Findings"
or "Impression" ("INDICATION: History: cough" is one section). Rules across the page and the titles of reports are
found too. Linear time: every colon looks back a fixed distance.
"""

import re
from typing import NamedTuple

from radverl.text.header_words import Header, read_header

_REACH = 100  # characters that a header may take, with what stands before it in its line
_LONGEST_ALONE = 64  # with what centres it
_WRAP_WIDTH = 60  # a line this long goes on in the next one
_CUES = "#*_>\"'`([{-\u2022 \t"  # may stand before a header: Markdown, quotes, list signs
_CLOSERS = " \t*_`\"'"
_MAIN = ("findings", "impression")
_ASKED = ("history", "indication")

_AFTER_COLON = re.compile(r"(?:\*{1,3}|__(?!_)|(?:</[a-z]{1,6}>)+)?[ \t]*")
_LAST_STOP = re.compile(r"[\s\S]*[.;:?!>\])_]")
_ITEM = re.compile(r"\(?\d{1,2}[.)]\s*")
_DATE = re.compile(r"_{3}|\d\s*:|X{4}")
_GLUED = re.compile(r"(?<=[a-z])[A-Z]{6,}$")
# Words before a header inside a line of capitals that make it a part of a sentence.
_LEANING = {
    "OF", "FOR", "SEE", "PER", "THE", "IN", "NO", "PRIOR", "PREVIOUS", "WITH", "AND", "TO", "AS", "BY", "ON",
    "IS", "A", "AN",
}  # fmt: skip
_WITHOUT_COLON = re.compile(
    r"(FINDINGS|IMPRESSION|CONCLUSION|INDICATION|HISTORY|COMPARISON|TECHNIQUE"
    r"|Findings|Impression|Conclusion|Indication|History|Comparison|Technique)"
    r"(?:(?P<dash>[*_]{0,3}[ \t]{1,9}[-\u2013\u2014]{1,2}[ \t]+)"
    r"|[ \t]{0,9}[-\u2013\u2014=]+[ \t]*|\.?[ \t]+(?=[A-Z][a-z]|A |\d))"
)
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][A-Za-z _]{2,30})>|\[(?P<bracket>[A-Za-z][A-Za-z ]{2,30})\]:?")
_ADDENDUM = re.compile(
    r"^[ \t*]{0,80}(?:FINAL )?ADDENDUM\b(?! TO)(?: BEGINS?\b| START\b|[ \t]*\(?#?[ \t]*\d{1,2}\)?(?![.\d]|:\d))?"
    r"[ \t:*]*",
    re.M,
)
_WET_READ = re.compile(r"^[ \t*]{0,80}WET READ\b(?: VERSION)?(?: #\d{1,2}(?!\d|:\d))?[ \t:*]*", re.M | re.I)
_RULE = re.compile(r"^[ \t]{0,80}(?:_{10,}|={3,}|-{3,}|\*{3,})[ \t]*$", re.M)
_ADDENDUM_END = re.compile(r"^[ \t*]{0,80}(?:END OF (?:THE )?ADDENDUM|ADDENDUM ENDS?)\b[ \t:.*]*$", re.M | re.I)
_FINAL_REPORT = re.compile(r"FINAL (?:RADIOLOGY )?REPORT[ \t*]*$", re.M)


_TITLE = Header("title", True, False)
_LINE = Header("rule", True, False)
_CLOSED = Header("preamble", True, False)


class Head(NamedTuple):
    """A header in a text."""

    start: int
    end: int  # where the text of the section begins
    header: Header
    capitals: bool


def find_heads(text: str) -> list[Head]:
    """Headers in order, without overlaps; rules and titles of reports carry the names "rule" and "title"."""
    found = _at_colons(text)
    if "\n" in text or not found:
        found += _on_lines(text)
        found += _without_colon(text)
    if "ADDENDUM" in text:
        found += [Head(*m.span(), Header("addendum", True, False), True) for m in _ADDENDUM.finditer(text)]
        found += [Head(*m.span(), _LINE, True) for m in _ADDENDUM_END.finditer(text)]
    if "WET" in text or "wet" in text or "Wet" in text:
        found += [Head(*m.span(), Header("wet read", True, False), True) for m in _WET_READ.finditer(text)]
    for m in _FINAL_REPORT.finditer(text):
        start = _line_start(text, m.start())
        if start >= 0:
            found.append(Head(start, m.end(), _TITLE, True))
    if "____" in text or "===" in text or "---" in text or "***" in text:
        found += [Head(*m.span(), _LINE, True) for m in _RULE.finditer(text)]
    if "<" in text or "[" in text:
        found += _tags(text)
    found.sort(key=_reading_order)
    out: list[Head] = []
    for head in found:
        if not out or head.start >= out[-1].end:
            out.append(head)
    return out


def _reading_order(head: Head) -> tuple[int, int]:
    return head.start, -head.end  # of two at one place the longer comes first


def _at_colons(text: str) -> list[Head]:
    found: list[Head] = []
    end = 0
    small = text.islower()
    led = 0  # headers that opened a line, those in capitals twice
    colon = text.find(":")
    while colon >= 0:
        before = text[colon - 1 : colon]
        if not (before.isdigit() and text[colon + 1 : colon + 2].isdigit()):  # a time of day
            head = _at_line_start(text, colon, end, small) or _inside_line(text, colon, end, led > 1, small)
            if head and not (_dated(text, head) or (found and _nested(text, found[-1], head))):
                found.append(head)
                end = head.end
                led += (1 + head.capitals) * _opens_line(text, head.start)
        colon = text.find(":", colon + 1)
    return found


def _after(text: str, colon: int) -> int:
    match = _AFTER_COLON.match(text, colon + 1)
    return match.end() if match else colon + 1


def _line_start(text: str, start: int) -> int:
    """Where the line begins that a phrase opens, marks of Markdown aside; -1 if other words stand before it."""
    low = max(0, start - _REACH)
    line = text.rfind("\n", low, start) + 1
    if line == 0 and low > 0:
        return -1
    return line if not text[line:start].strip(" \t#*_>") else -1


def _opens_line(text: str, start: int) -> bool:
    return start == 0 or text[start - 1] == "\n"


def _at_line_start(text: str, colon: int, end: int, small: bool) -> Head | None:
    low = max(end, colon - _REACH)
    start = text.rfind("\n", low, colon) + 1 or low
    if start == low and not _opens_line(text, low):
        return None
    phrase = text[start:colon].strip(_CUES)
    if phrase[:1].isdigit():
        phrase = _ITEM.sub("", phrase, count=1).lstrip(_CUES)
    if small:  # a report in small letters has its headers like one in capitals
        phrase = phrase.upper()
    header = read_header(phrase, True)
    if header is None or not (header.strong or phrase[0].isupper()):
        return None
    return Head(start, _after(text, colon), header, phrase.isupper() and not small)


def _inside_line(text: str, colon: int, end: int, led: bool, small: bool) -> Head | None:
    low = max(end, colon - _REACH)
    start = text.rfind("\n", low, colon) + 1 or low
    region = text[start:colon].rstrip(_CLOSERS)
    cut = region.rfind("(") if region.endswith(")") else len(region)
    stop = _LAST_STOP.match(region, 0, max(cut, 0))
    begin = stop.end() if stop else 0
    phrase = region[begin:].strip(_CUES)
    if not phrase:
        return None
    capitals = phrase.isupper()
    after = bool(stop) or start == end
    header = read_header(phrase) if after and phrase[0].isalpha() else None
    if header is None or not (header.strong or (capitals and stop)):
        return _in_capitals(text, start, region, colon)
    if not capitals:
        fits = phrase[0].isupper() and (header.name in _MAIN or not led)
        if header.name == "views" or not (fits or small):
            return None
    if region[max(0, begin - 3) : begin].lstrip(" .:;") == "__":  # "__Impression:__"
        begin -= 2
    return Head(start + begin, _after(text, colon), header, capitals)


def _in_capitals(text: str, start: int, region: str, colon: int) -> Head | None:
    """A header in capitals that nothing parts from the words before it."""
    words = region.split()[-7:]
    if not words or not (words[-1][-1].isupper() or words[-1][-1] == ")"):
        return None
    glued = _GLUED.search(words[-1])
    if glued:
        words = [glued[0]]
    for first in range(max(0, len(words) - 6), len(words)):
        phrase = " ".join(words[first:])
        if not phrase.isupper() or not phrase[0].isalpha() or (first and words[first - 1] in _LEANING):
            continue
        header = read_header(phrase)
        if header and header.strong and (header.name != "views" or not region.isupper()):
            begin = region.rfind(words[first], 0, len(region) - len(phrase) + len(words[first]))
            return Head(start + begin, _after(text, colon), header, True)
    return None


def _dated(text: str, head: Head) -> bool:
    """Whether the words are part of a sentence like "Comparison ___: new effusion"."""
    named = head.header.name == "comparison" and not head.capitals
    return named and _DATE.search(text, head.start, head.end) is not None


def _nested(text: str, last: Head, head: Head) -> bool:
    """Whether the header only opens the text of the last one ("INDICATION: History: cough", "Exam: Chest: ...")."""
    name, opens = head.header.name, _opens_line(text, head.start)
    asked = name in _ASKED and last.header.name in _ASKED
    if name in _MAIN or (opens and not asked) or (head.capitals and (opens or not asked)):
        return False
    return not text[last.end : head.start].strip(_CUES + "\n")


def _on_lines(text: str) -> list[Head]:
    """Headers alone on their line, without a colon."""
    found: list[Head] = []
    start, above = 0, ""
    for line in text.split("\n"):
        if 2 < len(line) < _LONGEST_ALONE and ":" not in line:
            phrase = line.strip(_CUES + _CLOSERS)
            if 2 < len(phrase) < 46 and (phrase[-1].isalnum() or phrase[-1] == ")"):
                header = _alone(line.strip(), phrase, above.strip())
                if header:
                    found.append(Head(start, start + len(line), header, phrase.isupper()))
        start += len(line) + 1
        above = line
    return found


def _alone(line: str, phrase: str, above: str) -> Header | None:
    if phrase[0].isdigit():
        phrase = _ITEM.sub("", phrase, count=1)
    header = read_header(phrase)
    if header is None or not header.strong or header.name == "views":
        return None
    if line[0] in "#*_":
        return header
    ended = not above or above[-1] in ".:;?!_*"
    if phrase.isupper():
        return header if ended or len(above) < _WRAP_WIDTH else None
    return header if ended and (phrase[0].isupper() or not above) else None


def _without_colon(text: str) -> list[Head]:
    """Headers at the start of a line before a dash, or in capitals before a sentence."""
    found = []
    for m in _WITHOUT_COLON.finditer(text):
        capitals = m[1].isupper()
        start = _line_start(text, m.start())
        header = read_header(m[1]) if start >= 0 and (capitals or m["dash"]) else None
        if header:
            found.append(Head(start, m.end(), header, capitals))
    return found


def _tags(text: str) -> list[Head]:
    """`<findings> ... </findings>` and `[FINDINGS]`."""
    found: list[Head] = []
    for m in _TAG.finditer(text):
        phrase = (m["name"] or m["bracket"]).replace("_", " ")
        header = read_header(phrase)
        if header is None or header.name == "views":
            continue
        if m["bracket"] and text[max(0, m.start() - 40) : m.start()].strip(" \t*#")[-1:] not in ("", "\n", ".", ";"):
            continue
        found.append(Head(m.start(), m.end(), _CLOSED if m["close"] else header, phrase.isupper()))
    return found
