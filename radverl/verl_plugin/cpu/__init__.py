"""Runs verl without an accelerator, through the code path of GPUs. Switched on by VERL_PLATFORM=cpu.

verl 0.9.1 knows CUDA and NPU. What a CPU lacks is added here, each part in its own file:
    platform.py        the platform verl asks for device names, memory and Ray resources
    device.py          the torch.cuda-like functions verl calls without a guard
    process_group.py   gloo only (verl would ask for gloo twice)
    engine.py          FSDP2 engine for device "cpu", without pinned memory
    vllm.py            the CPU wheel under the name verl looks for; linear weights that can be updated
    threads.py         TransferQueue keeps torch's thread count as it is
    replay_buffer.py   short polling, for steps that take seconds
"""

from radverl.verl_plugin.post_import import after_import


def activate() -> list[str]:
    """Register the platform and plant the hooks; returns the names of the parts."""
    from radverl.verl_plugin.cpu import engine, platform, process_group, threads, vllm

    platform.register()
    vllm.add_distribution_name()
    after_import("verl.utils.distributed", process_group.install)
    after_import("verl.workers.engine.fsdp.transformer_impl", engine.install)
    for module in threads.MODULES:
        after_import(module, threads.install)
    after_import("vllm.model_executor.layers.utils", vllm.keep_linear_weights)
    return ["cpu platform"]
