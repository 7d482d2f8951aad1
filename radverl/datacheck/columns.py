"""The columns of a Parquet file, as a loader of verl needs them for its role, "rl" or "sft"."""

from typing import Any

from radverl.datacheck.report import Report

# Columns a loader reads, and what happens without them. verl's: data_source and reward_model pick and feed the reward.
REQUIRED = {"rl": ("data_source", "prompt", "reward_model"), "sft": ("messages",)}
EXPECTED = {"rl": ("images", "extra_info"), "sft": ("images",)}


def check_columns(table: Any, role: str, report: Report) -> None:
    """What the schema of a `ParquetFile` says before a row is read goes into the report."""
    import pyarrow as pa

    schema = table.schema_arrow
    writer = table.metadata.created_by or "an unknown writer"
    there = ", ".join(schema.names) or "none"
    for severity, wanted in (("error", REQUIRED[role]), ("warning", EXPECTED[role])):
        for name in wanted:
            if schema.names.count(name) != 1:
                what = "has no column" if name not in schema.names else "has more than one column"
                message = f"{what} {name!r}; its columns are {there} (written by {writer})."
                report.add(None, severity, "missing column", message)  # type: ignore[arg-type]
    if schema.names.count("images") == 1:
        kind = schema.field("images").type
        element = kind.value_type if isinstance(kind, pa.ListType | pa.LargeListType) else None
        if element is None:
            report.add(None, "error", "images type", f"images is {kind}; write a list of structs.")
        elif pa.types.is_struct(element) and {"bytes", "image"} <= {field.name for field in element}:
            message = 'images mixes {"bytes"} and {"image"}; verl takes the empty one for data. Write one form a file.'
            report.add(None, "error", "image form", message)
    if role == "rl" and schema.names.count("extra_info") == 1:
        extra = schema.field("extra_info").type
        fields = {field.name: field.type for field in extra} if pa.types.is_struct(extra) else {}
        if "index" not in fields:
            report.add(None, "warning", "no index", "extra_info has no index, so verl gives every row the index 0.")
        elif not pa.types.is_integer(fields["index"]):
            message = (
                f"extra_info.index is {fields['index']}, not an integer; files with an int index will not join it."
            )
            report.add(None, "error", "index type", message)
        if "prompt_id" not in fields:
            message = "extra_info has no prompt_id, so splits cannot be compared and OraPO's memory cannot be resumed."
            report.add(None, "warning", "no prompt_id", message)
    if (
        role == "rl"
        and schema.names.count("reward_model") == 1
        and not pa.types.is_struct(schema.field("reward_model").type)
    ):
        message = 'reward_model is no struct; write {"style": "rule", "ground_truth": ...}.'
        report.add(None, "error", "reward_model type", message)
