"""Whose folder or table it is, when it is not the one that was asked for: names the script to use instead."""

from collections.abc import Iterable
from pathlib import Path

# What lies in the folder of a data set -> its script.
FOLDERS = {
    "df_chexpert_plus*.csv*": "chexpert_plus", "indiana_reports.csv*": "iu_xray", "ecgen-radiology": "iu_xray",
    "silver_dataset": "chest_imagenome", "MS_CXR_*": "ms_cxr", "annotations_train.csv*": "vindr_cxr",
    "annotations/annotations_train.csv*": "vindr_cxr", "grounded_reports_*": "padchest_gr",
    "mimic-cxr-*.csv*": "mimic_cxr", "cxr-record-list.csv*": "mimic_cxr",
}  # fmt: skip
# A column that only the table of a data set has -> its script; tables of several share the names further down.
COLUMNS = {
    "label_text": "ms_cxr", "rad_id": "vindr_cxr", "class_name": "vindr_cxr", "ImageID": "padchest_gr",
    "path_to_image": "chexpert_plus", "bbox_name": "chest_imagenome", "MeSH": "iu_xray", "uid": "iu_xray",
    "ViewPosition": "mimic_cxr", "dicom_id": "mimic_cxr", "study_id": "mimic_cxr",
}  # fmt: skip


def script_of_folder(folder: Path, asked: str) -> str:
    """The script for the data set in a folder, "" where it is not known, or is the one that was `asked`."""
    found = next((script for pattern, script in FOLDERS.items() if any(folder.glob(pattern))), "")
    return "" if found == asked else found


def script_of_columns(columns: Iterable[str], asked: str) -> str:
    """The script for the table with these columns, "" where it is not known, or is the one that was `asked`."""
    there = set(columns)
    found = next((script for column, script in COLUMNS.items() if column in there), "")
    return "" if found == asked else found
