"""The watchdog passes results through, names a dead actor within its grace, and leaves nothing behind."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from radverl import watchdog

# Stands for a training driver: an "actor" with Ray's kind of process title, a shared-memory segment, and a long wait.
DRIVER = textwrap.dedent("""
    import multiprocessing as mp, sys, time
    from multiprocessing import shared_memory
    from setproctitle import setproctitle

    def actor(title, seconds, name):
        setproctitle(title)
        segment = shared_memory.SharedMemory(name=name)
        time.sleep(seconds)

    if __name__ == "__main__":
        title, actor_seconds, own_seconds, name = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
        segment = shared_memory.SharedMemory(name=name, create=True, size=4096)
        mp.get_context("spawn").Process(target=actor, args=(title, actor_seconds, name)).start()
        print("driver waits", flush=True)
        time.sleep(own_seconds)
        import os
        os._exit(0)  # as a killed run: neither joins its actor nor unlinks its segment
""")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "driver.py"
    file.write_text(DRIVER)
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(watchdog, "MEMORY_SECONDS", 1.0)
    monkeypatch.setattr(watchdog, "SETTLED_SECONDS", 1.5)

    def run(title: str, actor_seconds: float, own_seconds: float) -> tuple[int, dict, str]:
        name = f"psm_watchdog_{os.getpid()}_{title[-4:].strip(': ')}"
        stats = tmp_path / "stats.json"
        command = [sys.executable, str(file), title, str(actor_seconds), str(own_seconds), name]
        code = watchdog.watch(command, stats)
        return code, json.loads(stats.read_text()), name

    return run


def assert_nothing_left(name: str) -> None:
    assert not Path("/dev/shm", name).exists()
    left = [p.cmdline() for p in psutil.process_iter() if name in " ".join(_cmdline(p))]
    assert left == []


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("code", "expected"), [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.abort()", 134)]
)
def test_exit_code_of_the_command_is_passed_on(code: str, expected: int) -> None:
    assert watchdog.watch([sys.executable, "-c", code]) == expected


def test_a_dead_actor_ends_the_run_and_is_named(driver, capfd) -> None:
    began = time.monotonic()
    code, stats, name = driver("ray::WorkerDict", 5.0, 300.0)
    assert code == 1
    assert time.monotonic() - began < 30
    assert stats["lost"] == "ray::WorkerDict"
    assert "ray::WorkerDict" in capfd.readouterr().err
    assert_nothing_left(name)


@pytest.mark.parametrize(
    ("title", "named"), [("ray::WorkerDict", True), ("ray::TaskRunnerV1.run", False), ("ray::SimpleStorageUnit", False)]
)
def test_who_died_before_a_run_failed_is_named_unless_the_error_took_it_along(
    title: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    monkeypatch.setattr(watchdog, "SETTLED_SECONDS", 0.5)
    file = tmp_path / "fails.py"
    file.write_text(
        "import os, sys, time\nfrom setproctitle import setproctitle\n"
        f"if os.fork() == 0:\n    setproctitle({title!r}); time.sleep(3); os._exit(0)\n"
        "os.wait(); time.sleep(5); sys.exit(1)\n"
    )
    assert watchdog.watch([sys.executable, str(file)]) == 1
    assert ("died before the run failed" in capfd.readouterr().err) is named


def test_a_run_that_ends_leaves_no_actor_and_no_segment(driver) -> None:
    code, stats, name = driver("VLLM::EngineCore", 300.0, 4.0)
    assert code == 0
    assert stats["lost"] is None
    assert stats["peak_rss_gb"] > 0
    assert_nothing_left(name)


def test_processes_that_may_come_and_go_are_let_go(driver) -> None:
    code, stats, name = driver("ray::IDLE", 1.0, 7.0)
    assert code == 0
    assert stats["lost"] is None
    assert_nothing_left(name)


def test_an_actor_that_dies_right_after_its_method_changed_is_missed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray renames the process at each call, so the title is young when a call kills it."""
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(watchdog, "SETTLED_SECONDS", 3.0)
    file = tmp_path / "methods.py"
    file.write_text(
        "import os, time\nfrom setproctitle import setproctitle\n"
        "if os.fork() == 0:\n"
        "    for n in range(5):\n        setproctitle(f'ray::WorkerDict.call_{n}'); time.sleep(1.2)\n"
        "    os._exit(1)\n"
        "os.wait(); time.sleep(60)\n"
    )
    stats = tmp_path / "stats.json"
    assert watchdog.watch([sys.executable, str(file)], stats) == 1
    assert json.loads(stats.read_text())["lost"].startswith("ray::WorkerDict")


def test_a_fork_that_still_carries_its_parents_title_may_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(watchdog, "SETTLED_SECONDS", 0.5)
    file = tmp_path / "forks.py"
    file.write_text(
        "import os, time\nfrom setproctitle import setproctitle\nsetproctitle('VLLM::Worker')\n"
        "if os.fork() == 0:\n    time.sleep(3); os._exit(0)\n"
        "os.wait(); time.sleep(5)\n"
    )
    stats = tmp_path / "stats.json"
    assert watchdog.watch([sys.executable, str(file)], stats) == 0
    assert json.loads(stats.read_text())["lost"] is None


def test_sigterm_to_the_watchdog_ends_everything(tmp_path: Path) -> None:
    file = tmp_path / "driver.py"
    file.write_text(DRIVER)
    name = f"psm_watchdog_term_{os.getpid()}"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "radverl.watchdog",
            "--",
            sys.executable,
            str(file),
            "ray::WorkerDict",
            "300",
            "300",
            name,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "driver waits\n"
    time.sleep(3)
    process.terminate()
    assert process.wait(timeout=30) == 128 + 15
    assert_nothing_left(name)


def test_segments_of_others_are_not_touched(driver) -> None:
    foreign = Path("/dev/shm", f"psm_foreign_{os.getpid()}")
    foreign.write_bytes(b"x")
    try:
        driver("ray::WorkerDict", 1.0, 2.0)
        assert foreign.exists()
    finally:
        foreign.unlink()


@pytest.mark.parametrize(
    ("title", "critical"),
    [
        ("ray::WorkerDict.actor_rollout_ref_update_actor", True),
        ("ray::vLLMHttpServer.launch_server", True),
        ("ray::TaskRunnerV1.run", True),
        ("ray::AgentLoopWorkerTQ", True),
        ("ray::SimpleStorageUnit", True),
        ("VLLM::Worker", True),
        ("/x/ray/core/src/ray/raylet/raylet --raylet_socket_name=/tmp", True),
        ("ray::IDLE", False),
        ("ray::DashboardAgent", False),
        ("python -m verl.trainer.main_ppo", False),
    ],
)
def test_which_processes_a_run_cannot_lose(title: str, critical: bool) -> None:
    assert bool(watchdog.CRITICAL.search(title)) is critical


def test_no_command_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as error:
        watchdog.main([])
    assert error.value.code == 2
