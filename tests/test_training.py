"""The main job for real but small, on stock verl, Ray, vLLM and FSDP2; and a killed worker ends the run."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[1]
SMALL = {"N_TRAIN": "64", "N_TEST": "16", "WARM_STEPS": "10", "B": "4", "K": "4", "LR": "1e-2"}


def recipe(out: Path, *overrides: str, **environment: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, **SMALL, "OUT": str(out), **environment}
    command = ["bash", str(ROOT / "recipes/demo_cpu.sh"), *overrides]
    log = (out.parent / f"{out.name}.out").open("wb")
    return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def printed(out: Path) -> str:
    return (out.parent / f"{out.name}.out").read_text(errors="replace")


def records(out: Path) -> list[dict]:
    file = out / "rl/metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("training") / "demo"
    process = recipe(out, STEPS="3")
    assert process.wait(timeout=850) == 0, printed(out)[-3000:]
    return out


def test_summary_and_pictures_are_there(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 3
    assert summary["studies"] == 16
    assert summary["facts_failed"] == 0
    for key in ("facts_before", "facts_after", "macro_f1_before", "macro_f1_after", "macro_f1_blind", "zrr_first"):
        assert 0 <= summary[key] <= 1
    assert summary["peak_rss_gb"] > 1
    assert summary["seconds_total"] > summary["seconds_per_step"] > 0
    for name in ("curves.png", "samples.png"):
        assert (run / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "macro F1, 14 labels" in printed(run)


def test_vllm_gets_the_trained_weights_at_every_step(run: Path) -> None:
    """At lr 1e-2 a stale vLLM would differ from the actor at the second step by far more than rounding."""
    steps = [record["data"] for record in records(run)]
    assert len(steps) == 3
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    assert all(step["training/rollout_probs_diff_max"] < 1e-2 for step in steps)
    assert all(step["training/rollout_probs_diff_mean"] < 1e-3 for step in steps)


def test_training_changed_the_weights(run: Path) -> None:
    from safetensors.torch import load_file

    before = load_file(run / "warm_start/model/model.safetensors")
    after = load_file(run / "rl/checkpoints/global_step_3/actor/huggingface/model.safetensors")
    assert before.keys() == after.keys()
    moved = [name for name in before if (before[name] - after[name]).abs().max() > 1e-4]
    assert len(moved) > len(before) / 2
    assert any("visual" in name for name in moved)


def test_every_rollout_has_its_reward(run: Path) -> None:
    rollouts = [json.loads(line) for line in (run / "rl/rollouts/1.jsonl").read_text().splitlines()]
    assert len(rollouts) == 16
    from radverl.rewards.facts import compute_score

    for rollout in rollouts:
        assert rollout["score"] == pytest.approx(compute_score("", rollout["output"], rollout["gts"])["score"])


def test_a_killed_vllm_worker_ends_the_run(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    model = run / "warm_start/model"
    segments = set(os.listdir("/dev/shm"))
    process = recipe(out, DATA=str(run / "data"), MODEL=str(model), STEPS="500")
    deadline = time.monotonic() + 400
    while not records(out):  # until the first step is done
        assert process.poll() is None, printed(out)[-3000:]
        assert time.monotonic() < deadline, printed(out)[-3000:]
        time.sleep(1)
    family = psutil.Process(process.pid).children(recursive=True)
    workers = [p for p in family if any("VLLM::Worker" in part for part in p.cmdline())]
    assert workers, [p.cmdline() for p in family]
    workers[0].send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    code = process.wait(timeout=120)
    assert time.monotonic() - killed_at < 60
    assert code != 0
    assert "radverl watchdog: VLLM::" in printed(out) or "EngineDead" in (out / "rl.log").read_text(errors="replace")
    left = [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert left == []
    assert set(os.listdir("/dev/shm")) <= segments
