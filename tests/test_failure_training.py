"""A real CPU training run whose judge, a server on a real socket, answers one question in five badly.

Nothing hangs, no failure becomes a zero, the counts are those of the server, and a killed reward worker comes back.
"""

import hashlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("vllm")
pytest.importorskip("openai")
import torch

from radverl.chexpert import label_report
from radverl.judge.prompt_files import as_data
from radverl.labels import CHEXPERT_14
from radverl.orapo import group_advantages
from radverl.rewards.facts import GOLD
from tests.judge_server import JudgeServer, Reply, Request, answer, error, serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]
STATES = {1: "entailed", -1: "uncertain", 0: "contradicted", None: "not_mentioned"}
FAULTS = {
    "server_error": error(500),
    "rate_limit": error(429),
    "auth": error(401),
    "bad_json": Reply(body=b"<html><body>Bad gateway</body></html>", headers={"Content-Type": "text/html"}),
    "connection": Reply(fault="reset"),
    "timeout": Reply(fault="hang"),
}
ODD = {  # further replies that are no answer
    "nonsense": answer('{"facts": [NaN, '),
    "wrong schema": answer({"fact": "none"}),
    "empty": answer(""),
}


class FaultyJudge:
    """Answers by the rules; to one report in five, chosen by its text, always with the same fault."""

    def __init__(self) -> None:
        self.faulty: dict[str, str] = {}

    def __call__(self, request: Request) -> Reply:
        time.sleep(0.05)
        data = json.loads(request.data_line)
        if "report" not in data:
            labels = label_report("\n".join(data["facts"]))
            return answer({label: STATES[labels[label]] for label in CHEXPERT_14})
        report = data["report"]
        number = int.from_bytes(hashlib.sha256(report.encode()).digest()[:4], "big")
        is_gold = report == normal(GOLD[0])
        if not is_gold and (number % 5 == 0 or not self.faulty or report in self.faulty):  # the first in any case
            kinds = [*FAULTS, *ODD]
            kind = self.faulty.setdefault(report, kinds[number // 5 % len(kinds)])
            return (FAULTS | ODD)[kind]
        return answer({"facts": [report] if report else []})


def normal(text: str) -> str:
    """A report as the server sees it."""
    return json.loads(as_data({"report": text}))["report"]


class Run:
    """One run of tests/failure_run.sh against a judge."""

    def __init__(self, out: Path, server: JudgeServer, data: Path, *overrides: str, steps: int) -> None:
        self.out = out
        out.mkdir()
        judge = "+reward.radverl.kwargs.judge_settings"
        settings = [
            "+reward.radverl.kwargs.judge=openai", f"{judge}.url={server.url}", f"{judge}.model=tiny-model",
            f"{judge}.cache=false", f"{judge}.tries=2", f"{judge}.first_pause=0.05", f"{judge}.call_timeout=2",
        ]  # fmt: skip
        command = ["bash", ROOT / "tests/failure_run.sh", data / "data/train.parquet", data / "model", out]
        env = {**os.environ, "RADVERL_PROBE_OUT": str(out), "STEPS": str(steps)}
        with (out / "output").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *settings, *overrides], env=env, stdout=log, stderr=subprocess.STDOUT
            )

    def printed(self) -> str:
        return (self.out / "output").read_text(errors="replace")

    def steps(self) -> dict[int, dict]:
        file = self.out / "metrics.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return {line["step"]: line["data"] for line in lines}

    def rows(self, folder: str, step: int) -> list[dict]:
        return [json.loads(line) for line in (self.out / folder / f"{step}.jsonl").read_text().splitlines()]

    def reward_workers(self) -> list[psutil.Process]:
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if "ray::RewardLoopWorker" in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failures")
    python = ROOT / ".venv/bin/python"
    simulated = ["--n-train", "8", "--n-val", "0", "--n-test", "4", "--size", "112", "--style", "template"]
    subprocess.run(
        [python, "-m", "data_preprocess.simulated", "--out", folder / "data", *simulated], check=True, cwd=ROOT
    )
    tiny = ["--data", folder / "data/sft_train.parquet", "--image-size", "112", "--out", folder / "model"]
    subprocess.run([python, "-m", "radverl.tiny_model", *tiny], check=True, cwd=ROOT)
    return folder


N_STEPS = 6


@pytest.fixture(scope="module")
def faulty(data: Path) -> Iterator[tuple[Run, FaultyJudge, int]]:
    """A finished run in which a reward worker was killed between its first step and its last."""
    judge = FaultyJudge()
    with serve(judge) as server:
        run = Run(data / "faulty", server, data, "+reward.radverl.max_failure_rate=0.5", steps=N_STEPS)
        deadline = time.monotonic() + 300
        while 1 not in run.steps() or not server.under_way:  # so that samples are in flight
            assert run.process.poll() is None, run.printed()[-4000:]
            assert time.monotonic() < deadline, run.printed()[-4000:]
            time.sleep(0.01)
        (worker,) = run.reward_workers()
        worker.send_signal(signal.SIGKILL)
        killed_in = max(run.steps()) + 1
        assert run.process.wait(timeout=300) == 0, run.printed()[-4000:]
        yield run, judge, killed_in


