"""Tiny Qwen2.5-VL and Qwen3-VL with random weights and a tokenizer trained on the spot, for machines without a GPU.

About 0.6 M parameters: small enough to learn to see simulated films in minutes on one core, with the configuration,
processor, chat format and code path of the real models. Sizes are ours, chosen by measurement:
    head_dim >= 32 (vLLM's CPU attention), vocab_size == len(tokenizer) (else the log-probs of vLLM and FSDP differ),
    full attention in every vision block (16 visual tokens are too few to window).
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data_preprocess.core.outputs import output_folder

KINDS = ("qwen2_5_vl", "qwen3_vl")
SPECIAL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
# The Qwen-VL chat format for texts and images; written out here because no model files are at hand offline.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MAX_IMAGE_SIZE = 4096
MERGE = 2  # vision patches are merged 2 x 2 into one visual token
VISION_HIDDEN, TEXT_HIDDEN, TEXT_LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
PATCH = {"qwen2_5_vl": 14, "qwen3_vl": 16}


def make_tiny_model(
    kind: str,
    out_dir: str | Path,
    corpus: Iterable[str],
    *,
    image_size: int = 112,
    vocab_size: int = 600,
    seed: int = 0,
) -> Path:
    """Write a model folder (weights, config, tokenizer, processor) that transformers, verl and vLLM load.

    Args:
        kind: "qwen2_5_vl" or "qwen3_vl".
        corpus: texts the byte-level BPE is trained on; take the reports and prompts it will write and read.
        image_size: images are resized to about this square, in pixels; rounded down to whole visual tokens.
        vocab_size: upper bound of the BPE vocabulary, without the 14 special tokens (at least 256, the bytes).
    Returns:
        `out_dir`.
    Raises:
        ValueError: unknown kind, an image size below one visual token or beyond all reason, or a negative seed.
    """
    import torch

    if kind not in KINDS:
        raise ValueError(f"no tiny model of kind {kind!r}; choose one of {', '.join(KINDS)}.")
    if not 0 < image_size <= MAX_IMAGE_SIZE or not 0 <= seed < 2**63:
        raise ValueError(f"image_size {image_size} and seed {seed}: use 1 to {MAX_IMAGE_SIZE}, and 0 or more.")
    side = image_size // (PATCH[kind] * MERGE) * PATCH[kind] * MERGE
    if side == 0:
        raise ValueError(f"image_size {image_size} is below one visual token of {PATCH[kind] * MERGE} px; raise it.")
    out = output_folder(out_dir)
    torch.manual_seed(seed)
    tokenizer = _tokenizer(corpus, vocab_size)
    model, processor = (_qwen2_5_vl if kind == "qwen2_5_vl" else _qwen3_vl)(tokenizer, side)
    from transformers import GenerationConfig

    ids = _special_ids(tokenizer)
    stop = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    with tempfile.TemporaryDirectory(dir=out, prefix=".part.") as part:
        processor.save_pretrained(part)
        model.float().save_pretrained(part)
        GenerationConfig(eos_token_id=stop, pad_token_id=ids["<|endoftext|>"]).save_pretrained(part)
        # config.json, by which a model folder is known, comes last: a folder that has it is complete.
        for file in sorted(Path(part).iterdir(), key=lambda file: file.name == "config.json"):
            os.replace(file, out / file.name)
    return out


def read_corpus(parquet: str | Path) -> list[str]:
    """The text of every turn of an SFT Parquet.

    Raises:
        ValueError: it cannot be read, has no `messages`, or a row of it holds no turns of text.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        messages = pq.read_table(parquet, columns=["messages"]).column("messages").to_pylist()
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{parquet}: cannot read its `messages` column ({first}); give the SFT Parquet.") from error
    texts: list[str] = []
    for number, turns in enumerate(messages):
        found = turns if isinstance(turns, list) else []
        content = [turn["content"] for turn in found if isinstance(turn, dict) and isinstance(turn.get("content"), str)]
        if not content or len(content) < len(found):
            raise ValueError(f"{parquet}: row {number} has no turns of text in `messages`; see radverl data check.")
        texts += content
    if not texts:
        raise ValueError(f"{parquet}: has no row to train a tokenizer on; give an SFT Parquet with reports.")
    return texts


def _tokenizer(corpus: Iterable[str], vocab_size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AddedToken, Qwen2Tokenizer

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    chat_words = "system user assistant You are a helpful assistant."
    bpe.train_from_iterator([*corpus, chat_words], trainer)
    trained = json.loads(bpe.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=trained["vocab"],
        merges=[tuple(pair) for pair in trained["merges"]],
        unk_token=None,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS], special_tokens=True)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.model_max_length = 32768
    return tokenizer


