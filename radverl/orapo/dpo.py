"""The preference half of OraPO: DPO and LN-DPO of the true report against the rollouts (eqs 5-7 and 12).

    D_y    = log pi_theta(y) - log pi_ref(y)                       (5, 6)  divided by |y| under LN
    L_i    = (1/n_i) sum_j -log sigma(tau (D+_i - D-_ij))             (7)  over the n_i negatives of prompt i
    L_i    = 0 where n_i = 0

Group mode (`dpo_group_loss`) is that formula; autograd needs the K+1 rows of a prompt in one graph. Row mode lets any
row go through the model alone: with g_ij = sigma(-tau (D+_i - D-_ij)) held constant,

    c+_i   = -tau w_i (1/n_i) sum_j g_ij / |y+_i|       c_ij = +tau w_i g_ij / (n_i |y_ij|)       (|y| only under LN)

makes sum_rows c * sum_t log pi_theta(y_t) have the gradient of w_i L_i at the parameters where D was taken. Exact when
the optimiser steps once per rollout batch; otherwise g is stale by at most tau |change of D+ - D-| / 4.

*Ours*, where the paper is silent: tau 0.1; the mean over the negatives that exist, not over K; a rollout whose judge
failed is no negative, because nothing says that it is worse than the report; an empty response has D = 0.

Shapes: P prompts, K rollouts of a prompt, R rows of any kind, T response tokens (padded). Lengths are token counts.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from radverl.orapo.shapes import check_shape

TAU = 0.1  # ours; the paper does not tell


def log_ratio_sums(log_probs_RT: Tensor, ref_log_probs_RT: Tensor, mask_RT: Tensor) -> tuple[Tensor, Tensor]:
    """Whole-response log-ratio and length of each row (eqs 5 and 6, before any division by the length).

    Leading dimensions are free: (P, K, T) gives (P, K). What stands under mask 0 is never read, NaN included.

    Returns:
        (delta_R, lengths_R): sum_t (log pi_theta - log pi_ref), and the number of tokens as the same float type.
    """
    check_shape("ref_log_probs_RT", ref_log_probs_RT, log_probs_RT.shape)
    check_shape("mask_RT", mask_RT, log_probs_RT.shape)
    mask = mask_RT.bool()
    delta = torch.where(mask, log_probs_RT - ref_log_probs_RT, 0.0).sum(-1)
    return delta, mask.sum(-1).to(delta.dtype)


def negative_mask(
    rewards_PK: Tensor, failed_PK: Tensor | None = None, negatives: Literal["all", "zero_reward"] = "all"
) -> Tensor:
    """Which rollouts are the y- of their prompt (eq. 12), bool of shape (P, K).

    Args:
        rewards_PK: rewards; only read with negatives "zero_reward".
        failed_PK: True where the rollout or its judge failed: never a negative (*ours*).
        negatives: "all" rollouts, as eq. 12 says, or only those of reward 0, as the introduction suggests.
    """
    if negatives not in ("all", "zero_reward"):
        raise ValueError(f"negatives is {negatives!r}: choose 'all' or 'zero_reward'.")
    chosen = rewards_PK == 0 if negatives == "zero_reward" else torch.ones_like(rewards_PK, dtype=torch.bool)
    if failed_PK is None:
        return chosen
    check_shape("failed_PK", failed_PK, rewards_PK.shape)
    return chosen & ~failed_PK.bool()


def dpo_pair_loss(gap_pos: Tensor, gap_neg: Tensor, tau: float = TAU) -> Tensor:
    """-log sigma(tau (D+ - D-)) of each pair (eq. 7); broadcasts. Pass D / |y| for LN-DPO. ln 2 where D+ = D-."""
    if not tau > 0.0:
        raise ValueError(f"tau is {tau}: it must be positive.")
    return -F.logsigmoid(tau * (gap_pos - gap_neg))


def dpo_group_loss(
    delta_gt_P: Tensor,
    delta_PK: Tensor,
    lengths_gt_P: Tensor,
    lengths_PK: Tensor,
    *,
    tau: float = TAU,
    length_normalised: bool = True,
    negatives_PK: Tensor | None = None,
) -> Tensor:
    """L_DPO(x_i) of each prompt (eq. 7 averaged over its pairs), differentiable, shape (P,).

    Args:
        delta_gt_P, lengths_gt_P: log-ratio sum and token count of the true report, from `log_ratio_sums`.
        delta_PK, lengths_PK: the same of the rollouts.
        tau: DPO temperature, > 0.
        length_normalised: LN-DPO, each sequence log-prob divided by its length.
        negatives_PK: which rollouts make a pair; None means all. A prompt without any has loss 0 and gradient 0.
    """
    gap_gt_P1, gap_PK, chosen = _gaps(delta_gt_P, delta_PK, lengths_gt_P, lengths_PK, length_normalised, negatives_PK)
    return _mean_over_pairs(dpo_pair_loss(gap_gt_P1, gap_PK, tau), chosen)


@torch.no_grad()
def dpo_row_coefficients(
    delta_gt_P: Tensor,
    delta_PK: Tensor,
    lengths_gt_P: Tensor,
    lengths_PK: Tensor,
    weights_P: Tensor,
    *,
    tau: float = TAU,
    length_normalised: bool = True,
    negatives_PK: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The constants that turn w_i L_DPO(x_i) into a sum over rows with the same gradient.

    Arguments as in `dpo_group_loss`, taken before the update (old and reference log-probs), and `weights_P`, the w_i
    of eq. 10. The coefficients carry no 1/P: divide the summed rows by the number of prompts of the mini-batch.

    Returns:
        (coef_gt_P <= 0, coef_PK >= 0), detached; 0 for rollouts that are no negative. Without length normalisation,
        coef_gt_P = -sum_k coef_PK.
    """
    if not tau > 0.0:
        raise ValueError(f"tau is {tau}: it must be positive.")
    check_shape("weights_P", weights_P, delta_gt_P.shape)
    gap_gt_P1, gap_PK, chosen = _gaps(delta_gt_P, delta_PK, lengths_gt_P, lengths_PK, length_normalised, negatives_PK)
    g_PK = torch.where(chosen, torch.sigmoid(-tau * (gap_gt_P1 - gap_PK)), 0.0)
    pairs_PK = tau * weights_P.to(g_PK.dtype)[:, None] * g_PK / chosen.sum(-1, keepdim=True).clamp(min=1)
    coef_gt_P = -pairs_PK.sum(-1)
    if length_normalised:
        return coef_gt_P / lengths_gt_P.clamp(min=1), pairs_PK / lengths_PK.clamp(min=1)
    return coef_gt_P, pairs_PK


