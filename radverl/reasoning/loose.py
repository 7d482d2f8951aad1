"""Objects in text that is nearly JSON: what a model writes when it means a list of dicts.

Reads JSON, Python literals, and what is neither: trailing or missing commas, brackets that are not closed, keys and
values without quotes or with one quote, quotes inside a text, full-width signs, prose and code fences around it all.
Nothing is evaluated. One pass from left to right: every step moves on, and no expression looks at more than a bounded
piece or at the next quote, so the time is linear in the length of the text whatever it holds.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any

MAX_DEPTH = 8  # objects and lists in one another; a trace has four (ours)

_ODD_SIGNS = str.maketrans({
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\xa0": " ",
    "\uff02": '"', "\uff1a": ":", "\uff0c": ",", "\uff3b": "[", "\uff3d": "]", "\uff5b": "{", "\uff5d": "}",
    "\uff08": "(", "\uff09": ")", "\u3010": "[", "\u3011": "]",
})  # fmt: skip
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"n": "\n", "t": " ", "r": " ", "b": " ", "f": " "}
_N = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(rf"{_N}(?=\s?(?:[,;\])}}\s]|$))")
_COMMENT = re.compile(r"(?<=[,{}\[\]])[ \t]*(?://|#)[^\n]{0,200}\n")
_BARE_FOUR = re.compile(rf"{_N}(?: ?, ?{_N}){{3}}(?= ?[,;}}\]]| ?$)|\{{ ?{_N}(?: ?, ?{_N}){{3}} ?\}}")
_KEY = re.compile(r"""["'`]?([^\W\d_][^"'`:={}\[\],]{0,80}?)["'`]?\s?[:=]""")
_IN_LIST = re.compile(r"[^,\])}{]*")
_WORDS = {
    "null": None, "none": None, "": None, "true": True, "false": False,
    "nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf,
}  # fmt: skip


class LooseReader:
    """Reads objects whose keys are likely to be among `keys`: these say where a text without quotes ends."""

    def __init__(self, keys: Iterable[str]) -> None:
        known = "|".join(sorted((re.escape(key).replace("_", "[_ ]") for key in keys), key=len, reverse=True))
        key = rf"""["'`]?(?i:{known})["'`]?\s?[:=]"""
        self._known = re.compile(key)
        self._next = re.compile(rf"[,{{}}\]]|(?<!\w){key}")
        # The quote that ends a text has after it what may follow a value; or the object ends and the quote is missing.
        follows = rf"""\s?(?:[}}\]){{]|$|[,;]\s?(?:["'{{\[(}}\])]|$|{key})|{key})"""
        open_end = r"\}(?=\s?(?:,?\s?\{|\]|$))"
        self._ends = {quote: re.compile(rf"{quote}(?<!\\{quote})(?={follows})|{open_end}") for quote in "\"'`"}
        self._bare_end = re.compile(rf"\}}|[,; ]\s?{key}|\]\s?(?:$|<)")

    def read(self, text: str) -> list[Any]:
        """The values in a text: what strict JSON finds in it, else all objects that can be made out.

        A list of texts is looked into: each may be an object that was written as a string.
        """
        value = strict(text)
        if value is not None and not (isinstance(value, list) and any(isinstance(one, str) for one in value)):
            return [value]
        objects = self._objects(text)
        for quote in ('\\"', '""'):  # a list that was written as a string once more
            if not objects and quote in text:
                objects = self._objects(text.replace(quote, '"'))
        return objects

    def _objects(self, text: str) -> list[Any]:
        text = " ".join(_COMMENT.sub(" ", text.translate(_ODD_SIGNS)).split())
        found = []
        place = text.find("{")
        while place >= 0:
            value, place = self._object(text, place + 1, 1)
            if value:
                found.append(value)
            place = text.find("{", place)
        return found

    def _object(self, text: str, place: int, depth: int) -> tuple[dict[str, Any], int]:
        """The object that starts behind a brace, and where it ends. Of a repeated key the first value counts."""
        out: dict[str, Any] = {}
        while (place := _skip(text, place)) < len(text):
            sign = text[place]
            if sign == "}":
                return out, place + 1
            if sign == "]" and self._known.match(text, _skip(text, place + 1)):  # a bracket too many
                place += 1
                continue
            if sign in "]{":  # the brace that ends this object is missing
                return out, place
            if match := _KEY.match(text, place):
                value, place = self._value(text, match.end(), depth)
                out.setdefault(match[1].strip(), value)
            else:
                behind = self._next.search(text, place + 1)
                place = behind.start() if behind else len(text)
        return out, place

    def _value(self, text: str, place: int, depth: int) -> tuple[Any, int]:
        if place < len(text) and text[place] == " ":
            place += 1
        sign = text[place : place + 1]
        if sign in ("{", "[", "(") and depth >= MAX_DEPTH:
            return None, place + 1
        if match := _BARE_FOUR.match(text, place):  # a box without brackets, or in those of a set
            return [float(number) for number in match[0].strip("{ }").split(",")], match.end()
        if sign == "{":
            return self._object(text, place + 1, depth + 1)
        if sign in ("[", "("):
            return self._list(text, place + 1, depth + 1)
        if sign in self._ends:
            return self._string(text, place)
        if match := _NUMBER.match(text, place):
            return float(match[0]), match.end()
        end = self._bare_end.search(text, place)
        stop = end.start() if end else len(text)
        return _word(text[place:stop]), stop

    def _list(self, text: str, place: int, depth: int) -> tuple[list[Any], int]:
        out: list[Any] = []
        while (place := _skip(text, place)) < len(text):
            sign = text[place]
            if match := _NUMBER.match(text, place):
                out.append(float(match[0]))
                place = match.end()
                continue
            if sign in "])":
                return out, place + 1
            if sign == "}" or self._known.match(text, place):  # the bracket that ends this list is missing
                return out, place
            if sign in "{[(\"'`":
                value, place = self._value(text, place, depth)
            else:
                end = _IN_LIST.match(text, place)
                assert end
                value, place = _word(end[0]), max(end.end(), place + 1)
            out.append(value)
        return out, place

    def _string(self, text: str, place: int) -> tuple[str, int]:
        end = self._ends[text[place]].search(text, place + 1)
        if not end:
            return _unescaped(text[place + 1 :]), len(text)
        return _unescaped(text[place + 1 : end.start()]).rstrip(" ,"), end.start() if end[0] == "}" else end.end()


def strict(text: str) -> Any:
    """The JSON value between the first bracket or brace of a text and the last; None where that is none."""
    starts = [place for place in (text.find("["), text.find("{")) if place >= 0]
    if not starts:
        return None
    try:
        return json.loads(text[min(starts) : max(text.rfind("]"), text.rfind("}")) + 1])
    except (ValueError, RecursionError):
        return None


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in " ,;":
        place += 1
    return place


def _word(text: str) -> Any:
    text = text.strip(" \"'`,;")
    return _WORDS.get(text.lower(), _unescaped(text))


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else _ESCAPED.get(m[1], m[1]), text)
