"""What the dry runs of RL (dry_run.py) and of supervised training (dry_run_sft.py) share."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

BARE = (AssertionError, TypeError, ArithmeticError, AttributeError, LookupError)  # often without a word of their own
ROWS_READ = 2000  # ours: every image is opened, and a dry run should stay short


class Refused(ValueError):
    """Something a run would fail at, in one sentence."""


def compose_named(name: str, overrides: list[str]) -> Any:
    """The resolved config `name` of verl.trainer.config with these overrides.

    Raises:
        Refused: an override that hydra cannot read.
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: unknown key, bad value.
    """
    import hydra
    import hydra.errors
    from omegaconf import OmegaConf

    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        try:
            config = hydra.compose(name, overrides=overrides)
        except hydra.errors.OverrideParseException as error:
            hint = "write it as name=value, and quote a value with spaces, commas or brackets for hydra too"
            raise Refused(f"hydra cannot read the override {error.override!r}; {hint}: \"name='a value'\".") from error
    OmegaConf.resolve(config)
    return config


def plain_values(name: str, overrides: list[str], groups: tuple[str, ...]) -> dict[str, Any]:
    """The values of the config `name` without these overrides, but for those that choose one of `groups`."""
    return _plain_values(name, tuple(override for override in overrides if override.split("=")[0] in groups))


@cache
def _plain_values(name: str, chosen: tuple[str, ...]) -> dict[str, Any]:
    from omegaconf import OmegaConf

    values: dict[str, Any] = OmegaConf.to_container(compose_named(name, list(chosen)))  # type: ignore[assignment]
    return values


def dry_run(overrides: list[str], name: str, check: Callable[[Any], Iterator[str]]) -> int:
    """Print the config `name` and then what `check` finds, a piece of text at a time; 0 valid, 2 not."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = compose_named(name, overrides)
        print(OmegaConf.to_yaml(config))
        for text in check(config):
            print(text)
    except Refused as reason:
        print(f"dry run: {reason}", file=sys.stderr)
        return 2
    except (HydraException, OmegaConfBaseException, ValueError, *BARE) as error:
        # verl's own checks raise these; of a bare type error only the place says which setting is meant.
        text, first = " ".join(str(error).split()), _first(error)
        where = f" ({type(first).__name__} in {_place(first)})" if _wordless(first, error) or not text else ""
        print(f"dry run: not a valid verl config: {text}{where}", file=sys.stderr)
        return 2
    print("dry run: valid for the installed verl; nothing was started.")
    return 0


def refuse_missing(config: Any, unused: str = "") -> None:
    """Raise ValueError for settings without a value, but for those whose name starts with `unused`."""
    from omegaconf import OmegaConf

    missing = sorted(OmegaConf.missing_keys(config))
    if unused:
        missing = [key for key in missing if not key.startswith(unused)]
    if missing:
        raise ValueError(f"these settings have no value: {', '.join(missing)}")


def refuse_no_model(name: str, path: str) -> None:
    """Raise Refused for a folder that is there and holds no model."""
    folder = os.path.expanduser(path)
    if os.path.isdir(folder) and not os.path.isfile(os.path.join(folder, "config.json")):
        raise Refused(f"{name}={folder} is a folder without config.json; name a model's folder.")


def files_of(value: Any) -> list[str]:
    """The files of a setting that holds one path, a list of them, or nothing."""
    value = value or []
    return [os.path.expanduser(str(file)) for file in ([value] if isinstance(value, str) else list(value))]


def read_file(path: str, role: str) -> tuple[int | None, list[str]]:
    """Rows of a data file (None where it is not there), and what was found, a line each; short files are read whole.

    Raises:
        Refused: it is there and cannot be trained on.
    """
    from radverl.datacheck import DataFileError, check_parquet

    if not os.path.exists(path):
        return None, [f"data: {path} is not there, so it was not checked."]
    if not os.path.isfile(path):
        raise Refused(f"{path} is no file; name a Parquet file.")
    if not path.endswith(".parquet"):
        raise Refused(f"{path} is not named .parquet; verl reads .parquet and .json, and radverl writes Parquet.")
    try:
        rows = _rows(path)
        found = check_parquet(path, role=role) if rows <= ROWS_READ else None
    except DataFileError as error:
        raise Refused(str(error)) from error
    if found is not None and found.errors:
        more = f" and {len(found.errors) - 1} more" if len(found.errors) > 1 else ""
        raise Refused(f"{path}: {found.errors[0]}{more}; run radverl data check on it.")
    note = "" if found is not None else f"; more than {ROWS_READ}, run radverl data check to read them all"
    return rows, [f"data: {path} has {rows} rows{note}."]


def enough_rows(config: Any, rows: int, complete: bool) -> list[str]:
    """What is to say of the number of training rows, where all files are there (`complete`).

    Raises:
        Refused: fewer than a batch takes.
    """
    most = config.data.train_max_samples
    usable = min(rows, most) if most > 0 else rows
    if complete and usable < config.data.train_batch_size:
        raise Refused(
            f"the training files give {usable} rows but a batch takes data.train_batch_size="
            f"{config.data.train_batch_size}; lower it or make more rows."
        )
    if complete and rows < most:
        return [f"data: data.train_max_samples asks for {most} rows, there are {rows}: all are used."]
    return []


def gpu_size(config: Any, gpu_memory_gb: str | None) -> float | str:
    """The size as a number, or the sentence why no memory is judged.

    Raises:
        Refused: it is no number.
    """
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
    return gpu_gb


def shapes_of(model: str) -> Any:
    """The model's shapes; where its folder is not there yet, those of SHAPES_OF in the environment.

    Raises:
        radverl.verl_plugin.memory.NotEstimated: neither is known.
    """
    from radverl.verl_plugin.memory import read_architecture

    stand_in = os.environ.get("SHAPES_OF")
    there = os.path.exists(os.path.join(os.path.expanduser(model), "config.json"))
    return read_architecture(model if there or not stand_in else stand_in)


def judge(phases: Any, gpu_gb: float, host_gb: float | None) -> str:
    """The estimate as text.

    Raises:
        Refused: a phase does not fit; the estimate is printed before.
    """
    from radverl.verl_plugin import memory

    text = memory.report(phases, gpu_gb)
    sentence = memory.refusal(phases, gpu_gb)
    if sentence:
        print(text)
        raise Refused(sentence)
    if host_gb is not None:
        text += f"\n  a node needs about {host_gb:.0f} GB of host memory for weights and optimizer, beside data and Ray"
    return text


def _rows(path: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from radverl.datacheck import DataFileError

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataFileError(f"{path}: is not a readable Parquet file ({reason}).") from error


def _first(error: BaseException) -> BaseException:
    """What was raised first: hydra wraps what a dataclass says."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _wordless(first: BaseException, error: BaseException) -> bool:
    return isinstance(first, BARE) and (first is error or not str(first))


def _place(error: BaseException) -> str:
    """The source line that raised, e.g. "total = a * b"."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.name}: {frame.line}"
