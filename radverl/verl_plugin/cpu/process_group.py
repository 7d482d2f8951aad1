"""gloo process groups: verl builds "cpu:gloo,<device>:<backend>", which names the device twice where it is the CPU."""

import datetime
import os
from typing import Any


def install(distributed: Any) -> None:
    """Replace both constructors in verl.utils.distributed: the one under Ray and the one under torchrun (SFT)."""
    under_ray = distributed.initialize_global_process_group_ray

    def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        under_ray(timeout_second=timeout_second, backend=backend or "gloo")

    def initialize_global_process_group(timeout_second: int = 36000) -> tuple[int, int, int]:
        import torch.distributed

        torch.distributed.init_process_group(
            backend="gloo",
            timeout=datetime.timedelta(seconds=timeout_second),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )
        return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    distributed.initialize_global_process_group_ray = initialize_global_process_group_ray
    distributed.initialize_global_process_group = initialize_global_process_group
