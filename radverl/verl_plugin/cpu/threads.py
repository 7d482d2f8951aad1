"""TransferQueue without its own idea of threads: around each transfer it sets torch to as many as there are cores.

Where ten processes share two cores that costs more than it brings (and it reads /proc/cpuinfo and warns each time).
"""

import contextlib
from collections.abc import Iterator
from typing import Any

# Both hold the function by name, and may have been imported before us.
MODULES = ("transfer_queue.client", "transfer_queue.storage.simple_storage")


@contextlib.contextmanager
def limit_pytorch_auto_parallel_threads(target_num_threads: int | None = None, info: str = "") -> Iterator[None]:
    """Takes the place of transfer_queue.utils.common's function of this name and does nothing."""
    yield


def install(module: Any) -> None:
    """Leave torch's thread count alone, given one of MODULES."""
    module.limit_pytorch_auto_parallel_threads = limit_pytorch_auto_parallel_threads
