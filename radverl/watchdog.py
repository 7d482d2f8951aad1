"""Runs a training command and ends it, with a sentence that names the dead process, where verl would hang.

    python -m radverl.watchdog [--stats FILE] -- python -m verl.trainer.main_ppo ...

verl 0.9.1 waits for ever when, say, the vLLM worker dies during a weight sync. The watchdog looks at the process tree
of the command once a second: when a process that the run cannot do without (a Ray actor of verl, vLLM's engine, Ray
itself) has vanished and the command is still there GRACE_SECONDS later, the run is ended. However the command ends,
no process and no shared-memory segment of it is left. It sees the machine it runs on, not other nodes.
"""

import argparse
import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

GRACE_SECONDS = 20.0  # a run that ends by itself is gone well before; a hang is ended well within a minute
SCAN_SECONDS = 1.0
SETTLED_SECONDS = 5.0  # a critical process counts once it has lived this long
TERM_SECONDS = 5.0
MEMORY_SECONDS = 10.0  # reading the memory maps of all processes takes some .5 s, too long for every scan
# Process titles of what a verl run cannot lose. Ray names actors "ray::Class" or "ray::Class.method".
CRITICAL = re.compile(
    r"ray::\w*(WorkerDict|ActorRolloutRef|HttpServer|TaskRunner|AgentLoopWorker|RewardLoopWorker"
    r"|StorageUnit|TransferQueueController)|VLLM::|EngineCore|raylet/raylet|gcs/gcs_server"
)
# Of these, what Ray starts again in a run with radverl's rewards (radverl/verl_plugin/failures/workers.py).
RESTARTED = re.compile(r"ray::\w*RewardLoopWorker")
RESTART_SECONDS = 120.0  # it imports verl and loads a tokenizer on a busy machine
# At the end of a run that failed verl closes its queue; the task runner is gone as soon as it has raised the error that
# the command ends with, seconds later on a busy machine.
GONE_WITH_THE_ERROR = re.compile(r"ray::\w*(StorageUnit|TransferQueueController|TaskRunner)")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
SHM = Path("/dev/shm")


@dataclass
class Seen:
    """A process of the run: what it was called, since when, and when last seen alive."""

    title: str
    process: psutil.Process
    first_alive: float
    last_alive: float
    is_fork: bool  # its parent has the same title


class Run:
    """The command and everything it started."""

    def __init__(self, command: list[str]) -> None:
        self.shm_before = set(os.listdir(SHM)) if SHM.is_dir() else set()
        self.shm_ours: set[str] = set()
        self.seen: dict[tuple[int, float], Seen] = {}
        self.peak_bytes = 0
        self.started = self.memory_read = time.monotonic()
        # Orphans of the run become our children instead of init's, so that they stay in sight.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Keeps the sockets of runs on one machine apart; see radverl/verl_plugin/zmq_handle.py.
        environment = {"RADVERL_RUN_TAG": uuid.uuid4().hex[:12], **os.environ}
        self.tag = environment["RADVERL_RUN_TAG"]
        self.child = subprocess.Popen(command, start_new_session=True, preexec_fn=_die_with_parent, env=environment)

    def scan(self, read_memory: bool = False) -> None:
        """Record the living processes of the run and, when asked or due, their memory and shared-memory segments."""
        now = time.monotonic()
        read_memory = read_memory or now - self.memory_read > MEMORY_SECONDS
        resident = 0
        alive: list[tuple[psutil.Process, float, str, int]] = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                title = " ".join(process.cmdline()) or process.name()
                entry = (process, process.create_time(), title, process.ppid())
                if read_memory:
                    self.shm_ours |= _shm_mapped_by(process.pid) - self.shm_before
                    resident += _proportional_bytes(process.pid)
            except (psutil.Error, OSError):
                continue  # it ended while we looked
            alive.append(entry)
        titles = {process.pid: title for process, _, title, _ in alive}
        for process, created, title, parent in alive:
            known = self.seen.get((process.pid, created))
            # Ray puts the running method into an actor's title; it is the same actor all along.
            since = known.first_alive if known and CRITICAL.search(known.title) else now
            self.seen[process.pid, created] = Seen(title, process, since, now, titles.get(parent) == title)
        if read_memory:
            self.memory_read = time.monotonic()
            self.peak_bytes = max(self.peak_bytes, resident)

    def lost(self, seconds: float) -> Seen | None:
        """The first critical process that vanished more than `seconds` ago and for good, or None."""
        now = time.monotonic()
        gone = [
            s
            for s in self.seen.values()
            if s.last_alive < now - seconds
            and CRITICAL.search(s.title)
            # A process forks to run a command, and the fork carries its title until it becomes the command.
            and not s.is_fork
            and s.last_alive - s.first_alive >= SETTLED_SECONDS
        ]
        gone.sort(key=lambda s: s.last_alive)
        back = sorted(s.first_alive for s in self.seen.values() if RESTARTED.search(s.title) and not s.is_fork)
        for dead in gone:
            if not RESTARTED.search(dead.title):
                return dead
            successor = next((since for since in back if since > dead.last_alive), None)
            if successor is not None:
                back.remove(successor)
            elif dead.last_alive < now - max(seconds, RESTART_SECONDS):
                return dead
        return None

    def end(self) -> None:
        """Leave no process and no shared-memory segment of the run behind."""
        self.scan(read_memory=True)
        alive = [s.process for s in self.seen.values() if s.process.is_running()]
        for process in alive:
            _signal(process, signal.SIGTERM)
        _, alive = psutil.wait_procs(alive, timeout=TERM_SECONDS)
        self.scan()
        for process in [*alive, *psutil.Process().children(recursive=True)]:
            _signal(process, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=TERM_SECONDS)
        self.child.wait()
        for segment in self.shm_ours:
            (SHM / segment).unlink(missing_ok=True)
        for socket in Path("/tmp").glob(f"rl-colocate-zmq-{self.tag}-*.sock"):
            socket.unlink(missing_ok=True)


