"""The phases of a training step, which do not overlap: each a sum of parts on the GPU at the same time.

    log-probs        weights + gathered layers + one layer at work + logits (+ entropy)
    update           weights + gradients + Adam + gathered layers + kept activations + max(logits, one layer at work)
    optimizer step   weights + gradients + Adam + Adam's copies
    weight sync      vLLM's weights + transfer bucket + one whole parameter + what the trainer leaves on the GPU
    rollout          vLLM's share (gpu_memory_utilization) + what the trainer leaves on the GPU
    vLLM's share     vLLM's weights + one layer at work + sampler + KV cache of one sequence, against the share itself

The logits are gone when the first layer is computed again, so the larger of the two counts.
"""

from dataclasses import dataclass
from typing import Any

from radverl.verl_plugin.memory.architecture import (
    BF16,
    FP32,
    Architecture,
    NotEstimated,
    activation_bytes,
    kv_bytes_per_token,
)
from radverl.verl_plugin.memory.engines import Engine, Part, fsdp, megatron, micro_batch_tokens

GB = 1e9
USABLE = 0.92
"""Share of a GPU's nominal memory that the parts may fill (ours): a 24 GB A10 offers about 23.7 GB to programs, and
PyTorch's allocator loses some to fragments."""
TRAINER_CONTEXT, VLLM_CONTEXT = 1.0 * GB, 0.8 * GB  # ours: CUDA context, NCCL, cuBLAS and flash-attention workspaces
CUDA_GRAPHS = 1.0 * GB  # ours: captured graphs stay on the GPU while vLLM sleeps
FUSED_CHUNK = 512  # tokens of verl's fused log-prob kernels, which never hold all logits

_ROLLOUT = "actor_rollout_ref.rollout"


@dataclass(frozen=True)
class Phase:
    """Parts that are on the GPU together, against the bytes there are for them."""

    name: str
    parts: tuple[Part, ...]
    limit: float

    @property
    def total(self) -> float:
        return sum(part.size for part in self.parts)


def estimate(config: Any, a: Architecture, gpu_gb: float) -> list[Phase]:
    """The phases of a training step on one GPU of `gpu_gb` GB.

    Args:
        config: composed and resolved config of verl.trainer.main_ppo.
    Raises:
        NotEstimated: a training engine other than FSDP, FSDP2 and Megatron, LoRA, or a rollout engine other than vLLM.
    """
    actor, rollout, model = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "model"))
    engines = {"fsdp": fsdp, "fsdp2": fsdp, "megatron": megatron}
    if actor.strategy not in engines:
        raise NotEstimated(f"the engine {actor.strategy} is not covered, only {', '.join(engines)}")
    if rollout.name != "vllm":
        raise NotEstimated(f"the rollout engine {rollout.name} is not covered, only vllm")
    if model.lora_rank > 0 or model.lora.rank > 0:
        raise NotEstimated("LoRA is not covered")
    engine = engines[actor.strategy](config, a)
    usable, share = USABLE * gpu_gb * GB, rollout.gpu_memory_utilization * gpu_gb * GB
    context = Part("CUDA context", TRAINER_CONTEXT)
    graphs = 0.0 if rollout.enforce_eager else CUDA_GRAPHS
    vllm = Part("vLLM's context", VLLM_CONTEXT + graphs, "" if not graphs else f"set {_ROLLOUT}.enforce_eager=True")
    asleep = vllm
    if not rollout.free_cache_engine:
        asleep = Part("vLLM awake", share + vllm.size, f"set {_ROLLOUT}.free_cache_engine=True")
    around = (asleep, context)
    return [
        Phase("log-probs", (*engine.log_probs, *_log_probs(config, a, engine), *around), usable),
        Phase("update", (*engine.update, *_update(config, a, engine), *around), usable),
        Phase("optimizer step", (*engine.step, *around), usable),
        Phase("weight sync", (*_weight_sync(rollout, a, engine), *engine.sync, vllm, context), usable),
        Phase(
            "rollout",
            (Part("vLLM's share", share, f"lower {_ROLLOUT}.gpu_memory_utilization"), *engine.idle, vllm, context),
            gpu_gb * GB * (1 + USABLE) / 2,  # vLLM takes its share in one piece: half the allowance for fragments
        ),
        Phase("vLLM's share", _vllm(config, a), share),
    ]


def refusal(phases: list[Phase], gpu_gb: float) -> str | None:
    """One sentence about the phase that is furthest over its limit: its largest parts and what makes them smaller.

    None where all phases fit.
    """
    phase = max(phases, key=lambda phase: phase.total / phase.limit)
    if phase.total <= phase.limit:
        return None
    changes: dict[str, Part] = {}
    for part in sorted(phase.parts, key=lambda part: -part.size):
        if part.remedy and part.size:
            changes.setdefault(part.remedy, part)
    what = "; ".join(f"{p.name} takes {p.size / GB:.1f}: {remedy}" for remedy, p in list(changes.items())[:2])
    return (
        f"{phase.name} needs about {phase.total / GB:.1f} GB per GPU, and GPU_MEMORY_GB={gpu_gb:g} leaves "
        f"{phase.limit / GB:.1f}; {what}."
    )


