"""The reinforcement half of OraPO: group advantages and the clipped loss with its KL (eqs 1-4).

    A_j      = (r_j - mean r) / sqrt(var r + eps)                                    (1, 2)  "population"
    rho_t    = exp(log pi_theta(y_t) - log pi_old(y_t))                                 (3)  per token, see below
    loss_t   = -min(rho_t A, clip(rho_t, 1 - eps_low, 1 + eps_high) A) + kl_coef k3_t    (4)
    k3_t     = exp(d) - d - 1,  d = log pi_ref(y_t) - log pi_theta(y_t)

Eq. 3 writes the ratio of whole sequences; we take it per token, as verl and TRL (which the paper trained with) do
(*ours*). The paper names GRPO and Dr.GRPO (arXiv 2503.20783: no division by the deviation, a constant length) and
trains with the second.

Shapes: P prompts, K rollouts of a prompt, R rows (R = P K, or any part of them), T response tokens (padded).
"""

from typing import Literal

import torch
from torch import Tensor

from radverl.orapo.shapes import check_shape

AdvantageKind = Literal["dr_grpo", "population", "sample"]
LossAggMode = Literal["seq-mean-token-sum-norm", "seq-mean-token-sum", "seq-mean-token-mean", "token-mean"]

KL_COEF = 0.04  # ours, DeepSeekMath's value; the paper does not tell
CLIP = 0.2  # ours, the usual PPO value; the paper does not tell

_EPS = {"population": 1e-8, "sample": 1e-6, "dr_grpo": 0.0}  # ours (small) and verl's default
_LOG_RATIO_BOUND = 20.0  # verl's numerical guards, not in eq. 4: kept so that the two agree also where they bind
_K3_BOUND = 10.0  # reached where the reference is 14 times likelier than the policy; the KL has no gradient beyond


def group_advantages(
    rewards_PK: Tensor, failed_PK: Tensor | None = None, kind: AdvantageKind = "dr_grpo", eps: float | None = None
) -> Tensor:
    """Advantage of each rollout within its group, shape (P, K).

    Args:
        rewards_PK: rewards.
        failed_PK: True where the judge failed: left out of mean and deviation, advantage 0 (*ours*). Its reward is
            not read, it may be NaN.
        kind: "population" divides by sqrt(population variance + eps), eqs 1 and 2; "sample" by (sample deviation +
            eps), as verl and TRL do; "dr_grpo" does not divide.
        eps: default 1e-8 for "population", 1e-6 (verl's) for "sample".
    Returns:
        Advantages that sum to 0 over the valid rollouts; all 0 for equal rewards or fewer than two valid rollouts
        (verl returns the reward itself for a group of one).
    """
    if kind not in _EPS:
        raise ValueError(f"kind is {kind!r}: choose one of {sorted(_EPS)}.")
    if rewards_PK.ndim != 2:
        raise ValueError(f"rewards_PK has shape {tuple(rewards_PK.shape)}, expected (P, K).")
    if failed_PK is None:
        valid = torch.ones_like(rewards_PK, dtype=torch.bool)
    else:
        check_shape("failed_PK", failed_PK, rewards_PK.shape)
        valid = ~failed_PK.bool()
    eps = _EPS[kind] if eps is None else eps
    highest_P1 = torch.where(valid, rewards_PK, -torch.inf).amax(-1, keepdim=True)
    rewards = torch.where(valid, rewards_PK - highest_P1, 0.0)  # so that equal rewards centre to 0 without rounding
    n_P1 = valid.sum(-1, keepdim=True)
    centred = torch.where(valid, rewards - rewards.sum(-1, keepdim=True) / n_P1.clamp(min=1), 0.0)
    squares_P1 = centred.square().sum(-1, keepdim=True)
    if kind == "population":
        centred = centred / (squares_P1 / n_P1.clamp(min=1) + eps).sqrt()
    elif kind == "sample":
        centred = centred / ((squares_P1 / (n_P1 - 1).clamp(min=1)).sqrt() + eps)
    return centred