def _special_ids(tokenizer: Any) -> dict[str, int]:
    return {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}


def _text_config(tokenizer: Any, rope: dict[str, Any]) -> dict[str, Any]:
    ids = _special_ids(tokenizer)
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": TEXT_HIDDEN,
        "intermediate_size": 2 * TEXT_HIDDEN,
        "num_hidden_layers": TEXT_LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": TEXT_HIDDEN // HEADS,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, **rope},
    }


def _multimodal_ids(tokenizer: Any) -> dict[str, Any]:
    ids = _special_ids(tokenizer)
    return {
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "tie_word_embeddings": True,
    }


def _qwen2_5_vl(tokenizer: Any, side: int) -> tuple[Any, Any]:
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
    )
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

    patch, depth = PATCH["qwen2_5_vl"], 2
    vision = {
        "depth": depth, "hidden_size": VISION_HIDDEN, "intermediate_size": 2 * VISION_HIDDEN, "num_heads": HEADS,
        "out_hidden_size": TEXT_HIDDEN, "patch_size": patch, "spatial_merge_size": MERGE, "temporal_patch_size": 2,
        "window_size": patch * 8, "fullatt_block_indexes": list(range(depth)), "tokens_per_second": 2, "in_channels": 3,
    }  # fmt: skip
    config = Qwen2_5_VLConfig(
        text_config=_text_config(tokenizer, {"mrope_section": [4, 6, 6]}),
        vision_config=vision,
        **_multimodal_ids(tokenizer),
    )
    shape = {"patch_size": patch, "merge_size": MERGE, "temporal_patch_size": 2}
    images = Qwen2VLImageProcessor(min_pixels=side * side, max_pixels=side * side, **shape)
    processor = Qwen2_5_VLProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**shape),
        chat_template=CHAT_TEMPLATE,
    )
    return Qwen2_5_VLForConditionalGeneration(config), processor


def _qwen3_vl(tokenizer: Any, side: int) -> tuple[Any, Any]:
    from transformers import Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    patch = PATCH["qwen3_vl"]
    vision = {
        "depth": 2, "hidden_size": VISION_HIDDEN, "intermediate_size": 2 * VISION_HIDDEN, "num_heads": HEADS,
        "out_hidden_size": TEXT_HIDDEN, "patch_size": patch, "spatial_merge_size": MERGE, "temporal_patch_size": 2,
        "num_position_embeddings": 256, "deepstack_visual_indexes": [0], "in_channels": 3,
    }  # fmt: skip
    config = Qwen3VLConfig(
        text_config=_text_config(tokenizer, {"mrope_section": [6, 5, 5], "mrope_interleaved": True}),
        vision_config=vision,
        **_multimodal_ids(tokenizer),
    )
    shape = {"patch_size": patch, "merge_size": MERGE, "temporal_patch_size": 2}
    half = [0.5] * 3  # Qwen3-VL normalises to [-1, 1]
    images = Qwen2VLImageProcessor(
        min_pixels=side * side, max_pixels=side * side, image_mean=half, image_std=half, **shape
    )
    processor = Qwen3VLProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**shape),
        chat_template=CHAT_TEMPLATE,
    )
    return Qwen3VLForConditionalGeneration(config), processor


def main(argv: list[str] | None = None) -> int:
    """`python -m radverl.tiny_model`: a tiny model whose tokenizer is trained on a Parquet's messages."""
    parser = argparse.ArgumentParser(
        prog="python -m radverl.tiny_model",
        description="Make a tiny vision-language model with random weights.",
        epilog="example: python -m radverl.tiny_model --data outputs/demo/data/sft_train.parquet --out outputs/tiny",
    )
    parser.add_argument("--data", required=True, help="Parquet with a `messages` column (SFT file)")
    parser.add_argument("--out", required=True, help="folder to write the model to")
    parser.add_argument("--kind", choices=KINDS, default="qwen2_5_vl")
    parser.add_argument("--image-size", type=int, default=112, help="pixels a side (default 112)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    try:
        corpus = read_corpus(args.data)
        make_tiny_model(args.kind, args.out, corpus, image_size=args.image_size, seed=args.seed)
    except ValueError as error:
        print(f"tiny_model: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"tiny_model: {args.out} is incomplete ({error}); make room and run this again.", file=sys.stderr)
        return 1
    print(f"wrote {args.kind} with random weights to {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
