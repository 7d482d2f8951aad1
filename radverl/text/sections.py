"""Split a radiology report into named sections, by rules.

A header (`radverl.text.headers`) starts a section; the text before the first one is "preamble". Rules, in order:
  1. A repeated section: the last one with text wins. Findings and impression come from one report where a document
     holds several below titles of their own. An addendum or a wet read never replaces the main report.
  2. "Findings and impression", "conclusion" and the like are `impression`; "CHEST, TWO VIEWS" opens the `findings`.
  3. Sub-headers ("LUNGS:", "OTHER FINDINGS:") and signatures stay in the text of their section.
  4. What follows "END OF IMPRESSION", a summary code or an accession number is `notification`.
  5. Without findings, the later paragraphs of the last section about the request or the examination are `findings`.
  6. Without any header the whole text is `findings`.
  7. Empty sections are left out.
Linear time in the length of the text.
"""

import re
from typing import NamedTuple

from radverl.text.header_words import is_title
from radverl.text.headers import Head, find_heads
from radverl.text.sentences import unwrap

_ASKING = ("indication", "history", "comparison", "technique", "examination")  # sections of one paragraph
_ASIDES = ("addendum", "wet read")
_MAIN = ("findings", "impression")
_GATHERED = (*_ASIDES, "preamble", "notification")  # sections that keep all their texts
_SIGNATURE = 80  # a text shorter than this below an addendum is no report
_ODD_SIGNS = str.maketrans(
    {"\xa0": " ", "\ufeff": None, "\u200b": None, "\x85": "\n", "\u2028": "\n", "\u2029": "\n", "\uff1a": ":"}
)
_RULE = re.compile(r"^[ \t]{0,80}(?:_{10,}|-{3,}|={3,}|\*{3,})[ \t]*$", re.M)
_BLOCK_TAG = re.compile(r"</?(?:p|br|div|li|ul|ol|tr|h\d)[ ]?/?>", re.I)
_INLINE_TAG = re.compile(r"</?(?:b|i|u|em|strong|span)>", re.I)
_TITLE = re.compile(r"^\s*(?:FINAL (?:RADIOLOGY )?REPORT|FINAL ADDENDUM|RADIOLOGY REPORT)(?![ \t]*:)\s*", re.I)
_SUMMARY_CODE = re.compile(r"\s*(?:\d[.)]\s*)?\d\s*-\s*[A-Z]")


class _Part(NamedTuple):
    name: str
    start: int
    end: int
    report: int  # number of the report in a document of several


def split_sections(report: str) -> dict[str, str]:
    """Sections by lower-case name: findings, impression, indication, history, comparison, technique, examination,
    recommendation, notification, addendum, wet read, preamble. Values are not empty, wrapped lines are joined,
    paragraphs are one blank line apart; "" gives {}.
    """
    if not report.strip():
        return {}
    text = _plain(report)
    parts = _parts(text, find_heads(text))
    if len(parts) > 1 and parts[-1].report:
        last = max((part.report for part in parts if part.name in _MAIN), default=0)
        parts = [part for part in parts if part.name not in _MAIN or part.report == last]
    bodies: dict[str, list[str]] = {}
    kept: list[str] = []  # names in the order of their texts
    for part in parts:
        body = _body(text[part.start : part.end])
        if not body:
            continue
        kept.append(part.name)
        if part.name in bodies and part.name in _GATHERED:
            bodies[part.name].append(body)
        else:
            bodies[part.name] = [body]
    return _with_findings({name: "\n".join(texts) for name, texts in bodies.items()}, kept)


def _plain(report: str) -> str:
    """One kind of line break and of space."""
    text = report if report.isascii() else report.translate(_ODD_SIGNS)
    if "\r" in text or "\x0b" in text or "\x0c" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0b", "\n").replace("\x0c", "\n")
    if "\\n" in text and "\n" not in text:  # escaped by an export
        text = text.replace("\\r", "").replace("\\n", "\n")
    if "</" in text or "<br" in text or "<BR" in text:
        text = _INLINE_TAG.sub("", _BLOCK_TAG.sub("\n", text))
    return text


def _body(text: str) -> str:
    title = _TITLE.match(text)
    if title:
        text = text[title.end() :]
    if "__" in text or "--" in text or "==" in text or "**" in text:
        text = _RULE.sub("", text)
    return unwrap(text)


