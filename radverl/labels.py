"""The 14 CheXpert labels: names, spelling variants, uncertain policy, and what "No Finding" may say.

A label dict maps each name to 1 (present), 0 (absent), -1 (uncertain) or None (not mentioned).
Always map by name: the published tables disagree on the order of the columns.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

CHEXPERT_14: tuple[str, ...] = (
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
)

NO_FINDING = "No Finding"
SUPPORT_DEVICES = "Support Devices"
Labels = dict[str, int | None]
UncertainPolicy = Literal["ones", "zeros", "ignore"]

_ALIASES = {
    "airspaceopacity": "Lung Opacity",  # MIMIC-CXR-JPG 2.1.0 test labels
    "nofindings": NO_FINDING,
    "enlargedcardiomediastinalsilhouette": "Enlarged Cardiomediastinum",
    "pleuraleffusions": "Pleural Effusion",
    "supportdevice": SUPPORT_DEVICES,
}
_CANONICAL = {re.sub(r"[^a-z]", "", name.lower()): name for name in CHEXPERT_14} | _ALIASES


def canonical_name(name: str) -> str:
    """The CheXpert spelling of a label name, whatever its case, spaces, hyphens or underscores.

    Raises:
        ValueError: the name is none of the 14 labels nor a known variant.
    """
    found = _CANONICAL.get(re.sub(r"[^a-z]", "", name.lower()))
    if found is None:
        raise ValueError(f"label {name!r} is not one of the 14 CheXpert labels; use one of {', '.join(CHEXPERT_14)}.")
    return found


def normalise_labels(labels: Mapping[str, Any]) -> Labels:
    """A full label dict in CheXpert order from any spelling and any of the usual blanks (None, NaN, "").

    Args:
        labels: name -> 1 | 0 | -1 | blank, as int, float, bool or numeric string; missing names become None.
    Raises:
        ValueError: an unknown name, a value outside {1, 0, -1, blank}, or two spellings of a label that disagree.
    """
    out: Labels = dict.fromkeys(CHEXPERT_14)
    for name, value in labels.items():
        label, clean = canonical_name(name), _clean_value(name, value)
        if clean is None:
            continue
        if out[label] is not None and out[label] != clean:
            raise ValueError(f"label {label!r} is given twice with values {out[label]} and {clean}; keep one of them.")
        out[label] = clean
    return out


def apply_uncertain(labels: Mapping[str, int | None], policy: UncertainPolicy = "ones") -> Labels:
    """Replace -1 by 1 (`ones`), 0 (`zeros`) or None (`ignore`: the label does not count for this study).

    "No Finding" is made consistent afterwards, because `ones` may add a positive finding.
    """
    check_policy(policy)
    to: dict[str, int | None] = {"ones": 1, "zeros": 0, "ignore": None}
    return consistent_no_finding({k: to[policy] if v == -1 else v for k, v in labels.items()})


def consistent_no_finding(labels: Mapping[str, int | None]) -> Labels:
    """Blank "No Finding" where it is positive or uncertain beside a positive or uncertain finding.

    The CheXpert convention (Irvin et al. 2019): "No Finding" is 1 or blank, and Support Devices do not count as a
    finding. A stated 0 is kept; a blank is never filled in here, since a blank row may just lack labels.
    """
    out = dict(labels)
    if out.get(NO_FINDING) and has_finding(out):
        out[NO_FINDING] = None
    return out


def has_finding(labels: Mapping[str, int | None]) -> bool:
    """Whether any label other than No Finding and Support Devices is positive or uncertain."""
    return any(v in (1, -1) for k, v in labels.items() if k not in (NO_FINDING, SUPPORT_DEVICES))


def check_policy(policy: str) -> None:
    """Raise ValueError unless `policy` is ones, zeros or ignore."""
    if policy not in get_args(UncertainPolicy):
        raise ValueError(f"uncertain policy {policy!r} is unknown; use ones, zeros or ignore.")


def _clean_value(name: str, value: Any) -> int | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "nan", "none", "null")):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if math.isnan(number):
        return None
    if number not in (1.0, 0.0, -1.0):
        raise ValueError(f"label {name!r} has value {str(value)[:40]!r}; use 1, 0, -1 or blank.")
    return int(number)
