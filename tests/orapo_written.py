"""OraPO written out for tests: every pair, token by token, no shared code, on a policy small enough for autograd.

The policy is a table of bigram logits in float64, so that all rows share their parameters, as in a real model.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from radverl.orapo import log_ratio_sums

Four = tuple[Tensor, Tensor, Tensor, Tensor]
Nine = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

WORDS = 5
TAU = 0.7  # large enough that every g_ij differs visibly from 1/2


@dataclass
class Batch:
    """P prompts, K rollouts (P, K, T), true reports (P, S); padding holds NaN log-probs for `old` and `ref`."""

    tokens_PKT: Tensor
    mask_PKT: Tensor
    oracle_PS: Tensor
    oracle_mask_PS: Tensor
    rewards_PK: Tensor
    failed_PK: Tensor
    weights_P: Tensor
    theta: Tensor
    old: Tensor
    ref: Tensor


def make_batch(seed: int, prompts: int = 3, rollouts: int = 4, *, equal: bool = False, failed: bool = True) -> Batch:
    """Random lengths from 0 (empty response) to the maximum (truncated), or all equal; some zero rewards."""
    generator = torch.Generator().manual_seed(seed)
    width, oracle_width = 6, 8

    def draw(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    lengths = torch.full((prompts, rollouts), width) if equal else draw(0, width + 1, prompts, rollouts)
    oracle_lengths = torch.full((prompts,), width) if equal else draw(1, oracle_width + 1, prompts)
    if not equal:
        lengths[0, 0] = 0
        oracle_lengths[0] = oracle_width
    tables = [torch.randn(WORDS, WORDS, generator=generator, dtype=torch.float64) for _ in range(3)]
    return Batch(
        tokens_PKT=draw(0, WORDS, prompts, rollouts, width),
        mask_PKT=torch.arange(width) < lengths[..., None],
        oracle_PS=draw(0, WORDS, prompts, oracle_width),
        oracle_mask_PS=torch.arange(oracle_width) < oracle_lengths[:, None],
        rewards_PK=draw(0, 4, prompts, rollouts).double() / 4,
        failed_PK=draw(0, 4, prompts, rollouts) == 0 if failed else torch.zeros(prompts, rollouts, dtype=torch.bool),
        weights_P=torch.rand(prompts, generator=generator, dtype=torch.float64),
        theta=tables[0].requires_grad_(),
        old=tables[0].detach() + 0.3 * tables[1],
        ref=tables[0].detach() + 0.5 * tables[2],  # near enough that verl's bound on the KL, not in eq. 4, is idle
    )


def token_log_probs(table: Tensor, tokens: Tensor, mask: Tensor, padding: float = math.nan) -> Tensor:
    """log pi(y_t | prompt, y_<t) of each token; the prompt of group i ends with word i."""
    first = torch.arange(tokens.shape[0]).remainder(WORDS).view(-1, *[1] * (tokens.ndim - 1))
    previous = torch.cat([first.expand(*tokens.shape[:-1], 1), tokens[..., :-1]], dim=-1)
    log_probs = table.log_softmax(-1)[previous, tokens]
    return torch.where(mask, log_probs, torch.tensor(padding, dtype=log_probs.dtype))


def tensors(batch: Batch, old: Tensor | None = None) -> Nine:
    """The first nine arguments of `orapo_loss`."""
    rollouts, oracle = (batch.tokens_PKT, batch.mask_PKT), (batch.oracle_PS, batch.oracle_mask_PS)
    return (
        token_log_probs(batch.theta, *rollouts),
        token_log_probs(batch.old if old is None else old, *rollouts),
        token_log_probs(batch.ref, *rollouts),
        batch.mask_PKT,
        token_log_probs(batch.theta, *oracle),
        token_log_probs(batch.ref, *oracle),
        batch.oracle_mask_PS,
        batch.rewards_PK,
        batch.weights_P,
    )


def written_log_probs(table: Tensor, prompt: int, words: list[int]) -> list[Tensor]:
    """The same by softmax and a loop."""
    previous, result = prompt % WORDS, []
    for word in words:
        result.append(torch.log(table[previous, word].exp() / table[previous].exp().sum()))
        previous = word
    return result


def written_dpo(batch: Batch, i: int, normalised: bool, negatives: str) -> Tensor:
    """L_DPO(x_i), eq. 7 over each pair."""

    def gap(words: list[int]) -> Tensor:
        total = batch.theta.new_zeros(())
        for table, sign in ((batch.theta, 1.0), (batch.ref, -1.0)):
            for value in written_log_probs(table, i, words):
                total = total + sign * value
        return total / len(words) if normalised and words else total

    positive = gap(batch.oracle_PS[i][batch.oracle_mask_PS[i]].tolist())
    losses = []
    for j in range(batch.rewards_PK.shape[1]):
        if batch.failed_PK[i, j] or (negatives == "zero_reward" and batch.rewards_PK[i, j] != 0):
            continue
        negative = gap(batch.tokens_PKT[i, j][batch.mask_PKT[i, j]].tolist())
        losses.append(-torch.log(1 / (1 + torch.exp(-TAU * (positive - negative)))))
    return sum(losses, batch.theta.new_zeros(())) / max(len(losses), 1)


def written_grpo(batch: Batch, i: int, per_token: bool, divide: bool) -> Tensor:
    """L_GRPO(x_i), eqs 1-4 with the token ratio: Dr.GRPO, or the original with the population deviation."""
    valid = [r for r, f in zip(batch.rewards_PK[i].tolist(), batch.failed_PK[i].tolist(), strict=True) if not f]
    mean = sum(valid) / max(len(valid), 1)
    sigma = math.sqrt(sum((r - mean) ** 2 for r in valid) / max(len(valid), 1) + 1e-8) if divide else 1.0
    total = batch.theta.new_zeros(())
    rollouts, width = batch.tokens_PKT.shape[1:]
    for j in range(rollouts):
        words = batch.tokens_PKT[i, j][batch.mask_PKT[i, j]].tolist()
        known = not batch.failed_PK[i, j] and len(valid) > 1
        advantage = (batch.rewards_PK[i, j].item() - mean) / sigma if known else 0.0
        values = [written_log_probs(table, i, words) for table in (batch.theta, batch.old, batch.ref)]
        for new, old, ref in zip(*values, strict=True):
            ratio = torch.exp(new - old)
            policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            kl = torch.exp(ref - new) - (ref - new) - 1
            total = total + (policy + 0.04 * kl) / (len(words) if per_token else width) / rollouts
    return total


def gradient(loss: Tensor, theta: Tensor) -> Tensor:
    return torch.autograd.grad(loss, theta, retain_graph=True)[0]


def dpo_arguments(batch: Batch) -> Four:
    """delta_gt_P, delta_PK, lengths_gt_P, lengths_PK at theta."""
    x = tensors(batch)
    delta_PK, lengths_PK = log_ratio_sums(x[0], x[2], x[3])
    delta_gt_P, lengths_gt_P = log_ratio_sums(x[4], x[5], x[6])
    return delta_gt_P, delta_PK, lengths_gt_P, lengths_PK
