"""Everything a data script writes for a split: RL rows, their supervised twins, card, contact sheet and skip log."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from data_preprocess.core.candidates import Row
from data_preprocess.core.journal import FOLDER
from data_preprocess.core.rows import report_row, sft_row, write_rows
from data_preprocess.core.sheet import write_sheet
from data_preprocess.core.skiplog import SkipLog
from data_preprocess.core.splits import SPLITS
from data_preprocess.core.subject_lists import SUBJECTS
from data_preprocess.core.summary import write_card

SFT_SPLITS = ("train", "val")
SIDE_FILES = (".md", ".json", ".png", ".skipped.jsonl")


class Rows(Protocol):
    """Rows that can be counted and gone through more than once."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Row]: ...


def remove_files(out: str | os.PathLike[str], splits: Sequence[str]) -> None:
    """Remove what an earlier run wrote for these splits.

    Call it before the first is written: an interrupted run then leaves too few files, never a mixture of two runs.
    """
    for stale in _files(out, splits):
        stale.unlink(missing_ok=True)
        for half in stale.parent.glob(f".{stale.name}.????????"):  # of a run that was killed while it wrote this one
            half.unlink(missing_ok=True)
    for half in Path(out, "images").glob(".*.png.????????"):
        half.unlink(missing_ok=True)


def refuse_others_files(out: str | os.PathLike[str], splits: Sequence[str]) -> None:
    """See, before the work starts, that what these splits will replace are files, and ours.

    Raises:
        ValueError: something is not; names it.
    """
    marks = (SUBJECTS, FOLDER, *(f"{split}.skipped.jsonl" for split in SPLITS))  # of a run without rows: only the last
    ours = any(os.path.lexists(Path(out, mark)) for mark in marks)
    for path in _files(out, splits):
        if path.is_dir() and not path.is_symlink():
            raise ValueError(f"--out {out}: {path.name} is a folder, where a file is to be written; move it away.")
        if not ours and os.path.lexists(path):
            message = f"holds {path.name}, which this script did not write; move it away, or choose another folder."
            raise ValueError(f"--out {out}: {message}")


def write_split(
    out: str | os.PathLike[str],
    split: str,
    rows: Rows,
    log: SkipLog,
    *,
    data_source: str,
    settings: dict[str, Any],
    embed: bool,
    sheet: int = 0,
) -> dict[str, Any] | None:
    """Write the files of a split; returns the card, None where there are no rows (then only the skip log is written).

    Args:
        rows: gone through twice.
        settings: options that made the file, repeated in the card.
        embed: store the bytes of the images instead of their paths.
        sheet: pictures on the contact sheet; 0: none.
    """
    path = Path(out, f"{split}.parquet")
    card = None
    if len(rows):
        write_rows(path, (row for row, _ in _pairs(rows, split, data_source, embed)), kind="rl")
        card = write_card(path, log, settings)
        if sheet:
            write_sheet(path, path.with_suffix(".png"), most=sheet)
        if split in SFT_SPLITS:
            twins = (sft_row(row, target) for row, target in _pairs(rows, split, data_source, embed))
            write_rows(path.with_name(f"sft_{split}.parquet"), twins, kind="sft")
    log.write(path.with_suffix(".skipped.jsonl"))
    return card


def _files(out: str | os.PathLike[str], splits: Sequence[str]) -> Iterator[Path]:
    """Every file that a run may write for these splits."""
    for split in splits:
        path = Path(out, f"{split}.parquet")
        yield from (path, path.with_name(f"sft_{split}.parquet"), *map(path.with_suffix, SIDE_FILES))


def _pairs(rows: Rows, split: str, data_source: str, embed: bool) -> Iterator[tuple[dict[str, Any], str]]:
    """RL rows and their targets, one at a time: embedded images are read only when their row is written."""
    for index, row in enumerate(rows):
        rl_row = report_row(
            data_source=data_source,
            split=split,
            index=index,
            prompt_id=row.prompt_id,
            subject_id=row.subject_id,
            study_id=row.study_id,
            images=[Path(path).read_bytes() if embed else path for path in row.images],
            prompt="<image>" * len(row.images) + row.prompt,
            ground_truth=row.truth,
            width=row.width,
            height=row.height,
            ability=row.ability,
            view=row.view,
            priors=row.priors,
            original_report=row.original_report,
        )
        yield rl_row, row.target
