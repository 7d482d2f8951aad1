"""The same function over many jobs in several processes, results in the order of the jobs."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
CHUNKS_AHEAD = 3  # of each process: what a slow reader of the results lets pile up


def ordered_map(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    workers: int,
    *,
    desc: str,
    unit: str = "row",
    chunk: int = 8,
    quiet: bool = False,
) -> Iterator[Result]:
    """`map(function, jobs)` with a progress bar; what comes out does not depend on `workers`.

    Args:
        function: of a module's top level, so that a fresh process can import it.
        desc: word for the progress bar.
        chunk: jobs handed to a process at a time.
        quiet: no progress bar; there is none either where nobody watches a terminal.
    Raises:
        OSError: a process was killed.
    """
    from tqdm import tqdm

    with tqdm(total=len(jobs), desc=desc, unit=unit, disable=quiet or None) as bar:
        workers = min(workers, -(-len(jobs) // chunk))  # a process with nothing to do only takes memory
        if workers <= 1:
            for job in jobs:
                yield function(job)
                bar.update()
            return
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
        waiting: deque[Future[list[Result]]] = deque()
        try:
            for start in itertools.count(0, chunk):
                if start < len(jobs):
                    with _deaf():  # it may start another process
                        waiting.append(pool.submit(_each, function, jobs[start : start + chunk]))
                elif not waiting:
                    return
                if len(waiting) >= workers * CHUNKS_AHEAD or start >= len(jobs):
                    for result in waiting.popleft().result():
                        yield result
                        bar.update()
        except BrokenProcessPool as error:
            message = "a worker process was killed, perhaps for want of memory; try fewer --workers"
            raise OSError(message) from error
        finally:
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes started within never hear Ctrl-C, which a terminal sends to all of them: the parent stops them, and
    hears it when this ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for work for ever, and keep its memory and its terminal."""
    parent = multiprocessing.parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _each(function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
    return [function(job) for job in jobs]
