"""Split a radiology report into named sections, by rules.

Known headers (with their variants and small misspellings) start a section; the text before the first one is
"preamble". Rules, in order:
  1. A repeated section: the last one with text wins. An addendum or a wet read never replaces the main report.
  2. "Findings and impression", "conclusion" and the like are `impression`.
  3. Without findings, the later paragraphs of the last section about the request or the examination are `findings`.
  4. Without any header the whole text is `findings`.
  5. Empty sections are left out.
"""

import re
from bisect import bisect
from functools import lru_cache

from radverl.text.sentences import unwrap

_NAMES: dict[str, tuple[str, ...]] = {
    "findings": ("findings", "finding", "report", "chest findings", "radiographic findings"),
    "impression": (
        "impression", "impressions", "conclusion", "conclusions", "opinion", "summary", "interpretation",
        "findings and impression", "findings/impression", "impression and findings", "findings impression",
        "impression and recommendation", "impression and recommendations", "impression/recommendation",
        "final impression",
    ),
    "indication": (
        "indication", "indications", "clinical indication", "reason for exam", "reason for examination",
        "reason for this examination", "reason for the exam", "reason for study", "reason", "clinical question",
        "indications for exam", "indication for study",
    ),
    "history": (
        "history", "clinical history", "clinical information", "clinical data", "medical condition", "patient history",
        "history/indication", "clinical statement", "hx",
    ),
    "comparison": ("comparison", "comparisons", "comparison study", "prior studies", "comparison exam", "compared to"),
    "technique": ("technique", "views", "procedure", "procedure comments", "procedure/views", "number of views"),
    "examination": (
        "examination", "exam", "exams", "study", "type of examination", "type of exam", "examinations", "exam type",
        "radiographic exam",
    ),
    "recommendation": ("recommendation", "recommendations", "recommendation(s)"),
    "notification": ("notification", "notifications"),
    "addendum": ("addendum", "addenda", "addendum impression", "addendum findings", "final addendum"),
    "wet read": ("wet read", "wet read version", "preliminary report", "preliminary read"),
}  # fmt: skip
_CANONICAL = {variant: name for name, variants in _NAMES.items() for variant in variants}
# Headers that are also ordinary words need capitals or a line start even more than the others.
_EVERYDAY = {"report", "reason", "summary", "study", "views", "finding", "opinion", "procedure", "compared to"}
_ALTERNATIVES = "|".join(re.escape(v) for v in sorted(_CANONICAL, key=len, reverse=True)).replace(r"\ ", r"[ \t]+")
_LEADING = re.compile(r"[ \t]*(?:\d{1,2}[.)][ \t]*)?[#*_ \t]{0,6}")

# Inline: any known header with a colon. Line: a line-start candidate of any spelling, or a known header alone on it.
_INLINE = re.compile(rf"(?<![A-Za-z/])(?P<name>{_ALTERNATIVES})\**[ \t]*:[ \t*]*", re.I)
_LINE = re.compile(r"^[ \t#*]{0,80}(?P<name>[A-Za-z][A-Za-z /()&]{2,40}?)\**[ \t]*(?::|(?=[ \t]*$))[ \t*]*", re.M)
_ADDENDUM = re.compile(r"^[ \t]{0,80}(?:FINAL )?ADDENDUM\b(?! TO)[ \t:]*", re.M)
_WET_READ = re.compile(r"^[ \t]{0,80}WET READ\b", re.M | re.I)
_RULE = re.compile(r"^[ \t]{0,80}_{10,}[ \t]*$", re.M)
_TITLE = re.compile(r"^\s*(?:FINAL REPORT|FINAL ADDENDUM|RADIOLOGY REPORT)\s*", re.I)
# "CHEST, TWO VIEWS:" opens the findings.
_CHEST = re.compile(
    r"^[ \t]{0,80}(?:(?:PORTABLE|FRONTAL|SINGLE|UPRIGHT|SUPINE|AP|PA|AND|LATERAL|TWO|ONE|VIEWS?|OF|THE) )*"
    r"(?:CHEST|CXR)\b[A-Z0-9 ,/_()-]{0,60}:",
    re.M,
)
_ASKING = ("indication", "history", "comparison", "technique", "examination")  # sections of one paragraph
_MAX_HEADER_EDITS = {6: 1, 9: 2}  # from this length on, so many edits still name the header


