"""What a person sees of a run, and that the log keeps all of it."""

import io
import signal
import subprocess
import sys

from radverl.progress import main, relay

STEP = (
    "\x1b[36m(TaskRunnerV1 pid=1)\x1b[0m step:{n} - critic/score/mean:0.4567 - timing_s/step:np.float64(4.21) - "
    "training/num_turns/mean:np.float64(2.0) - response_length/mean:33.7\n"
)
LINES = [
    "noise WARNING something\n",
    "2026 INFO worker.py:2038 -- Started a local Ray instance.\n",
    STEP.format(n=1),
    STEP.format(n=1),  # Ray repeats lines
    STEP.format(n=2),
    "radverl watchdog: ray::WorkerDict (pid 7, 1.0 GB) died\n",
]


def shown() -> tuple[str, str]:
    log, out = io.StringIO(), io.StringIO()
    relay(io.StringIO("".join(LINES)), log, out, total=2)
    return log.getvalue(), out.getvalue()


def test_the_log_keeps_every_byte() -> None:
    assert shown()[0] == "".join(LINES)


def test_each_step_is_one_line_with_its_numbers() -> None:
    lines = shown()[1].splitlines()
    assert sum("step 1/2" in line for line in lines) == 1
    assert "step 2/2  reward 0.457  s/step 4.2  tokens 33.7" in lines[2]


def test_steps_faster_than_a_person_reads_are_thinned_out() -> None:
    out = io.StringIO()
    relay(io.StringIO("".join(STEP.format(n=n) for n in range(1, 101))), io.StringIO(), out, total=100)
    shown_steps = [line.split("step ")[1].split("/")[0] for line in out.getvalue().splitlines()]
    assert shown_steps == ["1", "100"]


def test_stages_and_our_own_messages_are_shown_and_noise_is_not() -> None:
    out = shown()[1]
    assert "Ray is up" in out
    assert "ray::WorkerDict (pid 7, 1.0 GB) died" in out
    assert "noise" not in out


def test_a_line_that_is_not_utf8_ends_nothing(tmp_path) -> None:
    import subprocess
    import sys

    log = tmp_path / "x" / "run.log"
    run = subprocess.run(
        [sys.executable, "-m", "radverl.progress", "--log", str(log), "--steps", "2"],
        input=b"\xff\xfe broken\nstep:2 - train/loss:0.5\n",
        capture_output=True,
        check=True,
    )
    assert b"step 2/2  loss 0.500" in run.stdout
    assert "broken" in log.read_text()


def test_a_line_it_does_not_understand_does_not_stop_it() -> None:
    odd = [
        "step:1 - critic/score/mean:abc - timing_s/step:2.0\n",
        "step:" + "9" * 5000 + " - a:1\n",
        "\0\n",
        "step:2 - x\n",
    ]
    log, out = io.StringIO(), io.StringIO()
    relay(io.StringIO("".join(odd)), log, out, total=2)
    assert log.getvalue() == "".join(odd)
    assert "step 1/2  s/step 2.0" in out.getvalue()
    assert "step 2/2" in out.getvalue()


def test_a_log_that_cannot_be_written_exits_2(tmp_path, capsys) -> None:
    assert main(["--log", str(tmp_path), "--steps", "3"]) == 2
    assert capsys.readouterr().err.startswith("progress: --log")


def test_ctrl_c_leaves_it_to_the_command_before_it(tmp_path) -> None:
    command = [sys.executable, "-m", "radverl.progress", "--log", str(tmp_path / "log"), "--steps", "1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    process.stdin.write("Started a local Ray instance\n")
    process.stdin.flush()
    assert process.stdout
    assert "Ray is up" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.stdin.write("last words\n")
    process.stdin.close()
    assert process.wait(20) == 0
    assert (tmp_path / "log").read_text().endswith("last words\n")
