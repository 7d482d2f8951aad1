"""Shows a training run as it goes: keeps the whole log in a file and prints what a person wants to see of it.

python -m verl.trainer.main_ppo ... 2>&1 | python -m radverl.progress --log outputs/train.log --steps 24
"""

import argparse
import io
import math
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from data_preprocess.core.outputs import output_file

# What verl prints when a stage of its start-up is over, and what to say then.
STAGES = (
    ("Started a local Ray instance", "Ray is up"),
    ("actor and ref model engine initialized", "actor and reference policy are up; starting vLLM"),
    ("all initialize finished", "vLLM is up; first step"),
)
SHOWN = {
    "critic/score/mean": "reward",
    "train/loss": "loss",
    "timing_s/step": "s/step",
    "response_length/mean": "tokens",
}
STEP = re.compile(r"step:(\d{1,15}) - (.*)")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
OURS = re.compile(r"radverl( watchdog)?: ")
QUIET_SECONDS = 15.0
BETWEEN_STEPS_SECONDS = 2.0  # small models step faster than a person reads


def relay(lines: TextIO, log: TextIO, out: TextIO, total: int) -> None:
    """Copy `lines` to `log`; to `out` go stages, steps, our own messages, and a sign of life when there is none.

    Args:
        total: steps of the run, shown as "step 3/24".
    """
    started = time.monotonic()
    last_shown = [started]
    over = threading.Event()

    def say(text: str) -> None:
        last_shown[0] = time.monotonic()
        print(f"  [{last_shown[0] - started:5.0f} s] {text}", file=out, flush=True)

    def sign_of_life() -> None:
        while not over.wait(1.0):
            if time.monotonic() - last_shown[0] > QUIET_SECONDS:
                say("... still working")

    threading.Thread(target=sign_of_life, daemon=True).start()
    reached: set[str] = set()
    last_step, last_step_shown = 0, -math.inf
    for raw in lines:
        log.write(raw)
        log.flush()
        line = ANSI.sub("", raw)
        for mark, text in STAGES:
            if mark in line and text not in reached:
                reached.add(text)
                say(text)
        step = STEP.search(line)
        if step and int(step.group(1)) > last_step:
            last_step = int(step.group(1))
            if last_step == total or time.monotonic() - last_step_shown > BETWEEN_STEPS_SECONDS:
                last_step_shown = time.monotonic()
                say(f"step {last_step}/{total}  " + _metrics(step.group(2)))
        elif OURS.search(line):
            say(line.strip())
    over.set()


def _metrics(text: str) -> str:
    values = dict(part.split(":", 1) for part in text.strip().split(" - ") if ":" in part)
    shown = []
    for key, name in SHOWN.items():
        if key in values:
            try:
                number = float(re.sub(r"np\.\w+\((.*)\)", r"\1", values[key]))
            except ValueError:  # another stage's word: it is in the log, and no reason to stop reading
                continue
            shown.append(f"{name} {number:.3f}" if name in ("reward", "loss") else f"{name} {number:.1f}")
    return "  ".join(shown)


def main(argv: list[str] | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m radverl.progress", description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, required=True, help="file that gets every line")
    parser.add_argument("--steps", type=int, required=True, help="number of steps of the run")
    args = parser.parse_args(argv)
    try:
        output_file(args.log, "--log")
    except ValueError as error:
        print(f"progress: {error}", file=sys.stderr)
        return 2
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # As `tee -i`: on Ctrl-C the command before us ends, and its last words belong in the log.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with args.log.open("w", encoding="utf-8") as log:
            relay(sys.stdin, log, sys.stdout, args.steps)
    except OSError as error:
        print(f"progress: {args.log} cannot be written ({error.strerror}); make room and start again.", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGINT, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
