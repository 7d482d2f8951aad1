"""Parquet rows for verl: one row per study, one schema for every file this project writes.

verl's RLHFDataset concatenates its files, which fails when a column's type differs between them, so the schema is
written out here: `ground_truth` is a JSON string, `index` an int, `images` a list of structs with a single field.
A struct with both `bytes` and `image` would come back with None in one of them, and verl asks `"bytes" in image`;
so each file holds one form only, `{"image": "file:///abs/x.png"}` or `{"bytes": ...}`.
"""

import itertools
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_preprocess.core.skiplog import SkipLog, umask

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEFAULT_PROMPT", "KINDS", "SkipLog", "read_rows", "report_row", "schema", "sft_row", "write_rows"]

DEFAULT_PROMPT = "<image>Write the findings and impression of this chest radiograph."
KINDS = ("rl", "sft")
# verl splits message text at these three, whatever the column: a report that contains one breaks the row.
PLACEHOLDER = re.compile("<image>|<video>|<audio>")
# What tokenizers take for control tokens ("<|im_end|>", "<|image_pad|>"), wherever it stands in a text.
SPECIAL_TOKEN = re.compile(r"<\|[^<>|\s]{1,40}\|>")
ROWS_PER_GROUP = 256  # bounds memory with embedded images; fixed, so that the same rows give the same bytes


def report_row(
    *,
    data_source: str,
    split: str,
    index: int,
    prompt_id: str,
    subject_id: str,
    study_id: str,
    images: list[str | bytes],
    prompt: str,
    ground_truth: dict[str, Any],
    width: int,
    height: int,
    ability: str = "report",
    view: str = "",
    priors: str = "",
    original_report: str = "",
) -> dict[str, Any]:
    """One row of a verl RL file.

    Args:
        index: position in the file; an int everywhere (verl reads it as `extra_info.index`).
        prompt_id: stable over runs, for example "simulated/train/s000012".
        images: paths (made absolute) or encoded image bytes, all of one form.
        prompt: user text with one `<image>` per image.
        ground_truth: JSON-serialisable; stored as a string.
        width, height: of the first image as stored, in pixels; boxes in `ground_truth` are xyxy in 0-1 of it.
        ability: the task, for example "report", "trace" or "phrase".
        view: of each image, "PA" or "PA LATERAL"; "" where nobody says.
        priors: what was done with references to prior studies, "keep", "drop" or "llm"; "" where it is not known.
        original_report: the report before that and before marks of de-identification went, "" where it is the same.
    Raises:
        ValueError: number of `<image>` differs from the number of images, a special token in the prompt, mixed image
            forms, or no valid JSON.
    """
    where = f"row {prompt_id!r}"
    found = PLACEHOLDER.findall(prompt)
    if found != ["<image>"] * len(images):
        raise ValueError(
            f"{where}: the prompt has the placeholders {found} for {len(images)} image(s); write one <image> per image."
        )
    if token := SPECIAL_TOKEN.search(prompt):
        raise ValueError(f"{where}: the prompt contains {token[0]}, a special token of chat models; remove it.")
    if isinstance(index, bool) or not isinstance(index, int):
        raise ValueError(f"{where}: index is {index!r}; it must be an int in every file.")
    structs = [_image_struct(image, where) for image in images]
    _form(structs, where)
    try:
        truth = json.dumps(ground_truth, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: ground_truth is not JSON ({error}); use strings, finite numbers, lists, dicts."
        ) from error
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": prompt}],
        "images": structs,
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {
            "index": index,
            "split": split,
            "prompt_id": prompt_id,
            "subject_id": subject_id,
            "study_id": study_id,
            "width": width,
            "height": height,
            "box_space": "unit",
            "view": view,
            "priors": priors,
            "original_report": original_report,
        },
    }


def sft_row(row: dict[str, Any], target: str) -> dict[str, Any]:
    """The supervised twin of an RL row: its prompt, then `target` as the assistant's turn, and the same images.

    Raises:
        ValueError: `target` is empty or contains a placeholder or special token, which verl or the tokenizer acts on.
    """
    where = f"row {row['extra_info']['prompt_id']!r}"
    if not target.strip():
        raise ValueError(f"{where}: the target text is empty; skip the row and count it.")
    if found := PLACEHOLDER.search(target) or SPECIAL_TOKEN.search(target):
        raise ValueError(f"{where}: the target text contains {found[0]}; remove it from the report.")
    return {"messages": [*row["prompt"], {"role": "assistant", "content": target}], "images": row["images"]}


