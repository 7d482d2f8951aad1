"""One step's weights: rewards and log-ratios of its rows in, the numbers that the loss needs of each row out.

Shapes: R rollout rows in batch order (padding included), P prompts, K rollouts of a prompt (the most any prompt has).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from radverl.orapo import (
    ZeroRewardEma,
    dpo_row_coefficients,
    mixing_weight,
    negative_mask,
    preference_metrics,
    zero_reward_rate,
)
from radverl.verl_plugin.failures.flags import is_padding
from radverl.verl_plugin.orapo.settings import OrapoSettings


@dataclass(frozen=True)
class Groups:
    """Which rows are whose: `uids` of the prompts in order of appearance and two index tables."""

    uids: list[str]
    prompt_R: Tensor
    """Prompt of each row, -1 for padding."""
    row_PK: Tensor
    """Row of each rollout, -1 where a prompt has fewer than K (a session of it failed)."""


def groups_of(keys: Sequence[str]) -> Groups:
    """Read the groups from verl's row keys, "{uid}_{session}_{output}".

    Raises:
        ValueError: a session has several outputs. verl then counts mini-batches in outputs, and the prompt of a later
            output holds what the session did before: there is no true report to such a prompt.
    """
    prompts: dict[str, int] = {}
    sessions: list[dict[int, int]] = []
    prompt_R = []
    for row, key in enumerate(keys):
        uid, session, _ = key.rsplit("_", 2)
        if is_padding(uid):
            prompt_R.append(-1)
            continue
        prompt = prompts.setdefault(uid, len(prompts))
        if prompt == len(sessions):
            sessions.append({})
        if sessions[prompt].setdefault(int(session), row) != row:
            raise ValueError(
                "an agent loop returned several outputs of one session; OraPO takes one: use a loop that returns one, "
                "such as single_turn_agent."
            )
        prompt_R.append(prompt)
    n_rollouts = max(map(len, sessions), default=0)
    row_PK = torch.full((len(prompts), n_rollouts), -1, dtype=torch.long)
    for prompt, rows in enumerate(sessions):
        row_PK[prompt, : len(rows)] = torch.tensor([row for _, row in sorted(rows.items())])
    return Groups(list(prompts), torch.tensor(prompt_R, dtype=torch.long), row_PK)


@dataclass(frozen=True)
class Step:
    """What is known of a step before its update; log-ratios are summed over a response (old over reference policy)."""

    groups: Groups
    prompt_ids: list[str]
    rewards_R: Tensor
    failed_R: Tensor
    """True where the reward failed."""
    delta_R: Tensor
    lengths_R: Tensor
    delta_gt_P: Tensor
    lengths_gt_P: Tensor
    rejected_R: Tensor | None = None
    """True where verl's rollout correction took all tokens of a rollout: it has a reward, but no part in the loss."""

    def masks(self) -> tuple[Tensor, Tensor, Tensor]:
        """(rows_PK, there_PK, failed_PK): row of each rollout (0 where there is none), whether there is one, whether
        its reward is missing (no rollout, or a failed one)."""
        there_PK = self.groups.row_PK >= 0
        rows_PK = self.groups.row_PK.clamp(min=0)
        return rows_PK, there_PK, ~there_PK | self.failed_R[rows_PK]