def watch(command: list[str], stats: Path | None = None) -> int:
    """Run `command` to its end.

    Args:
        command: program and arguments.
        stats: JSON file to write {"seconds", "peak_rss_gb", "exit_code", "lost"} to; peak_rss_gb is what all processes
            of the run had in memory together, a page shared by several counted once, read every MEMORY_SECONDS.
    Returns:
        The command's exit code (128 + n where a signal n ended it), or 1 where the watchdog ended it.
    """
    run = Run(command)
    lost: Seen | None = None
    stop_signal: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop_signal.append(number)

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while run.child.poll() is None and not stop_signal:
            run.scan()
            lost = run.lost(GRACE_SECONDS)
            if lost is not None:
                print(_obituary(lost), file=sys.stderr, flush=True)
                break
            _wait(run.child, SCAN_SECONDS)
        exit_code = run.child.poll()
        first_dead = run.lost(2 * SCAN_SECONDS) if exit_code and lost is None else None
        # verl noticed by itself; its own error rarely says who it was
        if first_dead is not None and not GONE_WITH_THE_ERROR.search(first_dead.title):
            print(
                f"radverl watchdog: {_name(first_dead.title)} died before the run failed.", file=sys.stderr, flush=True
            )
    finally:
        run.end()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if lost is not None:
        exit_code = 1
    elif exit_code is None:
        exit_code = 128 + stop_signal[0]
    elif exit_code < 0:
        exit_code = 128 - exit_code
    if stats is not None:
        record = {
            "seconds": round(time.monotonic() - run.started, 1),
            "peak_rss_gb": round(run.peak_bytes / 1e9, 2),
            "exit_code": exit_code,
            "lost": _name(lost.title) if lost else None,
        }
        stats.parent.mkdir(parents=True, exist_ok=True)
        stats.write_text(json.dumps(record) + "\n", encoding="utf-8")
    return exit_code


def _obituary(lost: Seen) -> str:
    memory = psutil.virtual_memory()
    hint = " Memory is nearly full: the kernel may have killed it." if memory.percent > 95 else ""
    return (
        f"radverl watchdog: {_name(lost.title)} (pid {lost.process.pid}) died and the run "
        f"did not end within {GRACE_SECONDS:.0f} s, so it was stopped.{hint} Look at the last lines above and at "
        "Ray's logs (/tmp/ray/session_latest/logs), then start again: training resumes from the last checkpoint."
    )


def _name(title: str) -> str:
    """The actor or program in a process title, e.g. "ray::WorkerDict" or "VLLM::EngineCore"."""
    match = CRITICAL.search(title)
    named = re.search(r"(ray::[\w.]+|VLLM::\S+)", title)
    return named.group(1) if named else (match.group(0) if match else title)[:80]


def _shm_mapped_by(pid: int) -> set[str]:
    names = set()
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.partition("/dev/shm/")[2].rstrip("\n")
            if path and not path.endswith(" (deleted)"):
                names.add(path)
    return names


def _proportional_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        match = re.search(r"^Pss:\s+(\d+) kB", rollup.read(), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=seconds)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def main(argv: list[str] | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m radverl.watchdog",
        description="Run a training command; end it with a clear message when one of its actors dies.",
        epilog="example: python -m radverl.watchdog --stats outputs/stats.json -- python -m verl.trainer.main_ppo ...",
    )
    parser.add_argument("--stats", type=Path, help="JSON file for run time and peak memory")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- program arguments ...")
    args = parser.parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("no command given after --")
    return watch(command, args.stats)


if __name__ == "__main__":
    sys.exit(main())
