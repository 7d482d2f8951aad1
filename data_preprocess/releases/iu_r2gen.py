"""R2Gen's annotation of IU X-ray: {"train": [{"id", "report", "image_path": [...], "split"}], "val": ..., "test": ...}.

The report is one text without headers. The films are 0.png and 1.png: frontal and lateral by custom, nothing says so.
R2Gen's file of MIMIC-CXR looks alike, but for the patients' numbers; it is refused, its patients belong to that cohort.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_preprocess.core.candidates import Intake
from data_preprocess.core.json_files import JsonError, load_json
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import SPLITS, split_name
from data_preprocess.core.tabular import TableError, cell, plain_text
from data_preprocess.releases.iu_forms import Study, subject_of, unescape

MAX_BYTES = 200_000_000  # the real file has 1.5 million (ours)
HEAD = 1 << 16  # bytes in which a first entry ends


def read_annotation(path: Path, intake: Intake) -> list[Study]:
    """The reports of an annotation file, by id.

    Raises:
        TableError: it is no such file, or that of MIMIC-CXR.
    """
    found: dict[str, list[Study]] = defaultdict(list)
    number = 0
    for number, (part, entry) in enumerate(_entries(_load(path)), 1):
        row_id: str | int = number
        split: str | None = None
        try:
            if not isinstance(entry, dict):
                raise SkipRow(f"is a JSON {type(entry).__name__}, not an object", "malformed row")
            if "subject_id" in entry and "study_id" in entry:
                raise TableError(_mimic(path))
            row_id = cell(entry, "id") or number
            split = _split(part, entry)
            study = _study(entry, split)
            found[study.row_id].append(study)
        except SkipRow as error:
            if split and isinstance(row_id, str) and (subject := subject_of(row_id)):
                intake.hold_out(subject, split)
            intake.add(row_id, error.reason, str(error), split)
    if not number:
        raise TableError(f"{path}: has no entries; pass R2Gen's whole annotation.json with --root.")
    studies = []
    for name in sorted(found):
        # Of several entries the one furthest from training counts, then the fullest, whatever their order.
        best, *others = sorted(found[name], key=lambda s: (-SPLITS.index(s.split), -len(s.texts["report"]), str(s)))
        studies.append(best)
        for other in others:
            intake.add(name, "duplicate row", "the id has more than one entry", other.split)
    return studies


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
            if all(re.search(rb'"%s"\s*:' % name, head) for name in (b"subject_id", b"study_id")):
                raise TableError(_mimic(path))  # before hundreds of megabytes are parsed
        return load_json(path, MAX_BYTES)
    except OSError as error:
        raise TableError(f"{path}: cannot be opened ({error.strerror}); pass annotation.json with --root.") from error
    except JsonError as error:
        raise TableError(f"{path}: cannot be read ({error}), perhaps half downloaded; fetch it again.") from error


def _entries(loaded: Any) -> Iterator[tuple[str, Any]]:
    """Part and entry; a plain list has the part in its entries."""
    parts = loaded.items() if isinstance(loaded, dict) else [("", loaded)]
    for part, entries in parts:
        if not isinstance(entries, list):
            message = f"{part or 'the file'} is a JSON {type(entries).__name__} where R2Gen has a list of reports"
            raise TableError(f"{message}; pass its annotation.json with --root.")
        yield from ((part, entry) for entry in entries)


def _split(part: str, entry: dict[str, Any]) -> str:
    """The split by part and entry; where they do not agree, the one that is further from training."""
    said = [word for word in (part, cell(entry, "split")) if word]
    names = [split_name(word) for word in said]
    if not names or None in names:
        words = " and ".join(repr(word[:40]) for word in said) or "not given"
        raise SkipRow(f"split is {words}; use train, val, test", "unknown split")
    return max((name for name in names if name), key=SPLITS.index)


def _study(entry: dict[str, Any], split: str) -> Study:
    listed = entry.get("image_path") or []
    paths = [plain_text(path, "image_path") for path in (listed if isinstance(listed, list) else [listed])]
    name = cell(entry, "id")
    subject = subject_of(name) or next(filter(None, map(subject_of, paths)), "")
    if not name or not subject:
        raise SkipRow(f"id is {name[:40]!r}, not CXR and a number", "unknown id")
    texts = {"report": unescape(cell(entry, "report"))}
    return Study(name, subject, texts, [path for path in dict.fromkeys(paths) if path], None, split)


def _mimic(path: Path) -> str:
    return f"{path}: is R2Gen's annotation of MIMIC-CXR, not of IU X-ray; use data_preprocess.mimic_cxr."