def dpo_row_loss(log_probs_RT: Tensor, mask_RT: Tensor, coef_R: Tensor) -> Tensor:
    """sum_rows c * sum_t log pi_theta, a scalar: partial sums of any split of the rows add up to the whole.

    Its gradient is that of sum_i w_i L_DPO(x_i); its value means nothing.
    """
    check_shape("mask_RT", mask_RT, log_probs_RT.shape)
    check_shape("coef_R", coef_R, log_probs_RT.shape[:-1])
    return (coef_R.detach() * torch.where(mask_RT.bool(), log_probs_RT, 0.0).sum(-1)).sum()


@torch.no_grad()
def preference_metrics(
    delta_gt_P: Tensor,
    delta_PK: Tensor,
    lengths_gt_P: Tensor,
    lengths_PK: Tensor,
    *,
    tau: float = TAU,
    length_normalised: bool = True,
    negatives_PK: Tensor | None = None,
) -> dict[str, float]:
    """What to log about the preference; arguments as in `dpo_group_loss`.

    Returns:
        "pairs", their number; and where it is not 0: "loss", the mean of L_DPO over the prompts that have a pair;
        "margin", the mean of tau (D+ - D-) over the pairs; "accuracy", the share of pairs with D+ > D- (a tie is a
        miss, so it is 0 at theta = ref).
    """
    gap_gt_P1, gap_PK, chosen = _gaps(delta_gt_P, delta_PK, lengths_gt_P, lengths_PK, length_normalised, negatives_PK)
    if not chosen.any():
        return {"pairs": 0.0}
    loss_P = _mean_over_pairs(dpo_pair_loss(gap_gt_P1, gap_PK, tau), chosen)
    margins = (gap_gt_P1 - gap_PK)[chosen]
    return {
        "pairs": float(chosen.sum()),
        "loss": float(loss_P[chosen.any(-1)].mean()),
        "margin": float(tau * margins.mean()),
        "accuracy": float((margins > 0).to(margins.dtype).mean()),
    }


def _gaps(
    delta_gt_P: Tensor,
    delta_PK: Tensor,
    lengths_gt_P: Tensor,
    lengths_PK: Tensor,
    length_normalised: bool,
    negatives_PK: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """D+ (P, 1), D- (P, K) and the chosen negatives (P, K)."""
    if delta_PK.ndim != 2:
        raise ValueError(f"delta_PK has shape {tuple(delta_PK.shape)}, expected (P, K).")
    check_shape("delta_gt_P", delta_gt_P, delta_PK.shape[:1])
    check_shape("lengths_gt_P", lengths_gt_P, delta_gt_P.shape)
    check_shape("lengths_PK", lengths_PK, delta_PK.shape)
    if negatives_PK is None:
        chosen = torch.ones_like(delta_PK, dtype=torch.bool)
    else:
        check_shape("negatives_PK", negatives_PK, delta_PK.shape)
        chosen = negatives_PK.bool()
    # An excluded row may hold anything; zero it here so that it cannot send NaN through the unused branch of a where.
    gap_PK = torch.where(chosen, delta_PK, 0.0)
    gap_gt_P = delta_gt_P
    if length_normalised:
        gap_PK = gap_PK / lengths_PK.clamp(min=1)
        gap_gt_P = gap_gt_P / lengths_gt_P.clamp(min=1)
    return gap_gt_P[:, None], gap_PK, chosen


def _mean_over_pairs(values_PK: Tensor, chosen: Tensor) -> Tensor:
    """Mean of each prompt over its chosen negatives, shape (P,); 0 where there is none."""
    return torch.where(chosen, values_PK, 0.0).sum(-1) / chosen.sum(-1).clamp(min=1)
