"""Writing reports with a trained model: the Hugging Face folder of a checkpoint in, one report per study out.

Plain transformers, no verl, no vLLM: slow beside an inference server, but it runs wherever the model loads, and greedy
decoding makes the numbers repeatable. Weights are read from safetensors only and no code of a model folder is run.

Shapes: B rows of a batch, P prompt tokens (left-padded), T new tokens.
"""

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from radverl.evaluation.files import extra_info

IMAGE_TAG = "<image>"


class ModelError(ValueError):
    """The model folder cannot be used; the message is one sentence for the user."""


def generate_reports(
    model_dir: str | Path,
    rows: Sequence[dict],
    *,
    max_new_tokens: int,
    batch_size: int = 32,
    device: str = "auto",
    temperature: float = 0.0,
    seed: int = 0,
    images_from: Sequence[int] | None = None,
    progress: bool = True,
) -> list[str]:
    """Generate one report per row.

    Args:
        model_dir: a Hugging Face folder: config.json, *.safetensors, processor and tokenizer files.
        rows: rows of our RL Parquet: `prompt` with one "<image>" per image, `images` as {"image": "file://..."} or
            {"bytes": ...}.
        max_new_tokens: length limit T of a report.
        device: "auto" (CUDA where there is one, else CPU), or a torch device. float32 on the CPU, bfloat16 elsewhere.
        temperature: 0 is greedy; above 0 samples from the plain softmax at that temperature, repeatably by `seed`.
        images_from: for row i, the row whose images it is shown (see `metrics.derangement`); None shows its own. A
            donor with another number of images is cut or repeated to fit the prompt.
    Returns:
        len(rows) strings, special tokens removed, in the order of `rows`.
    Raises:
        ModelError: `model_dir` is not a usable vision-language model.
        ValueError: a bad argument, a prompt whose tags do not fit its images, or an image that cannot be read.
    """
    if max_new_tokens < 1 or batch_size < 1 or temperature < 0:
        raise ValueError(
            f"max_new_tokens={max_new_tokens}, batch_size={batch_size}, temperature={temperature}: the first two must "
            "be at least 1 and the temperature not negative."
        )
    if images_from is not None and (
        len(images_from) != len(rows) or any(not 0 <= donor < len(rows) for donor in images_from)
    ):
        raise ValueError("images_from must name, for each row, the position of the row whose images it gets.")
    if not rows:
        return []
    import torch

    processor, model = load_model(model_dir, device)
    if temperature > 0:
        torch.manual_seed(seed)
    reports: list[str] = []
    for start in _batches(len(rows), batch_size, progress):
        batch = range(start, min(start + batch_size, len(rows)))
        conversations = [chat_messages(rows[i]) for i in batch]
        # One list per row: the flat form of a batch is ambiguous to some processors when image counts differ.
        images = [_images_for(rows, i, images_from[i] if images_from is not None else i) for i in batch]
        try:
            reports += _generate_batch(processor, model, conversations, images, max_new_tokens, temperature)
        except RuntimeError:  # out of memory, mostly: no fault of the rows
            raise
        except Exception as error:  # a processor raises anything on what it cannot read
            names = f"{_name(rows[batch[0]])} to {_name(rows[batch[-1]])}"
            raise ValueError(f"{names}: the model cannot read these rows ({_first_line(error)}).") from error
    return reports


def load_model(model_dir: str | Path, device: str = "auto") -> tuple[Any, Any]:
    """(processor, model in eval mode) of a Hugging Face folder.

    Raises:
        ModelError: no folder, no config, no safetensors, no processor, not a vision-language model, weights missing.
    """
    folder = Path(model_dir)
    if not str(model_dir).strip() or not folder.is_dir():  # "" would be the current folder
        raise ModelError(f"{model_dir} is not a folder: give the Hugging Face folder of a checkpoint.")
    if not (folder / "config.json").is_file():
        hint = (
            "merge it first with `python -m verl.model_merger merge`" if _is_sharded(folder) else "is it the right one"
        )
        raise ModelError(f"{folder} has no config.json, so it is no Hugging Face model ({hint}).")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{folder} has no *.safetensors weights: save or convert the model with safetensors.")
    if not any((folder / name).is_file() for name in ("processor_config.json", "preprocessor_config.json")):
        raise ModelError(
            f"{folder} has no processor (processor_config.json): copy the base model's processor files in."
        )
    # Without these files transformers makes an empty tokenizer and says nothing.
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json): copy the base model's tokenizer files in.")

    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    trusted = {"local_files_only": True, "trust_remote_code": False}
    try:
        processor = AutoProcessor.from_pretrained(folder, **trusted)
    except Exception as error:  # transformers raises anything from OSError to KeyError for a broken folder
        raise ModelError(f"{folder}: its processor cannot be loaded ({_first_line(error)}).") from error
    if not hasattr(processor, "image_processor") or getattr(processor, "tokenizer", None) is None:
        raise ModelError(
            f"{folder}: its processor takes no images and text together; a vision-language model is needed."
        )
    try:
        model, report = AutoModelForImageTextToText.from_pretrained(
            folder,
            dtype=torch.float32 if device == "cpu" else torch.bfloat16,
            use_safetensors=True,
            output_loading_info=True,
            **trusted,
        )
    except Exception as error:
        raise ModelError(f"{folder}: its weights cannot be loaded ({_first_line(error)}).") from error
    # transformers fills what a file lacks with random numbers and carries on: such a model must not be measured.
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(f"{folder}: {len(missing)} weight(s) are missing ({missing[0]}, ...): the save is incomplete.")
    try:
        model = model.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"{folder}: the model cannot be put on device {device!r} ({_first_line(error)}).") from error
    tokenizer = processor.tokenizer
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return processor, model


