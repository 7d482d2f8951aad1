"""Shapes of a model, read from its config without loading a weight, and what they cost in memory.

    a = read_architecture("Qwen/Qwen2.5-VL-3B-Instruct")     # or a local folder with a config.json
    kept, work = activation_bytes(a, tokens=4096, patches=16384, checkpointing=True)

The parameters are counted on a network that transformers builds on the meta device, so any model it knows will do.
"""

import os
from dataclasses import dataclass
from typing import Any

BF16, FP32 = 2, 4  # bytes
# Bytes in bf16 per token of a decoder layer, and per image patch of a vision block: `a * intermediate + b * hidden`.
# Counted from live tensors of forward and backward on a CPU; tests/test_memory.py repeats the count.
LAYER_WORK, LAYER_KEPT = (12, 26), (8, 22)
BLOCK_WORK, BLOCK_KEPT = (12, 40), (8, 32)

_QWEN25VL_VISION = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14}
# Config of the hub's checkpoints, so that the dry run needs no network; tests compare the parameter counts.
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-VL-3B-Instruct": {
        "text_config": {"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008}
        | {"num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2},
        "vision_config": {**_QWEN25VL_VISION, "out_hidden_size": 2048},
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-VL-7B-Instruct": {
        "text_config": {"vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944}
        | {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4},
        "vision_config": {**_QWEN25VL_VISION, "out_hidden_size": 3584},
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen3-VL-8B-Instruct": {
        "model_type": "qwen3_vl",
        "text_config": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "head_dim": 128}
        | {"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8},
        "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16}
        | {"patch_size": 16, "out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]},
        "tie_word_embeddings": False,
    },
}


class NotEstimated(ValueError):
    """Memory cannot be estimated for this model or config; the sentence says why. The run itself may be fine."""


@dataclass(frozen=True)
class Architecture:
    """Shapes of a model. `layer` is its largest sharded layer, `root` what lies outside them, `largest` one tensor."""

    parameters: int
    vision_parameters: int
    layer: int
    root: int
    largest: int
    tied: bool
    layers: int
    hidden: int
    intermediate: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    vision_depth: int = 0
    vision_hidden: int = 0
    vision_intermediate: int = 0
    patches_per_token: int = 0


def read_architecture(model: str) -> Architecture:
    """Shapes of a local Hugging Face folder (its config.json) or of a checkpoint in KNOWN; loads no weights.

    Raises:
        NotEstimated: neither, or a model that transformers cannot build from its config.
    """
    import torch
    from transformers import AutoConfig
    from verl.utils.model import get_hf_auto_model_class

    folder = os.path.expanduser(model)
    try:
        if os.path.isfile(os.path.join(folder, "config.json")):
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
        elif model in KNOWN:
            config = AutoConfig.for_model(**{"model_type": "qwen2_5_vl"} | KNOWN[model])
        else:
            raise NotEstimated(f"no config.json in {model}; give a local folder, or one of {', '.join(KNOWN)}")
        with torch.device("meta"):
            network = get_hf_auto_model_class(config).from_config(config)
        return _shapes(network, config)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        if isinstance(error, NotEstimated):
            raise
        raise NotEstimated(f"transformers cannot build {model} from its config ({_first_line(error)})") from error


def activation_bytes(a: Architecture, tokens: int, patches: int, checkpointing: bool) -> tuple[float, float]:
    """Bytes kept for the backward pass of a micro-batch, and the most that one layer needs while it works."""
    layer_work = tokens * (LAYER_WORK[0] * a.intermediate + LAYER_WORK[1] * a.hidden)
    block_work = patches * (BLOCK_WORK[0] * a.vision_intermediate + BLOCK_WORK[1] * a.vision_hidden)
    if checkpointing:  # only the input of every layer
        kept = BF16 * (tokens * a.layers * a.hidden + patches * a.vision_depth * a.vision_hidden)
    else:
        kept = tokens * a.layers * (LAYER_KEPT[0] * a.intermediate + LAYER_KEPT[1] * a.hidden)
        block_kept = BLOCK_KEPT[0] * a.vision_intermediate + BLOCK_KEPT[1] * a.vision_hidden
        kept += patches * a.vision_depth * block_kept
    return float(kept), float(max(layer_work, block_work))


def kv_bytes_per_token(a: Architecture, tensor_parallel: int = 1) -> int:
    """Key and value of one token in all layers, bf16; heads are repeated where there are fewer than GPUs."""
    return 2 * BF16 * a.layers * max(1, a.kv_heads // tensor_parallel) * a.head_dim


def _shapes(network: Any, config: Any) -> Architecture:
    text = config.get_text_config()
    vision = getattr(config, "vision_config", None)
    size = {name: parameter.numel() for name, parameter in network.named_parameters()}  # tied ones once
    wrapped = set(network._no_split_modules or ())
    layers = [m for m in network.modules() if type(m).__name__ in wrapped]
    in_layers = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    return Architecture(
        parameters=sum(size.values()),
        vision_parameters=sum(n for name, n in size.items() if ".visual." in name or ".vision" in name),
        layer=max(in_layers, default=0),
        root=sum(size.values()) - sum(in_layers),
        largest=max(size.values()),
        tied=bool(config.tie_word_embeddings),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=text.intermediate_size,
        kv_heads=text.num_key_value_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        vocabulary=text.vocab_size,
        vision_depth=getattr(vision, "depth", 0) or getattr(vision, "num_hidden_layers", 0),
        vision_hidden=getattr(vision, "hidden_size", 0),
        vision_intermediate=getattr(vision, "intermediate_size", 0),
        patches_per_token=getattr(vision, "spatial_merge_size", 1) ** 2 if vision is not None else 0,
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
