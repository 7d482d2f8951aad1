"""A study of CheXpert Plus becomes a candidate: sections, views, labels and files; nobody opens the images yet."""

from argparse import Namespace
from pathlib import Path

from data_preprocess.core.candidates import Candidate, Content
from data_preprocess.core.content import report_content, wanted_sections
from data_preprocess.core.label_files import label_columns, labels_of_rows, read_labels
from data_preprocess.core.reports import refuse_empty
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import MalformedRow, TableError, open_table
from data_preprocess.core.views import choose_of_ordered
from data_preprocess.releases.chexpert_studies import Study, find_image, label_key, sections
from radverl.labels import CHEXPERT_14, Labels, canonical_name

# Both sections: the labels of the whole report, for want of a file of these two (ours).
LABEL_FILES = {"findings": "findings_fixed.json", "impression": "impression_fixed.json"}
WHOLE_REPORT = "report_fixed.json"
LABEL_FOLDER = "chexbert_labels"
KNOWN_CORRUPT = ("patient32368/study1",)  # its picture is damaged in the release
UNWANTED = frozenset({"known corrupt image"})


def candidate(study: Study, split: str, args: Namespace, root: Path, labels: dict[str, Labels] | None) -> Candidate:
    """The study as it can be drawn.

    Args:
        labels: by `View.key`; with None the candidate has no labels yet.
    Raises:
        SkipRow: a wanted section or view is missing, or an image file, or its labels.
    """
    if study.study_id in KNOWN_CORRUPT:
        raise SkipRow(f"{study.study_id} is damaged in the release", "known corrupt image")
    chosen = choose_of_ordered(study.views, args.views, study.study_id)
    texts = sections(study, chosen[0])
    refuse_empty(*wanted_sections(texts, args.target).values())
    known = None
    if labels is not None:
        key = next((view.key for view in (*chosen, *study.views) if view.key in labels), None)
        if key is None:
            raise SkipRow(f"no row of the labels is about {chosen[0].key}", "no labels")
        known = labels[key]
    return Candidate(
        row_id=study.study_id,
        subject_id=study.subject_id,
        study_id=study.study_id,
        split=split,
        images=tuple(str(find_image(root, view)) for view in chosen),
        view=" ".join(view.view for view in chosen),
        labels=known,
        payload=texts,
    )


def content(drawn: Candidate, args: Namespace) -> Content:
    """The content of a study; its labels are those of the report as it was written."""
    return report_content(drawn.payload, args, labels=drawn.labels)


def read_study_labels(option: str | None, csv: str, columns: list[str], target: str) -> dict[str, Labels] | None:
    """Labels by `View.key`; None: by our rules.

    Args:
        option: "rules", a label file or the folder of the release's; None: that folder beside the table `csv`, or
            else the table's own columns.
    Raises:
        TableError: there are none, or as `read_labels`.
    """
    if option == "rules":
        return None
    folder = Path(option or Path(csv).parent / LABEL_FOLDER)
    if option is None and not folder.is_dir():
        if {canonical_name(column) for column in label_columns(columns)} != set(CHEXPERT_14):
            raise TableError(f"{folder}: no such folder; pass --labels FILE, or --labels rules for our own labeller.")
        rows = enumerate(open_table(csv)[1], 1)
        return labels_of_rows(((n, row) for n, row in rows if not isinstance(row, MalformedRow)), label_key, csv)
    path = folder / LABEL_FILES.get(target, WHOLE_REPORT) if folder.is_dir() else folder
    return read_labels(path, label_key)