def report(phases: list[Phase], gpu_gb: float) -> str:
    """The phases and their parts as text, one phase a line."""
    lines = [f"memory per GPU of {gpu_gb:g} GB, estimated, not measured (docs/orapo_memory.md), in GB:"]
    for phase in phases:
        parts = " + ".join(f"{part.name} {part.size / GB:.1f}" for part in phase.parts if part.size >= GB / 20)
        lines.append(f"  {phase.name:<14} {phase.total / GB:5.1f} of {phase.limit / GB:4.1f} = {parts}")
    return "\n".join(lines)


def _update(config: Any, a: Architecture, engine: Engine) -> tuple[Part, ...]:
    tokens = micro_batch_tokens(config, "update")
    kept, work = activation_bytes(a, tokens, tokens * a.patches_per_token, engine.checkpointing)
    fewer = _fewer_tokens(config, "update", tokens)
    logits = _logits(config, a, tokens, engine, copies=2)  # and their gradient
    fused = " or set actor_rollout_ref.model.use_fused_kernels=True"
    peak = Part("logits", logits, fewer + fused) if logits > work else Part("one layer at work", work, fewer)
    checkpoint = "" if engine.checkpointing else "set actor_rollout_ref.model.enable_gradient_checkpointing=True or "
    return Part("activations", kept, checkpoint + fewer), peak


def _log_probs(config: Any, a: Architecture, engine: Engine) -> tuple[Part, ...]:
    actor = config.actor_rollout_ref.actor
    tokens = micro_batch_tokens(config, "log-probs")
    fewer = _fewer_tokens(config, "log-probs", tokens)
    _, work = activation_bytes(a, tokens, tokens * a.patches_per_token, True)
    entropy = tokens * a.vocabulary * 2 * BF16  # softmax, and its product with the logits
    chunk = "set actor_rollout_ref.actor.entropy_from_logits_with_chunking=True"
    if actor.entropy_from_logits_with_chunking:  # in fp32: the chunk, its softmax, their product
        entropy = min(tokens, actor.entropy_from_logits_chunk_size) * a.vocabulary * 3 * FP32
        chunk = "lower actor_rollout_ref.actor.entropy_from_logits_chunk_size"
    return (
        Part("one layer at work", work / 2, fewer),  # no backward pass
        Part("logits", _logits(config, a, tokens, engine, copies=1), fewer),
        Part("entropy", 0.0 if config.actor_rollout_ref.model.use_fused_kernels else entropy / engine.split, chunk),
    )


def _weight_sync(rollout: Any, a: Architecture, engine: Engine) -> tuple[Part, ...]:
    bucket = rollout.checkpoint_engine.update_weights_bucket_megabytes * 2**20
    weights = a.parameters * BF16 / rollout.tensor_model_parallel_size
    return (
        Part("vLLM's weights", weights, f"raise {_ROLLOUT}.tensor_model_parallel_size"),
        Part("transfer bucket", bucket, f"lower {_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"),
        Part("one whole parameter", a.largest * engine.sent_bytes),
    )


def _vllm(config: Any, a: Architecture) -> tuple[Part, ...]:
    rollout = config.actor_rollout_ref.rollout
    split, batched = rollout.tensor_model_parallel_size, rollout.max_num_batched_tokens
    _, work = activation_bytes(a, batched, batched * a.patches_per_token, True)
    length = rollout.max_model_len or config.data.max_prompt_length + config.data.max_response_length
    more = f"raise {_ROLLOUT}.gpu_memory_utilization or .tensor_model_parallel_size"
    return (
        Part("vLLM's weights", a.parameters * BF16 / split, more),
        Part("one layer at work", work / 2, f"lower {_ROLLOUT}.max_num_batched_tokens"),
        Part("sampler", rollout.max_num_seqs * a.vocabulary * 2 * FP32, f"lower {_ROLLOUT}.max_num_seqs"),
        Part("KV cache of one sequence", length * kv_bytes_per_token(a, split), f"lower {_ROLLOUT}.max_model_len"),
    )


def _logits(config: Any, a: Architecture, tokens: int, engine: Engine, copies: int) -> float:
    if config.actor_rollout_ref.model.use_fused_kernels:
        return min(tokens, FUSED_CHUNK) * a.vocabulary * FP32 * copies / engine.split
    width = BF16 + FP32 if engine.split > 1 else BF16  # vocabulary-parallel cross entropy works in fp32
    return tokens * a.vocabulary * width * copies / engine.split


def _fewer_tokens(config: Any, stage: str, tokens: int) -> str:
    owner, prefix = ("actor", "ppo") if stage == "update" else ("rollout", "log_prob")
    dynamic = config.actor_rollout_ref.actor.use_dynamic_bsz
    name = f"{prefix}_max_token_len_per_gpu" if dynamic else f"{prefix}_micro_batch_size_per_gpu"
    return f"lower actor_rollout_ref.{owner}.{name} ({tokens} tokens in a micro-batch)"
