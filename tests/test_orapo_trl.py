"""DPO and LN-DPO against an independent implementation: TRL's trainer, its own code, on the same token log-probs.

TRL takes pairs; a prompt is a batch of n pairs that share the true report. `sigmoid` is DPO, `sigmoid_norm` LN-DPO.

Shapes: P prompts, K rollouts, T tokens of a rollout, S of a report, N pairs of a prompt.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from radverl.orapo import (
    dpo_group_loss,
    dpo_row_coefficients,
    dpo_row_loss,
    log_ratio_sums,
    preference_metrics,
)

P, T, S = 3, 9, 12


@pytest.fixture(scope="module")
def dpo_trainer() -> Iterator[Any]:
    """TRL's class, from a folder of its own (Makefile): verl 0.9.1 fails in a process that can import this TRL."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_LOGGING_LEVEL", "INFO")  # TRL sets it at import; runs of other tests would inherit it
        patch.syspath_prepend(str(Path(sys.prefix) / "trl"))
        pytest.importorskip("trl")
        from trl.trainer.dpo_trainer import DPOTrainer

        yield DPOTrainer
    for name in [name for name in sys.modules if name.partition(".")[0] == "trl"]:
        del sys.modules[name]


def their_loss(
    dpo_trainer: Any, log_probs_NT: Tensor, ref_log_probs_NT: Tensor, mask_NT: Tensor, tau: float, normalised: bool
) -> tuple[Tensor, dict[str, float]]:
    """TRL's mean loss over pairs, the first half of the rows chosen, the second rejected; and what it logs."""

    def same(value: Tensor) -> Tensor:
        return value  # one process

    chosen_ref_N, rejected_ref_N = (ref_log_probs_NT * mask_NT).sum(-1).chunk(2)
    outputs = SimpleNamespace(
        log_probs=log_probs_NT * mask_NT,
        entropy=torch.zeros_like(log_probs_NT),
        mean_logits=torch.zeros_like(log_probs_NT),
        is_top1=torch.zeros_like(mask_NT),
    )
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=False),
        accelerator=SimpleNamespace(device=torch.device("cpu"), gather=same, gather_for_metrics=same),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=["sigmoid_norm" if normalised else "sigmoid"],
        loss_weights=[1.0],
        beta=tau,
        use_weighting=False,
        _metrics={"eval": defaultdict(list)},
        _total_train_tokens=0,
    )
    completion_mask = F.pad(mask_NT.long(), [1, 0])  # one token of prompt
    inputs = {
        "input_ids": torch.zeros_like(completion_mask),
        "attention_mask": torch.ones_like(completion_mask),
        "completion_mask": completion_mask,
        "ref_chosen_logps": chosen_ref_N,
        "ref_rejected_logps": rejected_ref_N,
    }
    loss = dpo_trainer._compute_loss(trainer, lambda **_: outputs, inputs, False)
    return loss, {name: values[0] for name, values in trainer._metrics["eval"].items()}


def sample(seed: int, rollouts: int) -> tuple[Tensor, ...]:
    """Log-probs, reference, mask of rollouts (P, K, T) and reports (P, S); lengths from 0 on; negatives (P, K)."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    lengths_PK = torch.randint(0, T + 1, (P, rollouts), generator=generator)
    lengths_P = torch.tensor([S, 1, 5])
    lengths_PK[0, 0] = 0
    negatives_PK = torch.rand(P, rollouts, generator=generator) < 0.8
    negatives_PK[:, -1] = True  # TRL has no word for a prompt without a pair
    return (
        -draw(P, rollouts, T).abs().requires_grad_(),
        -draw(P, rollouts, T).abs(),
        torch.arange(T) < lengths_PK[..., None],
        -draw(P, S).abs().requires_grad_(),
        -draw(P, S).abs(),
        torch.arange(S) < lengths_P[:, None],
        negatives_PK,
    )


@pytest.mark.parametrize("tau", [0.05, 0.1, 0.7, 3.0])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("rollouts", range(2, 17))
def test_dpo_is_trls(dpo_trainer: Any, rollouts: int, normalised: bool, tau: float) -> None:
    log_probs_PKT, ref_PKT, mask_PKT, report_PS, report_ref_PS, report_mask_PS, negatives_PK = sample(
        rollouts, rollouts
    )
    weights_P = torch.tensor([0.05, 0.15, 0.1], dtype=torch.float64)

    theirs, logged = [], []
    for i in range(P):
        chosen = negatives_PK[i]
        halves = (
            (report_PS[i], log_probs_PKT[i, chosen]),
            (report_ref_PS[i], ref_PKT[i, chosen]),
            (report_mask_PS[i], mask_PKT[i, chosen]),
        )
        pairs = [torch.cat([one.expand(len(many), S), F.pad(many, [0, S - T])]) for one, many in halves]
        loss, metrics = their_loss(dpo_trainer, *pairs, tau, normalised)
        theirs.append(loss)
        logged.append(metrics)
    theirs_P = torch.stack(theirs)

    delta_PK, lengths_PK = log_ratio_sums(log_probs_PKT, ref_PKT, mask_PKT)
    delta_P, lengths_P = log_ratio_sums(report_PS, report_ref_PS, report_mask_PS)
    arguments = delta_P, delta_PK, lengths_P, lengths_PK
    options: dict[str, Any] = {"tau": tau, "length_normalised": normalised, "negatives_PK": negatives_PK}
    ours_P = dpo_group_loss(*arguments, **options)
    assert (ours_P - theirs_P).abs().max() <= 1e-9

    leaves = log_probs_PKT, report_PS
    expected = torch.autograd.grad((weights_P * theirs_P).sum(), leaves)
    assert all(gradient.abs().max() > 1e-6 for gradient in expected)
    coef_P, coef_PK = dpo_row_coefficients(*arguments, weights_P, **options)
    rows = dpo_row_loss(log_probs_PKT, mask_PKT, coef_PK) + dpo_row_loss(report_PS, report_mask_PS, coef_P)
    for loss in ((weights_P * ours_P).sum(), rows):
        for ours, wanted in zip(torch.autograd.grad(loss, leaves), expected, strict=True):
            assert (ours - wanted).abs().max() <= 1e-9

    if not normalised:  # TRL logs sums of log-ratios also under sigmoid_norm
        metrics = preference_metrics(*arguments, **options)
        shares_P = negatives_PK.double().mean(-1) / negatives_PK.double().mean(-1).sum()
        for name, key in (("margin", "rewards/margins"), ("accuracy", "rewards/accuracies")):
            wanted = sum(share * one[key] for share, one in zip(shares_P.tolist(), logged, strict=True))
            assert metrics[name] == pytest.approx(wanted, abs=1e-6)  # TRL takes the accuracy in float32
