"""The turns of a row, as verl's loaders read them: text in which `<image>` stands for the next image."""

from collections.abc import Iterator
from typing import Any

from data_preprocess.core.rows import SPECIAL_TOKEN
from radverl.datacheck.report import Found
from radverl.datacheck.traces import check_answer


def read_messages(value: Any) -> list[dict[str, Any]]:
    """The turns of a row; empty where it has none that verl could use."""
    if not isinstance(value, list) or not all(isinstance(turn, dict) and "content" in turn for turn in value):
        return []
    return value


def check_messages(messages: list[dict[str, Any]], images: list[Any], role: str, media: set[str]) -> Iterator[Found]:
    """Findings about the turns of one row; `media` names the file's columns of other media ("videos", "audios")."""
    column = "messages" if role == "sft" else "prompt"
    if not messages or any(turn["content"] is None for turn in messages):
        yield "error", "no messages", f"{column} is empty, no list of {{role, content}}, or has a turn without content."
        return
    texts = [turn["content"] for turn in messages]
    if not all(isinstance(text, str) for text in texts):
        yield "warning", "structured content", f"{column} holds no plain text, so <image> is not counted."
        return
    count = sum(text.count("<image>") for text in texts)
    if count != len(images):
        yield "error", "image count", f"{column} has {count} <image> for {len(images)} images; verl stops at this row."
    yield from _check_reserved("\n".join(texts), column, bool(images), media)
    last = messages[-1]
    if role == "sft" and (last.get("role") != "assistant" or not last["content"].strip()):
        yield "error", "empty target", "the last turn is no assistant text, so nothing is learned."
    elif role == "sft":
        yield from check_answer(last["content"])


def _check_reserved(text: str, column: str, has_images: bool, media: set[str]) -> Iterator[Found]:
    """Words that are no text to verl or to the tokenizer."""
    for tag in ("<video>", "<audio>"):  # verl looks for these only in rows that have an image
        if has_images and tag in text and f"{tag[1:-1]}s" not in media:
            message = f"{column} has {tag} but the file has no {tag[1:-1]}s; verl drops this row or stops at it."
            yield "error", "media placeholder", message
    for token in sorted(set(SPECIAL_TOKEN.findall(text))):
        if token.endswith("_pad|>"):  # the processor finds more of them than it has images
            message = f"{column} contains {token}; verl drops this row or stops at it, so remove it."
            yield "error", "special token", message
        else:
            message = f"{column} contains {token}, which tokenizers take for a control token; remove it."
            yield "warning", "special token", message
