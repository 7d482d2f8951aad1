"""Open-i's XML files: one report each, with the names of its films and its MeSH terms.

Only defusedxml reads them: entities that a file declares, and what it names outside itself, are refused. A file that
cannot be read is one skipped row. No file says which film is frontal: "PA and lateral" stands as the caption of each.
"""

from pathlib import Path
from typing import Any

from data_preprocess.core.candidates import Intake
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import TableError, cell
from data_preprocess.releases.iu_forms import Study, subject_of, unescape, xml_files

ROOT = "eCitation"
SECTIONS = ("findings", "impression", "indication")
MAX_BYTES = 20_000_000  # the release's largest file has some 10,000 (ours)
WRONG_ROOT = "no Open-i report"


def read_xml(folder: Path, intake: Intake) -> list[Study]:
    """The reports of a folder, by file name.

    Raises:
        TableError: not one file is a report of Open-i.
    """
    studies: dict[str, Study] = {}
    wrong: list[str] = []
    files = xml_files(folder)
    for path in files:
        try:
            study = read_report(path)
            if study.row_id in studies:
                raise SkipRow(f"{study.row_id} is in an earlier file", "duplicate row")
            studies[study.row_id] = study
        except SkipRow as error:
            intake.add(path.name, error.reason, str(error))
            wrong += [str(error)] if error.reason == WRONG_ROOT else []
    if len(wrong) == len(files):
        raise TableError(f"{folder}: no XML file is a report of Open-i ({wrong[0]}); pass ecgen-radiology with --root.")
    return list(studies.values())


def read_report(path: Path) -> Study:
    """One XML file.

    Raises:
        SkipRow: it cannot be read, or is no report of this data set.
    """
    root = _parse(path)
    if root.tag != ROOT:
        raise SkipRow(f"the root element is {root.tag[:40]!r}, not {ROOT!r}", WRONG_ROOT)
    name = next((element.get("id", "") for element in root.iter("uId")), "")
    subject = subject_of(name) if name.upper().startswith("CXR") else ""
    if not subject:
        raise SkipRow(f"uId is {name[:40]!r}, not CXR and a number", "unknown id")
    texts: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for element in root.iter("AbstractText"):
        label = element.get("Label", "").strip().lower()
        if label in texts:
            texts[label].append(_text(element))
    images = [element.get("id", "").strip() for element in root.iter("parentImage")]
    mesh = [_text(element) for element in root.iter("major")]
    return Study(
        row_id=subject,
        subject_id=subject,
        texts={section: " ".join(filter(None, parts)) for section, parts in texts.items()},
        images=[image for image in dict.fromkeys(images) if image],
        mesh=[term for term in dict.fromkeys(mesh) if term],
    )


def _parse(path: Path) -> Any:
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        if not path.is_file():
            raise SkipRow("is no file", "XML unreadable")
        if path.stat().st_size > MAX_BYTES:
            raise SkipRow(f"has {path.stat().st_size} bytes, more than {MAX_BYTES}", "XML too large")
        data = path.read_bytes()
    except OSError as error:
        raise SkipRow(f"cannot be read ({error.strerror})", "XML unreadable") from error
    try:
        return fromstring(data)
    except DefusedXmlException as error:
        message = f"declares entities or names something outside ({type(error).__name__})"
        raise SkipRow(message, "forbidden XML") from error
    except (ParseError, ValueError, LookupError, RecursionError) as error:  # half a file; an encoding nobody knows
        raise SkipRow(f"is no whole XML file ({error})", "malformed XML") from error


def _text(element: Any) -> str:
    """All text in an element; "" where it says that there is none, as in a table."""
    return unescape(cell({"text": "".join(element.itertext())}, "text"))
