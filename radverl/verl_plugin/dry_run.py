"""DRY_RUN=1 of a recipe: composes its full config, prints it, and checks it, the data and the memory before a run does.

    python -m radverl.verl_plugin.dry_run key=value ...        (the arguments of verl.trainer.main_ppo)

config   hydra composition, every interpolation, verl's own validate_config, the trainer's name, the dataclasses of
         actor, reference, rollout and algorithm, the reward on its gold report, and what OraPO refuses
data     every file that is there: Parquet, columns, rows enough for a batch; up to ROWS_READ rows are read as
         `radverl data check` reads them. A file that is not there is named, and does not fail the dry run: a config can
         be checked on another machine than the data's
memory   an estimate per GPU (radverl.verl_plugin.memory) against GPU_MEMORY_GB; without that nothing is judged

On a machine that lacks them, SHAPES_OF names a model of the same shapes as the run's, and STAND_IN_ANNOTATOR what the
gated reward is tried with in place of its own annotator.
Exit code 0, or 2 with one sentence. Needs no GPU, no Ray cluster, no weights and no Megatron.
The twin for verl.trainer.sft_trainer is radverl.verl_plugin.dry_run_sft.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

from radverl.verl_plugin.config_values import check_micro_batches, check_reward, check_values
from radverl.verl_plugin.dry_run_parts import (
    Refused,
    compose_named,
    dry_run,
    enough_rows,
    files_of,
    gpu_size,
    judge,
    plain_values,
    read_file,
    refuse_missing,
    refuse_no_model,
    shapes_of,
)

__all__ = ["Refused", "check_data", "check_memory", "compose", "main", "validate"]
CONFIG = "ppo_trainer"
# What verl's engine workers rename before they build the dataclass of the reference policy.
REF_RENAMES = {
    "ppo_micro_batch_size": ("log_prob_micro_batch_size", None),
    "ppo_micro_batch_size_per_gpu": ("log_prob_micro_batch_size_per_gpu", None),
    "use_dynamic_bsz": ("log_prob_use_dynamic_bsz", False),
    "ppo_max_token_len_per_gpu": ("log_prob_max_token_len_per_gpu", None),
}


def compose(overrides: list[str]) -> Any:
    """The resolved config of `verl.trainer.main_ppo` with these overrides; raises what `compose_named` does."""
    return compose_named(CONFIG, overrides)


def validate(config: Any) -> list[str]:
    """Raise what verl, the reward or OraPO would raise on this config before they start anything; else what is to say.

    Raises:
        ValueError, AssertionError, TypeError, omegaconf errors: whatever the checks say.
    """
    from omegaconf import open_dict
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    # verl leaves the settings of an unused reward model open
    refuse_missing(config, "" if config.reward.reward_model.enable else "reward.reward_model.")
    validate_config(config, need_reference_policy(config), need_critic(config))
    get_trainer_cls(config.trainer.v1.trainer_mode)
    stand_in = os.environ.get("STAND_IN_ANNOTATOR") or None
    check_reward(config, stand_in)
    ref, algorithm = config.actor_rollout_ref.ref.copy(), config.algorithm.copy()
    with open_dict(ref), open_dict(algorithm):
        ref.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
        for new, (old, default) in REF_RENAMES.items():
            ref[new] = ref.pop(old, default)
        algorithm.pop("orapo", None)  # verl itself never turns the section into a dataclass, so it may hold ours
    for section in (config.actor_rollout_ref.actor, ref, config.actor_rollout_ref.rollout, algorithm):
        omega_conf_to_dataclass(section)
    refuse_no_model("actor_rollout_ref.model.path", config.actor_rollout_ref.model.path)
    rows = 1
    mode, given = str(config.trainer.v1.trainer_mode), config.algorithm.get("orapo")
    if mode.startswith("orapo"):
        from radverl.verl_plugin.orapo.settings import settings_from

        if not config.trainer.use_v1:
            raise Refused("trainer.use_v1=False is verl's old trainer, which knows no OraPO; set it to True.")
        rows += config.actor_rollout_ref.rollout.n if settings_from(config).mode == "group" else 0
    elif given:
        raise Refused(
            f"trainer.v1.trainer_mode={mode} does not read +algorithm.orapo.{next(iter(given), '')}; set it to "
            f"orapo_sync or orapo_colocate_async, or leave the settings of OraPO out (~algorithm.orapo)."
        )
    check_micro_batches(config, rows)
    if stand_in:
        return [f"reward: tried with the annotator {stand_in}; the run's own is not on this machine."]
    return []


def check_data(config: Any) -> list[str]:
    """What was found in the files of the config, a line each.

    Raises:
        Refused: a file that is there and cannot be trained on.
    """
    orapo = str(config.trainer.v1.trainer_mode).startswith("orapo")
    lines, training, complete = [], 0, True
    for split in ("train", "val"):
        for path in files_of(config.data[f"{split}_files"]):
            rows, found = read_file(path, "rl")
            if rows is not None and orapo and split == "train":
                _check_oracle(path)
            lines += found
            if rows is not None:
                lines += _check_films(config, path)
            if split == "train":
                training, complete = training + (rows or 0), complete and rows is not None
    return lines + enough_rows(config, training, complete)


def check_memory(config: Any, gpu_memory_gb: str | None) -> str:
    """The estimate as text, or why there is none.

    Raises:
        Refused: the run does not fit in GPU_MEMORY_GB, or that is no number.
    """
    from radverl.verl_plugin import memory

    gpu_gb = gpu_size(config, gpu_memory_gb)
    if isinstance(gpu_gb, str):
        return gpu_gb
    try:
        shapes = shapes_of(config.actor_rollout_ref.model.path)
        phases = memory.estimate(config, shapes, gpu_gb)
    except memory.NotEstimated as reason:
        return f"memory: not estimated: {reason}."
    megatron = config.actor_rollout_ref.actor.strategy == "megatron"
    return judge(phases, gpu_gb, None if megatron else memory.host_bytes(config, shapes) / memory.GB)


def main(argv: list[str] | None = None) -> int:
    """Print the config and what was checked; 0 valid, 2 not."""
    overrides = sys.argv[1:] if argv is None else argv
    if overrides in (["--help"], ["-h"]):
        print(__doc__)
        return 0

    def checks(config: Any) -> Iterator[str]:
        from omegaconf import OmegaConf

        check_values(OmegaConf.to_container(config), plain_values(CONFIG, overrides, ("model_engine",)))
        yield from validate(config)
        yield "\n".join(check_data(config))
        yield check_memory(config, os.environ.get("GPU_MEMORY_GB"))

    return dry_run(overrides, CONFIG, checks)


def _check_films(config: Any, path: str) -> list[str]:
    from radverl.verl_plugin.film_tokens import largest_films

    limit = config.data.max_prompt_length
    found = largest_films(path, config.actor_rollout_ref.model.path, limit)
    if found is None or not found[0]:
        return []
    large, total, most = found
    text = f"{path}: {large} of {total} films need more than data.max_prompt_length={limit} tokens (up to {most})"
    if large == total:
        raise Refused(f"{text}, so no row would be left; make the data with --max-pixels.")
    return [f"data: {text}; verl leaves them out."]


def _check_oracle(path: str) -> None:
    """Refuse a training file without a true report and a prompt id of its own in every row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from radverl.verl_plugin.orapo.rows import check_dataset

    try:
        there = pq.read_schema(path).names
        columns = [name for name in ("data_source", "extra_info", "reward_model") if there.count(name) == 1]
        check_dataset(pq.read_table(path, columns=columns).to_pylist())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Refused(f"{path}: {' '.join(str(error).split())}") from error


if __name__ == "__main__":
    sys.exit(main())
