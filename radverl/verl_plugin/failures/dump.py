"""Rollout dumps that tell a failed sample from a zero: verl's own lines hold the score alone.

Each line of trainer.rollout_data_dir also gets the components of the reward, `failed` among them, the prompt id where
the row has one, and what a trainer gives as `dump_columns(key)`; verl's padding rows are left out.
"""

import contextlib
from functools import wraps
from types import ModuleType
from typing import Any

from radverl.verl_plugin.failures.flags import is_padding


def install(trainer_base: ModuleType) -> None:
    """Wrap the two methods of `trainer_base.PPOTrainer` that dump rollouts."""
    trainer = trainer_base.PPOTrainer
    log_rollout_data, dump_generations = trainer._log_rollout_data, trainer._dump_generations

    @wraps(log_rollout_data)
    def log_with_components(self: Any, batch: Any, timing_raw: dict, rollout_data_dir: str) -> None:
        if self.failures is not None:
            batch = batch.select_keys([key for key in batch.keys if not is_padding(key)])
            self._columns_of = _columns(batch, self.dump_columns)
        log_rollout_data(self, batch, timing_raw, rollout_data_dir)

    @wraps(dump_generations)
    def dump_with_components(self: Any, *args: Any, reward_extra_infos_dict: dict, **kwargs: Any) -> None:
        columns_of, self._columns_of = self._columns_of, {}  # a dump of validation has rows of its own, and components
        rows = [columns_of.get(key) for key in reward_extra_infos_dict.get("uid", [])]
        known = [row for row in rows if row is not None]
        if known and len(known) == len(rows):
            names = dict.fromkeys(name for row in known for name in row)
            more = {name: [row.get(name) for row in known] for name in names}
            reward_extra_infos_dict = more | reward_extra_infos_dict
        dump_generations(self, *args, reward_extra_infos_dict=reward_extra_infos_dict, **kwargs)

    def dump_columns(self: Any, key: str) -> dict[str, Any]:
        """More columns for the row of this key."""
        return {}

    trainer._columns_of, trainer.dump_columns = {}, dump_columns
    trainer._log_rollout_data, trainer._dump_generations = log_with_components, dump_with_components


def _columns(batch: Any, more: Any) -> dict[str, dict[str, Any]]:
    import transfer_queue as tq

    from radverl.verl_plugin.orapo.rows import prompt_id

    names = ["extra_fields", "extra_info", "data_source"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    there = [list(data[name]) if name in data else [{}] * len(batch.keys) for name in names]
    columns = {}
    for key, extra, info, source in zip(batch.keys, *there, strict=True):
        named: dict[str, Any] = {}
        with contextlib.suppress(ValueError):  # only OraPO needs one, and checks that it is there
            named["prompt_id"] = prompt_id(str(source), info or {})
        columns[key] = named | more(key) | ((extra or {}).get("reward_extra_info") or {})
    return columns