def test_counts_are_those_of_the_server(faulty: tuple[Run, FaultyJudge, int]) -> None:
    run, judge, _ = faulty
    steps = run.steps()
    assert set(steps) == set(range(N_STEPS + 1))
    causes: Counter[str] = Counter()
    for step in range(1, N_STEPS + 1):
        rows = run.rows("rollouts", step)
        assert len(rows) == 16
        kinds = [judge.faulty.get(normal(row["output"])) for row in rows]
        assert [bool(row["failed"]) for row in rows] == [kind is not None for kind in kinds]
        n_failed = sum(kind is not None for kind in kinds)
        assert steps[step]["reward/failed/sum"] == n_failed
        assert steps[step]["reward/failed/rate"] == n_failed / 16
        wanted = Counter("bad_json" if kind in ODD else kind for kind in kinds if kind)
        logged = {
            name.split("/")[1].removeprefix("failed_"): value
            for name, value in steps[step].items()
            if name.startswith("reward/failed_")
        }
        assert {cause: n for cause, n in logged.items() if n} == dict(wanted)
        causes += wanted
    assert causes.total() >= 5
    assert len(causes) >= 3


def test_no_failure_is_a_zero(faulty: tuple[Run, FaultyJudge, int]) -> None:
    """Neither in the advantages nor in verl's own reward statistics."""
    run, _, _ = faulty
    n_failed = 0
    for step in range(1, N_STEPS + 1):
        rows = json.loads((run.out / f"trained_{step}.json").read_text())
        rows = [row for row in rows if not row["key"].startswith("pad")]
        groups: dict[str, list[dict]] = {}
        for row in rows:
            groups.setdefault(row["key"].rsplit("_", 2)[0], []).append(row)
        assert len(groups) == 4
        for members in groups.values():
            rewards = torch.tensor([[row["reward"] for row in members]])
            failed = torch.tensor([[row["failed"] for row in members]])
            wanted = group_advantages(rewards, failed, "sample")[0]
            for row, advantage in zip(members, wanted.tolist(), strict=True):
                assert row["advantage"] == pytest.approx([advantage], abs=1e-5)
        valid = [row["reward"] for row in rows if not row["failed"]]
        n_failed += len(rows) - len(valid)
        for name in ("critic/score", "critic/rewards"):
            logged = [run.steps()[step][f"{name}/{kind}"] for kind in ("mean", "max", "min")]
            assert logged == pytest.approx([sum(valid) / len(valid), max(valid), min(valid)])
    assert n_failed >= 5


def test_validation_leaves_failed_samples_out(faulty: tuple[Run, FaultyJudge, int]) -> None:
    run, judge, _ = faulty
    rows = run.rows("validation", 0)
    failed = [normal(row["output"]) in judge.faulty for row in rows]
    assert any(failed)
    valid = [row["score"] for row, is_failed in zip(rows, failed, strict=True) if not is_failed]
    metrics = run.steps()[0]
    core = {name: value for name, value in metrics.items() if name.startswith("val-core/")}
    assert list(core.values()) == [pytest.approx(sum(valid) / len(valid))]
    source = next(iter(core)).split("/")[1]
    assert metrics[f"val-aux/{source}/failed/sum"] == sum(failed)


def test_the_killed_worker_came_back(faulty: tuple[Run, FaultyJudge, int]) -> None:
    run, _, killed_in = faulty
    assert 2 <= killed_in < N_STEPS
    assert not any("reward/failed_worker/sum" in step for step in run.steps().values())
    assert json.loads((run.out / "stats.json").read_text())["lost"] is None
    assert "radverl watchdog" not in run.printed()


def test_too_many_failures_end_the_run(data: Path) -> None:
    """With the default limit: 20 failed samples and more than 5 %."""
    judge = FaultyJudge()
    with serve(judge) as server:
        run = Run(data / "stopped", server, data, steps=60)
        assert run.process.wait(timeout=400) not in (0, None), run.printed()[-4000:]
    steps = run.steps()
    last = max(steps)
    failed = [value for step, data in steps.items() for name, value in data.items() if name.endswith("/failed/sum")]
    assert sum(failed) >= 20
    assert sum(failed[:-1]) < 20  # not before
    told = [line for line in run.printed().splitlines() if "radverl: stopped" in line]
    assert len(told) == 2  # as it happens, and as the last line of the error
    line = told[1]
    assert line.startswith("radverl.verl_plugin.failures.stop.TooManyFailures: radverl: stopped")
    assert "+reward.radverl.max_failure_rate=0.05" in line
    assert f"{sum(failed):.0f} of the last " in line
    assert "bad_json" in line
    saved = int((run.out / "checkpoints/latest_checkpointed_iteration.txt").read_text())
    assert saved == last - 1  # the batch at fault is not trained on
    assert (run.out / f"checkpoints/global_step_{saved}/actor").is_dir()
    assert "radverl watchdog" not in run.printed()
