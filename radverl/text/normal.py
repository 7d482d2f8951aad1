"""One normal form for comparing texts and for cache keys."""

import re
import unicodedata

_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060\ufeff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
_DASHES = re.compile(r"[\u2010-\u2015\u2212]")


def normalise(text: str) -> str:
    """Lower-case NFKC text with single spaces, plain quotes and dashes, no control characters, no outer punctuation.

    Two texts with the same normal form say the same words in the same order. Idempotent.
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", plain(text)).lower())
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" (?=[.,;:?!])", "", text)
    return text.strip(" .,;:?!\t\n")


def plain(text: str) -> str:
    """Text without control or invisible characters and with ASCII quotes and dashes; case and line breaks stay."""
    if text.isascii():
        return _CONTROL.sub(" ", text)
    text = _DASHES.sub("-", text.translate(_QUOTES).replace("\xa0", " ").replace("\x85", "\n").replace("\u2028", "\n"))
    return _CONTROL.sub(" ", _INVISIBLE.sub("", text))
