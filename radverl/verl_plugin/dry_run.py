"""DRY_RUN=1 of a recipe: composes its full config, prints it, and checks it, the data and the memory before a run does.

    python -m radverl.verl_plugin.dry_run key=value ...        (the arguments of verl.trainer.main_ppo)

config   hydra composition, every interpolation, verl's own validate_config, the trainer's name, the dataclasses of
         actor, reference, rollout and algorithm, the reward on its gold report, and what OraPO refuses
data     every file that is there: Parquet, columns, rows enough for a batch; up to ROWS_READ rows are read as
         `radverl data check` reads them. A file that is not there is named, and does not fail the dry run: a config can
         be checked on another machine than the data's
memory   an estimate per GPU (radverl.verl_plugin.memory) against GPU_MEMORY_GB; without that nothing is judged

Exit code 0, or 2 with one sentence. Needs no GPU, no Ray cluster, no weights and no Megatron.
"""

import os
import sys
from typing import Any

from radverl.verl_plugin.config_values import check_micro_batches, check_reward, check_values

# What verl's engine workers rename before they build the dataclass of the reference policy.
REF_RENAMES = {
    "ppo_micro_batch_size": ("log_prob_micro_batch_size", None),
    "ppo_micro_batch_size_per_gpu": ("log_prob_micro_batch_size_per_gpu", None),
    "use_dynamic_bsz": ("log_prob_use_dynamic_bsz", False),
    "ppo_max_token_len_per_gpu": ("log_prob_max_token_len_per_gpu", None),
}
BARE = (AssertionError, TypeError, ArithmeticError, AttributeError, LookupError)  # often without a word of their own
ROWS_READ = 2000  # ours: every image is opened, and a dry run should stay short


class Refused(ValueError):
    """Something a run would fail at, in one sentence."""


def compose(overrides: list[str]) -> Any:
    """The resolved config of `verl.trainer.main_ppo` with these overrides.

    Raises:
        Refused: an override that hydra cannot read.
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: unknown key, bad value.
    """
    import hydra
    import hydra.errors
    from omegaconf import OmegaConf

    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        try:
            config = hydra.compose("ppo_trainer", overrides=overrides)
        except hydra.errors.OverrideParseException as error:
            hint = "write it as name=value, and quote a value with spaces, commas or brackets for hydra too"
            raise Refused(f"hydra cannot read the override {error.override!r}; {hint}: \"name='a value'\".") from error
    OmegaConf.resolve(config)
    return config


def validate(config: Any) -> None:
    """Raise what verl, the reward or OraPO would raise on this config before they start anything.

    Raises:
        ValueError, AssertionError, TypeError, omegaconf errors: whatever the checks say.
    """
    from omegaconf import OmegaConf, open_dict
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    missing = sorted(OmegaConf.missing_keys(config))
    if not config.reward.reward_model.enable:  # verl leaves the settings of an unused reward model open
        missing = [key for key in missing if not key.startswith("reward.reward_model.")]
    if missing:
        raise ValueError(f"these settings have no value: {', '.join(missing)}")
    validate_config(config, need_reference_policy(config), need_critic(config))
    get_trainer_cls(config.trainer.v1.trainer_mode)
    check_reward(config)
    ref, algorithm = config.actor_rollout_ref.ref.copy(), config.algorithm.copy()
    with open_dict(ref), open_dict(algorithm):
        ref.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
        for new, (old, default) in REF_RENAMES.items():
            ref[new] = ref.pop(old, default)
        algorithm.pop("orapo", None)  # verl itself never turns the section into a dataclass, so it may hold ours
    for section in (config.actor_rollout_ref.actor, ref, config.actor_rollout_ref.rollout, algorithm):
        omega_conf_to_dataclass(section)
    model = os.path.expanduser(config.actor_rollout_ref.model.path)
    if os.path.isdir(model) and not os.path.isfile(os.path.join(model, "config.json")):
        raise Refused(f"actor_rollout_ref.model.path={model} is a folder without config.json; name a model's folder.")
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


