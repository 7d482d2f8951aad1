"""What a training engine keeps on one GPU: weights, gradients, Adam's state, gathered layers; and its micro-batches.

P parameters shared by N GPUs, w bytes a weight (fp32 under FSDP, so that a step of 2.5e-7 is not rounded away):

    FSDP, FSDP2   weights wP/N, gradients wP/N, Adam 2wP/N; whole in bf16: the root, one layer and the next
    Megatron      weights 2P/M, gradients 4P/M on M = tensor x pipeline GPUs; fp32 copy and Adam 12P/M over D replicas

verl's `param_offload` and `optimizer_offload` move these away only while the engine is idle; during the update they
are back. `offload_policy` (FSDP2) keeps all of it in host memory during the update too.
"""

from dataclasses import dataclass
from typing import Any, Literal

from radverl.verl_plugin.memory.architecture import BF16, FP32, Architecture


@dataclass(frozen=True)
class Part:
    """Something that takes memory, and the setting that makes it smaller ("" where none does)."""

    name: str
    size: float
    remedy: str = ""


@dataclass(frozen=True)
class Engine:
    """What the engine has on the GPU in each phase; `split` GPUs share the vocabulary of one micro-batch."""

    update: tuple[Part, ...]
    step: tuple[Part, ...]
    log_probs: tuple[Part, ...]
    sync: tuple[Part, ...]
    idle: tuple[Part, ...]
    checkpointing: bool
    sent_bytes: int
    split: int = 1


def fsdp(config: Any, a: Architecture) -> Engine:
    """FSDP and FSDP2, of the actor in a config of verl.trainer.main_ppo."""
    actor = config.actor_rollout_ref.actor
    checkpointing = config.actor_rollout_ref.model.enable_gradient_checkpointing
    names = ("actor_rollout_ref.actor.strategy", "actor_rollout_ref.actor.fsdp_config")
    return sharded(actor.fsdp_config, actor.strategy, gpus(config), a, checkpointing, names)


def sharded(
    settings: Any, strategy: str, n_gpus: int, a: Architecture, checkpointing: bool, names: tuple[str, str]
) -> Engine:
    """FSDP and FSDP2 with these settings of a FSDPEngineConfig; `names` are those of strategy and section."""
    version1 = strategy == "fsdp"
    width = dtype_bytes(settings.model_dtype)
    on_host = settings.offload_policy and not version1
    shard = 0.0 if on_host else a.parameters * width / (settings.fsdp_size if settings.fsdp_size > 0 else n_gpus)
    more = f"use more GPUs, or {names[0]}=fsdp2 with {names[1]}.offload_policy=True"
    weights, gradients, adam = (Part(*p, more) for p in (("weights", shard), ("gradients", shard), ("Adam", 2 * shard)))
    # The root and its gradient, to the end of the backward pass; a layer, the next one, a gradient in bf16 and in fp32.
    gathered = Part("gathered layers", 2 * BF16 * a.root + (3 * BF16 + FP32) * a.layer)
    # FSDP1's flat parameters take Adam's foreach path, which makes a copy; FSDP2's DTensors are stepped one by one.
    copies = Part("Adam's copies", shard if version1 else 0.0 if on_host else a.largest * width / n_gpus)
    idle_weights = Part("weights", 0.0 if settings.param_offload else shard, f"set {names[1]}.param_offload=True")
    idle_adam = Part("Adam", 0.0 if settings.optimizer_offload else adam.size, f"set {names[1]}.optimizer_offload=True")
    return Engine(
        update=(weights, gradients, adam, gathered),
        step=(weights, gradients, adam, copies),
        log_probs=(weights, idle_adam, Part("gathered layers", BF16 * (a.root + 2 * a.layer))),
        sync=(weights if version1 else idle_weights, idle_adam),  # FSDP1 brings its shards back to gather them
        idle=(idle_weights, idle_adam),
        checkpointing=checkpointing,
        sent_bytes=width,
    )


