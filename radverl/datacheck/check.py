"""Walks a Parquet file once and collects what is wrong with it."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from radverl.datacheck.beside import check_against, check_twin
from radverl.datacheck.columns import EXPECTED, REQUIRED, check_columns
from radverl.datacheck.files import open_parquet, rows_of, text_of
from radverl.datacheck.lengths import count_tokens, load_processor
from radverl.datacheck.messages import check_messages, read_messages
from radverl.datacheck.pictures import PictureCheck
from radverl.datacheck.report import DataFileError, Report
from radverl.datacheck.truth import check_truth

ROLES = ("rl", "sft")


def check_parquet(
    path: str | os.PathLike[str],
    *,
    processor: Any = None,
    max_prompt_length: int | None = None,
    role: str | None = None,
    others: Sequence[str | os.PathLike[str]] = (),
    twin: str | os.PathLike[str] | None = None,
) -> Report:
    """Check one file for verl.

    Args:
        processor: Hugging Face processor, or a local model folder; with it, prompts are counted in tokens.
        max_prompt_length: longest prompt verl keeps (`data.max_prompt_length`); for SFT, the longest conversation.
        role: "rl" (prompt, reward_model) or "sft" (messages); by default what the columns say.
        others: other splits; subjects and prompts must not be in both, and the column types must agree.
        twin: of an SFT file, the RL file of the same rows: its reports must be the answers.
    Raises:
        DataFileError: a file is missing or not Parquet, or the model folder cannot be used.
        ValueError: unknown role, or a length without a processor.
    """
    if role is not None and role not in ROLES:
        raise ValueError(f"role is {role!r}; use one of {ROLES}.")
    if max_prompt_length is not None and processor is None:
        raise ValueError("max_prompt_length needs a processor to count with; pass the model's folder.")
    table = open_parquet(path)
    role = role or ("sft" if "messages" in table.schema_arrow.names else "rl")
    report = Report(str(path), role, table.metadata.num_rows)
    if isinstance(processor, str | os.PathLike):
        processor = load_processor(Path(processor))
    check_columns(table, role, report)
    # A column of the `datasets` Image feature comes back decoded, so there a bare path is as good as bytes.
    decoded = role == "rl" and b'"Image"' in (table.schema_arrow.metadata or {}).get(b"huggingface", b"")
    pictures = PictureCheck()
    media = {"videos", "audios"}.intersection(table.schema_arrow.names)
    prompt_ids: dict[str, int] = {}
    subjects: dict[str, int] = {}
    for number, row in enumerate(rows_of(table, str(path), (*REQUIRED[role], *EXPECTED[role], "ability"))):
        before = len(report.errors)
        messages = read_messages(row.get("messages" if role == "sft" else "prompt"))
        images = _images(row.get("images"), decoded)
        extra = row["extra_info"] if isinstance(row.get("extra_info"), dict) else {}
        for severity, kind, message in check_messages(messages, images, role, media):
            report.add(number, severity, kind, message)
        _check_images(number, images, extra, role, pictures, report)
        if role == "rl" and "reward_model" in row:
            reward = row["reward_model"]
            truth = reward.get("ground_truth") if isinstance(reward, dict) else reward
            for severity, kind, message in check_truth(truth, extra, row.get("ability")):
                report.add(number, severity, kind, message)
        _check_identity(number, extra, prompt_ids, report)
        subjects.setdefault(text_of(extra.get("subject_id")), number)
        if processor is not None and messages and len(report.errors) == before:
            _check_length(number, messages, images, processor, max_prompt_length, report)
    if twin is not None:
        check_twin(table, open_parquet(twin), str(twin), report)
    for other in others:
        check_against(table, open_parquet(other), str(other), prompt_ids, subjects, report)
    if report.rows == 0:
        report.add(None, "error", "no rows", "the file has no rows.")
    return report


def main(argv: list[str] | None = None) -> int:
    """Command line: 0 clean (warnings allowed), 1 problems, 2 a file that cannot be read.

    A folder stands for its Parquet files; its splits are held against each other.
    """
    parser = argparse.ArgumentParser(
        "radverl data check", description=main.__doc__, epilog="example: radverl data check data/mine"
    )
    parser.add_argument("file", nargs="+", help="a Parquet file, or a folder of them")
    parser.add_argument("--model", help="local model folder; counts prompts in its tokens")
    parser.add_argument("--max-prompt-length", type=int, help="name the rows that verl would drop as too long")
    parser.add_argument(
        "--against", nargs="+", default=[], help="other splits that must share no subject and no prompt"
    )
    parser.add_argument("--role", choices=ROLES)
    parser.add_argument("--strict", action="store_true", help="warnings count as problems")
    args = parser.parse_args(argv)
    if args.max_prompt_length is not None and not args.model:
        parser.error("--max-prompt-length needs --model")
    if args.max_prompt_length is not None and args.max_prompt_length < 1:
        parser.error(f"--max-prompt-length is {args.max_prompt_length}; use a positive number")
    status = 0
    try:
        processor = load_processor(args.model) if args.model else None
        for file, beside, twin in _targets(args.file):
            report = check_parquet(
                file,
                processor=processor,
                max_prompt_length=args.max_prompt_length,
                role=args.role,
                others=[*args.against, *beside],
                twin=twin,
            )
            print("\n".join(report.lines()))
            if report.errors or (args.strict and report.problems):
                status = 1
    except DataFileError as error:
        print(f"data check: {error}", file=sys.stderr)
        return 2
    return status


def _targets(paths: Sequence[str]) -> Iterator[tuple[str, list[str], str | None]]:
    """Each file to check, the files of its folder it is held against (every pair of splits once), and its RL twin."""
    for path in paths:
        if not os.path.isdir(path):
            yield path, [], _twin(path)
            continue
        files = sorted(map(str, Path(path).glob("*.parquet")))
        if not files:
            raise DataFileError(f"{path}: is a folder without Parquet files; pass one that a data script has written.")
        splits = [file for file in files if not os.path.basename(file).startswith("sft_")]  # the twins of the others
        for file in files:
            yield file, splits[splits.index(file) + 1 :] if file in splits else [], _twin(file)


def _twin(path: str) -> str | None:
    """The RL file that a data script has written with sft_SPLIT.parquet, where it is there."""
    folder, name = os.path.split(path)
    twin = os.path.join(folder, name.removeprefix("sft_"))
    return twin if name.startswith("sft_") and os.path.isfile(twin) else None


def _images(value: Any, decoded: bool) -> list[Any]:
    """The images of a row; `decoded` turns `{"bytes": None, "path": p}` into p, as the Image feature does."""
    images = value if isinstance(value, list) else []
    if not decoded:
        return images
    return [i["path"] if isinstance(i, dict) and i.get("bytes") is None and i.get("path") else i for i in images]


def _check_images(
    number: int, images: list[Any], extra: dict[str, Any], role: str, pictures: PictureCheck, report: Report
) -> None:
    for place, image in enumerate(images):
        found, size = pictures.check(image, role)
        for severity, kind, message in found:
            report.add(number, severity, kind, f"images[{place}]: {message}")
        stated = (extra.get("width"), extra.get("height"))
        if place == 0 and size is not None and None not in stated and stated != size:
            message = f"images[0] is {size[0]} x {size[1]} but extra_info says {stated[0]} x {stated[1]}."
            report.add(number, "warning", "image size", message)


def _check_identity(number: int, extra: dict[str, Any], prompt_ids: dict[str, int], report: Report) -> None:
    name = text_of(extra.get("prompt_id"))
    if not name:
        return
    if name in prompt_ids:
        report.add(
            number, "error", "duplicate prompt_id", f"prompt_id {name!r} is also that of row {prompt_ids[name]}."
        )
    prompt_ids.setdefault(name, number)


def _check_length(
    number: int, messages: list[dict[str, Any]], images: list[Any], processor: Any, limit: int | None, report: Report
) -> None:
    sft = report.role == "sft"
    try:
        length = count_tokens(messages, images, processor, generate=not sft)
    except Exception as error:  # verl drops the row whatever the processor raised
        text = " ".join(str(error).split()) or type(error).__name__
        report.add(number, "error", "processor failed", f"the processor fails ({text[:120]}); verl drops this row.")
        return
    if limit is not None and length > limit:
        fate = "stops at" if sft else "drops"
        report.add(number, "error", "too long", f"{length} tokens, more than {limit}; verl {fate} this row.")