def grpo_loss(
    log_probs_RT: Tensor,
    old_log_probs_RT: Tensor,
    mask_RT: Tensor,
    advantages_R: Tensor,
    ref_log_probs_RT: Tensor | None = None,
    *,
    row_weights_R: Tensor | None = None,
    kl_coef: float = KL_COEF,
    clip_low: float = CLIP,
    clip_high: float = CLIP,
    dual_clip: float | None = None,
    loss_agg_mode: LossAggMode = "seq-mean-token-sum-norm",
    loss_scale_factor: float | None = None,
    n_rows: int | None = None,
    n_tokens: float | None = None,
) -> Tensor:
    """Clipped policy loss with KL (eq. 4) over some rows of a mini-batch, a scalar.

    With `n_rows`, `n_tokens` and `loss_scale_factor` of the whole mini-batch given, the losses of any split of the
    rows add up to the whole. What stands under mask 0 is never read.

    Args:
        log_probs_RT, old_log_probs_RT, ref_log_probs_RT: of the current, the sampling and the reference policy; the
            reference may be None if `kl_coef` is 0.
        mask_RT: 1 on response tokens.
        advantages_R: one per row, constant.
        row_weights_R: factor of each row's loss, KL included: 1 - w_i in OraPO.
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        dual_clip: verl's lower bound for negative advantages, loss_t <= -A dual_clip (3.0 there); None as in eq. 4.
        loss_agg_mode: verl's names. "seq-mean-token-sum-norm" is Dr.GRPO (token sum / `loss_scale_factor`, default
            T), "seq-mean-token-mean" the original GRPO, "token-mean" DAPO.
        n_rows, n_tokens: divisors of the row and token means; default all rows (empty ones too) and all tokens given.
    """
    for name, tensor in (("old_log_probs_RT", old_log_probs_RT), ("mask_RT", mask_RT)):
        check_shape(name, tensor, log_probs_RT.shape)
    check_shape("advantages_R", advantages_R, log_probs_RT.shape[:1])
    mask = mask_RT.bool()
    log_ratio = torch.where(mask, log_probs_RT - old_log_probs_RT, 0.0)
    ratio = log_ratio.clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()
    advantages_R1 = advantages_R.detach().to(log_probs_RT.dtype)[:, None]
    losses = torch.maximum(-advantages_R1 * ratio, -advantages_R1 * ratio.clamp(1.0 - clip_low, 1.0 + clip_high))
    if dual_clip is not None:
        losses = torch.where(advantages_R1 < 0, torch.minimum(-advantages_R1 * dual_clip, losses), losses)
    row_weights_R1: Tensor | float = 1.0
    if row_weights_R is not None:
        check_shape("row_weights_R", row_weights_R, log_probs_RT.shape[:1])
        row_weights_R1 = row_weights_R.detach().to(losses.dtype)[:, None]
    sizes = (mask, loss_agg_mode, loss_scale_factor, n_rows, n_tokens)
    loss = _aggregate(losses * row_weights_R1, *sizes)
    if kl_coef:
        if ref_log_probs_RT is None:
            raise ValueError(f"kl_coef is {kl_coef} but ref_log_probs_RT is None: pass it, or set kl_coef to 0.")
        check_shape("ref_log_probs_RT", ref_log_probs_RT, log_probs_RT.shape)
        kl_RT = k3(torch.where(mask, ref_log_probs_RT - log_probs_RT, 0.0))
        loss = loss + _aggregate(kl_RT * row_weights_R1, *sizes) * kl_coef  # apart, as in verl: equal to the last bit
    return loss


def k3(log_ratio: Tensor) -> Tensor:
    """Low-variance estimate of KL(pi_theta || pi_ref) per token, >= 0, from log pi_ref - log pi_theta."""
    bounded = log_ratio.clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND)
    return (bounded.exp() - bounded - 1.0).clamp(-_K3_BOUND, _K3_BOUND)


def _aggregate(
    losses_RT: Tensor,
    mask_RT: Tensor,
    mode: str,
    scale: float | None,
    n_rows: int | None,
    n_tokens: float | None,
) -> Tensor:
    """Token losses to a scalar, normalised by constants of the whole mini-batch."""
    losses_RT = losses_RT * mask_RT
    if mode == "token-mean":
        return losses_RT.sum() / (max(int(mask_RT.sum()), 1) if n_tokens is None else n_tokens)
    losses_R = losses_RT.sum(-1)
    if mode == "seq-mean-token-mean":
        losses_R = losses_R / mask_RT.sum(-1).clamp(min=1)
    elif mode not in ("seq-mean-token-sum", "seq-mean-token-sum-norm"):
        raise ValueError(f"loss_agg_mode is {mode!r}: choose one of {LossAggMode.__args__}.")  # type: ignore[attr-defined]
    loss = losses_R.sum() / (losses_R.numel() if n_rows is None else n_rows)
    if mode == "seq-mean-token-sum-norm":
        loss = loss / (mask_RT.shape[-1] if scale is None else scale)
    return loss