def split_sections(report: str) -> dict[str, str]:
    """Sections by lower-case name: findings, impression, indication, history, comparison, technique, examination,
    recommendation, notification, addendum, wet read, preamble. Values are not empty, wrapped lines are joined,
    paragraphs are one blank line apart; "" gives {}.
    """
    if not report.strip():
        return {}
    text = report.replace("\r\n", "\n").replace("\r", "\n")
    heads = _heads(text)
    sections: dict[str, str] = {}
    first = heads[0][0] if heads else len(text)
    _keep(sections, "preamble", text[:first])
    order: list[tuple[str, str]] = []
    in_aside, aside_end = "", 0
    seen: set[str] = set()
    rules = [m.end() for m in _RULE.finditer(text)]
    for i, (start, body_start, name) in enumerate(heads):
        end = heads[i + 1][0] if i + 1 < len(heads) else len(text)
        if name in ("addendum", "wet read"):
            in_aside, aside_end = name, next(iter(rules[bisect(rules, start) :]), 0)
        elif in_aside and (start < aside_end or (aside_end == 0 and name in seen)):
            name = in_aside
        else:
            in_aside = ""
        body = text[body_start:end]
        if in_aside and aside_end and body_start < aside_end < end:
            order.append((name, body[: aside_end - body_start]))
            name, body = "preamble", body[aside_end - body_start :]
            in_aside = ""
        order.append((name, body))
        seen.add(name)
    for name, body in order:
        _keep(sections, name, body)
    return _with_findings(sections, order)


def _keep(sections: dict[str, str], name: str, body: str) -> None:
    body = unwrap(_RULE.sub("", _TITLE.sub("", body)))
    if not body:
        return
    if name in ("addendum", "wet read", "preamble") and name in sections:
        sections[name] += "\n" + body
    else:
        sections[name] = body


def _with_findings(sections: dict[str, str], order: list[tuple[str, str]]) -> dict[str, str]:
    if "findings" in sections:
        return sections
    if not order:
        return {"findings": sections["preamble"]} if "preamble" in sections else sections
    names = [name for name, body in reversed(order) if body.strip()]
    if names[:1] == ["preamble"]:  # the text after a wet read
        sections["findings"] = sections.pop("preamble")
        return sections
    for name in names:
        first, *rest = sections[name].split("\n\n", maxsplit=1) if name in _ASKING else ("",)
        if rest:
            sections[name], sections["findings"] = first, rest[0]
            break
    return sections


def _heads(text: str) -> list[tuple[int, int, str]]:
    """(start of the header, start of its body, section name), in order, without overlaps."""
    found: list[tuple[int, int, str]] = []
    for m in _INLINE.finditer(text):
        written = m["name"]
        name = _CANONICAL[" ".join(written.lower().split())]
        if _stands_alone(text, m.start(), written):
            found.append((m.start(), m.end(), name))
    if "\n" in text or not found:
        for m in _LINE.finditer(text):
            written = m["name"].strip()
            colon = ":" in m.group()
            line_name = _line_header(written, colon)
            if line_name:
                found.append((m.start(), m.end(), line_name))
        found.extend((m.start(), m.end(), "findings") for m in _CHEST.finditer(text))
        found.extend((m.start(), m.end(), "addendum") for m in _ADDENDUM.finditer(text))
        found.extend((m.start(), m.end(), "wet read") for m in _WET_READ.finditer(text))
    found.sort(key=lambda head: (head[0], -head[1]))
    out: list[tuple[int, int, str]] = []
    for head in found:
        if out and head[0] < out[-1][1]:
            if head[1] > out[-1][1] and head[2] == out[-1][2]:
                out[-1] = (out[-1][0], head[1], head[2])
            continue
        out.append(head)
    return out


def _stands_alone(text: str, start: int, written: str) -> bool:
    """A header in capitals may follow anything; another one opens a line or follows the end of a sentence."""
    before = text[max(0, start - 40) : start]
    line = before.rsplit("\n", 1)[-1].strip(" \t#*")
    if not line or re.fullmatch(r"\d{1,2}[.)]", line):
        return True
    if written.isupper() and len(written) > 4:
        return written.lower() not in _EVERYDAY or line[-1] in ".:;_"
    return written[0].isupper() and line[-1] in ".?!;:_)]" and written.lower() not in _EVERYDAY


@lru_cache(maxsize=4096)
def _line_header(written: str, colon: bool) -> str | None:
    lowered = " ".join(written.lower().split())
    if not colon:  # a header alone on its line, without a colon, must be in capitals
        return _CANONICAL.get(lowered) if written.isupper() and lowered not in _EVERYDAY else None
    if lowered in _CANONICAL:
        return _CANONICAL[lowered]
    if len(lowered) < min(_MAX_HEADER_EDITS) - 1 or " " in lowered:
        return None
    for known in _CANONICAL:
        edits = max((n for length, n in _MAX_HEADER_EDITS.items() if len(known) >= length), default=0)
        if known in _EVERYDAY or abs(len(known) - len(lowered)) > edits:
            continue
        if edits and _distance(lowered, known) <= edits:
            return _CANONICAL[known]
    return None


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