def _parts(text: str, heads: list[Head], fenced: bool = True) -> list[_Part]:
    """The text cut at the headers that open a section.

    Args:
        fenced: an addendum or a wet read lasts until the next rule or title, if one follows.
    """
    last_break = max((head.start for head in heads if head.header.name in ("rule", "title")), default=-1)
    parts: list[_Part] = []
    seen: set[str] = set()  # sections of this report that have text
    name, start, number = "preamble", 0, 0
    aside = ""  # addendum or wet read
    until_break = filled = False
    checked = 0  # up to here `filled` says whether the section has text
    for i, head in enumerate(heads):
        kind = head.header.name
        filled = filled or (checked < head.start and not text[checked : head.start].isspace())
        checked = head.end if kind == "rule" else head.start
        if filled and not aside:
            seen.add(name)
        begin, new_report = head.end, False
        if kind in ("rule", "title"):
            new_report = kind == "title" and not aside and not seen.isdisjoint(_MAIN)
            if not (aside or new_report) and (kind == "rule" or name == "preamble"):
                continue
            opened, aside = "preamble", ""
        elif kind in _ASIDES:
            opened = aside = kind
            until_break = fenced and last_break > head.start
        elif aside and (head.header.soft or until_break or kind in seen or "impression" in seen):
            if head.header.soft or kind == "preamble":
                continue
            opened = aside
        else:
            aside = ""
            end = heads[i + 1].start if i + 1 < len(heads) else len(text)
            opened, begin = _opened(text, head, end, name, filled, seen)
            if not opened:
                continue
        parts.append(_Part(name, start, head.start, number))
        name, start, number = opened, begin, number + new_report
        filled, checked = False, begin
        if new_report:
            seen = set()
    parts.append(_Part(name, start, len(text), number))
    if fenced and last_break >= 0 and _lost_report(text, parts):
        return _parts(text, heads, fenced=False)
    return parts


def _opened(text: str, head: Head, end: int, name: str, filled: bool, seen: set[str]) -> tuple[str, int]:
    """(section that a header opens, start of its text); ("", 0) if the header belongs to the text of `name`."""
    kind = head.header.name
    told = not seen.isdisjoint(_MAIN)
    if kind == "impression" and head.header.soft and told and _SUMMARY_CODE.match(text[head.end : head.end + 20]):
        return "notification", head.start
    if kind == "close":
        keep = "END" not in text[head.start : head.end].upper()  # keeps the words "accession number"
        return ("notification", head.start if keep else head.end) if told else ("", 0)
    if not head.header.soft:
        return kind, head.end
    if kind != "views":
        return ("", 0) if kind == name or kind in seen else (kind, head.end)
    return _opened_by_views(text, head, end, name, filled, seen)


def _opened_by_views(text: str, head: Head, end: int, name: str, filled: bool, seen: set[str]) -> tuple[str, int]:
    if name == "findings" or (name == "impression" and not filled):
        return "", 0
    body = text[head.end : min(end, head.end + 300)].strip()
    if is_title(body.split("\n", 1)[0]):
        return ("examination", head.start) if name in ("preamble", "narrative") else ("", 0)
    if "findings" in seen and not head.header.strong:
        return "", 0
    if name not in ("preamble", "narrative"):
        above = text[max(0, head.start - 100) : head.start].replace(" ", "").replace("\t", "")
        if not filled and not above.endswith("\n"):  # "EXAM: PA AND LATERAL CHEST: ..."
            return "", 0
        if not head.header.strong and not above.endswith("\n\n") and name not in ("indication", "history"):
            return "", 0
    return "findings", head.end


def _lost_report(text: str, parts: list[_Part]) -> bool:
    """Whether an addendum seems to hold the whole report: a rule below it that only parts off a signature."""
    names = [part.name for part in parts]
    if not any(name in names for name in _ASIDES) or any(name in names for name in _MAIN):
        return False
    first = min(names.index(name) for name in _ASIDES if name in names)
    after = sum(len(text[part.start : part.end].strip()) for part in parts[first:] if part.name not in _ASIDES)
    return after < _SIGNATURE


def _with_findings(sections: dict[str, str], kept: list[str]) -> dict[str, str]:
    """Findings from where reports without that header have them."""
    narrative = sections.pop("narrative", "")
    if narrative and is_title(narrative):
        sections.setdefault("examination", narrative)
    elif narrative:
        place = "preamble" if "findings" in sections else "findings"
        sections[place] = f"{sections[place]}\n{narrative}" if place in sections else narrative
    if "findings" in sections:
        return sections
    if kept[-1:] == ["preamble"] and "impression" not in sections:  # no header, or the text after a wet read
        sections["findings"] = sections.pop("preamble")
        return sections
    asking = [name for name in kept if name not in (*_MAIN, "recommendation", "notification", *_ASIDES)]
    if asking and asking[-1] in _ASKING:
        first, *rest = sections[asking[-1]].split("\n\n", maxsplit=1)
        if rest and not is_title(rest[0]):
            sections[asking[-1]], sections["findings"] = first, rest[0]
    return sections
