"""OraPO on unmodified verl: trainer.v1.trainer_mode=orapo_sync | orapo_colocate_async, settings +algorithm.orapo.*

A mixin over verl's trainers. Each step, after verl has balanced the rollouts, the true report of each prompt becomes
one more row (rows.py); old and reference log-probs are computed for both kinds in verl's own calls; the averages move
and every row gets its numbers (mixing.py); the update runs on K + 1 rows a prompt with our loss (loss.py). The rows are
cleared after the step, and no statistic of verl counts them.
"""

import math
import os
from functools import partial
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from radverl.orapo import ZeroRewardEma
from radverl.verl_plugin.config_values import check_micro_batches
from radverl.verl_plugin.orapo import exchange, layout, state
from radverl.verl_plugin.orapo.loss import orapo_loss
from radverl.verl_plugin.orapo.mixing import groups_of, mix
from radverl.verl_plugin.orapo.rows import check_dataset, end_of_turn
from radverl.verl_plugin.orapo.settings import settings_from

NAMES = ["orapo_sync", "orapo_colocate_async"]


class OrapoMixin(PPOTrainer):
    """verl's PPOTrainer with a true report beside the rollouts of each prompt."""

    base_mode: str  # the mode whose settings and branches of verl apply
    counts_failures = True  # with any reward manager: a NaN is no zero reward

    def __init__(self, config: Any) -> None:
        self.orapo = settings_from(config)
        check_micro_batches(config, config.actor_rollout_ref.rollout.n + 1 if self.orapo.mode == "group" else 1)
        # verl compares the mode with "sync" in several places, and looks its settings up by it.
        config.trainer.v1.trainer_mode = self.base_mode
        self.average = ZeroRewardEma(self.orapo.alpha, self.orapo.init, self.orapo.scope)  # verl loads in its set-up
        super().__init__(config)

    # ---- before the first step

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        frame = getattr(self.train_dataset, "dataframe", None)
        if frame is not None:  # a data.custom_cls may have none: its rows are checked as they come
            check_dataset(frame.select_columns(["data_source", "extra_info", "reward_model"]))

    def on_init_end(self) -> None:
        self.actor_rollout_wg.set_loss_fn(
            partial(
                orapo_loss,
                omega_conf_to_dataclass(self.config.actor_rollout_ref.actor),
                mode=self.orapo.mode,
                tau=self.orapo.tau,
                length_normalised=self.orapo.length_normalised,
            )
        )
        self.end_of_turn = end_of_turn(self.tokenizer)
        super().on_init_end()

    # ---- checkpoints

    def _step_folder(self) -> str:
        return os.path.join(self.config.trainer.default_local_dir, f"global_step_{self.global_steps}")

    def _save_checkpoint(self) -> None:
        state.save(self.average, self._step_folder())  # first: verl names the checkpoint complete at its end
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps:
            trainer = self.config.trainer
            resumed = trainer.resume_from_path if trainer.resume_mode == "resume_path" else self._step_folder()
            state.load(self.average, resumed)

    # ---- one step, in verl's order

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        self.weight_of: dict[str, float] = {}  # by uid, of all batches between two weight syncs
        return super().step(metrics, timing_raw)

    def _step_once(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._own_keys: list[str] = []
        batch = super()._step_once(*args, **kwargs)
        tq.kv_clear(keys=self._own_keys, partition_id=batch.partition_id)
        return batch

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, **kwargs: Any) -> KVBatchMeta:
        """verl's balancing of the rollouts, then the order of rollouts and true reports together (`self.rows`)."""
        rollouts = super()._balance_batch(batch, metrics, **kwargs)
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        self.n_ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        self.groups = groups_of(rollouts.keys)
        size = actor.ppo_mini_batch_size * rollout.n
        # Where many sessions failed, the prompts that are left may need more mini-batches than their rollouts.
        n_mini = max(len(rollouts) // size, math.ceil(len(self.groups.uids) / actor.ppo_mini_batch_size))
        oracle, self.prompt_ids, self.n_cut = exchange.put_oracle_rows(
            rollouts,
            self.groups,
            self.tokenizer,
            self.end_of_turn,
            self.config.data.max_response_length,
            bool(rollout.calculate_log_probs),
        )
        n_chunks = self.n_ranks * n_mini
        slots = layout.oracle_slots(actor.ppo_mini_batch_size, self.n_ranks) // self.n_ranks
        if self.orapo.mode == "group":
            filled = self._padded(rollouts, slots * n_chunks * rollout.n)
        else:
            filled = self._padded(rollouts, size * n_mini)
            if not actor.use_dynamic_bsz:
                own = len(filled) // n_chunks
                slots = layout.rows_with_padding(own + slots, actor.ppo_micro_batch_size_per_gpu) - own
        oracle = self._padded(oracle, slots * n_chunks)
        self.oracle_keys, self.filler_keys = oracle.keys, filled.keys[len(rollouts) :]
        self._own_keys += self.oracle_keys + self.filler_keys
        tag_of = dict(zip(filled.keys + oracle.keys, filled.tags + oracle.tags, strict=True))
        lengths = {key: tag["seq_len"] for key, tag in tag_of.items()}
        if self.orapo.mode == "group":
            grouped = layout.row_groups(filled.keys, oracle.keys, self.groups.uids, rollout.n)
            order = layout.group_order(grouped, n_chunks, lengths)
        else:
            order = layout.row_order(filled.keys, oracle.keys, n_chunks, lengths)
        self.rows_per_chunk = len(order) // n_chunks
        self.rows = KVBatchMeta(keys=order, tags=[tag_of[key] for key in order], partition_id=rollouts.partition_id)
        return rollouts

    def _padded(self, batch: KVBatchMeta, size: int) -> KVBatchMeta:
        """With verl's padding rows up to `size`."""
        bare = KVBatchMeta(keys=batch.keys, tags=batch.tags, partition_id=batch.partition_id)
        return upsample_batch_to_divisible_size(bare, size, self.tokenizer.eos_token_id)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        super()._compute_old_log_prob(self._for_inference(self.config.actor_rollout_ref.rollout), metrics)
        return batch

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        role = self.config.actor_rollout_ref["rollout" if self.ref_in_actor else "ref"]
        super()._compute_ref_log_prob(self._for_inference(role), metrics)
        return batch

    def _for_inference(self, role: Any) -> KVBatchMeta:
        """All rows for a log-prob stage of a role's config; verl fills in the rest of `extra_info`."""
        rows = KVBatchMeta(keys=self.rows.keys, tags=self.rows.tags, partition_id=self.rows.partition_id)
        if not role.log_prob_use_dynamic_bsz:
            at_most = role.log_prob_micro_batch_size_per_gpu or 1
            rows.extra_info["micro_batch_size_per_gpu"] = layout.micro_batch_size(len(rows) // self.n_ranks, at_most)
        return rows

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics)
        named = self.oracle_keys[: len(self.groups.uids)]
        step = exchange.read_step(batch, named, self.groups, self.prompt_ids)
        rollout_fields, oracle_fields, step_metrics = mix(self.orapo, self.average, step)
        metrics.update(step_metrics | {"orapo/oracle_truncated": self.n_cut / len(self.groups.uids)})
        self.weight_of |= dict(zip(self.groups.uids, oracle_fields["orapo_dpo_weight"].tolist(), strict=True))

        partition = batch.partition_id
        exchange.put_loss_fields(batch.keys + self.filler_keys, partition, rollout_fields, is_oracle=False)
        exchange.put_loss_fields(self.oracle_keys, partition, oracle_fields, is_oracle=True)
        with_is_weights = "rollout_is_weights" in (batch.fields or [])
        exchange.put_without_advantage(self.oracle_keys + self.filler_keys, partition, with_is_weights)
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        output = rename_dict(self.actor_rollout_wg.update_actor(self._for_update())["metrics"], "actor/")
        output["perf/mfu/actor"] = output.pop("actor/mfu")
        metrics.update(reduce_metrics(output))
        return batch

    def _for_update(self) -> KVBatchMeta:
        """All rows for the update; `extra_info` as verl's own `_update_actor` has it, but for the rows it counts."""
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        rows = KVBatchMeta(keys=self.rows.keys, tags=self.rows.tags, partition_id=self.rows.partition_id)
        rows.extra_info = {
            "calculate_entropy": actor.calculate_entropy or actor.entropy_coeff != 0.0,
            "distillation_use_topk": False,
            "distillation_only": False,
            "global_batch_size": actor.ppo_mini_batch_size * rollout.n,
            "mini_batch_size": self.rows_per_chunk * self.n_ranks,
            "epochs": actor.ppo_epochs,
            "seed": actor.data_loader_seed,
            "dataloader_kwargs": {"shuffle": actor.shuffle},
            "temperature": rollout.temperature,
            "orapo_prompts": actor.ppo_mini_batch_size,
        }
        group = rollout.n + 1 if self.orapo.mode == "group" else 1
        rows.extra_info["force_group_size"] = group
        if not actor.use_dynamic_bsz:  # verl counts groups here where groups are forced
            at_most = max(1, actor.ppo_micro_batch_size_per_gpu // group)
            rows.extra_info["micro_batch_size_per_gpu"] = layout.micro_batch_size(self.rows_per_chunk // group, at_most)
        return rows

    def dump_columns(self, key: str) -> dict[str, Any]:
        return {"orapo_weight": self.weight_of[key.rsplit("_", 2)[0]]}


@register_trainer("orapo_sync")
class OrapoTrainerSync(OrapoMixin, PPOTrainerSync):
    """OraPO with synchronous rollouts."""

    base_mode = "sync"


@register_trainer("orapo_colocate_async")
class OrapoTrainerColocateAsync(OrapoMixin, PPOTrainerColocateAsync):
    """OraPO with rollouts of up to the configured staleness; old log-probs are those of the policy that is updated."""

    base_mode = "colocate_async"


@register_trainer("orapo_separate_async")
class OrapoTrainerSeparateAsync(OrapoMixin, PPOTrainerSync):
    """Registered to refuse with its reason (settings.py)."""

    base_mode = "separate_async"
