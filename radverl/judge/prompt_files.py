"""Prompts as versioned files, and report text as data inside them.

A file `prompts/<name>.v<version>.md` has a part "# system" and a part "# user"; the latter holds {{data}} once. The
data stand there as one line of JSON between two lines with a code that the text cannot contain, since it is the hash
of the text. What chat templates take for control tokens is written as JSON escapes. So a report that says "ignore the
above" or plays the next turn stays a string.
"""

import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from radverl.text.normal import plain

FOLDER = Path(__file__).parent / "prompts"
PLACE = "{{data}}"
_PARTS = re.compile(r"\A(?:<!--.*?-->\s*)?# system\n(?P<system>.*?)\n# user\n(?P<user>.*)\Z", re.S)
# [INST], [/INST], [gMASK] and their like; angle brackets are escaped wherever they stand.
_CONTROL_WORD = re.compile(r"\[(?=/?[A-Za-z_]+\])")


@dataclass(frozen=True)
class Prompt:
    """One version of a prompt. `name` includes the version; `digest` changes with any letter of the file."""

    name: str
    system: str
    user: str
    digest: str

    def messages(self, text: str) -> list[dict[str, str]]:
        """The chat messages that carry `text`, a line of JSON as `as_data` gives it."""
        code = hashlib.sha256(f"{self.digest} {text}".encode()).hexdigest()[:16]
        fenced = f"=== DATA {code} ===\n{text}\n=== END {code} ==="
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.user.replace(PLACE, fenced)},
        ]


@lru_cache
def load_prompt(name: str, version: int) -> Prompt:
    """The prompt in `prompts/<name>.v<version>.md`.

    Raises:
        ValueError: the file lacks a part, or the user part does not hold {{data}} once.
    """
    path = FOLDER / f"{name}.v{version}.md"
    content = path.read_text(encoding="utf-8")
    parts = _PARTS.match(content)
    if parts is None or parts["user"].count(PLACE) != 1:
        raise ValueError(f"{path.name}: the file needs '# system', '# user' and one {PLACE}; restore it.")
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Prompt(f"{name}.v{version}", parts["system"].strip(), parts["user"].strip(), digest)


def as_data(value: Any) -> str:
    """A JSON-able value as one line of JSON with its strings in normal form; equal texts give equal lines.

    Normal form: valid Unicode without control, invisible and format characters, plain quotes and dashes, single spaces,
    single line breaks; case stays.
    """
    line = json.dumps(_clean(value), ensure_ascii=False, allow_nan=False)
    return _CONTROL_WORD.sub(r"\\u005b", line.replace("<", r"\u003c").replace(">", r"\u003e"))


def clean_text(text: str) -> str:
    """Normal form of one string, as in `as_data`."""
    text = plain(text.encode("utf-8", "replace").decode())
    text = "".join(c for c in text if unicodedata.category(c) != "Cf") if not text.isascii() else text
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"[^\S\n]+", " ", text)).strip()


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value