def mix(
    settings: OrapoSettings, average: ZeroRewardEma, step: Step
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict]:
    """Take the step into the moving averages and give each row its numbers.

    Returns:
        (rollout_fields, oracle_fields, metrics). Fields, all float32 of shape (R,) or (P,):
        orapo_grpo_weight: 1 - w of the row's prompt (1 for padding).
        orapo_coef: the row coefficient, without 1/P (`dpo_row_coefficients`, or -w / |y+| for SFT).
        orapo_dpo_weight: w for the true report, 0 for rollouts.
        orapo_negative: 1 for a rollout that is a y- of its prompt.
        orapo_prompt: number of the prompt, -1 for padding.
    """
    groups = step.groups
    rows_PK, there_PK, failed_PK = step.masks()
    rewards_PK = torch.where(failed_PK, 0.0, step.rewards_R[rows_PK].double())
    rates_P = [
        zero_reward_rate(rewards, failed) for rewards, failed in zip(rewards_PK.numpy(), failed_PK.numpy(), strict=True)
    ]
    weights_P = torch.from_numpy(
        mixing_weight(average.update(step.prompt_ids, rates_P), settings.w_min, settings.w_max, settings.gamma)
    )

    unfit_PK = failed_PK if step.rejected_R is None else failed_PK | step.rejected_R[rows_PK]
    negatives_PK = negative_mask(rewards_PK, unfit_PK, settings.negatives)
    delta_PK = torch.where(there_PK, step.delta_R[rows_PK].double(), 0.0)
    lengths_PK = torch.where(there_PK, step.lengths_R[rows_PK].double(), 0.0)
    delta_gt_P, lengths_gt_P = step.delta_gt_P.double(), step.lengths_gt_P.double()
    pairs: dict[str, Any] = {
        "tau": settings.tau,
        "length_normalised": settings.length_normalised,
        "negatives_PK": negatives_PK,
    }
    if settings.oracle_loss == "sft":
        coef_PK = torch.zeros_like(delta_PK)
        coef_gt_P = -weights_P / (lengths_gt_P.clamp(min=1) if settings.length_normalised else 1.0)
    else:
        coef_gt_P, coef_PK = dpo_row_coefficients(delta_gt_P, delta_PK, lengths_gt_P, lengths_PK, weights_P, **pairs)

    n_rows = len(groups.prompt_R)
    of_row = groups.row_PK[there_PK]
    coef_R, negative_R = torch.zeros(n_rows, dtype=torch.double), torch.zeros(n_rows)
    coef_R[of_row] = coef_PK[there_PK]
    negative_R[of_row] = negatives_PK[there_PK].float()
    padding_R = groups.prompt_R < 0
    rollout_fields = {
        "orapo_grpo_weight": torch.where(padding_R, 1.0, 1.0 - weights_P[groups.prompt_R.clamp(min=0)]).float(),
        "orapo_coef": coef_R.float(),
        "orapo_dpo_weight": torch.zeros(n_rows),
        "orapo_negative": negative_R,
        "orapo_prompt": groups.prompt_R.float(),
    }
    n_prompts = len(groups.uids)
    oracle_fields = {
        "orapo_grpo_weight": torch.ones(n_prompts),
        "orapo_coef": coef_gt_P.float(),
        "orapo_dpo_weight": weights_P.float(),
        "orapo_negative": torch.zeros(n_prompts),
        "orapo_prompt": torch.arange(n_prompts).float(),
    }
    pair_metrics = preference_metrics(delta_gt_P, delta_PK, lengths_gt_P, lengths_PK, **pairs)
    metrics = _schedule_metrics(rates_P, weights_P) | _sample_metrics(failed_PK, there_PK)
    metrics |= {f"orapo/{'dpo_loss' if name == 'loss' else name}": value for name, value in pair_metrics.items()}
    metrics["orapo/oracle_length/mean"] = float(lengths_gt_P.mean())
    return rollout_fields, oracle_fields, metrics


def _schedule_metrics(rates_P: list[float], weights_P: Tensor) -> dict[str, float]:
    seen = [rate for rate in rates_P if rate == rate]  # NaN: nothing observed
    metrics = {
        "orapo/w/mean": float(weights_P.mean()),
        "orapo/w/min": float(weights_P.min()),
        "orapo/w/max": float(weights_P.max()),
    }
    if seen:
        metrics["orapo/zrr/mean"] = sum(seen) / len(seen)
        metrics["orapo/all_zero_groups"] = sum(rate == 1.0 for rate in seen) / len(seen)
    return metrics


def _sample_metrics(failed_PK: Tensor, there_PK: Tensor) -> dict[str, float]:
    return {
        "orapo/excluded_samples/sum": float((failed_PK & there_PK).sum()),
        "orapo/missing_rollouts/sum": float((~there_PK).sum()),
        "orapo/groups_without_advantage/sum": float(((~failed_PK).sum(-1) < 2).sum()),
    }
