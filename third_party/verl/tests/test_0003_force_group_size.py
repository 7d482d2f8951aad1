"""``actor.force_group_size`` keeps the samples of a prompt in one micro-batch, from the V1 trainer to the engine."""

import copy
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu
from verl.workers.config import ActorConfig
from verl.workers.engine.utils import prepare_micro_batches

DP_SIZE, N_PROMPTS, GROUP = 2, 6, 3


class _Trainer(PPOTrainer):
    def on_step_end(self):
        pass

    def on_sample_end(self):
        pass


@cache
def _base_config():
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[f"actor_rollout_ref.rollout.n={GROUP}"])


def _config(**actor_config):
    config = copy.deepcopy(_base_config())
    for key, value in actor_config.items():
        config.actor_rollout_ref.actor[key] = value  # raises for a key that is not in the yaml
    return config


def _trainer(**actor_config) -> _Trainer:
    trainer = _Trainer.__new__(_Trainer)
    trainer.config = _config(ppo_mini_batch_size=2, **actor_config)
    trainer.use_critic = False
    trainer.global_steps = 1
    trainer.tokenizer = SimpleNamespace(eos_token_id=0)
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": list(range(DP_SIZE))})
    return trainer


def _batch() -> KVBatchMeta:
    """The samples of a prompt are scattered over the batch; the first prompt has the longest."""
    pairs = [(session, prompt) for session in range(GROUP) for prompt in range(N_PROMPTS)]
    keys = [f"prompt_{prompt}_{session}_0" for session, prompt in pairs]
    tags = [{"seq_len": 10 * (N_PROMPTS - prompt) + session} for session, prompt in pairs]
    return KVBatchMeta(partition_id="train", keys=keys, tags=tags, extra_info={})


def _prompt(key: str) -> str:
    return key.rsplit("_", 2)[0]


def _groups(keys: list[str]) -> list[list[str]]:
    return [keys[i : i + GROUP] for i in range(0, len(keys), GROUP)]


def _balanced(trainer: _Trainer) -> tuple[KVBatchMeta, dict]:
    metrics = {}
    return trainer._balance_batch(_batch(), metrics), metrics


def test_balance_batch_keeps_groups_together():
    batch, metrics = _balanced(_trainer(force_group_size=GROUP))

    tag_of = dict(zip(_batch().keys, _batch().tags, strict=True))
    assert sorted(batch.keys) == sorted(tag_of)
    assert batch.tags == [tag_of[key] for key in batch.keys]  # each sample keeps its tag
    per_rank = len(batch.keys) // DP_SIZE
    for rank in range(DP_SIZE):
        for group in _groups(batch.keys[rank * per_rank : (rank + 1) * per_rank]):
            assert len({_prompt(key) for key in group}) == 1
    assert metrics["global_seqlen/balanced_max"] < metrics["global_seqlen/max"]


def test_a_prompt_may_have_several_groups():
    from verl.utils.seqlen_balancing import get_fixed_size_group_balanced_partitions

    uids = ["a", "b", "a", "b", "a", "a", "c", "c"]
    seq_lens = [1, 1, 1, 1, 9, 9, 9, 9]
    partitions = get_fixed_size_group_balanced_partitions(seq_lens, uids, k_partitions=2, group_size=2)

    groups = {tuple(partition[i : i + 2]) for partition in partitions for i in (0, 2)}
    assert groups == {(0, 2), (4, 5), (1, 3), (6, 7)}  # in the order of the batch, two of prompt "a"
    assert [sum(seq_lens[i] for i in partition) for partition in partitions] == [20, 20]


def test_incomplete_group_is_named():
    batch = _batch()
    batch.keys[0] = "prompt_9_0_0"  # a prompt with one sample; prompt 0 has lost it
    with pytest.raises(ValueError, match=r"prompt_9 has 1 samples.*group_size=3"):
        _trainer(force_group_size=GROUP)._balance_batch(batch, {})


def test_batch_multiple_holds_whole_groups_on_each_rank():
    plain, grouped = _trainer(), _trainer(force_group_size=4)
    assert plain._get_required_batch_multiple(DP_SIZE) == 2 * GROUP
    assert grouped._get_required_batch_multiple(DP_SIZE) == 24  # lcm(2 * GROUP, DP_SIZE * 4)


@pytest.mark.parametrize("use_dynamic_bsz", [True, False])
def test_micro_batches_of_the_update_hold_whole_groups(use_dynamic_bsz: bool):
    trainer = _trainer(force_group_size=GROUP)
    batch, _ = _balanced(trainer)
    seen = {}

    def update_actor(meta: KVBatchMeta) -> dict:
        seen.update(meta.extra_info)
        return {"metrics": {"mfu": [0.0]}}

    trainer.actor_rollout_wg.update_actor = update_actor
    trainer._update_actor(batch, {})

    # The rows of the first rank, as its engine gets them.
    rows = range(len(batch.keys) // DP_SIZE)
    number = {f"prompt_{p}": p for p in range(N_PROMPTS)}
    data = TensorDict(
        {
            "prompt": torch.tensor([number[_prompt(batch.keys[i])] for i in rows]),
            "input_ids": torch.nested.as_nested_tensor(
                [torch.zeros(batch.tags[i]["seq_len"], dtype=torch.int64) for i in rows], layout=torch.jagged
            ),
        },
        batch_size=len(rows),
    )
    tu.assign_non_tensor(
        data, **seen, use_dynamic_bsz=use_dynamic_bsz, max_token_len_per_gpu=60 * GROUP, micro_batch_size_per_gpu=1
    )
    micro_batches, _ = prepare_micro_batches(data)

    assert len(micro_batches) > 1
    for micro_batch in micro_batches:
        prompts, counts = micro_batch["prompt"].unique(return_counts=True)
        assert counts.tolist() == [GROUP] * len(prompts)


@pytest.mark.parametrize(("kwargs", "message"), [({"shuffle": True}, "shuffle"), ({"force_group_size": 0}, "at least")])
def test_actor_config_refuses(kwargs: dict, message: str):
    with pytest.raises(ValueError, match=message):
        ActorConfig(**{"strategy": "fsdp", "rollout_n": 2, "use_dynamic_bsz": True, "force_group_size": 2, **kwargs})


def test_v0_trainer_refuses():
    with pytest.raises(NotImplementedError, match="force_group_size"):
        RayPPOTrainer(_config(force_group_size=2), None, {}, None)


def test_default_balances_single_samples():
    batch, _ = _balanced(_trainer())
    assert any(len({_prompt(key) for key in group}) > 1 for group in _groups(batch.keys))
