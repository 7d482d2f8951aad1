"""Recipes refuse bad input with one sentence, and their dry run composes and validates the whole config."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def demo(*overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "recipes/demo_cpu.sh"), *overrides],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_dry_run_prints_the_resolved_config_and_starts_nothing(tmp_path: Path) -> None:
    run = demo("data.train_batch_size=16", DRY_RUN="1", OUT=str(tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "train_batch_size: 16" in run.stdout
    assert "reward: facts" in run.stdout
    assert "valid for the installed verl" in run.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("data.train_batch_sizes=3", "train_batch_sizes"),
        ("data.train_batch_size=7", "ppo_mini_batch_size"),
        ("reward.radverl.reward=fact", "choose one of facts"),
        ("actor_rollout_ref.actor.no_such_key=1", "no_such_key"),
        ("+reward.radverl.kwargs.judge=nobody", "nobody"),
        ("+reward.radverl.kwargs.beat=2", "beat"),
    ],
)
def test_dry_run_refuses_what_verl_would_refuse(override: str, says: str) -> None:
    run = demo(override, DRY_RUN="1")
    assert run.returncode == 2
    assert says in run.stderr


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"DATA": "no/such/folder"}, "no/such/folder"),
        ({"DATA": "{tmp}"}, "there is no file {tmp}/train.parquet"),
        ({"MODEL": "{tmp}"}, "config.json"),
        ({"MODEL": "no/such/model"}, "no/such/model"),
        ({"B": "abc"}, "B=abc is not a whole number"),
        ({"K": "0"}, "K=0 is not a whole number"),
        ({"RANKS": "0"}, "RANKS=0"),
        ({"RANKS": "3"}, "do not divide"),
        ({"LR": "fast"}, "LR=fast"),
        ({"SEED": "-1"}, "SEED=-1"),
        ({"PYTHON": "/nope"}, "PYTHON=/nope"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_starts(tmp_path: Path, environment: dict, says: str) -> None:
    filled = {key: value.format(tmp=tmp_path) for key, value in environment.items()}
    run = demo(**filled, OUT=str(tmp_path / "out"))
    assert run.returncode == 2
    assert says.format(tmp=tmp_path) in run.stderr
    assert "Traceback" not in run.stderr
    assert not list(tmp_path.rglob("rl"))


def test_paths_may_hold_what_hydra_gives_meaning_to(tmp_path: Path) -> None:
    run = demo(DRY_RUN="1", OUT=str(tmp_path / "lr=3e-4, it's here"))
    assert run.returncode == 0, run.stderr
    assert "lr=3e-4,it'shere/rl/checkpoints" in "".join(run.stdout.split()).replace("''", "'")  # YAML wraps and quotes


def test_relative_paths_are_the_callers(tmp_path: Path) -> None:
    run = subprocess.run(
        ["bash", str(ROOT / "recipes/demo_cpu.sh")],
        env={**os.environ, "DATA": "mine"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"there is no file {tmp_path}/mine" in run.stderr


def test_a_model_that_the_run_would_delete_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "out/rl/checkpoints/global_step_1/actor/huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    run = demo(MODEL=str(model), OUT=str(tmp_path / "out"))
    assert run.returncode == 2
    assert "set OUT to another folder" in run.stderr
    assert (model / "config.json").exists()


def test_warm_start_says_how_it_is_called() -> None:
    run = subprocess.run(["bash", str(ROOT / "recipes/warm_start_cpu.sh")], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "SFT_TRAIN.parquet OUT_DIR" in run.stderr
