"""Which split a study belongs to: the table's own word for it, or a hash of the subject.

Hashing the subject (not the row) keeps all studies of a patient on one side; it does not depend on the order or the
number of rows, so a table can grow without moving anyone.
"""

import hashlib

SPLITS = ("train", "val", "test")
_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validate": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip


def split_name(text: str) -> str | None:
    """The split a table's word means ("validate" is "val"), or None where the word is unknown."""
    return _NAMES.get(text.strip().lower())


def hash_split(subject_id: str, *, val_fraction: float = 0.1, test_fraction: float = 0.1) -> str:
    """The split of a subject by hash: "val" and "test" get about their fractions of the subjects, "train" the rest.

    Raises:
        ValueError: a negative fraction, or fractions that leave nothing to train on.
    """
    if not (val_fraction >= 0 and test_fraction >= 0 and val_fraction + test_fraction < 1):  # False for NaN too
        raise ValueError(
            f"val_fraction {val_fraction} and test_fraction {test_fraction} must be at least 0 and sum to less than 1."
        )
    place = _place(f"0:{subject_id}")
    if place < val_fraction:
        return "val"
    return "test" if place < val_fraction + test_fraction else "train"


def in_part(subject_id: str, start: float, stop: float) -> bool:
    """Whether a subject is in the part `start` to `stop` (0-1) of all, by another hash than that of the splits."""
    return start <= _place(f"part:{subject_id}") < stop


def _place(text: str) -> float:
    """A place in 0-1, below 1, drawn by hash."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53
