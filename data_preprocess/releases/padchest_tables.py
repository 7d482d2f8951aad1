"""The tables of PadChest-GR: the sentences of each report with their boxes (JSON), and who is in which split (CSV).

A finding has sentence_en, sentence_es, abnormal, boxes and extra_boxes (xyxy in 0-1) and labels, which may be absent.
master_table.csv has one row a label, so an image has several.
"""

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from data_preprocess.core.candidates import Intake
from data_preprocess.core.json_files import JsonError, load_json
from data_preprocess.core.reports import words
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import split_name
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table
from data_preprocess.releases.others import script_of_columns, script_of_folder
from radverl.boxes.fusion import fuse
from radverl.labels import canonical_name

MAX_JSON = 500_000_000  # bytes; the release has under 20 million (ours)
COLUMNS = ("ImageID", "PatientID", "split")
LANGUAGES = ("en", "es")
# Label -> the CheXpert label that means the same or more, beside those that bear its very name (ours).
CHEXPERT = {
    "pulmonary edema": "Edema", "nodule": "Lung Lesion", "multiple nodules": "Lung Lesion", "mass": "Lung Lesion",
    "pulmonary mass": "Lung Lesion", "laminar atelectasis": "Atelectasis", "lobar atelectasis": "Atelectasis",
    "total atelectasis": "Atelectasis", "atelectasis basal": "Atelectasis", "segmental atelectasis": "Atelectasis",
    "atypical pneumonia": "Pneumonia", "pleural thickening": "Pleural Other",
    "apical pleural thickening": "Pleural Other", "calcified pleural thickening": "Pleural Other",
    "calcified pleural plaques": "Pleural Other", "loculated pleural effusion": "Pleural Effusion",
    "loculated fissural effusion": "Pleural Effusion", "mediastinal enlargement": "Enlarged Cardiomediastinum",
    "superior mediastinal enlargement": "Enlarged Cardiomediastinum",
    "rib fracture": "Fracture", "callus rib fracture": "Fracture", "clavicle fracture": "Fracture",
    "humeral fracture": "Fracture", "vertebral fracture": "Fracture", "pacemaker": "Support Devices",
    "dual chamber device": "Support Devices", "single chamber device": "Support Devices",
    "central venous catheter": "Support Devices", "reservoir central venous catheter": "Support Devices",
    "central venous catheter via jugular vein": "Support Devices",
    "central venous catheter via subclavian vein": "Support Devices", "endotracheal tube": "Support Devices",
    "tracheostomy tube": "Support Devices", "nsg tube": "Support Devices", "chest drain tube": "Support Devices",
}  # fmt: skip
FOLDERS_DEEP = 3  # below the root: Padchest_GR_files/PadChest_GR/, and one more that unpacking may add
TOLERANCE = 0.02  # of the sides, that a box may leave the image by; it is cut off there (ours)
_NAME = re.compile(r"\w[\w.-]{0,199}", re.A)
_PACKED = re.compile(r"PadChest_GR\.zip(?:\.\d+)?", re.I)  # 37 parts of one zip file
_LEAVES = re.compile(r"[/\\]|\.\.")


class Member(NamedTuple):
    """Whose image it is, and in which split."""

    subject_id: str
    split: str


class Sentence(NamedTuple):
    """One finding of a report."""

    texts: Mapping[str, str]  # by language
    abnormal: bool
    boxes: tuple[tuple[float, float, float, float], ...]
    labels: tuple[str, ...]  # CheXpert's name where it means the same, else as they are


def read_members(path: Path, intake: Intake) -> dict[str, Member]:
    """Patient and split of every image; images that the table says two things of go to the intake.

    Raises:
        TableError: the table cannot be used.
    """
    packed = path.with_name(f"{path.name}.zip")
    if not path.exists() and packed.is_file():
        raise TableError(f"{packed}: is packed; unpack it there.")
    columns, rows = open_table(path)
    if missing := [name for name in COLUMNS if name not in columns]:
        other = script_of_columns(columns, "padchest_gr")
        what = f"; that is a table for data_preprocess.{other}" if other else ""
        raise TableError(f"{path}: has no column {missing[0]!r}; pass master_table.csv with --csv{what}.")
    found: dict[str, set[Member]] = defaultdict(set)
    for number, row in enumerate(rows, 1):
        try:
            if isinstance(row, MalformedRow):
                raise SkipRow(row.detail, "malformed row")
            image, word = image_id(cell(row, "ImageID")), cell(row, "split")
            if (split := split_name(word)) is None:
                raise SkipRow(f"split is {word[:40]!r}; use train, validation or test", "unknown split")
            if not (subject := cell(row, "PatientID")):
                raise SkipRow("PatientID is blank", "no subject")
            intake.hold_out(subject, split)
            found[image].add(Member(subject, split))
        except SkipRow as error:
            intake.add(number, error.reason, f"{path.name}: {error}")
    for image in sorted(name for name, members in found.items() if len(members) > 1):
        places = ", ".join(f"{member.subject_id} in {member.split}" for member in sorted(found.pop(image)))
        intake.add(image, "contradicting rows", f"{path.name} says {places}")
    return {name: member for name, members in found.items() for member in members}


