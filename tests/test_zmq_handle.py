"""Two runs on one machine name their weight sockets differently, and both ends of one run name theirs alike."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from radverl.verl_plugin.zmq_handle import RUN_TAG, install_sender, tagged

STOCK = "ipc:///tmp/rl-colocate-zmq-01000000-replica-0-rank-0.sock"  # Ray numbers the jobs of each cluster from 1


class TrainersEnd:
    def __init__(self, rank: int) -> None:
        self.zmq_handle = STOCK.replace("rank-0", f"rank-{rank}")


def vllms_end(tag: str) -> str:
    """The name in verl's own worker extension, without an engine, in a process that has the plugin from its start."""
    code = (
        "import verl; from types import SimpleNamespace\n"
        "from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension as E\n"
        "end = object.__new__(E); end.model_runner, end.local_rank = SimpleNamespace(), 0\n"
        "print(end._get_zmq_handle())"
    )
    env = {**os.environ, "VERL_PLATFORM": "cpu", "VERL_RAY_JOB_ID": "01000000", "VERL_REPLICA_RANK": "0", RUN_TAG: tag}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[-1]


def test_both_ends_agree_and_runs_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(ServerAdapter=type("ServerAdapter", (TrainersEnd,), {}))
    install_sender(module)
    handles = set()
    for tag in ("aaaa", "bbbb"):
        monkeypatch.setenv(RUN_TAG, tag)
        handles.add(module.ServerAdapter(0).zmq_handle)
    assert handles == {vllms_end("aaaa"), vllms_end("bbbb")}
    assert len(handles) == 2


def test_without_a_tag_names_are_verls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_TAG, raising=False)
    assert tagged(STOCK) == STOCK == vllms_end("")


def test_the_watchdog_gives_each_run_its_tag_and_a_nested_one_keeps_it(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    from radverl import watchdog

    monkeypatch.delenv(RUN_TAG, raising=False)
    show = f"import os; print(os.environ['{RUN_TAG}'])"
    nested = [sys.executable, "-m", "radverl.watchdog", "--", sys.executable, "-c", show]
    for command in ([sys.executable, "-c", show], [sys.executable, "-c", show]):
        assert watchdog.watch(command) == 0
    first, second = capfd.readouterr().out.split()
    assert first != second
    monkeypatch.setenv(RUN_TAG, first)
    assert watchdog.watch(nested) == 0
    assert capfd.readouterr().out.split() == [first]
