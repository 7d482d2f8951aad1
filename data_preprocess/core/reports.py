"""The text of a report as a model should read and write it."""

import re

from data_preprocess.core.rows import PLACEHOLDER, SPECIAL_TOKEN
from data_preprocess.core.skiplog import SkipRow
from radverl.text import split_sections

# Left by a damaged export. U+0080 to U+009F stay: quotes and dashes of a Windows export that was read as Latin-1.
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")


def report_text(findings: str, impression: str) -> str:
    """`Findings: ... Impression: ...` on one line, without a section that is empty."""
    parts = (("Findings", findings), ("Impression", impression))
    return " ".join(f"{name}: {' '.join(text.split())}" for name, text in parts if text.strip())


def words(text: str) -> str:
    """The text on one line; "" where it has no letter, as "1." or "___"."""
    return " ".join(text.split()) if any(map(str.isalpha, text)) else ""


def findings_and_impression(report: str) -> tuple[str, str]:
    """Findings and impression of a report, "" where it lacks one; a report without any header is all findings.

    Raises:
        SkipRow: the report has headers, but neither of these two.
    """
    sections = {name: text.strip() for name, text in split_sections(report).items()} if report.strip() else {}
    findings, impression = sections.get("findings", ""), sections.get("impression", "")
    if findings or impression:
        return findings, impression
    if sections:
        message = f"the report has only the sections {', '.join(sections)}"
        raise SkipRow(message, "no findings or impression")
    return report.strip(), ""


def refuse_empty(findings: str, impression: str) -> None:
    """Check that there is a report to learn from.

    Raises:
        SkipRow: no letter is left, the text is no valid Unicode, a part of it is an image or special token, or it has
            a control character that is no white space.
    """
    text = findings + impression
    if not any(character.isalpha() for character in text):
        raise SkipRow("no word of a report is there", "empty report")
    if found := PLACEHOLDER.search(text) or SPECIAL_TOKEN.search(text):
        raise SkipRow(f"the report contains {found[0]}, which is no text to a model", "placeholder in report")
    if found := CONTROL.search(text):
        raise SkipRow(f"the report contains the control character {found[0]!r}", "malformed text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SkipRow(f"the report is not valid Unicode ({error.reason})", "malformed text") from error
