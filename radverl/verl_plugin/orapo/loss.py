"""The loss of the actor's workers: verl's own GRPO loss weighted per row, plus DPO against the true report (eq. 11).

    L = (1/P) sum_i [ (1 - w_i) L_GRPO(x_i) + w_i L_DPO(x_i) ]

verl sums micro-batch losses and averages gradients over ranks, so each term is divided by a constant of the whole
mini-batch and multiplied by the number of ranks. verl's `ppo_loss` does that with its part; here the advantages of a
row are scaled by 1 - w beforehand, its KL afterwards. That scales the loss where it is homogeneous in the advantages,
as the clipped loss is; settings.py refuses the loss modes that are not. An entropy bonus, which the paper has not, is
left as verl computes it.

Shapes: R rows of a micro-batch (rollouts and true reports), T response tokens (padded), P prompts, K rollouts.
"""

from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, kl_penalty
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

from radverl.orapo import dpo_group_loss, dpo_row_loss, log_ratio_sums

FIELDS = ("orapo_grpo_weight", "orapo_coef", "orapo_dpo_weight", "orapo_negative", "orapo_prompt", "orapo_oracle")


def orapo_loss(
    config: Any,
    model_output: dict[str, Any],
    data: Any,
    dp_group: Any = None,
    *,
    mode: str,
    tau: float,
    length_normalised: bool,
) -> tuple[Tensor, dict[str, Any]]:
    """Loss of one micro-batch and verl's metrics of it, with the signature of verl.workers.utils.losses.ppo_loss.

    Args:
        config: verl's ActorConfig.
        model_output: "log_probs" (and "entropy") of the whole sequences, jagged or flat.
        data: the micro-batch: what ppo_loss reads, `ref_log_prob`, the dense fields `FIELDS` of shape (R,) and the
            number `orapo_prompts`, the prompts of the whole mini-batch.
        mode: "row" adds sum_rows orapo_coef * sum_t log pi; "group" the DPO of the prompts whose rows are all here.
    Raises:
        RuntimeError: a field did not arrive (verl drops a field that any row lacks), or group mode met a torn group.
    """
    missing = [name for name in (*FIELDS, "orapo_prompts", "ref_log_prob") if name not in data]
    if missing:
        raise RuntimeError(f"OraPO's fields {missing} did not reach the loss; the batch has {sorted(data.keys())}.")
    weight_R = data["orapo_grpo_weight"]
    weighted = data.copy()
    weighted["advantages"] = torch.nested.as_nested_tensor(
        [row * weight for row, weight in zip(data["advantages"].unbind(), weight_R, strict=True)], layout=torch.jagged
    )
    loss, metrics = ppo_loss(config, model_output, weighted, dp_group)

    log_probs_RT = no_padding_2_padding(model_output["log_probs"], data)
    padded = data.select("response_mask", "ref_log_prob").to_padded_tensor()
    mask_RT = padded["response_mask"].bool()
    if config.use_kl_loss and config.kl_loss_coef:
        # config.global_batch_info was filled by ppo_loss.
        kl_RT = kl_penalty(log_probs_RT, padded["ref_log_prob"], config.kl_loss_type) * (1.0 - weight_R)[:, None]
        too_much = agg_loss(kl_RT, mask_RT, config.loss_agg_mode, **config.global_batch_info)
        loss = loss - config.kl_loss_coef * too_much

    is_oracle_R = data["orapo_oracle"].bool()
    lengths_R = data["responses"].offsets().diff()
    places_T = torch.arange(log_probs_RT.shape[-1], device=log_probs_RT.device)
    mask_RT = torch.where(is_oracle_R[:, None], places_T < lengths_R[:, None], mask_RT)
    if mode == "row":
        term = dpo_row_loss(log_probs_RT, mask_RT, data["orapo_coef"])
    else:
        delta_R, length_R = log_ratio_sums(log_probs_RT, padded["ref_log_prob"], mask_RT)
        term = _group_term(delta_R, length_R, is_oracle_R, data, tau, length_normalised)
    return loss + term * (data["dp_size"] / data["orapo_prompts"]), metrics


def _group_term(
    delta_R: Tensor, length_R: Tensor, is_oracle_R: Tensor, data: Any, tau: float, length_normalised: bool
) -> Tensor:
    """sum_i w_i L_DPO(x_i) over the prompts of this micro-batch."""
    prompt_R, negative_R = data["orapo_prompt"].long(), data["orapo_negative"].bool()
    oracle_P = (is_oracle_R & (prompt_R >= 0)).nonzero().flatten()
    torn = set(prompt_R[negative_R].tolist()) - set(prompt_R[oracle_P].tolist())
    if torn:
        raise RuntimeError(f"group mode got {len(torn)} prompts without their true report in the micro-batch.")
    if not len(oracle_P):
        return delta_R.sum() * 0.0
    same_PR = (prompt_R[oracle_P][:, None] == prompt_R[None, :]) & ~is_oracle_R[None, :]
    # All rows stand as candidates of all prompts; those of other prompts are no negatives.
    losses_P = dpo_group_loss(
        delta_R[oracle_P],
        delta_R.expand(len(oracle_P), -1),
        length_R[oracle_P],
        length_R.expand(len(oracle_P), -1),
        tau=tau,
        length_normalised=length_normalised,
        negatives_PK=same_PR & negative_R[None, :],
    )
    return (data["orapo_dpo_weight"][oracle_P] * losses_P).sum()
