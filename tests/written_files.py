"""What a data script has left in its folder, for the tests of the scripts."""

import json
from pathlib import Path


def skips(out: Path, split: str = "train") -> dict[str | int, str]:
    """Row -> reason, of the skip log of a split."""
    lines = (out / f"{split}.skipped.jsonl").read_text(encoding="utf-8").splitlines()
    return {entry["row"]: entry["reason"] for entry in map(json.loads, lines)}


def files(out: Path) -> dict[str, bytes]:
    """Every file, by its path from `out`."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
