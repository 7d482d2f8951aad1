"""Advantages of a batch in which some rows have no reward: verl's own estimator, called on the other rows only.

verl counts a failed reward as 0 in its group's mean and deviation, and gives a lone member of a group its bare reward.
Here a failed row has advantage 0 and no part in any statistic, and where an estimator compares the rollouts of a
prompt, a prompt with fewer than two rewards has no advantage. A batch without such rows goes to verl as it is.
"""

from collections.abc import Callable
from typing import Any

from radverl.verl_plugin.failures.flags import RowFlags, is_padding

# verl's estimators that do not compare the rollouts of a prompt.
UNGROUPED = ("gae", "reinforce_plus_plus", "remax")


def is_grouped(adv_estimator: Any, n_rollouts: int) -> bool:
    """Whether an advantage needs a second rollout of its prompt; one of your own is taken to need it."""
    return str(getattr(adv_estimator, "value", adv_estimator)) not in UNGROUPED and n_rollouts > 1


def usable_rows(flags: RowFlags, grouped: bool) -> list[bool]:
    """Rows that take part in the advantages; all of them, padding too, where no prompt lacks a reward."""
    valid = flags.valid_sessions()
    short = {uid for uid, n_valid in valid.items() if n_valid < 2} if grouped else set()
    rows = list(zip(flags.keys, flags.failed, strict=True))
    if not short and not any(failed and not is_padding(key) for key, failed in rows):
        return [True] * len(rows)
    return [not failed and not is_padding(key) and key.rsplit("_", 2)[0] not in short for key, failed in rows]


def estimate_on_usable(
    estimate: Callable[..., Any], data: Any, batch_keys: list[str], flags: RowFlags, **settings: Any
) -> Any:
    """verl's `compute_advantage_for_multi_trajectories`, here `estimate`, without the rows that have no reward.

    Args:
        data: verl's DataProto of the batch, padded; gets "advantages" and "returns" for all rows.
        flags: of the same rows.
        settings: the function's other arguments, by name.
    Returns:
        `data`. Rows left out have advantage 0, and their value as return where there is a critic, so that it learns
        nothing from them.
    """
    import torch

    usable = usable_rows(flags, is_grouped(settings["adv_estimator"], settings.get("num_repeat", 1)))
    if all(usable):
        return estimate(data, batch_keys=batch_keys, **settings)
    rows = [row for row, use in enumerate(usable) if use]
    mask = data.batch["response_mask"]
    rewards = data.batch["token_level_rewards"]
    advantages = torch.zeros_like(rewards)
    returns = data.batch["values"] * mask if "values" in data.batch else torch.zeros_like(rewards)
    if len({batch_keys[row].rsplit("_", 1)[0] for row in rows}) > 1:  # one sample has nothing to be compared with
        part = estimate(data.select_idxs(rows), batch_keys=[batch_keys[row] for row in rows], **settings)
        advantages[rows] = part.batch["advantages"].to(advantages.dtype)
        returns[rows] = part.batch["returns"].to(returns.dtype)
    data.batch["advantages"] = advantages
    data.batch["returns"] = returns
    return data
