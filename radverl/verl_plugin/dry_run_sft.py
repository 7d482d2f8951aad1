"""DRY_RUN=1 of a recipe for supervised training: the twin of dry_run.py for verl's SFT trainer.

    python -m radverl.verl_plugin.dry_run_sft key=value ...        (the arguments of verl.trainer.sft_trainer)

config   hydra composition, values, the dataclasses of engine, optimizer, checkpoint, profiler (of the model only names,
         for building it loads it), and batches that do not divide among GPUs or micro-batches, which verl rounds down
         or meets in the first step
data     every file that is there, as SFT rows; enough of them for a batch; in the file of the same rows for RL beside
         it, films that alone are longer than a row may be
memory   an estimate per GPU against GPU_MEMORY_GB (radverl.verl_plugin.memory)

torchrun decides how many processes there are; where GPUS is set, the config must say the same. SHAPES_OF as in
dry_run.py. Exit code 0, or 2 with one sentence. Needs no GPU and no weights.
"""

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from radverl.verl_plugin.config_values import check_sft_values
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

CONFIG = "sft_trainer_engine"


def compose(overrides: list[str]) -> Any:
    """The resolved config of `verl.trainer.sft_trainer` with these overrides; raises what `compose_named` does."""
    return compose_named(CONFIG, overrides)


def validate(config: Any) -> None:
    """Raise what verl would raise on this config, or quietly change in it.

    Raises:
        ValueError, AssertionError, TypeError, omegaconf errors: whatever the checks say.
    """
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import HFModelConfig

    refuse_missing(config)
    for name in ("engine", "optim", "checkpoint", "profiler"):
        omega_conf_to_dataclass(config[name])
    known = {field.name for field in dataclasses.fields(HFModelConfig)} | {"_target_"}
    unknown = sorted(set(config.model) - known)
    if unknown:
        raise Refused(f"model.{unknown[0]} is no setting of verl's HFModelConfig; remove it or correct its name.")
    refuse_no_model("model.path", config.model.path)
    interval = list(config.trainer.profile_interval)
    if len(interval) != 2:
        raise Refused(f"trainer.profile_interval={interval}: give two steps, [-1,-1] for none.")
    _check_batches(config)


def check_data(config: Any) -> list[str]:
    """What was found in the files of the config, a line each.

    Raises:
        Refused: a file that is there and cannot be trained on.
    """
    lines: list[str] = []
    rows, complete = {"train": 0, "val": 0}, {"train": True, "val": True}
    for split in rows:
        for path in files_of(config.data[f"{split}_files"]):
            here, found = read_file(path, "sft")
            lines += found
            if here is None:
                complete[split] = False
                continue
            rows[split] += here
            lines += _check_films(config, path)
    batch, most = config.data.train_batch_size, config.data.val_max_samples
    validated = min(rows["val"], most) if most > 0 else rows["val"]
    if files_of(config.data.val_files) and complete["val"] and validated < batch:
        raise Refused(
            f"the validation files give {validated} rows, less than data.train_batch_size={batch}: verl leaves out a "
            "batch that is not full and would have no loss; make more rows, or set data.val_files=null."
        )
    return lines + enough_rows(config, rows["train"], complete["train"])


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
        shapes = shapes_of(config.model.path)
        phases = memory.estimate_supervised(config, shapes, gpu_gb)
    except memory.NotEstimated as reason:
        return f"memory: not estimated: {reason}."
    per_weight = memory.host_bytes_per_weight(config.engine, config.trainer.n_gpus_per_node, shapes.tied)
    return judge(phases, gpu_gb, shapes.parameters * per_weight / config.trainer.nnodes / memory.GB)


def main(argv: list[str] | None = None) -> int:
    """Print the config and what was checked; 0 valid, 2 not."""
    overrides = sys.argv[1:] if argv is None else argv
    if overrides in (["--help"], ["-h"]):
        print(__doc__)
        return 0

    def checks(config: Any) -> Iterator[str]:
        from omegaconf import OmegaConf

        check_sft_values(OmegaConf.to_container(config), plain_values(CONFIG, overrides, ("engine", "optim")))
        validate(config)
        yield "\n".join(check_data(config))
        yield check_memory(config, os.environ.get("GPU_MEMORY_GB"))

    return dry_run(overrides, CONFIG, checks)


def _check_batches(config: Any) -> None:
    data, gpus = config.data, config.trainer.n_gpus_per_node * config.trainer.nnodes
    started = os.environ.get("GPUS")
    if started and started != str(gpus):
        raise Refused(
            f"torchrun starts GPUS={started} processes but trainer.n_gpus_per_node x nnodes is {gpus}; set GPUS."
        )
    together = config.engine.get("ulysses_sequence_parallel_size", 1)
    if together < 1 or gpus % together:
        raise Refused(f"engine.ulysses_sequence_parallel_size={together} does not divide {gpus} GPUs; change it.")
    groups = gpus // together
    if data.train_batch_size % groups:
        raise Refused(
            f"data.train_batch_size={data.train_batch_size} does not divide among {groups} groups of GPUs, and verl "
            "would train on less without a word; change it."
        )
    rows = data.train_batch_size // groups
    if data.use_dynamic_bsz:
        limit = data.max_token_len_per_gpu * together
        if limit < data.max_length:
            raise Refused(
                f"data.max_token_len_per_gpu={data.max_token_len_per_gpu} is less than a row of data.max_length="
                f"{data.max_length} tokens; raise it."
            )
    elif rows % data.micro_batch_size_per_gpu:
        raise Refused(
            f"data.micro_batch_size_per_gpu={data.micro_batch_size_per_gpu} does not divide the {rows} rows that a GPU "
            f"has of data.train_batch_size={data.train_batch_size}; change it."
        )


def _check_films(config: Any, path: str) -> list[str]:
    """Films that fill a row: SFT rows carry no size, the RL rows that `radverl data` writes beside them do."""
    from radverl.verl_plugin.film_tokens import largest_films

    twin = Path(path).with_name(Path(path).name.removeprefix("sft_"))
    if not Path(path).name.startswith("sft_") or not twin.is_file():
        return []
    found = largest_films(str(twin), config.model.path, config.data.max_length)
    if found is None or not found[0]:
        return []
    large, total, most = found
    raise Refused(
        f"{path}: {large} of {total} films need more than data.max_length={config.data.max_length} tokens (up to "
        f"{most}), and verl would stop at the first; make the data with --max-pixels."
    )


if __name__ == "__main__":
    sys.exit(main())
