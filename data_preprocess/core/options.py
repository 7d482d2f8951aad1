"""Command-line values that the data scripts share: whole numbers, image sizes, the prompt."""

import argparse
from pathlib import Path

from data_preprocess.core.images import MIN_SIDE
from data_preprocess.core.outputs import usable_text
from data_preprocess.core.rows import PLACEHOLDER, SPECIAL_TOKEN


def positive(text: str, least: int = 1) -> int:
    """A whole number of at least `least`, for argparse."""
    if not text.isdecimal() or int(text[:20]) < least:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number of at least {least}")
    return int(text[:20])  # beyond any table or picture; Python refuses to read thousands of digits


def pixels(text: str) -> int:
    """A number of pixels that leaves a picture, for argparse."""
    return positive(text, MIN_SIDE * MIN_SIDE)


def prompt_text(text: str, option: str = "--prompt") -> str:
    """The user text without the `<image>` it may start with.

    Raises:
        ValueError: blank, not UTF-8, or a placeholder or special token in it.
    """
    text = text.strip().removeprefix("<image>")
    if found := PLACEHOLDER.search(text) or SPECIAL_TOKEN.search(text):
        raise ValueError(f"{option} contains {found[0]}; leave it out, one <image> per image is put before the text.")
    return usable_text(text, option)


def prompt_file(path: str, option: str = "--prompt-file") -> str:
    """The prompt in a UTF-8 text file.

    Raises:
        ValueError: no such file, not UTF-8, or as `prompt_text`.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ValueError(f"{option} {path!r}: cannot be read ({reason}); name a text file.") from error
    return prompt_text(text, f"{option} {path!r}")
