"""Which rows of a Parquet file a contact sheet shows.

Few rows that between them show as much as possible: abilities, splits, labels, box labels, several views, nothing to
be found. The same file gives the same rows. A large file is not read whole: some thousand rows all over it are looked
at, and images only of those chosen.
"""

import bisect
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.parquet as pq

LOOKED_AT = 4096  # rows; more would only take time
GROUPS = 32  # row groups they come from
IMAGES_AT_ONCE = 8  # rows, for a file that holds the bytes of its images


@dataclass
class SheetRow:
    """What a cell shows of a row; `image` is a path or bytes, None where the row has none."""

    number: int
    ability: str
    ground_truth: Any  # as stored: parsed, thousands of them would take hundreds of megabytes
    extra: dict[str, Any]
    image: str | bytes | None = None
    images: int = 0
    features: set[str] = field(default_factory=set)

    @property
    def truth(self) -> dict[str, Any]:
        """The ground truth, empty where it is not an object."""
        try:
            truth = json.loads(self.ground_truth) if isinstance(self.ground_truth, str) else self.ground_truth
        except (ValueError, RecursionError):
            return {}
        return truth if isinstance(truth, dict) else {}


def choose_rows(path: str | os.PathLike[str], most: int) -> list[SheetRow]:
    """Up to `most` rows of a verl RL file, with their first image, in the order of the file.

    Raises:
        ValueError: not a Parquet file, or one without the columns of verl.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            missing = {"reward_model", "images"} - set(file.schema_arrow.names)
            if missing:
                raise ValueError(f"{os.fspath(path)}: has no column {' or '.join(sorted(missing))}; pass an RL file.")
            chosen = cover(list(_candidates(file)), most)
            _add_images(file, chosen)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{os.fspath(path)}: is not a Parquet file ({error}).") from error
    return chosen


def cover(rows: list[SheetRow], most: int) -> list[SheetRow]:
    """Up to `most` rows that show as many features as possible: greedily the one with most new ones, then the first.

    When all features are shown, or no more can be, it starts again with the rows that are left.
    """
    chosen: list[SheetRow] = []
    left = list(rows)
    shown: set[str] = set()
    while left and len(chosen) < most:
        best = max(left, key=lambda row: len(row.features - shown))  # the first of equals
        if shown and not best.features - shown:
            shown = set()
            continue
        shown |= best.features
        chosen.append(best)
        left.remove(best)
    return sorted(chosen, key=lambda row: row.number)


def box_list(truth: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The boxes or regions of a ground truth, whatever else stands there left out."""
    value = truth.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def label_names(truth: dict[str, Any], state: int) -> list[str]:
    """The labels that are in a state: 1 present, -1 uncertain."""
    labels = truth.get("labels")
    return [str(name) for name, value in labels.items() if value == state] if isinstance(labels, dict) else []


def _candidates(file: "pq.ParquetFile") -> Iterator[SheetRow]:
    names = [name for name in ("reward_model", "extra_info", "ability") if name in file.schema_arrow.names]
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    starts = [sum(sizes[:group]) for group in range(len(sizes))]
    groups = sorted({*_spread(len(sizes), GROUPS), *_groups_of_abilities(file, starts)})
    step = max(1, sum(sizes[group] for group in groups) // LOOKED_AT)
    for group in groups:
        number = starts[group]
        for batch in file.iter_batches(row_groups=[group], columns=names, batch_size=1024):
            offsets = list(range(-number % step, batch.num_rows, step))
            for offset, row in zip(offsets, batch.take(offsets).to_pylist(), strict=True):
                yield _row(number + offset, row)
            number += batch.num_rows


def _row(number: int, row: dict[str, Any]) -> SheetRow:
    reward, extra = row.get("reward_model"), row.get("extra_info")
    text = reward.get("ground_truth") if isinstance(reward, dict) else None
    out = SheetRow(number, str(row.get("ability") or ""), text, extra if isinstance(extra, dict) else {})
    truth = out.truth
    positive, boxes = label_names(truth, 1), box_list(truth, "boxes")
    out.features = {f"ability {out.ability}", f"split {out.extra.get('split')}", f"view {out.extra.get('view')}"}
    out.features |= {f"label {name}" for name in positive} | {f"unsure {name}" for name in label_names(truth, -1)}
    out.features |= {f"box {item.get('label')}" for item in boxes} or {"no box"}
    if not positive:
        out.features.add("no label")
    return out


def _groups_of_abilities(file: "pq.ParquetFile", starts: list[int]) -> Iterator[int]:
    """The row groups in which each ability comes first."""
    if "ability" in file.schema_arrow.names:
        abilities = file.read(columns=["ability"]).column(0).combine_chunks()
        for ability in abilities.unique():
            first = abilities.index(ability).as_py()
            if first >= 0:  # not so for null
                yield bisect.bisect_right(starts, first) - 1


def _spread(count: int, most: int) -> list[int]:
    """Up to `most` numbers below `count`, evenly over them."""
    return sorted({round(i * (count - 1) / max(1, most - 1)) for i in range(most)}) if count else []


def _add_images(file: "pq.ParquetFile", chosen: list[SheetRow]) -> None:
    """Read the images of the chosen rows, a few rows at a time."""
    wanted = {row.number: row for row in chosen}
    start = 0
    for group in range(file.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        last = max((number for number in wanted if start <= number < end), default=-1)
        number = start
        if last >= 0:
            for batch in file.iter_batches(row_groups=[group], columns=["images"], batch_size=IMAGES_AT_ONCE):
                for offset in range(batch.num_rows):
                    if row := wanted.get(number + offset):
                        images = batch.column(0)[offset].as_py() or []
                        row.images = len(images)
                        row.image = _source(images[0]) if images else None
                number += batch.num_rows
                if number > last:
                    break
        start = end


def _source(image: Any) -> str | bytes | None:
    if isinstance(image, dict):
        image = image.get("bytes") or image.get("image") or image.get("path") or image.get("image_url")
    if isinstance(image, str):
        return image.removeprefix("file://")
    return image if isinstance(image, bytes) else None
