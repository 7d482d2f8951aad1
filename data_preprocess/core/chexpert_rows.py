"""A study of CheXpert Plus becomes a row: sections, views, labels and files first, the images only when it is drawn."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_preprocess.core.chexpert_studies import Study, View, choose_views, find_image, label_key, sections
from data_preprocess.core.label_files import label_columns, labels_of_rows, read_labels
from data_preprocess.core.reports import refuse_empty, report_text
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.split_files import StudyRow
from data_preprocess.core.stored import plain_copy
from data_preprocess.core.tabular import MalformedRow, TableError
from radverl.labels import CHEXPERT_14, Labels, canonical_name
from radverl.text import remove_prior_references

TARGETS = {"findings": ("findings",), "impression": ("impression",), "both": ("findings", "impression")}
# Both sections: the labels of the whole report, for want of a file of these two (ours).
LABEL_FILES = {"findings": "findings_fixed.json", "impression": "impression_fixed.json", "both": "report_fixed.json"}
LABEL_FOLDER = "chexbert_labels"
PRIORS = ("drop", "keep")
KNOWN_CORRUPT = ("patient32368/study1",)  # its picture is damaged in the release
# What makes a study unwanted, not damaged: `--no-skip-bad` does not stop at these.
UNWANTED = {
    "no findings", "no impression", "no findings and no impression", "no frontal view", "no lateral view",
    "subject of a held-out split", "known corrupt image", "only prior references", "duplicate row",
}  # fmt: skip


@dataclass
class Candidate:
    """A study that has the wanted sections, views and image files; nobody has opened the images yet."""

    study: Study
    views: list[View]
    images: list[Path]
    texts: dict[str, str]  # findings and impression, "" for one that is not wanted
    labels: Labels = field(default_factory=dict)


def candidate(study: Study, target: str, views: str, root: Path, labels: dict[str, Labels] | None) -> Candidate:
    """The study as it can be drawn.

    Args:
        labels: by `View.key`; with None the candidate has no labels yet.
    Raises:
        SkipRow: a wanted section or view is missing, or an image file, or its labels.
    """
    if study.study_id in KNOWN_CORRUPT:
        raise SkipRow(f"{study.study_id} is damaged in the release", "known corrupt image")
    chosen = choose_views(study, views)
    texts = {name: text if name in TARGETS[target] else "" for name, text in sections(study, chosen[0]).items()}
    if missing := [name for name in TARGETS[target] if not texts[name]]:
        columns = " and ".join(f"section_{name}" for name in missing)
        raise SkipRow(f"no word in {columns}", " and ".join(f"no {name}" for name in missing))
    refuse_empty(**texts)
    out = Candidate(study, chosen, [find_image(root, view) for view in chosen], texts)
    if labels is not None:
        key = next((view.key for view in (*chosen, *study.views) if view.key in labels), None)
        if key is None:
            raise SkipRow(f"no row of the labels is about {chosen[0].key}", "no labels")
        out.labels = labels[key]
    return out


def study_row(
    drawn: Candidate, target: str, priors: str, cache: str, max_pixels: int | None
) -> StudyRow | tuple[str, str]:
    """The row of a drawn study, or message and reason of a SkipRow, which does not survive the way between processes.

    Its labels are those of the report as it was written, also where references to prior studies are dropped.
    """
    texts, original = drawn.texts, report_text(**drawn.texts)
    try:
        if priors == "drop":
            texts = {name: " ".join(remove_prior_references(text).split()) for name, text in texts.items()}
            if not all(any(map(str.isalpha, texts[name])) for name in TARGETS[target]):
                raise SkipRow("nothing is left without references to prior studies", "only prior references")
        stored = [plain_copy(path, Path(cache), max_pixels) for path in drawn.images]
    except SkipRow as error:
        return str(error), error.reason
    truth = texts | {"report": report_text(**texts), "labels": drawn.labels, "regions": [], "boxes": []}
    return StudyRow(
        prompt_id=f"chexpert_plus/{drawn.study.study_id}",  # of the release alone: no option changes it
        subject_id=drawn.study.subject_id,
        study_id=drawn.study.study_id,
        images=[path for path, _ in stored],
        width=stored[0][1][0],
        height=stored[0][1][1],
        truth=truth | {"priors": priors, "original_report": original},
    )


def read_study_labels(
    option: str | None, csv: str, columns: list[str], rows: list[dict[str, Any] | MalformedRow], target: str
) -> tuple[dict[str, Labels] | None, str]:
    """Labels by `View.key` and the name of their source; None in place of the labels: by our rules.

    Args:
        option: "rules", a label file or the folder of the release's; None: that folder beside the table `csv`, or
            else the table's own columns.
    Raises:
        TableError: there are none, or as `read_labels`.
    """
    if option == "rules":
        return None, "rules"
    folder = Path(option or Path(csv).parent / LABEL_FOLDER)
    if option is None and not folder.is_dir():
        if {canonical_name(column) for column in label_columns(columns)} != set(CHEXPERT_14):
            raise TableError(f"{folder}: no such folder; pass --labels FILE, or --labels rules for our own labeller.")
        whole = ((number, row) for number, row in enumerate(rows, 1) if not isinstance(row, MalformedRow))
        return labels_of_rows(whole, label_key, csv), "columns of the table"
    path = folder / LABEL_FILES[target] if folder.is_dir() else folder
    return read_labels(path, label_key), path.name
