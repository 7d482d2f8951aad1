"""The same function over many jobs in several processes, results in the order of the jobs."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int, *, desc: str, chunk: int = 8
) -> Iterator[Result]:
    """`map(function, jobs)` with a progress bar; what comes out does not depend on `workers`.

    Args:
        function: of a module's top level, so that a fresh process can import it.
        desc: word for the progress bar.
        chunk: jobs handed to a process at a time.
    """
    from tqdm import tqdm

    with tqdm(total=len(jobs), desc=desc, unit="study", disable=None) as bar:
        workers = min(workers, -(-len(jobs) // chunk))  # a process with nothing to do only takes memory
        if workers <= 1:
            for job in jobs:
                yield function(job)
                bar.update()
            return
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            for result in pool.imap(function, jobs, chunksize=chunk):
                yield result
                bar.update()
