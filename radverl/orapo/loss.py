"""The whole OraPO objective on padded tensors (arXiv 2509.18600, eq. 11).

    L = (1/P) sum_i [ (1 - w_i) L_GRPO(x_i) + w_i L_DPO(x_i) ]

L_GRPO holds its KL term, so the KL is weighted too. This is the formula as written, all pairs in one graph: what the
row-wise training code is measured against, and a loss to use where K + 1 rows of each prompt fit in one batch.

Shapes: P prompts, K rollouts of a prompt, T tokens of a rollout, S tokens of a true report (both padded).
"""

from typing import Literal

from torch import Tensor

from radverl.orapo.dpo import TAU, dpo_group_loss, log_ratio_sums, negative_mask
from radverl.orapo.grpo import CLIP, KL_COEF, AdvantageKind, LossAggMode, group_advantages, grpo_loss
from radverl.orapo.shapes import check_shape


def orapo_loss(
    log_probs_PKT: Tensor,
    old_log_probs_PKT: Tensor,
    ref_log_probs_PKT: Tensor,
    mask_PKT: Tensor,
    oracle_log_probs_PS: Tensor,
    oracle_ref_log_probs_PS: Tensor,
    oracle_mask_PS: Tensor,
    rewards_PK: Tensor,
    weights_P: Tensor,
    *,
    failed_PK: Tensor | None = None,
    tau: float = TAU,
    length_normalised: bool = True,
    negatives: Literal["all", "zero_reward"] = "all",
    advantages: AdvantageKind = "dr_grpo",
    eps: float | None = None,
    kl_coef: float = KL_COEF,
    clip_low: float = CLIP,
    clip_high: float = CLIP,
    dual_clip: float | None = None,
    loss_agg_mode: LossAggMode = "seq-mean-token-sum-norm",
    loss_scale_factor: float | None = None,
) -> Tensor:
    """OraPO loss of a batch, a scalar to call backward on.

    Args:
        log_probs_PKT, old_log_probs_PKT, ref_log_probs_PKT: token log-probs of the rollouts under the current, the
            sampling and the reference policy. Gradient flows through the first only.
        mask_PKT: 1 on response tokens; a row of zeros is an empty response.
        oracle_log_probs_PS, oracle_ref_log_probs_PS, oracle_mask_PS: the same of the true reports, y+ of eq. 12.
        rewards_PK: rewards in [0, 1].
        weights_P: w_i in [0, 1], from `mixing_weight`; 0 gives GRPO alone, with the same gradient to the last bit.
        failed_PK: True where the judge failed: no advantage, no negative; its KL stays (*ours*).
        tau, length_normalised, negatives: see `radverl.orapo.dpo`.
        advantages, eps, kl_coef, clip_low, clip_high, dual_clip, loss_agg_mode, loss_scale_factor: see
            `radverl.orapo.grpo`. The defaults are Dr.GRPO. "token-mean" divides by the tokens of the batch instead
            of taking a mean for each prompt, so a long group weighs more than 1/P.
    Raises:
        ValueError: shapes that do not fit, a weight outside [0, 1], an unknown option.
    """
    if log_probs_PKT.ndim != 3:
        raise ValueError(f"log_probs_PKT has shape {tuple(log_probs_PKT.shape)}, expected (P, K, T).")
    n_prompts, n_rollouts, _ = log_probs_PKT.shape
    check_shape("rewards_PK", rewards_PK, (n_prompts, n_rollouts))
    check_shape("weights_P", weights_P, (n_prompts,))
    if not bool(((weights_P >= 0) & (weights_P <= 1)).all()):
        raise ValueError(f"weights_P must lie in [0, 1], got {weights_P.tolist()}.")
    weights_P = weights_P.detach().to(log_probs_PKT.dtype)

    grpo = grpo_loss(
        log_probs_PKT.flatten(0, 1),
        old_log_probs_PKT.flatten(0, 1),
        mask_PKT.flatten(0, 1),
        group_advantages(rewards_PK, failed_PK, advantages, eps).flatten(),
        ref_log_probs_PKT.flatten(0, 1),
        row_weights_R=(1.0 - weights_P).repeat_interleave(n_rollouts),
        kl_coef=kl_coef,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
        loss_agg_mode=loss_agg_mode,
        loss_scale_factor=loss_scale_factor,
    )
    delta_PK, lengths_PK = log_ratio_sums(log_probs_PKT, ref_log_probs_PKT, mask_PKT)
    delta_gt_P, lengths_gt_P = log_ratio_sums(oracle_log_probs_PS, oracle_ref_log_probs_PS, oracle_mask_PS)
    dpo_P = dpo_group_loss(
        delta_gt_P,
        delta_PK,
        lengths_gt_P,
        lengths_PK,
        tau=tau,
        length_normalised=length_normalised,
        negatives_PK=negative_mask(rewards_PK, failed_PK, negatives),
    )
    return grpo + (weights_P * dpo_P).sum() / n_prompts
