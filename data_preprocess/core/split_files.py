"""Everything a data script writes for a split: RL rows, their supervised twins, the card and the skip log."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_preprocess.core.rows import report_row, sft_row, write_rows
from data_preprocess.core.skiplog import SkipLog
from data_preprocess.core.summary import write_card

SFT_SPLITS = ("train", "val")
CARD_ENDINGS = (".md", ".json", ".skipped.jsonl")


@dataclass
class StudyRow:
    """Everything of a row but its place in the file; `width` and `height` are those of the first image."""

    prompt_id: str
    subject_id: str
    study_id: str
    images: list[str]
    width: int
    height: int
    truth: dict[str, Any]


def remove_files(out: str | os.PathLike[str], splits: Sequence[str]) -> None:
    """Remove what an earlier run wrote for these splits.

    Call it before the first is written: an interrupted run then leaves too few files, never a mixture of two runs.
    """
    for stale in _files(out, splits):
        stale.unlink(missing_ok=True)


def refuse_folders(out: str | os.PathLike[str], splits: Sequence[str]) -> None:
    """See, before the work starts, that no folder has the name of a file these splits will be written to.

    Raises:
        ValueError: one has; names it.
    """
    for path in _files(out, splits):
        if path.is_dir() and not path.is_symlink():
            raise ValueError(f"--out {out}: {path.name} is a folder, where a file is to be written; move it away.")


def write_split(
    out: str | os.PathLike[str],
    split: str,
    studies: Sequence[StudyRow],
    log: SkipLog,
    *,
    data_source: str,
    prompt: str,
    settings: dict[str, Any],
    embed: bool,
) -> dict[str, Any] | None:
    """Write the files of a split; returns the card, None where there are no rows (then only the skip log is written).

    Args:
        prompt: user text; one `<image>` per image is put before it.
        settings: options that made the file, repeated in the card.
        embed: store the bytes of the images instead of their paths.
    """
    path = Path(out, f"{split}.parquet")
    card = None
    if studies:
        write_rows(path, _rows(studies, split, data_source, prompt, embed), kind="rl")
        card = write_card(path, log, settings)
        if split in SFT_SPLITS:
            pairs = zip(_rows(studies, split, data_source, prompt, embed), studies, strict=True)
            twins = (sft_row(row, study.truth["report"]) for row, study in pairs)
            write_rows(path.with_name(f"sft_{split}.parquet"), twins, kind="sft")
    log.write(path.with_suffix(".skipped.jsonl"))
    return card


def _files(out: str | os.PathLike[str], splits: Sequence[str]) -> Iterator[Path]:
    """Every file that a run may write for these splits."""
    for split in splits:
        path = Path(out, f"{split}.parquet")
        yield from (path, path.with_name(f"sft_{split}.parquet"), *map(path.with_suffix, CARD_ENDINGS))


def _rows(
    studies: Sequence[StudyRow], split: str, data_source: str, prompt: str, embed: bool
) -> Iterator[dict[str, Any]]:
    """The RL rows, one at a time: embedded images are read only when their row is written."""
    for index, study in enumerate(studies):
        yield report_row(
            data_source=data_source,
            split=split,
            index=index,
            prompt_id=study.prompt_id,
            subject_id=study.subject_id,
            study_id=study.study_id,
            images=[Path(path).read_bytes() for path in study.images] if embed else list(study.images),
            prompt="<image>" * len(study.images) + prompt,
            ground_truth=study.truth,
            width=study.width,
            height=study.height,
        )