def chat_messages(row: dict, where: str | None = None) -> list[dict]:
    """The prompt with every "<image>" tag turned into an image slot, as chat templates of transformers expect.

    Raises:
        ValueError: the prompt is no list of {role, content} with plain text, or the number of tags differs from the
            number of images; names the row, by `where` if given.
    """
    prompt, where = row["prompt"], where or _name(row)
    if not isinstance(prompt, list) or not prompt or not all(_is_turn(message) for message in prompt):
        raise ValueError(f"{where}: its prompt is no list of role and text: re-run data_preprocess.")
    images = row.get("images") or []
    if not isinstance(images, list):
        raise ValueError(f"{where}: its images are no list: re-run data_preprocess.")
    tags, held = sum(message["content"].count(IMAGE_TAG) for message in prompt), len(images)
    if tags != held:
        raise ValueError(
            f"{where}: its prompt has {tags} {IMAGE_TAG} tag(s) and {held} image(s): they must agree, re-run "
            "data_preprocess."
        )
    messages = []
    for message in prompt:
        parts = [part for part in re.split(f"({IMAGE_TAG})", message["content"]) if part]
        slots = [{"type": "image"} if part == IMAGE_TAG else {"type": "text", "text": part} for part in parts]
        messages.append({"role": message["role"], "content": slots})
    return messages


def open_image(image: dict, where: str = "image") -> Any:
    """The RGB picture of one `images` struct of a row.

    Raises:
        ValueError: neither a path nor bytes, no such file, or a file that does not decode; names `where`.
    """
    from PIL import Image

    from data_preprocess.core.images import DECODE_ERRORS

    path, data = image.get("image"), image.get("bytes")
    if path is None and data is None:
        raise ValueError(f"{where}: the image has neither a path nor bytes: re-run data_preprocess.")
    # Cut the scheme and nothing else, as the training side does: % and # may be part of a file's name.
    source = str(path).removeprefix("file://")
    try:
        with Image.open(BytesIO(data) if data is not None else source) as picture:
            return picture.convert("RGB")
    except (*DECODE_ERRORS, Image.DecompressionBombError) as error:
        shown = f'"{source}"' if data is None else f"of {len(data)} bytes"
        raise ValueError(f"{where}: the image {shown} cannot be read ({_first_line(error)}).") from error


def _images_for(rows: Sequence[dict], index: int, donor: int) -> list[Any]:
    needed, source = len(rows[index].get("images") or []), rows[donor].get("images") or []
    if needed and not source:
        raise ValueError(f"{_name(rows[donor])} has no image to lend to {_name(rows[index])}.")
    return [open_image(source[k % len(source)], _name(rows[donor])) for k in range(needed)]


def _generate_batch(
    processor: Any, model: Any, conversations: list, images: list[list], max_new_tokens: int, temperature: float
) -> list[str]:
    import torch

    prompts = [
        processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        for messages in conversations
    ]
    pictures = {"images": images} if any(images) else {}
    inputs = processor(text=prompts, padding=True, return_tensors="pt", **pictures).to(model.device, model.dtype)
    # A released model's generation_config may ask for sampling or a repetition penalty; the policy we trained had
    # neither, so both are set here.
    sampling = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
    greedy = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    with torch.inference_mode():
        tokens_BPT = model.generate(
            **inputs,
            **(sampling if temperature > 0 else greedy),
            repetition_penalty=1.0,
            max_new_tokens=max_new_tokens,
            pad_token_id=processor.tokenizer.pad_token_id,
        )
    new_BT = tokens_BPT[:, inputs["input_ids"].shape[1] :]
    texts = processor.tokenizer.batch_decode(new_BT, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return [text.strip() for text in texts]


def _batches(n: int, batch_size: int, progress: bool) -> Iterator[int]:
    starts = range(0, n, batch_size)
    if not progress:
        return iter(starts)
    from tqdm import tqdm

    return iter(tqdm(starts, desc="reports", unit="batch"))


def _is_sharded(folder: Path) -> bool:
    return any(folder.rglob("model_world_size_*_rank_*.pt"))


def _name(row: dict) -> str:
    return str(extra_info(row).get("prompt_id") or "a row")


def _is_turn(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("content"), str) and bool(message.get("role"))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
