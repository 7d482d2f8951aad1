"""The benchmark of OraPO's work on the driver runs the functions of the trainer on a real TransferQueue."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transfer_queue")


@pytest.mark.slow
def test_every_part_is_timed() -> None:
    code = "import json; from benchmarks.driver import seconds_on_driver; print(json.dumps(seconds_on_driver(4, 2)))"
    # A process of its own: it starts and ends a local Ray.
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "VERL_PLATFORM": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    seconds = json.loads(run.stdout.strip().splitlines()[-1])
    assert list(seconds) == ["groups", "oracle rows", "order", "reading", "weights", "writing"]
    assert all(value > 0 for value in seconds.values())
