"""Sentence splitting for radiology reports, by rules.

Handles numbered and dashed lists, lists without full stops, wrapped lines, decimals broken by dictation ("3. 5 cm"),
abbreviations, glued sentences ("effusion.There") and the de-identification marks `___` and `XXXX`. Linear time.
"""

import re

# A line this long was wrapped by the dictation system, so its line break ends no sentence.
_WRAP_WIDTH = 60

_PARAGRAPH = re.compile(r"\n[ \t]*\n[ \t\n]*")
_ITEM = re.compile(r"[ \t]*(?:\d{1,2}[.)](?=\s)|[-*\u2022](?=\s))")
_HEADER = re.compile(r"[ \t]*[A-Z][A-Z /&()]{2,40}:")
_NEW_LINE_START = re.compile(r"[ \t]*(?:[A-Z][a-z]+|A|AP|PA|ET|NG)\b")
_OPEN_END = re.compile(
    r"(?:,|\b(?:a|an|the|of|in|on|at|to|and|or|with|without|no|is|are|by|for|from|right|left|dr))\s*$", re.I
)
_GLUED = re.compile(r"(?<=[a-z)\]])([.?!])(?=[A-Z][a-z]|\d{1,2}[.)] ?[A-Z][a-z])")
_STOP = re.compile(r"(?<![.?!])[.?!]++[\"')\]]*+(?=\s|$)")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|vs|st|fig|approx|pt|prof|jr|sr|inc|resp|est|cf|ca|incl|e\.g|i\.e|a\.m|p\.m|s\.p|h\.o)\.$",
    re.I,
)
_CLOCK = re.compile(r"(?:a|p)\.m\.$", re.I)
_NUMBER_END = re.compile(r"(?:^|[\s(])\d+\.$")
_FIRST_NUMBER = re.compile(r":\s*\d{1,2}\.$")
_RULE = "_" * 10
_TITLE = "FINAL REPORT"
_ALONE = (_RULE, _TITLE)  # ends of lines that stand alone
_LIST_NUMBER = re.compile(r"\d{1,2}[.)]\s")


def split_sentences(text: str) -> list[str]:
    """Sentences in order, white space collapsed, none empty; the words of `text` are all kept, in order.

    A list number stays with its sentence ("2. Mild cardiomegaly."); a header stays with the text on its line.
    """
    out: list[str] = []
    for paragraph in _PARAGRAPH.split(text):
        for block in _blocks(paragraph):
            out.extend(_split_block(block))
    return out


def unwrap(text: str) -> str:
    """Text with wrapped lines joined and white space collapsed; list items and paragraphs keep their line breaks."""
    text = text.strip()
    if "\n" not in text:
        return " ".join(text.split())
    paragraphs = ["\n".join(_blocks(p)) for p in _PARAGRAPH.split(text)]
    return "\n\n".join(p for p in paragraphs if p)


def _blocks(paragraph: str) -> list[str]:
    """Join wrapped lines; start a new block at list items, headers and lines that look complete."""
    groups: list[list[str]] = []
    previous = ""
    for line in paragraph.splitlines():
        words = line.split()
        if not words:
            continue
        if groups and not _breaks(previous, line, words):
            groups[-1] += words
        else:
            groups.append(words)
        previous = line
    return [" ".join(group) for group in groups]


def _breaks(previous: str, line: str, words: list[str]) -> bool:
    if previous.endswith(_ALONE) or words[0].startswith(_RULE) or line.endswith(_TITLE):
        return True
    if words[0][0].islower():
        return False
    if _ITEM.match(line) or (":" in line and _HEADER.match(line)):
        return True
    if len(previous.strip()) >= _WRAP_WIDTH or _OPEN_END.search(previous[-12:]):
        return False
    return bool(_NEW_LINE_START.match(line))


def _split_block(block: str) -> list[str]:
    if "." not in block and "?" not in block and "!" not in block:
        return [block] if block else []
    block = _GLUED.sub(r"\1 ", block)
    out, start = [], 0
    for stop in _STOP.finditer(block):
        end = stop.end()
        tail = block[max(start, end - 12) : end]
        following = block[end + 1 : end + 6]
        if _ABBREVIATION.search(tail) and not (_CLOCK.search(tail) and following[:1].isupper()):
            continue
        if _NUMBER_END.search(tail):
            if end - start < 6 and block[start:end].strip().rstrip(".").isdigit():
                continue  # the list number "2." itself
            if _FIRST_NUMBER.search(tail):
                continue  # "IMPRESSION: 1."
            if following[:1].isdigit() and not _LIST_NUMBER.match(following):
                continue  # a decimal dictated as "3. 5"
        out.append(block[start:end].strip())
        start = end
    if block[start:].strip():
        out.append(block[start:].strip())
    return out
