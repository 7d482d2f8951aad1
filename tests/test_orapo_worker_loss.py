"""The loss as verl's workers call it: jagged rows, micro-batches of any kind, 1, 2 and 4 gloo ranks; the gradient is
always that of the written formula."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")

import torch

from tests.orapo_written import TAU, WORDS, Batch, gradient, make_batch, tensors, written_dpo, written_grpo

CASES: list[dict[str, Any]] = [
    {"seed": 1, "prompts": 4, "rollouts": 4},
    {"seed": 2, "prompts": 4, "rollouts": 4, "equal": True},
    {"seed": 3, "prompts": 3, "rollouts": 4},  # a padded slot for a true report on 2 and 4 ranks
    {"seed": 4, "prompts": 1, "rollouts": 8},
    {"seed": 5, "prompts": 8, "rollouts": 2},
    {"seed": 6, "prompts": 2, "rollouts": 16},
]
Row = dict[str, Any]


def actor_config(batch: Batch) -> Any:
    from verl.workers.config import FSDPActorConfig

    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=batch.rewards_PK.shape[1],
        ppo_mini_batch_size=batch.rewards_PK.shape[0],
        ppo_micro_batch_size_per_gpu=1,
        use_kl_loss=True,
        kl_loss_coef=0.04,
        kl_loss_type="low_var_kl",
        clip_ratio_c=1e9,  # dual clip is verl's, not in eq. 4
        loss_agg_mode="seq-mean-token-sum-norm",
        loss_scale_factor=batch.tokens_PKT.shape[-1],
    )


def rows_of(batch: Batch, session_lost: bool = False) -> tuple[dict[str, Row], list[str], list[str], Any]:
    """verl's rows of a step by key, the keys of the rollouts and of the true reports, and the settings that made them.

    `session_lost`: session 0 of prompt 0 ended in an error, so verl has no row of it.
    """
    from verl import DataProto
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    from radverl.orapo import ZeroRewardEma
    from radverl.verl_plugin.failures.advantages import estimate_on_usable
    from radverl.verl_plugin.failures.flags import RowFlags
    from radverl.verl_plugin.orapo.mixing import Step, groups_of, mix
    from radverl.verl_plugin.orapo.settings import OrapoSettings

    _, old, ref, _, gt_new, gt_ref, _, _, _ = (value.detach() for value in tensors(batch))
    n_prompts, n_rollouts = batch.rewards_PK.shape
    rows: dict[str, Row] = {}

    def add(key: str, words: Any, old_T: Any, ref_T: Any, mask: float) -> None:
        prompt = int(key.split("_")[0][1:]) % WORDS
        ids = torch.tensor([prompt, *words])
        rows[key] = {
            "prompts": ids[:1],
            "responses": ids[1:],
            "input_ids": ids,
            "old_log_probs": old_T,
            "ref_log_prob": ref_T,
            "response_mask": torch.full((len(words),), mask).long(),
            "loss_mask": torch.full((len(words),), mask).long(),
        }

    lost = [(0, 0)] if session_lost else []
    sessions = [(p, k) for p in range(n_prompts) for k in range(n_rollouts) if (p, k) not in lost]
    for p, k in sessions:
        mask = batch.mask_PKT[p, k]
        add(f"u{p}_{k}_0", batch.tokens_PKT[p, k][mask].tolist(), old[p, k][mask], ref[p, k][mask], 1.0)
    rollouts = list(rows)
    for p in range(n_prompts):
        mask = batch.oracle_mask_PS[p]
        add(f"u{p}_0_gt", batch.oracle_PS[p][mask].tolist(), gt_new[p][mask], gt_ref[p][mask], 0.0)
    oracle = list(rows)[len(rollouts) :]

    def log_ratio(key: str) -> Any:
        return (rows[key]["old_log_probs"] - rows[key]["ref_log_prob"]).sum()

    step = Step(
        groups=groups_of(rollouts),
        prompt_ids=[f"u{p}" for p in range(n_prompts)],
        rewards_R=torch.stack([batch.rewards_PK[p, k] for p, k in sessions]),
        failed_R=torch.stack([batch.failed_PK[p, k] for p, k in sessions]),
        delta_R=torch.stack([log_ratio(key) for key in rollouts]),
        lengths_R=torch.tensor([len(rows[key]["responses"]) for key in rollouts]),
        delta_gt_P=torch.stack([log_ratio(key) for key in oracle]),
        lengths_gt_P=torch.tensor([len(rows[key]["responses"]) for key in oracle]),
    )
    settings = OrapoSettings(tau=TAU, w_min=0.3, w_max=0.9)
    rollout_fields, oracle_fields, _ = mix(settings, ZeroRewardEma(), step)
    data = DataProto.from_dict(
        tensors={"token_level_rewards": step.rewards_R[:, None].clone(), "response_mask": torch.ones(len(rollouts), 1)},
        non_tensors={"uid": np.array([key.split("_")[0] for key in rollouts], dtype=object)},
    )
    flags = RowFlags(rollouts, ["judge" if failed else "" for failed in step.failed_R])
    settings_of_verl = {"adv_estimator": "grpo", "num_repeat": n_rollouts, "norm_adv_by_std_in_grpo": False}
    estimate_on_usable(compute_advantage_for_multi_trajectories, data, rollouts, flags, **settings_of_verl)
    for number, key in enumerate(rollouts):
        mask = rows[key]["response_mask"].double()
        rows[key] |= {name: value[number] for name, value in rollout_fields.items()}
        rows[key] |= {"advantages": data.batch["advantages"][number] * mask, "orapo_oracle": torch.tensor(0.0)}
    for number, key in enumerate(oracle):
        rows[key] |= {name: value[number] for name, value in oracle_fields.items()}
        rows[key] |= {"advantages": rows[key]["old_log_probs"] * 0.0, "orapo_oracle": torch.tensor(1.0)}
    batch.weights_P = oracle_fields["orapo_dpo_weight"].double()
    return rows, rollouts, oracle, settings


def padding_row(is_oracle: bool) -> Row:
    """As verl's padding rows are, with the neutral numbers of `put_loss_fields`."""
    ids = torch.zeros(4, dtype=torch.long)
    tokens = {
        "prompts": ids[:3],
        "responses": ids[3:],
        "input_ids": ids,
        "response_mask": ids[3:],
        "loss_mask": ids[3:],
    }
    floats = dict.fromkeys(("old_log_probs", "ref_log_prob", "advantages"), torch.zeros(1, dtype=torch.float64))
    numbers = {"orapo_grpo_weight": 1.0, "orapo_prompt": -1.0, "orapo_oracle": float(is_oracle)}
    numbers |= dict.fromkeys(("orapo_coef", "orapo_dpo_weight", "orapo_negative"), 0.0)
    return tokens | floats | {name: torch.tensor(value) for name, value in numbers.items()}


