"""The phases of a step of verl's SFT trainer (FSDP, FSDP2), from the same parts as those of RL; there is no vLLM.

update           weights + gradients + Adam + gathered layers + kept activations + max(logits, one layer at work)
optimizer step   weights + gradients + Adam + Adam's copies
"""

from typing import Any

from radverl.verl_plugin.memory.architecture import BF16, FP32, Architecture, NotEstimated, activation_bytes
from radverl.verl_plugin.memory.engines import Part, gpus, sharded
from radverl.verl_plugin.memory.phases import FUSED_CHUNK, GB, TRAINER_CONTEXT, USABLE, Phase

_NAMES = ("engine.strategy", "engine")


def estimate_supervised(config: Any, a: Architecture, gpu_gb: float) -> list[Phase]:
    """The phases of a step on one GPU of `gpu_gb` GB.

    Args:
        config: composed and resolved config of verl.trainer.sft_trainer.
    Raises:
        NotEstimated: an engine other than FSDP and FSDP2, or LoRA.
    """
    engine, model = config.engine, config.model
    if engine.strategy not in ("fsdp", "fsdp2"):
        raise NotEstimated(f"the engine {engine.strategy} is not covered for supervised training, only fsdp, fsdp2")
    if model.lora_rank > 0:
        raise NotEstimated("LoRA is not covered")
    parts = sharded(engine, engine.strategy, gpus(config), a, model.enable_gradient_checkpointing, _NAMES)
    tokens = supervised_tokens(config)
    kept, work = activation_bytes(a, tokens, tokens * a.patches_per_token, parts.checkpointing)
    name = "max_token_len_per_gpu" if config.data.use_dynamic_bsz else "micro_batch_size_per_gpu"
    fewer = f"lower data.{name} ({tokens} tokens in a micro-batch)"
    if model.use_fused_kernels:
        logits = min(tokens, FUSED_CHUNK) * a.vocabulary * FP32 * 2
    else:  # and their gradient
        logits = tokens * a.vocabulary * BF16 * 2
    fused = " or set model.use_fused_kernels=True"
    peak = Part("logits", logits, fewer + fused) if logits > work else Part("one layer at work", work, fewer)
    checkpoint = "" if parts.checkpointing else "set model.enable_gradient_checkpointing=True or "
    context = Part("CUDA context", TRAINER_CONTEXT)
    limit = USABLE * gpu_gb * GB
    return [
        Phase("update", (*parts.update, Part("activations", kept, checkpoint + fewer), peak, context), limit),
        Phase("optimizer step", (*parts.step, context), limit),
    ]


def supervised_tokens(config: Any) -> int:
    """Most tokens of one micro-batch on one GPU: the cap, or all that the batch has for this GPU."""
    data = config.data
    rows = -(-data.train_batch_size // max(1, gpus(config) // config.engine.ulysses_sequence_parallel_size))
    if data.use_dynamic_bsz:
        return int(min(data.max_token_len_per_gpu, rows * data.max_length))
    return int(min(data.micro_batch_size_per_gpu, rows) * data.max_length)
