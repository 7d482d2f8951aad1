"""The tables in a folder of MIMIC-CXR-JPG, and what a folder without them is instead."""

import re
from pathlib import Path

from data_preprocess.core.tabular import TableError
from data_preprocess.releases.others import script_of_folder

LABEL_TABLES = ("chexpert", "negbio")


def find_table(root: str, kind: str) -> Path:
    """The table `mimic-cxr-2.0.0-KIND.csv`, whatever its version, packed or not; of both forms the packed one.

    Raises:
        TableError: there is none, or there are several versions.
    """
    name = re.compile(rf"mimic-cxr-([\d.]+)-{kind}\.csv(\.gz)?", re.I)
    found = sorted(
        (match[1], not match[2], path)
        for path in Path(root).iterdir()
        if (match := name.fullmatch(path.name)) and path.is_file()
    )
    versions = sorted({version for version, _, _ in found})
    if len(versions) > 1:
        raise TableError(f"{root}: has {kind} tables of the versions {', '.join(versions)}; keep one version in it.")
    if not found:
        raise TableError(f"{root}: has no mimic-cxr-*-{kind}.csv.gz; {_where_instead(Path(root), kind)}")
    return found[0][2]


def _where_instead(root: Path, kind: str) -> str:
    """What to do about a missing table."""
    if script := script_of_folder(root, "mimic_cxr"):
        return f"this looks like the data of data_preprocess.{script}."
    if kind in LABEL_TABLES:
        return "pass --labels FILE, or --labels rules for our own labeller."
    inside = sorted(root.glob(f"*/mimic-cxr-*-{kind}.csv*"))
    if inside:
        return f"pass {inside[0].parent} with --root."
    if any(root.glob("cxr-record-list.csv*")):
        return (
            "this is MIMIC-CXR, whose tables are in MIMIC-CXR-JPG; pass that folder with --root and this one with "
            "--reports, and with --image-root for its DICOM files."
        )
    return "pass the folder with the tables of MIMIC-CXR-JPG with --root."
