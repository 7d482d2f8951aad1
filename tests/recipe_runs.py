"""Recipes for GPUs as tests run them: the script itself, what it hands to verl, and the config that comes of it."""

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def recipe(name: str, *overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run recipes/NAME.sh from the repository's root."""
    return subprocess.run(
        ["bash", str(ROOT / f"recipes/{name}.sh"), *overrides],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def arguments_of(name: str, *overrides: str, **environment: str) -> list[str]:
    """What the recipe hands to the dry run, as it would to verl: PYTHON is a program that prints its arguments."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "print_arguments")
        program.write_text("#!/bin/sh\nshift 2\nprintf '%s\\n' \"$@\"\n")
        program.chmod(0o755)
        run = recipe(name, *overrides, **{"PYTHON": str(program), "DRY_RUN": "1", "OUT": "/out", **environment})
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def settings_of(overrides: list[str], config: str = "ppo_trainer") -> dict[str, Any]:
    """The composed config as dotted key -> value."""
    return _settings_of(tuple(overrides), config)


def values_of(overrides: list[str]) -> dict[str, Any]:
    """What hydra's grammar reads in the overrides, name -> value, without composing them."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return {read.key_or_group: read.value() for read in OverridesParser.create().parse_overrides(overrides)}


@cache
def _settings_of(overrides: tuple[str, ...], config: str) -> dict[str, Any]:
    from omegaconf import OmegaConf

    from radverl.verl_plugin.dry_run_parts import compose_named

    found: dict[str, Any] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{name}.{key}" if name else key)
        else:
            found[name] = value

    walk(OmegaConf.to_container(compose_named(config, list(overrides))), "")
    return found
