"""Eqs 1-4: advantages and clipped loss, by known values and against verl's own functions."""

import math
from typing import Any

import pytest
import torch

from radverl.orapo import group_advantages, grpo_loss
from radverl.orapo.grpo import k3

MODES = ["seq-mean-token-sum-norm", "seq-mean-token-sum", "seq-mean-token-mean", "token-mean"]


@pytest.mark.parametrize(
    ("kind", "eps", "first", "rest"),
    [("population", None, 1.7321, -0.5774), ("sample", 1e-4, 1.4997, -0.4999), ("dr_grpo", None, 0.75, -0.25)],
)
def test_advantages_of_one_success_in_four(kind: Any, eps: float | None, first: float, rest: float) -> None:
    result = group_advantages(torch.tensor([[1, 0, 0, 0]]), kind=kind, eps=eps)
    torch.testing.assert_close(result, torch.tensor([[first, rest, rest, rest]]), atol=5e-5, rtol=0)


@pytest.mark.parametrize("kind", ["population", "sample", "dr_grpo"])
def test_groups_without_contrast_have_no_advantage(kind: Any) -> None:
    rewards = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.1, 0.1], [0.2, math.nan, math.nan], [math.nan] * 3])
    failed = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 1, 1], [1, 1, 1]])
    assert group_advantages(rewards, failed, kind).eq(0).all()
    assert group_advantages(torch.tensor([[0.7]]), kind=kind).eq(0).all()


@pytest.mark.parametrize("kind", ["population", "sample", "dr_grpo"])
def test_failed_judges_stay_out_of_the_statistics(kind: Any) -> None:
    result = group_advantages(torch.tensor([[1.0, math.nan, 0.0, 0.3]]), torch.tensor([[0, 1, 0, 0]]), kind)
    alone = group_advantages(torch.tensor([[1.0, 0.0, 0.3]]), kind=kind)
    assert result[0, 1] == 0
    assert torch.equal(result[0, [0, 2, 3]], alone[0])


def test_clip_holds_only_where_it_would_gain() -> None:
    ratio = torch.tensor([[0.5, 1.0, 1.5], [0.5, 1.0, 1.5]], dtype=torch.float64)
    log_probs = ratio.log().requires_grad_()
    advantages = torch.tensor([1.0, -1.0])
    settings: dict[str, Any] = {"kl_coef": 0.0, "loss_agg_mode": "seq-mean-token-sum"}
    loss = grpo_loss(log_probs, torch.zeros_like(ratio), torch.ones_like(ratio), advantages, **settings)
    assert loss.item() == pytest.approx((-(0.5 + 1.0 + 1.2) + (0.8 + 1.0 + 1.5)) / 2)
    loss.backward()
    assert (log_probs.grad != 0).tolist() == [[True, True, False], [False, True, True]]


def test_k3_is_a_distance() -> None:
    assert k3(torch.tensor([0.0])).item() == 0
    assert k3(torch.tensor([math.log(2)])).item() == pytest.approx(1 - math.log(2))
    assert (k3(torch.linspace(-30, 30, 61)) >= 0).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_weighting_a_row_is_scaling_its_advantage_and_kl(mode: Any, dual_clip: float | None) -> None:
    log_probs, old, ref, mask, advantages = sample(0, torch.float64)
    weights = torch.linspace(0.85, 1.0, len(mask), dtype=torch.float64)
    settings: dict[str, Any] = {"loss_agg_mode": mode, "dual_clip": dual_clip}
    weighted = grpo_loss(log_probs, old, mask, advantages, ref, row_weights_R=weights, **settings)
    clipped = grpo_loss(log_probs, old, mask, advantages * weights, kl_coef=0.0, **settings)
    kl = grpo_loss(log_probs, old, mask, advantages * 0, ref, row_weights_R=weights, **settings)
    torch.testing.assert_close(weighted, clipped + kl, atol=1e-12, rtol=1e-12)


def test_padding_is_never_read() -> None:
    log_probs, old, ref, mask, advantages = sample(1, torch.float32)
    clean = torch.autograd.grad(grpo_loss(log_probs, old, mask, advantages, ref), log_probs)[0]
    dirty_log_probs = log_probs.detach().masked_fill(mask == 0, math.nan).requires_grad_()
    old, ref = (x.masked_fill(mask == 0, math.inf) for x in (old, ref))
    dirty = torch.autograd.grad(grpo_loss(dirty_log_probs, old, mask, advantages, ref), dirty_log_probs)[0]
    assert torch.equal(clean, dirty)


