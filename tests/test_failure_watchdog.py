"""The watchdog lets Ray start a reward worker again, and ends the run where it does not."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

from radverl import watchdog

# Two "reward workers" of Ray's title; the first dies after 2.5 s and, if so asked, is started again 1.5 s later.
DRIVER = textwrap.dedent("""
    import subprocess, sys, time
    again = sys.argv[1] == "again"
    code = "import time; from setproctitle import setproctitle; setproctitle('ray::RewardLoopWorker.compute_score')"
    def worker(seconds):
        return subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep({seconds})"])
    workers = [worker(2.5), worker(60)]
    workers[0].wait()
    time.sleep(1.5)
    if again:
        workers.append(worker(60))
    time.sleep(4.5)
    for process in workers:
        process.kill()
""")


@pytest.mark.parametrize(
    ("fate", "code", "lost"), [("again", 0, None), ("gone", 1, "ray::RewardLoopWorker.compute_score")]
)
def test_a_reward_worker_may_come_back(
    fate: str, code: int, lost: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(watchdog, "SETTLED_SECONDS", 0.5)
    monkeypatch.setattr(watchdog, "RESTART_SECONDS", 3.5)
    file, stats = tmp_path / "driver.py", tmp_path / "stats.json"
    file.write_text(DRIVER)
    assert watchdog.watch([sys.executable, str(file), fate], stats) == code
    assert json.loads(stats.read_text())["lost"] == lost


def test_what_verl_closes_itself_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run that failed closes its queue, and exits some seconds later."""
    monkeypatch.setattr(watchdog, "SETTLED_SECONDS", 0.5)
    file = tmp_path / "driver.py"
    file.write_text(
        "import subprocess, sys, time\n"
        "code = \"import time; from setproctitle import setproctitle; setproctitle('ray::TransferQueueController');\"\n"
        "subprocess.run([sys.executable, '-c', code + 'time.sleep(2.5)'])\n"
        "time.sleep(3.5); raise SystemExit(3)\n"
    )
    assert watchdog.watch([sys.executable, str(file)]) == 3
    assert "died" not in capfd.readouterr().err
