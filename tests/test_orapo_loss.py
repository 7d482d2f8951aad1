"""Eqs 5-7 and 11 against the formula written out in `orapo_written.py`, autograd in float64."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from radverl.orapo import (
    dpo_group_loss,
    dpo_pair_loss,
    dpo_row_coefficients,
    dpo_row_loss,
    group_advantages,
    grpo_loss,
    mixing_weight,
    negative_mask,
    orapo_loss,
    preference_metrics,
)
from radverl.orapo.grpo import LossAggMode
from tests.orapo_written import (
    TAU,
    dpo_arguments,
    gradient,
    make_batch,
    tensors,
    token_log_probs,
    written_dpo,
    written_grpo,
)

CASES = [
    pytest.param({"prompts": 3, "rollouts": 4, "equal": True, "failed": False}, id="equal-length"),
    pytest.param({"prompts": 3, "rollouts": 8}, id="ragged-empty-truncated-failed"),
    pytest.param({"prompts": 1, "rollouts": 4, "failed": False}, id="one-prompt"),
    *[pytest.param({"prompts": 2, "rollouts": k}, id=f"K{k}") for k in range(2, 17)],
]


@pytest.mark.parametrize("negatives", ["all", "zero_reward"])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_group_and_row_mode_are_the_written_dpo(case: dict, normalised: bool, negatives: Any) -> None:
    batch = make_batch(11, **case)
    prompts = range(len(batch.weights_P))
    written_P = torch.stack([written_dpo(batch, i, normalised, negatives) for i in prompts])
    expected = gradient((batch.weights_P * written_P).sum(), batch.theta)
    assert expected.abs().max() > 1e-3

    chosen = negative_mask(batch.rewards_PK, batch.failed_PK, negatives)
    options: dict[str, Any] = {"tau": TAU, "length_normalised": normalised, "negatives_PK": chosen}
    arguments = dpo_arguments(batch)
    group_P = dpo_group_loss(*arguments, **options)
    torch.testing.assert_close(group_P, written_P, atol=1e-12, rtol=0)
    grouped = gradient((batch.weights_P * group_P).sum(), batch.theta)
    assert (grouped - expected).abs().max() <= 1e-9

    coef_gt_P, coef_PK = dpo_row_coefficients(*arguments, batch.weights_P, **options)
    assert not coef_PK.requires_grad
    assert (coef_gt_P <= 0).all()
    assert (coef_PK >= 0).all()
    assert (coef_PK[~chosen] == 0).all()
    x = tensors(batch)
    rows = dpo_row_loss(x[0], x[3], coef_PK) + dpo_row_loss(x[4], x[6], coef_gt_P)
    assert (gradient(rows, batch.theta) - expected).abs().max() <= 1e-9
    if not normalised:
        torch.testing.assert_close(coef_gt_P, -coef_PK.sum(-1))


@pytest.mark.parametrize(
    ("mode", "kind"), [("seq-mean-token-sum-norm", "dr_grpo"), ("seq-mean-token-mean", "population")]
)
@pytest.mark.parametrize("case", CASES)
def test_orapo_is_the_written_objective(case: dict, mode: Any, kind: Any) -> None:
    batch = make_batch(12, **case)
    written = batch.theta.new_zeros(())
    for i, w in enumerate(batch.weights_P.tolist()):
        grpo = written_grpo(batch, i, per_token=mode == "seq-mean-token-mean", divide=kind == "population")
        written = written + (1 - w) * grpo + w * written_dpo(batch, i, True, "all")
    written = written / len(batch.weights_P)
    ours = orapo_loss(*tensors(batch), failed_PK=batch.failed_PK, tau=TAU, advantages=kind, loss_agg_mode=mode)
    assert abs(ours.item() - written.item()) <= 1e-9
    assert (gradient(ours, batch.theta) - gradient(written, batch.theta)).abs().max() <= 1e-9


@pytest.mark.parametrize("normalised", [True, False])
def test_a_session_that_failed_leaves_no_row_and_no_trace(normalised: bool) -> None:
    """Session 0 of two prompts gave nothing, one prompt has no session at all, one report is empty."""
    batch = make_batch(16, 4, 5, failed=False)
    batch.failed_PK[[0, 2], 0] = True
    batch.failed_PK[3] = True
    batch.mask_PKT[batch.failed_PK] = False
    batch.rewards_PK[batch.failed_PK] = math.nan
    batch.oracle_mask_PS[1] = False
    dpo_P = torch.stack([written_dpo(batch, i, normalised, "all") for i in range(4)])
    assert dpo_P[3] == 0
    expected = gradient((batch.weights_P * dpo_P).sum(), batch.theta)

    options: dict[str, Any] = {"tau": TAU, "length_normalised": normalised, "negatives_PK": ~batch.failed_PK}
    grouped = gradient((batch.weights_P * dpo_group_loss(*dpo_arguments(batch), **options)).sum(), batch.theta)
    assert (grouped - expected).abs().max() <= 1e-9
    coef_gt_P, coef_PK = dpo_row_coefficients(*dpo_arguments(batch), batch.weights_P, **options)
    assert (coef_gt_P == 0).tolist() == [False, False, False, True]
    x = tensors(batch)
    there = ~batch.failed_PK  # the rows that exist
    loss = dpo_row_loss(x[0][there], x[3][there], coef_PK[there]) + dpo_row_loss(x[4][:3], x[6][:3], coef_gt_P[:3])
    assert (gradient(loss, batch.theta) - expected).abs().max() <= 1e-9

    grpo_P = torch.stack([written_grpo(batch, i, per_token=False, divide=False) for i in range(4)])
    written = ((1 - batch.weights_P) * grpo_P + batch.weights_P * dpo_P).mean()
    ours = orapo_loss(*x, failed_PK=batch.failed_PK, tau=TAU, length_normalised=normalised)
    assert abs(ours.item() - written.item()) <= 1e-9
    assert (gradient(ours, batch.theta) - gradient(written, batch.theta)).abs().max() <= 1e-9


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    prompts=st.integers(1, 4),
    rollouts=st.integers(2, 16),
    cuts=st.sets(st.integers(1, 67)),
    mode=st.sampled_from(["seq-mean-token-sum-norm", "seq-mean-token-mean", "token-mean"]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_any_split_into_micro_batches_has_the_gradient_of_the_whole(
    seed: int, prompts: int, rollouts: int, cuts: set[int], mode: Any, dtype: torch.dtype
) -> None:
    batch = make_batch(seed, prompts, rollouts)
    batch.theta = batch.theta.detach().to(dtype).requires_grad_()
    batch.ref, old = batch.ref.to(dtype), batch.theta.detach()
    x = tensors(batch, old)
    whole = orapo_loss(*x, failed_PK=batch.failed_PK, tau=TAU, loss_agg_mode=mode, loss_scale_factor=9)
    expected = gradient(whole, batch.theta)

    # One list of rows, rollouts then reports, shuffled. Reports take no part in GRPO: their response mask is 0.
    chosen = negative_mask(batch.rewards_PK, batch.failed_PK)
    coefs = dpo_row_coefficients(*dpo_arguments(batch), batch.weights_P, tau=TAU, negatives_PK=chosen)
    coef_R = torch.cat([coefs[1].flatten(), coefs[0]]).to(dtype)
    width = batch.oracle_PS.shape[-1]
    pad = [0, width - batch.tokens_PKT.shape[-1]]

    def rows(rollouts_PKT: Tensor, reports_PS: Tensor) -> Tensor:
        return torch.cat([torch.nn.functional.pad(rollouts_PKT.flatten(0, 1), pad), reports_PS])

    length_mask_RT = rows(batch.mask_PKT, batch.oracle_mask_PS)
    response_mask_RT = rows(batch.mask_PKT, torch.zeros_like(batch.oracle_mask_PS))
    advantages_R = torch.cat([group_advantages(batch.rewards_PK, batch.failed_PK).flatten(), torch.zeros(prompts)])
    weights_R = torch.cat([batch.weights_P.repeat_interleave(rollouts), batch.weights_P])
    order = torch.randperm(len(coef_R), generator=torch.Generator().manual_seed(seed))
    total = torch.zeros_like(expected)
    for part in torch.tensor_split(order, sorted(cuts)):
        if not len(part):
            continue
        log_probs_RT, ref_RT = rows(x[0], x[4])[part], rows(x[2], x[5])[part]
        loss = grpo_loss(
            log_probs_RT,
            rows(x[1], torch.zeros_like(x[4]))[part],
            response_mask_RT[part],
            advantages_R[part],
            ref_RT,
            row_weights_R=1 - weights_R[part],
            loss_agg_mode=mode,
            loss_scale_factor=9,
            n_rows=prompts * rollouts,
            n_tokens=int(batch.mask_PKT.sum()) or 1,
        )
        loss = loss + dpo_row_loss(log_probs_RT, length_mask_RT[part], coef_R[part]) / prompts
        total += gradient(loss, batch.theta)
    bound = 1e-12 if dtype == torch.float64 else 1e-6
    assert (total - expected).abs().max() <= bound * max(1.0, expected.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["seq-mean-token-sum-norm", "seq-mean-token-mean", "token-mean"])
def test_without_weight_it_is_grpo_to_the_last_bit(mode: Any, dtype: torch.dtype) -> None:
    batch = make_batch(13, 3, 8)
    batch.weights_P = torch.zeros(3)
    batch.theta = batch.theta.detach().to(dtype).requires_grad_()
    x = tensors(batch, batch.old.to(dtype))
    ours = orapo_loss(*x, failed_PK=batch.failed_PK, loss_agg_mode=mode)
    log_probs_RT, old_RT, ref_RT, mask_RT = (x[n].flatten(0, 1) for n in range(4))
    advantages_R = group_advantages(batch.rewards_PK, batch.failed_PK).flatten()
    plain = grpo_loss(log_probs_RT, old_RT, mask_RT, advantages_R, ref_RT, loss_agg_mode=mode)
    assert torch.equal(ours, plain)
    assert torch.equal(gradient(ours, batch.theta), gradient(plain, batch.theta))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip_high", [0.2, 0.28])
@pytest.mark.parametrize("mode", LossAggMode.__args__)  # type: ignore[attr-defined]
@pytest.mark.parametrize("kind", ["dr_grpo", "sample"])
def test_without_weight_range_it_is_verls_grpo_to_the_last_bit(
    kind: Any, mode: Any, clip_high: float, dtype: torch.dtype
) -> None:
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
    from verl.workers.config import ActorConfig

    batch = make_batch(17, 3, 8, failed=False)
    batch.weights_P = torch.as_tensor(mixing_weight([0.0, 0.5, 1.0], w_min=0.0, w_max=0.0))
    batch.theta = batch.theta.detach().to(dtype).requires_grad_()
    batch.old, batch.ref, rewards_PK = batch.old.to(dtype), batch.ref.to(dtype), batch.rewards_PK.to(dtype)
    options: dict[str, Any] = {"advantages": kind, "loss_agg_mode": mode, "clip_high": clip_high, "dual_clip": 3.0}
    ours = orapo_loss(*tensors(batch)[:7], rewards_PK, batch.weights_P, loss_scale_factor=9, **options)

    rows = batch.tokens_PKT, batch.mask_PKT
    log_probs_RT, old_RT, ref_RT = (
        token_log_probs(table, *rows, padding=0.0).flatten(0, 1) for table in (batch.theta, batch.old, batch.ref)
    )
    mask_RT = batch.mask_PKT.flatten(0, 1)
    advantages_RT, _ = core_algos.compute_grpo_outcome_advantage(
        token_level_rewards=rewards_PK.reshape(-1, 1).clone(),
        response_mask=mask_RT.to(dtype),
        index=torch.arange(3).repeat_interleave(8).numpy(),
        norm_adv_by_std_in_grpo=kind == "sample",
    )
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, clip_ratio_low=0.2, clip_ratio_high=clip_high
    )
    sizes = {"dp_size": 1, "batch_num_tokens": mask_RT.sum(), "global_batch_size": 24, "loss_scale_factor": 9}
    config.global_batch_info.update(sizes)
    policy, _ = core_algos.compute_policy_loss_vanilla(old_RT, log_probs_RT, advantages_RT, mask_RT, mode, config)
    kl = core_algos.agg_loss(core_algos.kl_penalty(log_probs_RT, ref_RT, "low_var_kl"), mask_RT, mode, **sizes)
    expected = gradient(policy + 0.04 * kl, batch.theta)
    assert expected.abs().max() > 1e-3
    if kind == "sample" and dtype == torch.float32:  # the deviation itself differs by an ulp
        torch.testing.assert_close(gradient(ours, batch.theta), expected, atol=1e-6, rtol=1e-5)
    else:
        assert torch.equal(gradient(ours, batch.theta), expected)


def test_weight_one_is_dpo_alone() -> None:
    batch = make_batch(14)
    batch.weights_P = torch.ones(3)
    ours = orapo_loss(*tensors(batch), failed_PK=batch.failed_PK, tau=TAU)
    dpo = torch.stack([written_dpo(batch, i, True, "all") for i in range(3)]).mean()
    assert (gradient(ours, batch.theta) - gradient(dpo, batch.theta)).abs().max() <= 1e-12


@given(st.integers(0, 1000), st.floats(0.01, 2.0), st.booleans())
@settings(max_examples=25, deadline=None)
def test_stale_coefficients_are_off_by_at_most_what_the_gaps_moved(seed: int, tau: float, normalised: bool) -> None:
    batch = make_batch(seed, 2, 5)
    fresh = dpo_arguments(batch)
    batch.theta = batch.old
    stale = dpo_arguments(batch)
    ones = torch.ones(2, dtype=torch.float64)
    lengths_gt_P, lengths_PK = ((x.clamp(min=1) if normalised else torch.ones_like(x)) for x in stale[2:])
    g_fresh, g_stale = (
        dpo_row_coefficients(*arguments, ones, tau=tau, length_normalised=normalised)[1] * lengths_PK * 5 / tau
        for arguments in (fresh, stale)
    )
    moved = (fresh[0] - stale[0])[:, None] / lengths_gt_P[:, None] - (fresh[1] - stale[1]) / lengths_PK
    assert ((g_fresh - g_stale).abs() <= tau * moved.abs() / 4 + 1e-12).all()
    assert ((g_fresh.log() - g_stale.log()).abs() <= tau * moved.abs() + 1e-12).all()


def test_known_values() -> None:
    zero = torch.zeros(2, dtype=torch.float64)
    pairs = torch.zeros(2, 3, dtype=torch.float64)
    lengths = torch.tensor([4.0, 0.0]), torch.tensor([[5.0, 0.0, 1.0], [1.0, 2.0, 10.0]])
    loss_P = dpo_group_loss(zero, pairs, *lengths)
    assert loss_P.tolist() == pytest.approx([0.693147, 0.693147], abs=1e-6)  # theta = ref
    assert dpo_pair_loss(torch.tensor(10.0), torch.tensor(0.0), 0.1).item() == pytest.approx(0.313262, abs=1e-6)
    coef_gt_P, coef_PK = dpo_row_coefficients(zero, pairs, *lengths, torch.tensor([0.15, 0.05]), tau=0.1)
    assert coef_gt_P.tolist() == pytest.approx([-0.1 * 0.15 / 2 / 4, -0.1 * 0.05 / 2])
    assert coef_PK[0].tolist() == pytest.approx([0.1 * 0.15 / 2 / 3 / n for n in (5, 1, 1)])


def test_huge_gaps_stay_finite() -> None:
    gaps = torch.tensor([[-1e6, 1e6]], requires_grad=True)
    loss = dpo_group_loss(torch.zeros(1), gaps, torch.ones(1), torch.ones(1, 2), tau=1.0).sum()
    loss.backward()
    assert loss.item() == pytest.approx(5e5)
    assert gaps.grad is not None
    assert gaps.grad.tolist() == [[0.0, 0.5]]


def test_a_group_without_negatives_teaches_nothing() -> None:
    delta_gt_P = torch.tensor([1.0, 2.0], requires_grad=True)
    delta_PK = torch.tensor([[math.nan, math.nan], [1.0, 3.0]], requires_grad=True)
    chosen = torch.tensor([[False, False], [True, True]])
    lengths = torch.ones(2), torch.ones(2, 2)
    loss_P = dpo_group_loss(delta_gt_P, delta_PK, *lengths, negatives_PK=chosen)
    loss_P.sum().backward()
    assert loss_P[0] == 0
    assert delta_gt_P.grad is not None
    assert delta_gt_P.grad[0] == 0
    assert delta_PK.grad is not None
    assert delta_PK.grad.isfinite().all()
    coefs = dpo_row_coefficients(delta_gt_P, delta_PK, *lengths, torch.ones(2), negatives_PK=chosen)
    assert coefs[0][0] == 0
    assert coefs[1][0].eq(0).all()
    assert preference_metrics(delta_gt_P, delta_PK, *lengths, negatives_PK=chosen & False) == {"pairs": 0.0}


def test_metrics_count_pairs_and_a_tie_as_a_miss() -> None:
    chosen = torch.tensor([[True, True, True], [False, False, False]])
    metrics = preference_metrics(
        torch.tensor([2.0, 0.0]),
        torch.tensor([[1.0, 2.0, 3.0], [9.0, 9.0, 9.0]]),
        torch.tensor([2.0, 1.0]),
        torch.tensor([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]]),
        tau=0.5,
        negatives_PK=chosen,
    )
    pair_losses = [math.log1p(math.exp(-0.5 * gap)) for gap in (0.5, 0.0, -0.5)]
    assert metrics == pytest.approx({"pairs": 3, "loss": sum(pair_losses) / 3, "margin": 0.0, "accuracy": 1 / 3})


def test_which_rollouts_are_negatives() -> None:
    rewards, failed = torch.tensor([[0.0, 0.5, 0.0, 1.0]]), torch.tensor([[True, False, False, True]])
    assert negative_mask(rewards).tolist() == [[True] * 4]
    assert negative_mask(rewards, failed).tolist() == [[False, True, True, False]]
    assert negative_mask(rewards, failed, "zero_reward").tolist() == [[False, False, True, False]]
    with pytest.raises(ValueError, match="negatives is 'low'"):
        negative_mask(rewards, failed, "low")  # type: ignore[arg-type]


def test_faults_are_named() -> None:
    batch = make_batch(15)
    x = tensors(batch)
    with pytest.raises(ValueError, match=r"weights_P must lie in \[0, 1\]"):
        orapo_loss(*x[:8], batch.weights_P + 1)
    with pytest.raises(ValueError, match="weights_P has shape"):
        orapo_loss(*x[:8], batch.weights_P[:, None])
    with pytest.raises(ValueError, match="rewards_PK has shape"):
        orapo_loss(*x[:7], batch.rewards_PK.T, batch.weights_P)
    with pytest.raises(ValueError, match=r"expected \(P, K, T\)"):
        orapo_loss(x[0][0], *x[1:])
    with pytest.raises(ValueError, match="tau is 0"):
        orapo_loss(*x, tau=0.0)
    arguments = dpo_arguments(batch)
    with pytest.raises(ValueError, match="delta_gt_P has shape"):
        dpo_group_loss(arguments[0][:1], *arguments[1:])
    with pytest.raises(ValueError, match="negatives_PK has shape"):
        dpo_group_loss(*arguments, negatives_PK=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="coef_R has shape"):
        dpo_row_loss(x[0], x[3], torch.ones(3))
