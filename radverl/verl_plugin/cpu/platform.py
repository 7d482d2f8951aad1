"""The `cpu` platform of verl's PlatformRegistry: gloo, logical Ray GPUs, weights by POSIX shared memory."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


def register() -> None:
    """Add the platform to verl's registry; a second call does nothing."""
    from verl.plugin.platform import PlatformBase, PlatformRegistry

    from radverl.verl_plugin.cpu import device

    if PlatformRegistry.get("cpu") is not None:
        return

    @PlatformRegistry.register(platform="cpu")
    class CPUPlatform(PlatformBase):
        """Answers verl's questions about the device; methods as in verl's PlatformBase."""

        device_name = "cpu"
        vendor_name = "cpu"
        device_module = device

        def is_available(self) -> bool:
            return True

        def is_platform_available(self, use_smi_check: bool = False) -> bool:
            return False  # never found by itself: a GPU machine must not fall back to this unnoticed

        def current_device(self) -> str:  # verl passes it to Tensor.to()
            return "cpu"

        def device_count(self) -> int:
            return 1

        def set_device(self, device_index: int) -> None: ...

        def synchronize(self, device_index: int | None = None) -> None: ...

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        manual_seed_all = manual_seed

        def set_allocator_settings(self, settings: str) -> None: ...

        def empty_cache(self) -> None: ...

        def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
            return None, None

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "CUDA_VISIBLE_DEVICES"

        @contextlib.contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def profiler_start(self) -> None: ...

        def profiler_stop(self) -> None: ...

        def ray_resource_name(self) -> str:
            return "GPU"  # logical ones, declared by ray_kwargs.ray_init.num_gpus

        def ray_noset_envvars(self) -> list[str]:
            return []

        def is_ipc_supported(self) -> bool:
            return False  # verl then sends weights to vLLM through shared memory

        def cudart(self) -> Any:
            return None