def test_loss_faults_are_named() -> None:
    log_probs, old, ref, mask, advantages = sample(2, torch.float32)
    with pytest.raises(ValueError, match=r"kl_coef is 0\.04 but ref_log_probs_RT is None"):
        grpo_loss(log_probs, old, mask, advantages)
    with pytest.raises(ValueError, match="advantages_R has shape"):
        grpo_loss(log_probs, old, mask, advantages[:, None], ref)
    with pytest.raises(ValueError, match="loss_agg_mode is 'mean'"):
        grpo_loss(log_probs, old, mask, advantages, ref, loss_agg_mode="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kind is 'std'"):
        group_advantages(torch.zeros(1, 2), kind="std")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="failed_PK has shape"):
        group_advantages(torch.zeros(2, 2), torch.zeros(2))


@pytest.mark.parametrize("norm_by_std", [True, False])
def test_advantages_are_verls(norm_by_std: bool) -> None:
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
    rewards = torch.rand(6, 5, generator=torch.Generator().manual_seed(3)) * (torch.arange(6) > 0)[:, None]
    theirs, _ = core_algos.compute_grpo_outcome_advantage(
        token_level_rewards=rewards.reshape(-1, 1).clone(),
        response_mask=torch.ones(30, 1),
        index=torch.arange(6).repeat_interleave(5).numpy(),
        norm_adv_by_std_in_grpo=norm_by_std,
    )
    ours = group_advantages(rewards, kind="sample" if norm_by_std else "dr_grpo")
    torch.testing.assert_close(ours.reshape(-1, 1), theirs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("clip_high", [0.2, 0.28])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_is_verls_and_its_gradient_to_the_last_bit(mode: Any, dtype: torch.dtype, clip_high: float) -> None:
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
    from verl.workers.config import ActorConfig

    log_probs, old, ref, mask, advantages = sample(4, dtype)
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, clip_ratio_low=0.2, clip_ratio_high=clip_high
    )
    sizes = {"dp_size": 1, "batch_num_tokens": mask.sum(), "global_batch_size": len(mask), "loss_scale_factor": 7}
    config.global_batch_info.update(sizes)
    theirs, _ = core_algos.compute_policy_loss_vanilla(
        old, log_probs, advantages[:, None].expand_as(mask), mask.bool(), mode, config
    )
    settings: dict[str, Any] = {"clip_high": clip_high, "dual_clip": 3.0, "loss_agg_mode": mode, "loss_scale_factor": 7}
    ours = grpo_loss(log_probs, old, mask, advantages, kl_coef=0.0, **settings)
    assert_same(ours, theirs, log_probs)

    kl = core_algos.agg_loss(core_algos.kl_penalty(log_probs, ref, "low_var_kl"), mask.bool(), mode, **sizes)
    ours_kl = grpo_loss(log_probs, old, mask, advantages * 0, ref, kl_coef=1.0, **settings)
    assert_same(ours_kl, kl, log_probs)
    ours_both = grpo_loss(log_probs, old, mask, advantages, ref, **settings)
    assert_same(ours_both, theirs + 0.04 * kl, log_probs)


def assert_same(ours: torch.Tensor, theirs: torch.Tensor, log_probs: torch.Tensor) -> None:
    """Equal values up to the order of a sum, equal gradients to the last bit."""
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    grads = [torch.autograd.grad(loss, log_probs, retain_graph=True)[0] for loss in (ours, theirs)]
    assert grads[1].abs().max() > 0
    assert torch.equal(*grads)


def sample(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """log_probs, old, ref, mask (8, 9) and advantages (8,): ratios far off, one row empty, both signs."""
    generator = torch.Generator().manual_seed(seed)
    log_probs, noise, drift = (torch.randn(8, 9, generator=generator, dtype=dtype) for _ in range(3))
    log_probs = -log_probs.abs()
    mask = (torch.arange(9) < torch.tensor([9, 0, 1, 5, 9, 3, 8, 2])[:, None]).to(dtype)
    advantages = torch.randn(8, generator=generator, dtype=dtype)
    return log_probs.requires_grad_(), log_probs.detach() + noise, log_probs.detach() + drift, mask, advantages
