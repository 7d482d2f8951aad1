"""Reading what a verl run leaves behind: its metrics, and from its rollout dumps the zero-reward rate.

Metrics come from verl's "file" logger (JSON lines, {"step", "data"}; `trainer.logger=[console,file]` with
VERL_FILE_LOGGER_PATH) or, where only the console output was kept, from its lines "step:12 - key:value - ...". The file
logger starts its file anew when a run is resumed, so give each run of a resumed training its own path and read both.

Zero-reward rate of a prompt with K rollouts (OraPO, arXiv 2509.18600, eq. 8): z = (1/K) sum_j 1[r_j == 0]. A group with
z = 1 gives GRPO no gradient at all. verl's training dumps do not carry the reward's `failed` flag, so a judge failure
looks like a zero there; where the flag is present (validation dumps) failures are left out.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from radverl.evaluation.files import parse_json

Record = dict[str, float]

# "step:" after a tqdm bar or Ray's "(TaskRunner pid=1)" is the start of a record, "training/global_step:" is not.
_CONSOLE = re.compile(r"(?<![\w/@-])step:(\d{1,15}) - (.*)")
PADDING = re.compile(r"pad[0-9a-f]{32}")  # what verl fills a batch up with, as prompt id; dumped with reward 0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LARGEST = 1e30  # beyond it a number is no metric, and no plot can hold it
_NUMBER = re.compile(r"(?:np\.\w+\()?([+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|nan))\b")


def read_log(*paths: str | Path) -> list[Record]:
    """Records of one or more logs of the same training, by step.

    Args:
        paths: file-logger JSON lines or console output, told apart by content. Of two values of one metric at one step
            the later wins, so name the logs of a resumed run in order.
    Returns:
        [{"step": int, metric: float, ...}], steps ascending; values that are not finite numbers are left out.
    Raises:
        ValueError: a file that is missing or holds no record.
    """
    merged: dict[int, Record] = {}
    for path in map(Path, paths):
        if not path.is_file():
            raise ValueError(f"{path} does not exist: give verl's file log or its console output.")
        found = 0
        with path.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                parsed = parse_line(line)
                if parsed is not None:
                    found += 1
                    merged.setdefault(int(parsed["step"]), {}).update(parsed)
        if not found:
            raise ValueError(
                f"{path} holds no metrics of verl: expected JSON lines or lines with `step:N - key:value`."
            )
    return [merged[step] for step in sorted(merged)]


def parse_line(line: str) -> Record | None:
    """The record of one line of either logger, None where the line is something else."""
    if line.startswith("{"):
        try:
            entry = parse_json(line)
        except ValueError:
            return None
        if not isinstance(entry, dict) or not _is_step(entry.get("step")):
            return None
        # A flat record is what `merge` gives; anyone may have saved one.
        values = entry["data"] if isinstance(entry.get("data"), dict) else entry
        return {**_finite(values), "step": entry["step"]}
    match = _CONSOLE.search(_COLOUR.sub("", line))
    if match is None:
        return None
    values = {}
    for part in match[2].split(" - "):
        key, sign, text = part.rpartition(":")
        number = _NUMBER.match(text.strip()) if sign else None
        if number:
            values[key.strip()] = float(number[1])
    return {**_finite(values), "step": int(match[1])} if values else None


def rollout_rates(dump_dir: str | Path) -> list[Record]:
    """Zero-reward statistics of every step dumped under `trainer.rollout_data_dir`.

    Returns:
        one record a step, as `group_rates` gives them, with "step"; steps ascending.
    Raises:
        ValueError: no such folder, no <step>.jsonl in it, or a line that is no rollout.
    """
    folder = Path(dump_dir)
    files = sorted((int(file.stem), file) for file in folder.glob("*.jsonl") if re.fullmatch(r"[0-9]{1,15}", file.stem))
    if not files:
        raise ValueError(f"{folder} holds no rollout dump: set trainer.rollout_data_dir and give that folder.")
    records = []
    for step, file in files:
        # Not splitlines(): a report may hold U+2028, which is no line end in JSON.
        try:
            lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
            rollouts = [parse_json(line) for line in lines]
            records.append({"step": step, **group_rates(rollouts)})
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{file} is no rollout dump of verl ({error}): is the run still writing it?") from error
    return records


def group_rates(rollouts: Sequence[dict]) -> Record:
    """Zero-reward statistics of the rollouts of one step.

    Rollouts of one prompt share the first part of `uid` ("{prompt}_{rollout}_{output}"; of several outputs of one
    rollout the last carries the reward; rows of other kinds, such as verl's padding, are not rollouts). Without `uid`
    they are grouped by prompt text and ground truth together: the dumped text alone is the same for every image.

    Returns:
        {"rollouts", "groups", "left_out", "reward_mean", "zero_reward_rate" (share of rollouts with reward exactly 0),
        "all_zero_groups" (share of groups with z = 1)}; only the first three where no rollout has a reward.
    """
    last: dict[tuple[str, str], tuple[int, float | None]] = {}
    left_out: Counter[str] = Counter()
    for position, rollout in enumerate(rollouts):
        parts = str(rollout["uid"]).rsplit("_", 2) if rollout.get("uid") is not None else None
        if parts is None:
            group, member, output = json.dumps([rollout["input"], rollout.get("gts")]), str(position), 0
        elif len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit() and not PADDING.fullmatch(parts[0]):
            group, member, output = parts[0], parts[1], int(parts[2])
        else:
            left_out["not a rollout"] += 1
            continue
        score = None if rollout.get("failed") else float(rollout["score"])
        if (group, member) not in last or last[group, member][0] <= output:
            last[group, member] = (output, score)
    groups: dict[str, list[float]] = {}
    for (group, _), (_, score) in last.items():
        if score is None or math.isnan(score):
            left_out["failed"] += 1
        else:
            groups.setdefault(group, []).append(score)
    counts: Record = {"left_out": left_out.total(), "groups": len(groups)}
    scores = [score for group_scores in groups.values() for score in group_scores]
    counts["rollouts"] = len(scores)
    if not scores:
        return counts
    all_zero = sum(not any(group_scores) for group_scores in groups.values())
    return {
        **counts,
        "reward_mean": sum(scores) / len(scores),
        "zero_reward_rate": scores.count(0.0) / len(scores),
        "all_zero_groups": all_zero / len(groups),
    }


def merge(*record_lists: Iterable[Record]) -> list[Record]:
    """Records of several sources joined by step, later sources winning."""
    merged: dict[int, Record] = {}
    for records in record_lists:
        for record in records:
            merged.setdefault(int(record["step"]), {}).update(record)
    return [merged[step] for step in sorted(merged)]


def _finite(values: dict) -> Record:
    return {
        str(key): float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST  # NaN is not
    }


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15
