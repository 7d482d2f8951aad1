"""Rollout dumps that carry the components of each reward and the prompt id; verl's own hold the score alone."""

from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from radverl.verl_plugin.orapo.layout import PADDING
from radverl.verl_plugin.orapo.rows import prompt_id


class RewardDumpMixin(PPOTrainer):
    """Adds columns to trainer.rollout_data_dir, and leaves verl's padding rows out of it."""

    def _log_rollout_data(self, batch: KVBatchMeta, timing_raw: dict, rollout_data_dir: str) -> None:
        real = batch.select_keys([key for key in batch.keys if not key.startswith(PADDING)])
        names = ["extra_fields", "extra_info", "data_source"]
        data = tq.kv_batch_get(keys=real.keys, partition_id=real.partition_id, select_fields=names)
        self._columns_of = {}
        for key, extra, info, source in zip(real.keys, *(list(data[name]) for name in names), strict=True):
            components = extra.get("reward_extra_info") or {}
            self._columns_of[key] = {"prompt_id": prompt_id(str(source), info)} | self.dump_columns(key) | components
        super()._log_rollout_data(real, timing_raw, rollout_data_dir)

    def dump_columns(self, key: str) -> dict[str, Any]:
        """More columns for the row of this key."""
        return {}

    def _dump_generations(self, *args: Any, reward_extra_infos_dict: dict, **kwargs: Any) -> None:
        rows = [getattr(self, "_columns_of", {}).get(key) for key in reward_extra_infos_dict["uid"]]
        self._columns_of = {}  # a dump of validation calls this too, with rows of its own
        known = [row for row in rows if row is not None]
        if len(known) == len(rows):
            names = dict.fromkeys(name for row in known for name in row)
            reward_extra_infos_dict = {
                name: [row.get(name) for row in known] for name in names
            } | reward_extra_infos_dict
        super()._dump_generations(*args, reward_extra_infos_dict=reward_extra_infos_dict, **kwargs)