def filled(keys: list[str], size: int, rows: dict[str, Row], is_oracle: bool) -> list[str]:
    extra = [f"pad{'gt' if is_oracle else ''}_{number}_0" for number in range(size - len(keys))]
    rows.update({key: padding_row(is_oracle) for key in extra})
    return keys + extra


def as_batch(rows: list[Row], dtype: Any, **numbers: Any) -> Any:
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if values[0].is_floating_point():
            values = [value.to(dtype) for value in values]
        jagged = values[0].ndim == 1
        columns[name] = torch.nested.as_nested_tensor(values, layout=torch.jagged) if jagged else torch.stack(values)
    data = TensorDict(columns, batch_size=len(rows))
    tu.assign_non_tensor(data, **numbers)
    return data


def gradient_of_rank(
    rank: int, n_ranks: int, batch: Batch, mode: str, micro: int | None, dtype: Any, lost: bool, dp_group: Any = None
) -> Any:
    """What one rank accumulates over its micro-batches, as verl's FSDP engine does it."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.engine.utils import prepare_micro_batches

    from radverl.verl_plugin.orapo import layout
    from radverl.verl_plugin.orapo.loss import orapo_loss

    rows, rollouts, oracle, settings = rows_of(batch, lost)
    n_prompts, n_rollouts = batch.rewards_PK.shape
    slots = layout.oracle_slots(n_prompts, n_ranks)
    oracle = filled(oracle, slots, rows, True)
    places = slots if mode == "group" else -(-n_prompts * n_rollouts // n_ranks) * n_ranks // n_rollouts
    rollouts = filled(rollouts, places * n_rollouts, rows, False)
    lengths = {key: len(row["input_ids"]) for key, row in rows.items()}
    if mode == "group":
        grouped = layout.row_groups(rollouts, oracle, [f"u{p}" for p in range(n_prompts)], n_rollouts)
        order = layout.group_order(grouped, n_ranks, lengths)
    else:
        order = layout.row_order(rollouts, oracle, n_ranks, lengths)
    per_rank = len(order) // n_ranks
    group = n_rollouts + 1 if mode == "group" else 1
    data = as_batch(
        [rows[key] for key in order[rank * per_rank : (rank + 1) * per_rank]],
        dtype,
        dp_size=n_ranks,
        global_batch_size=n_prompts * n_rollouts,
        batch_num_tokens=int(batch.mask_PKT.sum()),
        orapo_prompts=n_prompts,
        force_group_size=group,
        use_dynamic_bsz=micro is None,
        max_token_len_per_gpu=max(lengths.values()) * (group + 1),
        micro_batch_size_per_gpu=layout.micro_batch_size(per_rank // group, micro or 1),
    )
    theta = batch.theta.detach().to(dtype).requires_grad_()
    config = actor_config(batch)
    for micro_batch in prepare_micro_batches(data, dp_group=dp_group)[0]:
        following = [torch.cat([ids[1:], ids[:1]]) for ids in micro_batch["input_ids"].unbind()]
        log_probs = theta.log_softmax(-1)[micro_batch["input_ids"].values(), torch.cat(following)]
        loss, metrics = orapo_loss(
            config,
            {"log_probs": log_probs},
            micro_batch,
            mode=mode,
            tau=TAU,
            length_normalised=settings.length_normalised,
        )
        assert {"actor/pg_loss", "kl_loss"} <= metrics.keys()
        loss.backward()
        assert tu.get_non_tensor_data(micro_batch, "dp_size", None) == n_ranks
    return theta.grad


def expected_gradient(batch: Batch, lost: bool) -> Any:
    if lost:
        batch = dataclasses.replace(batch, mask_PKT=batch.mask_PKT.clone(), failed_PK=batch.failed_PK.clone())
        batch.mask_PKT[0, 0], batch.failed_PK[0, 0] = False, True
    total = batch.theta.new_zeros(())
    for i, weight in enumerate(batch.weights_P):
        total = (
            total + (1 - weight) * written_grpo(batch, i, False, False) + weight * written_dpo(batch, i, True, "all")
        )
    return gradient(total / len(batch.weights_P), batch.theta)


def batch_of(case: dict[str, Any], mode: str) -> Batch:
    batch = make_batch(**case)
    if mode == "row":  # one update per rollout batch: the old policy is the one that is updated
        batch.old = batch.theta.detach().clone()
    return batch


@pytest.mark.parametrize("lost", [False, True], ids=["whole", "session 0 lost"])
@pytest.mark.parametrize("micro", [1, 3, 100, None])
@pytest.mark.parametrize("mode", ["row", "group"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"seed{case['seed']}")
def test_any_micro_batches_have_the_gradient_of_the_formula(
    case: dict[str, Any], mode: str, micro: int | None, lost: bool
) -> None:
    batch = batch_of(case, mode)
    found = gradient_of_rank(0, 1, batch, mode, micro, torch.float64, lost)
    # The numbers of a row travel as float32.
    torch.testing.assert_close(found, expected_gradient(batch, lost), rtol=1e-6, atol=2e-7)


def test_flat_and_jagged_model_outputs_are_the_same_and_missing_fields_are_named() -> None:
    from radverl.verl_plugin.orapo.loss import FIELDS, orapo_loss

    batch = batch_of(CASES[0], "row")
    rows, rollouts, oracle, _ = rows_of(batch)
    numbers = {"dp_size": 1, "global_batch_size": 16, "batch_num_tokens": 1, "orapo_prompts": 4}
    data = as_batch([rows[key] for key in rollouts + oracle], torch.float64, **numbers)
    flat = torch.randn(len(data["input_ids"].values()), dtype=torch.float64)
    jagged = torch.nested.nested_tensor_from_jagged(flat, offsets=data["input_ids"].offsets())
    settings = {"mode": "row", "tau": TAU, "length_normalised": True}
    losses = [orapo_loss(actor_config(batch), {"log_probs": x}, data, **settings)[0] for x in (flat, jagged)]
    assert losses[0] == losses[1]
    for name in FIELDS:
        with pytest.raises(RuntimeError, match=name):
            orapo_loss(actor_config(batch), {"log_probs": flat}, data.exclude(name), **settings)


def test_a_torn_group_is_refused() -> None:
    from radverl.verl_plugin.orapo.loss import orapo_loss

    batch = batch_of({"seed": 1, "failed": False}, "group")
    rows, rollouts, _, _ = rows_of(batch)
    data = as_batch(
        [rows[rollouts[0]]], torch.float64, dp_size=1, global_batch_size=1, batch_num_tokens=1, orapo_prompts=1
    )
    log_probs = torch.zeros(len(rows[rollouts[0]]["input_ids"]), dtype=torch.float64)
    with pytest.raises(RuntimeError, match="without their true report"):
        orapo_loss(actor_config(batch), {"log_probs": log_probs}, data, mode="group", tau=TAU, length_normalised=True)


RANK_CASES = [(case, mode, micro) for case in CASES[:4] for mode in ("row", "group") for micro in (2, None)]


def _work(rank: int, n_ranks: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": str(rank), "WORLD_SIZE": str(n_ranks)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=n_ranks)
    found = []
    for case, mode, micro in RANK_CASES:
        grad = gradient_of_rank(
            rank, n_ranks, batch_of(case, mode), mode, micro, torch.float32, True, torch.distributed.group.WORLD
        )
        torch.distributed.all_reduce(grad)
        found.append(grad / n_ranks)  # FSDP averages over ranks
    if rank == 0:
        torch.save(found, Path(folder) / "gradients.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [1, 2, 4])
def test_any_number_of_ranks_has_the_gradient_of_the_formula(n_ranks: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    torch.multiprocessing.spawn(_work, args=(n_ranks, str(tmp_path)), nprocs=n_ranks)
    for (case, mode, _), found in zip(RANK_CASES, torch.load(tmp_path / "gradients.pt"), strict=True):
        batch = batch_of(case, mode)
        rows_of(batch, True)  # sets the weights
        torch.testing.assert_close(found.double(), expected_gradient(batch, True), rtol=0, atol=1e-6)
