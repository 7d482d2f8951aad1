"""FSDP2 engine for device "cpu". verl registers its FSDP engines for CUDA and NPU only; FSDP1 does not run on a CPU."""

from typing import Any


def install(transformer_impl: Any) -> None:
    """Register the engine, given verl.workers.engine.fsdp.transformer_impl."""
    from verl.workers.engine.base import EngineRegistry

    offload_policy = transformer_impl.CPUOffloadPolicy

    def unpinned_offload_policy(pin_memory: bool = False) -> Any:
        # Pinning needs an accelerator; verl asks for it for every engine that only runs forward (the reference).
        return offload_policy(pin_memory=False)

    transformer_impl.CPUOffloadPolicy = unpinned_offload_policy

    @EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
    class CPUEngineWithLMHead(transformer_impl.FSDPEngineWithLMHead):
        """verl's own engine, unchanged."""
