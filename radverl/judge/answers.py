"""From the bytes of a chat completion to the one JSON object that was asked for.

Servers that constrain their output send exactly that object. Others wrap it: reasoning before it, code fences, a
sentence after it. The object is found by its form, and names and words of a list may be spelled in any case and with
any separator ("pleural_effusions"); where two different ones fit, none is chosen.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from radverl.judge.failure import JudgeFailure

MAX_CONTENT = 200_000  # characters of one answer; a report has a few thousand
_MAX_STARTS = 200  # braces tried, so that a hostile answer costs a bounded time
_THOUGHT = re.compile(r"\A\s*(?:<think>)?.*?</think>", re.S)


def read_completion(body: bytes, schema: dict[str, Any]) -> dict[str, Any]:
    """The answer in the body of a chat completion.

    Raises:
        JudgeFailure: bad_json (also where the answer was cut off), or refused where a filter or the model declined.
    """
    try:
        choice = json.loads(body)["choices"][0]
        content, refusal = choice["message"].get("content"), choice["message"].get("refusal")
        finish = choice.get("finish_reason")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise JudgeFailure("bad_json", "the server's reply is no chat completion", again=True) from None
    if refusal or finish == "content_filter":
        raise JudgeFailure("refused", "the model or a content filter declined to answer")
    if not isinstance(content, str) or not content.strip():
        raise JudgeFailure("bad_json", f"the answer is empty (finish reason {str(finish)[:20]})", again=True)
    try:
        return find_object(content, schema)
    except JudgeFailure:
        if finish == "length":
            raise JudgeFailure("bad_json", "the answer was cut off at its token limit", again=True) from None
        raise


def find_object(content: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The only JSON object in the text that has the form of `schema`.

    Raises:
        JudgeFailure: bad_json; there is none, or several different ones.
    """
    if len(content) > MAX_CONTENT:
        raise JudgeFailure("bad_json", f"the answer is longer than {MAX_CONTENT} characters", again=True)
    content = _THOUGHT.sub("", content, count=1)
    decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_one_value_each, strict=False)
    found: list[dict[str, Any]] = []
    position = content.find("{")
    for _ in range(_MAX_STARTS):
        if position < 0:
            break
        end = position + 1
        try:
            value, stop = decoder.raw_decode(content, position)
            value = respelled(value, schema)
            if conforms(value, schema):
                end = stop
                if value not in found:
                    found.append(value)
        except (ValueError, RecursionError):
            pass
        position = content.find("{", end)
    if len(found) != 1:
        what = f"{len(found)} different answers" if found else "no JSON object of the asked form"
        raise JudgeFailure("bad_json", f"{what} in the model's text", again=True)
    return found[0]


def respelled(value: Any, schema: dict[str, Any]) -> Any:
    """The value with names and words of an enum as the schema spells them; what has no counterpart there stays."""
    if "enum" in schema:
        return _spelling(value, schema["enum"])
    if schema["type"] == "array" and isinstance(value, list):
        return [respelled(item, schema["items"]) for item in value]
    if schema["type"] != "object" or not isinstance(value, dict):
        return value
    parts, out = schema["properties"], dict[str, Any]()
    for key, item in value.items():
        name = _spelling(key, parts)
        item = respelled(item, parts[name]) if name in parts else item
        if out.setdefault(name, item) != item:
            return value  # two spellings of a name with two values: its own keys do not conform
    return out


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value has the form of a JSON schema: type, properties, required, items, enum. No further keys."""
    if "enum" in schema:
        return value in schema["enum"]
    match schema["type"]:
        case "object":
            parts = schema["properties"]
            return (
                isinstance(value, dict)
                and value.keys() <= parts.keys()
                and value.keys() >= set(schema.get("required", parts))
                and all(conforms(item, parts[key]) for key, item in value.items())
            )
        case "array":
            return isinstance(value, list) and all(conforms(item, schema["items"]) for item in value)
        case "string":
            return isinstance(value, str) and _is_unicode(value)
        case "boolean":
            return isinstance(value, bool)
    raise ValueError(f"schema type {schema['type']!r} is not read here; use object, array, string, boolean or enum.")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which neither SQLite nor Parquet can store
        return False
    return True


def _spelling(word: Any, known: Iterable[Any]) -> Any:
    if not isinstance(word, str) or word in known:
        return word
    return next((name for name in known if isinstance(name, str) and _letters(name) == _letters(word)), word)


def _letters(word: str) -> str:
    return re.sub(r"[\W_]", "", word.lower()).removesuffix("s")


def _one_value_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs) and any(out[key] != value for key, value in pairs):
        raise ValueError("a name with two values")
    return out


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
