"""What every reward returns: a dict with `score`, `failed` and its components - the same keys for every sample.

verl collects reward dicts column by column and cannot take a missing key or None, so a failed sample carries all
components as 0.0. `failed` says that no score could be computed; such a sample is left out of the statistics, it is not
a zero reward. Rewards with a judge also report `FAILURES`: 1.0 at the cause of a failed sample, else 0.0, so that sums
over samples count causes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from radverl.judge.failure import Cause

Score = dict[str, float | bool]

# failed_timeout, failed_rate_limit, ...; the last for whatever is no JudgeFailure.
FAILURES = (*(f"failed_{cause}" for cause in get_args(Cause)), "failed_other")

# What verl's reward loop passes to every custom reward function besides the sample.
VERL_KEYWORDS = frozenset({"reward_router_address", "reward_model_tokenizer"})


def scored(score: float, components: Mapping[str, float]) -> Score:
    """The dict of a sample that was scored."""
    return {"score": float(score), "failed": False, **{k: float(v) for k, v in components.items()}}


def failed(components: Sequence[str], error: BaseException | None = None) -> Score:
    """The dict of a sample that could not be scored: same keys as `scored`, `failed` True, all numbers 0.0.

    Args:
        error: why; sets the one of `FAILURES` that it belongs to, where the reward reports them.
    """
    out: Score = {"score": 0.0, "failed": True, **dict.fromkeys(components, 0.0)}
    if error is not None and FAILURES[-1] in out:
        cause = f"failed_{getattr(error, 'cause', None)}"
        out[cause if cause in FAILURES else FAILURES[-1]] = 1.0
    return out


def failure_causes(result: Mapping[str, Any]) -> list[str]:
    """The causes that a failed sample reports, as "timeout"; none where its reward does not say."""
    return [name.removeprefix("failed_") for name in FAILURES if result.get(name)]


def check_keywords(extra: Iterable[str], where: str) -> None:
    """Let verl's own keywords pass and refuse any other, so that a mistyped setting cannot go unnoticed.

    Raises:
        TypeError: names the unknown keywords.
    """
    unknown = sorted(set(extra) - VERL_KEYWORDS)
    if unknown:
        raise TypeError(
            f"{where}: unknown setting {', '.join(unknown)}; check the reward's settings (reward.radverl.kwargs)."
        )


def row_name(extra_info: Mapping[str, Any] | None) -> str:
    """How errors name a row: its `prompt_id`, else its index, else "row ?"."""
    info = extra_info if isinstance(extra_info, Mapping) else {}
    if info.get("prompt_id") is not None:
        return f"row {info['prompt_id']}"
    return f"row {info['index']}" if info.get("index") is not None else "row ?"


def read_ground_truth(ground_truth: Any, extra_info: Mapping[str, Any] | None) -> dict[str, Any]:
    """The ground-truth object of a row, from the JSON string in the Parquet file (a dict is taken as it is).

    Raises:
        ValueError: not JSON, or not an object; names the row.
    """
    if isinstance(ground_truth, Mapping):
        return dict(ground_truth)
    try:
        value = json.loads(ground_truth)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{row_name(extra_info)}: ground_truth is not JSON ({error}); rebuild the data set."
        ) from error
    if not isinstance(value, dict):
        raise ValueError(f"{row_name(extra_info)}: ground_truth is JSON but not an object; rebuild the data set.")
    return value