def check_data(config: Any) -> list[str]:
    """What was found in the files of the config, a line each.

    Raises:
        Refused: a file that is there and cannot be trained on.
    """
    from radverl.datacheck import DataFileError, check_parquet

    orapo = str(config.trainer.v1.trainer_mode).startswith("orapo")
    lines, rows, absent = [], {"train": 0, "val": 0}, False
    for split in rows:
        files = config.data[f"{split}_files"] or []
        for file in [files] if isinstance(files, str) else list(files):
            path = os.path.expanduser(str(file))
            if not os.path.exists(path):
                absent = absent or split == "train"
                lines.append(f"data: {path} is not there, so it was not checked.")
                continue
            if not os.path.isfile(path):
                raise Refused(f"{path} is no file; name a Parquet file.")
            if not path.endswith(".parquet"):
                raise Refused(
                    f"{path} is not named .parquet; verl reads .parquet and .json, and radverl writes Parquet."
                )
            try:
                rows_here = _rows(path)
                found = check_parquet(path) if rows_here <= ROWS_READ else None
            except DataFileError as error:
                raise Refused(str(error)) from error
            if found is not None and found.errors:
                more = f" and {len(found.errors) - 1} more" if len(found.errors) > 1 else ""
                raise Refused(f"{path}: {found.errors[0]}{more}; run radverl data check on it.")
            if orapo and split == "train":
                _check_oracle(path)
            rows[split] += rows_here
            note = "" if found is not None else f"; more than {ROWS_READ}, run radverl data check to read them all"
            lines.append(f"data: {path} has {rows_here} rows{note}.")
            lines += _check_films(config, path)
    most = config.data.train_max_samples
    usable = min(rows["train"], most) if most > 0 else rows["train"]
    if not absent and rows["train"] < most:
        lines.append(f"data: data.train_max_samples asks for {most} rows, there are {rows['train']}: all are used.")
    if not absent and usable < config.data.train_batch_size:
        raise Refused(
            f"the training files give {usable} rows but a batch takes data.train_batch_size="
            f"{config.data.train_batch_size}; lower it or make more rows."
        )
    return lines


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


def check_memory(config: Any, gpu_memory_gb: str | None) -> str:
    """The estimate as text, or why there is none.

    Raises:
        Refused: the run does not fit in GPU_MEMORY_GB, or that is no number.
    """
    from radverl.verl_plugin import memory

    if not gpu_memory_gb:
        return "memory: not judged; set GPU_MEMORY_GB to the size of a GPU."
    try:
        gpu_gb = float(gpu_memory_gb)
    except ValueError:
        gpu_gb = 0.0
    if not 1 <= gpu_gb <= 10_000:
        raise Refused(f"GPU_MEMORY_GB={gpu_memory_gb} is not the size of a GPU in GB; give a number such as 24.")
    if config.trainer.device != "cuda":
        return f"memory: not judged for trainer.device={config.trainer.device}."
    try:
        shapes = memory.read_architecture(config.actor_rollout_ref.model.path)
        phases = memory.estimate(config, shapes, gpu_gb)
    except memory.NotEstimated as reason:
        return f"memory: not estimated: {reason}."
    text = memory.report(phases, gpu_gb)
    sentence = memory.refusal(phases, gpu_gb)
    if sentence:
        print(text)
        raise Refused(sentence)
    if config.actor_rollout_ref.actor.strategy != "megatron":
        host = memory.host_bytes(config, shapes) / memory.GB
        text += f"\n  a node needs about {host:.0f} GB of host memory for weights and optimizer, beside data and Ray"
    return text


def main(argv: list[str] | None = None) -> int:
    """Print the config and what was checked; 0 valid, 2 not."""
    overrides = sys.argv[1:] if argv is None else argv
    if overrides in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = compose(overrides)
        print(OmegaConf.to_yaml(config))
        plain = compose([override for override in overrides if override.startswith("model_engine=")])
        check_values(OmegaConf.to_container(config), OmegaConf.to_container(plain))
        validate(config)
        print("\n".join(check_data(config)))
        print(check_memory(config, os.environ.get("GPU_MEMORY_GB")))
    except Refused as reason:
        print(f"dry run: {reason}", file=sys.stderr)
        return 2
    except (HydraException, OmegaConfBaseException, ValueError, *BARE) as error:
        # verl's own checks raise these; of a bare type error only the place says which setting is meant.
        text = " ".join(str(error).split())
        where = f" ({type(error).__name__} in {_place(error)})" if isinstance(error, BARE) or not text else ""
        print(f"dry run: not a valid verl config: {text}{where}", file=sys.stderr)
        return 2
    print("dry run: valid for the installed verl; nothing was started.")
    return 0


def _rows(path: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from radverl.datacheck import DataFileError

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataFileError(f"{path}: is not a readable Parquet file ({reason}).") from error


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


def _place(error: BaseException) -> str:
    """The source line that raised, e.g. "total = a * b"."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.name}: {frame.line}"


if __name__ == "__main__":
    sys.exit(main())
