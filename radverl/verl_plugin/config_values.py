"""Values of a composed config that verl takes without a look, and fails at, or computes something else with, later.

hydra checks names, not values: `rollout.n=-1`, `ppo_epochs=2.5` and `use_kl_loss='False'` (a text, so true) compose.
"""

import math
from collections.abc import Mapping
from typing import Any

from radverl.verl_plugin.failures.stop import stop_rule_from

# Counts that a run cannot do with less than 1 of, in any of verl's trainers.
COUNTS = (
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "actor_rollout_ref.actor.ppo_epochs",
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
    "trainer.total_epochs",
)
TEXTS = ("actor_rollout_ref.model.path", "trainer.default_local_dir")


def check_values(config: Any, defaults: Any) -> None:
    """Raise ValueError for the first value that cannot be what its setting means; names the setting.

    Args:
        config: composed and resolved.
        defaults: the same without the user's overrides; its values tell what a setting holds. A setting that verl
            leaves open (null), or that is open in `config`, may hold anything.
    """
    for name in COUNTS:  # first: other settings repeat them
        value = _at(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number above 0, without quotes.")
    _check_kinds(config, defaults, "")
    for name in TEXTS:
        value = _at(config, name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name}={value!r}: give a name or a path.")
    for name in ("data.train_files", "data.val_files"):
        files = _at(config, name)
        files = [files] if isinstance(files, str) or not files else files
        if isinstance(files, Mapping) or not isinstance(files, list) or not all(_is_path(file) for file in files):
            raise ValueError(f"{name}={_at(config, name)}: give the path of a Parquet file, or a list of them.")
    if not isinstance(_at(config, "data.train_max_samples"), int):
        raise ValueError(
            f"data.train_max_samples={_at(config, 'data.train_max_samples')}: give a whole number; -1 takes all rows."
        )


def check_reward(config: Any) -> None:
    """See that radverl's manager has a reward and a rule for failed samples, and try the reward on its gold report."""
    settings = config.reward.get("radverl") or {}
    if settings or config.reward.reward_manager.name == "radverl":
        stop_rule_from(config)
    name = settings.get("reward")
    if name:
        from radverl.verl_plugin.reward_manager import check_on_gold

        check_on_gold(name, dict(settings.get("kwargs") or {}))
    elif config.reward.reward_manager.name == "radverl" and not config.reward.custom_reward_function.get("path"):
        raise ValueError("reward.reward_manager.name=radverl was given no reward; add +reward.radverl.reward=facts.")


def check_micro_batches(config: Any, rows: int = 1) -> None:
    """Refuse a token limit that the longest row (OraPO's group mode: the K + 1 rows of a prompt) does not fit in.

    Raises:
        ValueError: verl would stop at the first batch that holds such a row.
    """
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    if not actor.use_dynamic_bsz:
        return
    longest = config.data.max_prompt_length + config.data.max_response_length
    for name, limit, needed in (
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", actor.ppo_max_token_len_per_gpu, rows * longest),
        ("actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", rollout.log_prob_max_token_len_per_gpu, longest),
    ):
        if limit * actor.get("ulysses_sequence_parallel_size", 1) < needed:
            kept = f"the {rows} rows of a prompt stay together" if needed > longest else "a row is not cut"
            raise ValueError(
                f"{name}={limit} is less than {needed} tokens: {kept} (data.max_prompt_length + max_response_length = "
                f"{longest}); raise it."
            )


def _check_kinds(value: Any, default: Any, name: str) -> None:
    """Walk both; a truth value stays one, a number stays a finite or infinite number, a section stays a section."""
    if value is None or default is None:
        return
    if isinstance(default, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"{name}={value}: it is a section with settings of its own; set those.")
        for key in default:
            if key in value:
                _check_kinds(value[key], default[key], f"{name}.{key}" if name else str(key))
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{name}={value!r}: give True or False, without quotes.")
    elif isinstance(default, int | float) and (
        isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value)
    ):
        raise ValueError(f"{name}={value!r}: give a number, without quotes.")


def _at(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
