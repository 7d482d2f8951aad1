"""Prompt lengths in tokens, counted as verl's RLHFDataset counts them before it drops what is too long."""

import copy
import io
import re
from pathlib import Path
from typing import Any

from radverl.datacheck.report import DataFileError


def load_processor(model: str | Path) -> Any:
    """The Hugging Face processor (or bare tokenizer) of a local model folder.

    Raises:
        DataFileError: no such folder, or nothing in it that loads.
    """
    if not Path(model).is_dir():
        raise DataFileError(f"{model}: no such model folder; pass one that holds a tokenizer and a processor.")
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(str(model), local_files_only=True)
    except Exception as error:  # transformers raises whatever the broken file led to
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataFileError(f"{model}: its processor cannot be loaded ({first}).") from error


def count_tokens(messages: list[dict[str, Any]], images: list[Any], processor: Any, generate: bool = True) -> int:
    """Tokens of a conversation with its images expanded.

    Args:
        messages: role and text, with `<image>` where an image stands.
        images: elements of the row's `images`.
        generate: add the opening of the answer, as before a rollout.
    Raises:
        ValueError: images for a model without an image processor.
        Exception: whatever the processor raises; verl drops such a row.
    """
    image_processor = getattr(processor, "image_processor", None)
    tokenizer = getattr(processor, "tokenizer", processor)
    if not images:
        text = processor.apply_chat_template(messages, add_generation_prompt=generate, tokenize=False)
        return len(tokenizer(text=text, add_special_tokens=False)["input_ids"])
    if image_processor is None:
        raise ValueError("the model has no image processor, but the row has images")
    filled = _fill(messages, images)
    text = processor.apply_chat_template(filled, add_generation_prompt=generate, tokenize=False)
    pictures = _pictures(filled, getattr(image_processor, "patch_size", 14))
    return len(processor(text=[text], images=pictures)["input_ids"][0])


def _fill(messages: list[dict[str, Any]], images: list[Any]) -> list[dict[str, Any]]:
    """The messages as lists of parts, with the images at their places."""
    from PIL import Image

    left = iter(images)
    filled = copy.deepcopy(messages)
    for message in filled:
        if not isinstance(message["content"], str):
            continue
        parts = []
        for piece in filter(None, re.split("(<image>)", message["content"])):
            if piece != "<image>":
                parts.append({"type": "text", "text": piece})
                continue
            image = next(left)
            if isinstance(image, dict):
                source = (
                    image.get("bytes")
                    if image.get("bytes") is not None
                    else image.get("image") or image.get("image_url")
                )
            else:
                source = image
            parts.append(
                {"type": "image", "image": Image.open(io.BytesIO(source)) if isinstance(source, bytes) else source}
            )
        message["content"] = parts
    return filled


def _pictures(messages: list[dict[str, Any]], patch_size: int) -> list[Any]:
    from qwen_vl_utils import process_vision_info

    return process_vision_info(messages, image_patch_size=patch_size)[0]
