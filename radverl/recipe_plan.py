"""How many reports a recipe will have judged, read from the config that its dry run prints."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCKS = ("data", "actor_rollout_ref", "trainer")
MINUTES = 5


@dataclass(frozen=True)
class RecipePlan:
    """Of one run: the files of its rows, prompts a step, rollouts a prompt, and when it ends and validates.

    steps: None where it runs for `epochs` over its rows.
    """

    train_files: list[str]
    val_files: list[str]
    batch: int
    rollouts: int
    epochs: int
    steps: int | None
    test_freq: int
    val_before_train: bool

    def total_steps(self, rows: int) -> int:
        """Steps over so many training rows; verl leaves out a last batch that is not full."""
        return self.steps or rows // self.batch * self.epochs

    def validations(self, rows: int) -> int:
        """How often the validation rows are judged: before training, every `test_freq` steps and after the last."""
        if self.test_freq <= 0:
            return int(self.val_before_train)
        return self.val_before_train + -(-self.total_steps(rows) // self.test_freq)


def plan_of_recipe(script: str, overrides: tuple[str, ...] = ()) -> RecipePlan:
    """Run `DRY_RUN=1 bash SCRIPT OVERRIDES...` and read the config it resolves.

    Raises:
        ValueError: there is no such script, or it prints no config.
    """
    if not Path(script).is_file() or not script.endswith(".sh"):  # it will be run
        raise ValueError(f"{script} is no script; name one of recipes/*.sh.")
    try:
        done = subprocess.run(
            ["bash", script, *overrides], env=os.environ | {"DRY_RUN": "1"}, capture_output=True, text=True,
            check=False, timeout=60 * MINUTES,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"{script}: its dry run takes longer than {MINUTES} minutes; pass --data or --prompts."
        ) from None
    try:
        return read_plan(done.stdout)
    except (ValueError, KeyError, TypeError) as error:
        tail = " ".join((done.stderr or done.stdout).strip().splitlines()[-1:])
        raise ValueError(
            f"{script}: its dry run prints no config that can be read ({error!r}; {tail[:200]})."
        ) from error


def read_plan(printed: str) -> RecipePlan:
    """The plan in the text of a dry run.

    Raises:
        ValueError, KeyError, TypeError: a part of the config is missing.
    """
    config = _blocks(printed)
    data, trainer = config["data"], config["trainer"]
    steps = trainer.get("total_training_steps")
    return RecipePlan(
        train_files=_files(data["train_files"]),
        val_files=_files(data["val_files"]),
        batch=int(data["train_batch_size"]),
        rollouts=int(config["actor_rollout_ref"]["rollout"]["n"]),
        epochs=int(trainer["total_epochs"]),
        steps=int(steps) if steps else None,
        test_freq=int(trainer.get("test_freq") or -1),
        val_before_train=bool(trainer.get("val_before_train", True)),
    )


def _blocks(printed: str) -> dict[str, Any]:
    import yaml

    out: dict[str, Any] = {}
    lines = printed.splitlines()
    for number, line in enumerate(lines):
        name = line.removesuffix(":")
        if line.endswith(":") and name in BLOCKS:
            end = next((n for n in range(number + 1, len(lines)) if lines[n][:1] not in (" ", "-")), len(lines))
            try:
                out[name] = yaml.safe_load("\n".join(lines[number:end]))[name]
            except yaml.YAMLError as error:
                raise ValueError(f"the block {name} is no YAML ({error})") from error
    return out


def _files(value: Any) -> list[str]:
    return [str(file) for file in (value if isinstance(value, list) else [value])]