def schema(kind: str, form: str) -> "pa.Schema":
    """The Arrow schema of a file: `kind` is "rl" or "sft", `form` is "image" (paths) or "bytes"."""
    import pyarrow as pa

    text = pa.string()
    turns = pa.list_(pa.struct([("role", text), ("content", text)]))
    images = pa.list_(pa.struct([(form, text if form == "image" else pa.binary())]))
    if kind == "sft":
        return pa.schema([("messages", turns), ("images", images)])
    extra_info = [("index", pa.int64()), ("split", text), ("prompt_id", text), ("subject_id", text), ("study_id", text)]
    extra_info += [("width", pa.int64()), ("height", pa.int64()), ("box_space", text)]
    extra_info += [("view", text), ("priors", text), ("original_report", text)]
    return pa.schema(
        [
            ("data_source", text),
            ("prompt", turns),
            ("images", images),
            ("ability", text),
            ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
            ("extra_info", pa.struct(extra_info)),
        ]
    )


def write_rows(path: str | os.PathLike[str], rows: Iterable[dict[str, Any]], *, kind: str) -> int:
    """Write `rows` to a Parquet file and return their number; the same rows give the same bytes.

    The file appears under its name only when it is complete. The first row decides the image form of the file.

    Args:
        kind: "rl" (rows of `report_row`) or "sft" (rows of `sft_row`).
    Raises:
        ValueError: unknown kind, a row whose keys or types are not the schema's, or mixed image forms.
    """
    import pyarrow.parquet as pq

    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; use one of {KINDS}.")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    iterator = iter(rows)
    first = list(itertools.islice(iterator, 1))
    form = (_form(first[0]["images"], f"row 0 of {path.name}") if first else None) or "image"
    layout = schema(kind, form)
    written = 0
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        with pq.ParquetWriter(temporary, layout, compression="snappy") as writer:
            for batch in _batches(itertools.chain(first, iterator), ROWS_PER_GROUP):
                for offset, row in enumerate(batch):
                    _check_row(row, layout.names, form, f"row {written + offset} of {path.name}")
                writer.write_table(_table(batch, layout, written, path.name))
                written += len(batch)
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return written


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All rows of a Parquet file as plain Python objects (`ground_truth` stays the JSON string it is)."""
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


def _image_struct(image: str | bytes, where: str) -> dict[str, str | bytes]:
    """`{"bytes": ...}`, or `{"image": "file:///abs/path"}` with the path as it is: readers cut 7 characters off."""
    if isinstance(image, bytes):
        return {"bytes": image}
    if not isinstance(image, str) or not image:
        raise ValueError(f"{where}: an image is {image!r}; pass a path (str) or encoded bytes.")
    return {"image": "file://" + os.path.abspath(image.removeprefix("file://"))}


def _form(images: list[dict[str, Any]], where: str) -> str | None:
    """The single field of the image structs, None where there are no images."""
    forms = sorted({"+".join(sorted(image)) for image in images})
    if not forms:
        return None
    if len(forms) > 1 or forms[0] not in ("bytes", "image"):
        raise ValueError(f"{where}: image forms {forms} are mixed; use only paths or only bytes in one file.")
    return forms[0]


def _check_row(row: dict[str, Any], names: list[str], form: str, where: str) -> None:
    if sorted(row) != sorted(names):
        raise ValueError(
            f"{where}: columns {sorted(row)} instead of {sorted(names)}; build it with report_row/sft_row."
        )
    if _form(row["images"], where) not in (None, form):
        raise ValueError(f"{where}: its images are not of the form {form!r} of the rows before; never mix them.")


def _table(batch: list[dict[str, Any]], layout: "pa.Schema", start: int, name: str) -> "pa.Table":
    """The rows as a table; Arrow drops unknown struct fields and fills missing ones, so compare what it kept."""
    import pyarrow as pa

    try:
        table = pa.Table.from_pylist(batch, schema=layout)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise ValueError(
            f"{name}: rows {start}-{start + len(batch) - 1} do not fit the schema ({error}); use report_row or sft_row."
        ) from error
    for offset, (kept, row) in enumerate(zip(table.to_pylist(), batch, strict=True)):
        if kept != row:
            raise ValueError(
                f"row {start + offset} of {name}: has fields that are not in the schema, or lacks some; "
                "use report_row or sft_row."
            )
    return table


def _batches(rows: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(rows, size)):
        yield batch
