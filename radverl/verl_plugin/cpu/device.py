"""Stands in for `torch.cuda` on a CPU: the functions verl calls on its device module without a guard.

Memory is the process's resident set, in bytes, so that verl's memory metrics mean something.
"""

from typing import Any

import psutil
import torch

manual_seed = manual_seed_all = torch.manual_seed
get_rng_state, set_rng_state = torch.get_rng_state, torch.set_rng_state
Stream, stream, current_stream = torch.cpu.Stream, torch.cpu.stream, torch.cpu.current_stream


def is_available() -> bool:
    """False: what torch.cuda answers on such a machine."""
    return False


def device_count() -> int:
    """One logical device a process."""
    return 1


def current_device() -> int:
    """Index of the only device."""
    return 0


def get_device_name(*_: Any) -> str:
    """Name shown in logs."""
    return "CPU"


def memory_allocated(*_: Any) -> int:
    """Resident set of this process in bytes."""
    return psutil.Process().memory_info().rss


max_memory_allocated = max_memory_reserved = memory_reserved = memory_allocated


def mem_get_info(*_: Any) -> tuple[int, int]:
    """(available, total) memory of the machine in bytes."""
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _nothing(*_: Any, **__: Any) -> None:
    """A CPU has no cache to empty, no stream to wait for and no peak counter to reset."""


empty_cache = synchronize = set_device = ipc_collect = _nothing
reset_peak_memory_stats = reset_accumulated_memory_stats = set_per_process_memory_fraction = _nothing
