"""Values of a composed config that verl takes without a look, and fails at, or computes something else with, later.

hydra checks names, not values: `rollout.n=-1`, `ppo_epochs=2.5` and `use_kl_loss='False'` (a text, so true) compose.
check_values is for verl.trainer.main_ppo, check_sft_values for verl.trainer.sft_trainer.
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
# The same of verl's SFT trainer.
SFT_COUNTS = (
    "data.train_batch_size",
    "data.micro_batch_size_per_gpu",
    "data.max_token_len_per_gpu",
    "data.max_length",
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
    "trainer.total_epochs",
)
SFT_TEXTS = ("model.path", "trainer.default_local_dir")
SFT_CHOICES = {
    "data.pad_mode": ("no_padding", "right"),
    "data.truncation": ("error", "left", "right"),
    "trainer.resume_mode": ("auto", "disable", "resume_path"),
}
EACH_EPOCH = "after_each_epoch"


def check_values(config: Any, defaults: Any) -> None:
    """Raise ValueError for the first value that cannot be what its setting means; names the setting.

    Args:
        config: composed and resolved.
        defaults: the same without the user's overrides; its values tell what a setting holds. A setting that verl
            leaves open (null), or that is open in `config`, may hold anything.
    """
    _check_counts(config, COUNTS)  # first: other settings repeat them
    _check_kinds(config, defaults, "")
    _check_texts(config, TEXTS)
    for name in ("data.train_files", "data.val_files"):
        _check_files(config, name)
    _check_samples(config)


def check_sft_values(config: Any, defaults: Any) -> None:
    """As check_values, for a config of verl.trainer.sft_trainer, where validation files may be left out (null)."""
    for name in ("trainer.save_freq", "trainer.test_freq"):
        value = _at(config, name)
        if value != EACH_EPOCH and (isinstance(value, bool) or not isinstance(value, int) or value == 0):
            raise ValueError(
                f"{name}={value!r}: give a whole number of steps, {EACH_EPOCH}, or -1 for never; verl divides by it."
            )
    _check_counts(config, SFT_COUNTS)
    if _at(config, "trainer.total_training_steps") is not None:
        _check_counts(config, ("trainer.total_training_steps",))
    _check_kinds(config, defaults, "", ("trainer.save_freq", "trainer.test_freq"))
    _check_texts(config, SFT_TEXTS)
    for name, allowed in SFT_CHOICES.items():
        if _at(config, name) not in allowed:
            raise ValueError(f"{name}={_at(config, name)!r}: choose one of {', '.join(allowed)}.")
    _check_files(config, "data.train_files")
    if _at(config, "data.val_files"):
        _check_files(config, "data.val_files")
    elif _at(config, "trainer.test_freq") != -1:
        raise ValueError(
            f"trainer.test_freq={_at(config, 'trainer.test_freq')} without data.val_files; name them, or set it to -1."
        )
    _check_samples(config)


def check_reward(config: Any, stand_in: str | None = None) -> None:
    """See that radverl's manager has a reward and a rule for failed samples, and try the reward on its gold report.

    Args:
        stand_in: annotator to try it with, where the one of its settings is not on this machine.
    """
    settings = config.reward.get("radverl") or {}
    if settings or config.reward.reward_manager.name == "radverl":
        stop_rule_from(config)
    name = settings.get("reward")
    if name:
        from radverl.verl_plugin.reward_manager import check_on_gold

        given = dict(settings.get("kwargs") or {})
        if stand_in and "annotator" in given:
            given |= {"annotator": stand_in, "annotator_settings": None}
        check_on_gold(name, given)
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


def _check_counts(config: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = _at(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number above 0, without quotes.")


def _check_texts(config: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = _at(config, name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name}={value!r}: give a name or a path.")


def _check_files(config: Any, name: str) -> None:
    files = _at(config, name)
    files = [files] if isinstance(files, str) or not files else files
    if isinstance(files, Mapping) or not isinstance(files, list) or not all(_is_path(file) for file in files):
        raise ValueError(f"{name}={_at(config, name)}: give the path of a Parquet file, or a list of them.")


def _check_samples(config: Any) -> None:
    if not isinstance(_at(config, "data.train_max_samples"), int):
        raise ValueError(
            f"data.train_max_samples={_at(config, 'data.train_max_samples')}: give a whole number; -1 takes all rows."
        )


def _check_kinds(value: Any, default: Any, name: str, free: tuple[str, ...] = ()) -> None:
    """Walk both; a truth value stays one, a number stays a finite or infinite number, a section stays a section."""
    if value is None or default is None or name in free:
        return
    if isinstance(default, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"{name}={value}: it is a section with settings of its own; set those.")
        for key in default:
            if key in value:
                _check_kinds(value[key], default[key], f"{name}.{key}" if name else str(key), free)
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
