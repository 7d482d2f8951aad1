"""A Parquet file against another one: other splits that must share nobody, and the RL twin of an SFT file."""

from typing import Any

from radverl.datacheck.files import rows_of, text_of
from radverl.datacheck.messages import read_messages
from radverl.datacheck.report import Report
from radverl.datacheck.traces import differs


def check_against(
    table: Any, second: Any, name: str, prompt_ids: dict[str, int], subjects: dict[str, int], report: Report
) -> None:
    """Overlap with another split, and column types that keep the two from being read together."""
    mine, theirs = table.schema_arrow, second.schema_arrow
    for column in mine.names:
        if mine.names.count(column) == theirs.names.count(column) == 1:
            here, there = mine.field(column).type, theirs.field(column).type
            if here != there:
                message = f"column {column!r} is {here} here but {there} in {name}; verl cannot read both together."
                report.add(None, "error", "column type", message)
    if "extra_info" not in theirs.names or not (prompt_ids or any(subjects)):
        message = f"one of this file and {name} has no prompt_id or subject_id, so their rows were not compared."
        report.add(None, "warning", "not compared", message)
    for number, row in enumerate(rows_of(second, name, ("extra_info",))):
        extra = row["extra_info"] if isinstance(row.get("extra_info"), dict) else {}
        for key, known in (("prompt_id", prompt_ids), ("subject_id", subjects)):
            value = text_of(extra.get(key))
            if value and value in known:
                message = f"{key} {value!r} is also in row {number} of {name}; a split must not share it."
                report.add(known[value], "error", f"shared {key}", message)


def check_twin(table: Any, second: Any, name: str, report: Report) -> None:
    """What is taught must be what is scored: answers against the reports of the RL file, row by row."""
    if table.metadata.num_rows != second.metadata.num_rows:
        message = f"{name} has {second.metadata.num_rows} rows, so answers were not held against its reports."
        report.add(None, "warning", "not compared", message)
        return
    mine = rows_of(table, report.path, ("messages",))
    theirs = rows_of(second, name, ("prompt", "reward_model"))
    for number, (row, other) in enumerate(zip(mine, theirs, strict=True)):
        reward = other.get("reward_model")
        truth = reward.get("ground_truth") if isinstance(reward, dict) else reward
        messages = read_messages(row.get("messages"))
        if not messages or messages[:-1] != read_messages(other.get("prompt")):
            message = f"its prompt is not that of row {number} of {name}; write both files in one run."
            report.add(number, "warning", "other prompt", message)
        elif difference := differs(messages[-1]["content"], truth):
            report.add(number, "error", "answer differs", f"{difference} of row {number} of {name}.")
