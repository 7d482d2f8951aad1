"""The Parquet files and rewards of radverl in a TRL project.

    from trl import GRPOConfig, GRPOTrainer
    from radverl.trl import read_dataset, reward_func

    trainer = GRPOTrainer(model, reward_funcs=reward_func("facts"), train_dataset=read_dataset("train.parquet"), ...)

TRL puts a row's images before the user's text and hands its other columns to the reward. Imports no TRL itself: verl
0.9.1 cannot start where a recent TRL can be imported, so the two live in environments of their own.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from radverl.rewards.base import failure_causes

if TYPE_CHECKING:
    from datasets import Dataset

PLACEHOLDER = "<image>"
AT_ONCE = 32
COLUMNS = ("data_source", "ground_truth", "extra_info")  # what the reward needs besides the completion


def read_dataset(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> "Dataset":
    """An RL file, or several, as TRL rows: prompt (turns of plain text), images, data_source, ground_truth, extra_info.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, or `<image>` stands elsewhere than at the start of the first user turn, where
            TRL puts the images; names the row.
    """
    from datasets import Features, Image, List, Value, load_dataset

    files = [os.fspath(path)] if isinstance(path, str | os.PathLike) else [os.fspath(file) for file in path]
    data = load_dataset("parquet", data_files=files, split="train")
    if missing := [name for name in ("prompt", "images", "reward_model") if name not in data.column_names]:
        raise ValueError(f"{path}: has no column {missing[0]!r}; pass an RL file of data_preprocess.")
    turns = List({"role": Value("string"), "content": Value("string")})
    features = {"prompt": turns, "images": List(Image()), "ground_truth": Value("string")}
    kept = {name: data.features[name] for name in ("data_source", "extra_info") if name in data.column_names}
    return data.map(
        _trl_row, with_indices=True, features=Features(features | kept),
        remove_columns=[name for name in data.column_names if name not in (*features, *kept)],
    )  # fmt: skip


def reward_func(name: str, *, skip_failed: bool = False, **settings: Any) -> Callable[..., list[float | None]]:
    """A reward of radverl as TRL's `reward_funcs` takes it: one score for each completion.

    Args:
        name: of a module in `radverl.rewards`, for example "facts".
        skip_failed: give None for a sample whose judge failed. TRL ignores it beside other rewards; where it is the
            only one TRL warns and counts 0, so a failure stops training by default.
        settings: passed on to its `compute_score`.
    Raises:
        ValueError: there is no reward of this name.
    """
    try:
        compute_score = importlib.import_module(f"radverl.rewards.{name}").compute_score
    except (ImportError, AttributeError) as error:
        raise ValueError(f"there is no reward {name!r} in radverl.rewards; take another name.") from error

    def score(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        def result_of(number: int) -> dict[str, Any]:
            row = {column: columns[column][number] for column in COLUMNS if column in columns}
            answer, truth = _text(completions[number]), row["ground_truth"]
            result: dict[str, Any] = compute_score(
                row.get("data_source", ""), answer, truth, row.get("extra_info"), **settings
            )
            return result

        out: list[float | None] = []
        with ThreadPoolExecutor(AT_ONCE) as pool:  # a judge behind a server is waited for, not computed
            results = list(pool.map(result_of, range(len(completions))))
        for number, result in enumerate(results):
            if result["failed"] and not skip_failed:
                causes = ", ".join(failure_causes(result)) or "no cause given"
                raise RuntimeError(
                    f"the reward {name} failed at sample {number} ({causes}); see the log, or pass skip_failed=True."
                )
            out.append(None if result["failed"] else float(result["score"]))
        return out

    score.__name__ = name
    return score


def _trl_row(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    images = row["images"] or []
    start = PLACEHOLDER * len(images)
    prompt = [{"role": turn["role"], "content": turn["content"]} for turn in row["prompt"]]
    asked = [turn for turn in prompt if turn["role"] == "user"]
    misplaced = bool(images) and not (asked and asked[0]["content"].startswith(start))
    if asked:
        asked[0]["content"] = asked[0]["content"].removeprefix(start)
    if misplaced or any(PLACEHOLDER in turn["content"] for turn in prompt):
        raise ValueError(f"row {number}: its {len(images)} <image> do not stand at the start of the first user turn.")
    return {
        "prompt": prompt,
        "images": [_image(image) for image in images],
        "ground_truth": row["reward_model"]["ground_truth"],
    }


def _image(image: Mapping[str, Any]) -> dict[str, Any]:
    if image.get("bytes") is not None:
        return {"bytes": image["bytes"], "path": None}
    return {"bytes": None, "path": str(image["image"]).removeprefix("file://")}


def _text(completion: Any) -> str:
    """The text of a completion: itself, or that of its last message."""
    content = completion if isinstance(completion, str) else completion[-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