def megatron(config: Any, a: Architecture) -> Engine:
    """Megatron: the vision tower counted whole on every GPU, tied embeddings on the first and the last stage."""
    actor = config.actor_rollout_ref.actor
    settings, optim = actor.megatron, actor.optim
    split, stages = settings.tensor_model_parallel_size, settings.pipeline_model_parallel_size
    mine = (a.parameters - a.vision_parameters) / (split * stages) + a.vision_parameters
    if a.tied and stages > 1:
        mine += a.vocabulary * a.hidden / split
    override = optim.get("override_optimizer_config") or {}
    on_host = override.get("optimizer_offload_fraction", 0.0) if override.get("optimizer_cpu_offload") else 0.0
    owners = data_parallel(config) if settings.use_distributed_optimizer else 1
    set_ = "set actor_rollout_ref.actor.megatron"
    more = f"{set_}.tensor_model_parallel_size or .pipeline_model_parallel_size higher"
    to_host = "set +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True"
    weights = Part("weights", mine * BF16, more)
    gradients = Part("gradients", mine * dtype_bytes(optim.main_grads_dtype), more)
    adam = Part("Adam", mine * 3 * FP32 / owners * (1 - on_host), to_host)
    param_offload = f"{set_}.param_offload=True"  # frees the gradient buffers too
    idle_weights = Part("weights", 0.0 if settings.param_offload else weights.size, param_offload)
    idle_gradients = Part("gradients", 0.0 if settings.param_offload else gradients.size, param_offload)
    idle_adam = Part("Adam", 0.0 if settings.optimizer_offload else adam.size, f"{set_}.optimizer_offload=True")
    return Engine(
        update=(weights, gradients, adam),
        step=(weights, gradients, adam),
        log_probs=(weights, idle_gradients, idle_adam),
        sync=(weights, idle_gradients, idle_adam),
        idle=(idle_weights, idle_gradients, idle_adam),
        checkpointing=settings.override_transformer_config.get("recompute_granularity") == "full",
        sent_bytes=BF16,
        split=split,
    )


def micro_batch_tokens(config: Any, stage: Literal["update", "log-probs"]) -> int:
    """Most tokens of one micro-batch on one GPU: the cap, or all that the batch has for this GPU."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    length = config.data.max_prompt_length + config.data.max_response_length
    oracle = str(config.trainer.v1.trainer_mode).startswith("orapo")  # one more row a prompt: the true report
    prompts = actor.ppo_mini_batch_size if stage == "update" else config.data.train_batch_size
    rows = -(-prompts * (rollout.n + oracle) // data_parallel(config))
    if actor.use_dynamic_bsz:
        cap = actor.ppo_max_token_len_per_gpu if stage == "update" else rollout.log_prob_max_token_len_per_gpu
        return int(min(cap, rows * length))
    size = actor.ppo_micro_batch_size_per_gpu if stage == "update" else rollout.log_prob_micro_batch_size_per_gpu
    return int(min(size or rows, rows) * length)


def host_bytes(config: Any, a: Architecture) -> float:
    """Memory of one node that weights, gradients and Adam's state take, while loading or in training (FSDP, FSDP2)."""
    reference = dtype_bytes(config.actor_rollout_ref.ref.fsdp_config.model_dtype)
    trained = host_bytes_per_weight(config.actor_rollout_ref.actor.fsdp_config, config.trainer.n_gpus_per_node, a.tied)
    return a.parameters * (reference + trained) / config.trainer.nnodes


def host_bytes_per_weight(settings: Any, ranks: int, tied: bool) -> int:
    """Bytes a weight of the trained model on all nodes together, the more of loading and training."""
    width, on_host = dtype_bytes(settings.model_dtype), settings.offload_policy
    loading = width * (ranks if tied else 1)  # tied embeddings: each rank loads all
    training = width * (on_host or settings.param_offload) + width * on_host
    training += 2 * width * (on_host or settings.optimizer_offload)
    return int(max(loading, training))


def gpus(config: Any) -> int:
    """GPUs of the training engine."""
    return int(config.trainer.n_gpus_per_node * config.trainer.nnodes)


def data_parallel(config: Any) -> int:
    """Groups of GPUs that work on different rows."""
    actor = config.actor_rollout_ref.actor
    if actor.strategy == "megatron":
        m = actor.megatron
        together = m.tensor_model_parallel_size * m.pipeline_model_parallel_size * m.context_parallel_size
    else:
        together = actor.ulysses_sequence_parallel_size
    return max(1, gpus(config) // int(together))


def dtype_bytes(dtype: str | None) -> int:
    """Bytes of a weight; verl takes fp32 where nothing is said."""
    return BF16 if str(dtype) in ("bf16", "bfloat16", "fp16", "float16") else FP32
