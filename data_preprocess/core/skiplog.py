"""Rows that were left out, and why: nothing is dropped silently.

A reason is a short fixed phrase ("empty report"), so that it can be counted; the detail says what was seen.
"""

import json
import os
import tempfile
from collections import Counter
from pathlib import Path


class SkipRow(ValueError):
    """A row that cannot be used; `reason` is the short phrase to count it under, the message says what was seen."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type["SkipRow"], tuple[str, str]]:
        return type(self), (str(self), self.reason)  # on its way between processes


class SkipLog:
    """Collects skipped rows; `write` stores one JSON object a line."""

    def __init__(self) -> None:
        self.entries: list[dict[str, str | int]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, row: str | int, reason: str, detail: str = "") -> None:
        """Note that `row` (its number in the input, or its id) is left out for `reason`."""
        if not reason.strip():
            raise ValueError(f"row {row}: a skipped row needs a reason; pass a short phrase such as 'empty report'.")
        self.entries.append({"row": row, "reason": reason, "detail": detail})

    def sort(self) -> None:
        """Bring the entries into an order that no drawing order or number of processes has a say in."""
        self.entries.sort(key=lambda e: (isinstance(e["row"], str), e["row"], e["reason"], e["detail"]))

    def counts(self) -> dict[str, int]:
        """Reason -> number of rows, most frequent first, ties by name."""
        counts = Counter(str(entry["reason"]) for entry in self.entries)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def summary(self) -> str:
        """One line: `skipped 3 rows (empty report 2, image missing 1)`."""
        if not self.entries:
            return "skipped 0 rows"
        reasons = ", ".join(f"{reason} {n}" for reason, n in self.counts().items())
        return f"skipped {len(self.entries)} row{'s' if len(self.entries) != 1 else ''} ({reasons})"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the entries to `path` as JSON lines (an empty file where nothing was skipped), atomically."""
        lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in self.entries)
        write_text(path, lines)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 `text` to `path`; a reader never sees half a file."""
    # Half a surrogate pair, which a JSON table may hold, is written as the escape JSON has for it.
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` through a temporary file beside it, so that a reader never sees half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def umask() -> int:
    """The process's umask (mkstemp ignores it and makes files only their owner can read)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
