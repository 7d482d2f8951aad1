"""Reading and writing the files of an evaluation: atomic JSON and JSON lines, Parquet rows of ours.

A reader of a half-written file is worse off than one without a file, so everything is written beside and renamed.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data_preprocess.core.skiplog import write_text

NEEDED_COLUMNS = ("prompt", "images", "reward_model", "extra_info")


def write_json(path: str | Path, data: Any) -> None:
    """Write one JSON document atomically; NaN and infinity, which are no JSON, become null."""
    write_text(path, json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_jsonl(path: str | Path, rows: Iterable[dict]) -> None:
    """Write one JSON object a line, atomically; NaN and infinity become null."""
    lines = [json.dumps(_finite(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
    write_text(path, "".join(lines))


def read_parquet(path: str | Path) -> list[dict]:
    """Rows of a Parquet file in verl's RL layout, one per study.

    Raises:
        ValueError: no such file, not Parquet, or another layout (an SFT file, say); the sentence says which.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist: give a Parquet file written by data_preprocess.")
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as Parquet ({_first_line(error)}): write it again.") from error
    missing = [name for name in NEEDED_COLUMNS if name not in table.column_names]
    if missing:
        kind = (
            " (it looks like an SFT file: give the RL file of that split)" if "messages" in table.column_names else ""
        )
        raise ValueError(f"{path} lacks the column(s) {', '.join(missing)}{kind}: its rows cannot be evaluated.")
    twice = [name for name in NEEDED_COLUMNS if table.column_names.count(name) > 1]
    if twice:
        raise ValueError(f"{path} has the column {twice[0]} more than once: write it again.")
    return table.to_pylist()


def parse_json(text: Any) -> Any:
    """`json.loads`, for text that anyone may have written.

    Raises:
        ValueError: for whatever reason it is not read: no JSON, nested too deep, a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"not JSON that can be read ({_first_line(error)[:80]})") from error


def truth_of(row: dict, where: str) -> dict:
    """The ground truth of one row as a dict.

    Raises:
        ValueError: it is not the JSON object we write; names the row by `where`.
    """
    reward = row.get("reward_model")
    try:
        truth = parse_json(reward.get("ground_truth") if isinstance(reward, dict) else None)
    except ValueError as error:
        raise ValueError(f"{where}: reward_model.ground_truth is not a JSON string: re-run data_preprocess.") from error
    if not isinstance(truth, dict) or not isinstance(truth.get("labels"), dict):
        raise ValueError(f"{where}: reward_model.ground_truth has no `labels` object: re-run data_preprocess.")
    return truth


def row_name(row: dict, index: int) -> str:
    """What to call a row in a message: its prompt_id, else its position."""
    return str(extra_info(row).get("prompt_id") or f"row {index}")


def extra_info(row: dict) -> dict:
    """The row's extra_info; {} where the file has none, or another type."""
    info = row.get("extra_info")
    return info if isinstance(info, dict) else {}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