def read_reports(path: str | Path) -> list[dict[str, Any]]:
    """The reports of grounded_reports_*.json; each is a JSON object, and what else the list holds is in `{"": ...}`.

    Raises:
        TableError: no such file, or no list of reports.
    """
    if not os.path.isfile(path):
        raise TableError(f"{path}: no such file; pass grounded_reports_*.json with --json.")
    try:
        reports = load_json(path, MAX_JSON)
    except JsonError as error:
        raise TableError(f"{path}: cannot be read as JSON ({error}); pass grounded_reports_*.json.") from error
    if not isinstance(reports, list) or not any(isinstance(r, dict) and "ImageID" in r for r in reports):
        raise TableError(f"{path}: is no list of reports with ImageID; pass grounded_reports_*.json with --json.")
    return [report if isinstance(report, dict) else {"": report} for report in reports]


def sentences(report: Mapping[str, Any], extra_boxes: bool) -> list[Sentence | SkipRow]:
    """The findings of a report in their order, or what is wrong with one.

    Raises:
        SkipRow: there are none.
    """
    findings = report.get("findings")
    if not isinstance(findings, list) or not findings:
        raise SkipRow(f"findings is {str(findings)[:60]}, not a list of findings", "malformed report")
    out: list[Sentence | SkipRow] = []
    for finding in findings:
        try:
            out.append(_sentence(finding, extra_boxes))
        except SkipRow as error:
            out.append(error)
    return out


def image_id(text: str) -> str:
    """The name of an image file.

    Raises:
        SkipRow: it is none.
    """
    if _LEAVES.search(text):
        raise SkipRow(f"ImageID {text[:100]!r} leaves the folder of the images", "image outside image root")
    if not _NAME.fullmatch(text):
        raise SkipRow(f"ImageID is {text[:100]!r}", "no image id")
    return text


def find_reports(root: Path) -> Path:
    """The JSON file of a release.

    Raises:
        TableError: there is no such folder, or not one such file in it.
    """
    if not root.is_dir():
        raise TableError(f"{root}: no such folder; pass the folder of the release with --root.")
    found = sorted(root.glob("grounded_reports*.json"))
    if not found and (other := script_of_folder(root, "padchest_gr")):
        raise TableError(f"{root}: is not PadChest-GR; use data_preprocess.{other}.")
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "no grounded_reports_*.json"
        raise TableError(f"{root}: holds {names}; pass the file that is meant with --json.")
    return found[0]


def image_folder(root: Path, names: Iterable[str]) -> Path:
    """The folder, `root` or one below it, that holds most of the images; `root` where none holds any.

    Raises:
        TableError: there is no such folder, or the images are packed.
    """
    if not root.is_dir():
        raise TableError(f"{root}: no such folder; pass the folder of the PNG files with --image-root.")
    wanted, seen, level = set(names), set[str](), [str(root)]
    packed: list[str] = []
    best = (0, root)
    for _ in range(FOLDERS_DEEP + 1):
        below = []
        for folder in level:
            if (real := os.path.realpath(folder)) in seen:  # links may form loops
                continue
            seen.add(real)
            entries = list(os.scandir(folder))
            there = len(wanted.intersection(entry.name for entry in entries))
            best = (there, Path(folder)) if there > best[0] else best
            packed += [entry.path for entry in entries if _PACKED.fullmatch(entry.name)]
            below += [entry.path for entry in entries if entry.name not in wanted and os.path.isdir(entry.path)]
        level = sorted(below)
    if packed and not best[0]:
        first = min(packed)
        how = "unpack it" if first.lower().endswith(".zip") else "join its parts (cat PadChest_GR.zip.*), then unpack"
        raise TableError(f"{first}: none of the images is there, they are still packed; {how}.")
    return best[1]


def _sentence(finding: Any, extra_boxes: bool) -> Sentence:
    if not isinstance(finding, dict):
        raise SkipRow(f"a finding is {str(finding)[:60]}, not an object", "malformed report")
    texts = {language: words(cell(finding, f"sentence_{language}")) for language in LANGUAGES}
    boxes = _boxes(finding.get("boxes"))
    if extra_boxes and (extra := _boxes(finding.get("extra_boxes"))):  # a second reader's, of the same finding
        readers = ["1"] * len(boxes) + ["2"] * len(extra)
        boxes = [(box[0], box[1], box[2], box[3]) for box in fuse(boxes + extra, readers, 2)]
    labels = finding.get("labels") or []
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise SkipRow(f"labels is {str(labels)[:60]}, not a list of names", "malformed report")
    names = [_chexpert(name) for name in map(str.strip, labels) if name]
    return Sentence(texts, finding.get("abnormal") is True, tuple(boxes), tuple(dict.fromkeys(names)))


def _boxes(value: Any) -> list[tuple[float, float, float, float]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise SkipRow(f"boxes is {str(value)[:60]}, not a list", "malformed box")
    out = []
    for box in value:
        numbers = [v for v in box if isinstance(v, int | float) and _finite(v)] if isinstance(box, list) else []
        if len(numbers) != 4 or len(box) != 4:
            raise SkipRow(f"a box is {str(box)[:60]}, not four numbers", "malformed box")
        if not all(-TOLERANCE <= value <= 1 + TOLERANCE for value in numbers):
            raise SkipRow(f"the box {box} is not in 0-1 of the image", "box outside image")
        out.append((float(numbers[0]), float(numbers[1]), float(numbers[2]), float(numbers[3])))
    return out


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a JSON integer may have hundreds of digits
        return False


def _chexpert(name: str) -> str:
    try:
        return CHEXPERT.get(name.lower()) or canonical_name(name)
    except ValueError:
        return name
