"""The reasoning of an output: regions with box and finding inside <think>, then the report inside <answer>.

    <think>[{"region": "left lung", "box": [0.53, 0.11, 0.88, 0.84], "finding": "left pneumothorax"}, ...]</think>
    <answer>Findings: ... Impression: ...</answer>

(arXiv 2609.31911; `data_preprocess.core.traces` writes it.) What counts as complete tags is ours: the first <think>, a
</think>, an <answer> behind it and a </answer> behind that, in any case of letters. So:
  | written | read as |
  |---|---|
  | text before <think>, or between </think> and <answer> | ignored |
  | text after the first </answer> behind a </think> | ignored, whatever it holds |
  | several <think> blocks, or one in another, before <answer> | one reasoning, in their order |
  | <answer> or </answer> inside <think> | words of the reasoning; it opens no answer |
  | <think> without </think>, <answer> without </answer>: the output was cut off | incomplete |
  | <answer> before <think>, or the whole answer inside <think> | incomplete |
  | </think> without <think>, which a chat template had opened | incomplete: put it back before you score |
  | an answer without a letter or digit | incomplete |

A region is an object with a name, a box, or both. Lists of objects, one object a line, and objects of objects, {"left
lung": {"box": ..., "finding": ...}}, are all read, with or without prose and code fences around them; of JSON that is
broken, what can be made out (`radverl.reasoning.loose`). Regions without braces, as in YAML or prose, are not read.
"""

import re
from dataclasses import dataclass
from typing import Any

from radverl.boxes.parse import Box, read_box
from radverl.reasoning.loose import MAX_DEPTH, LooseReader
from radverl.reasoning.names import is_region

# How models name the three parts; the first of these that is there counts.
NAME_KEYS = (
    "region", "region_name", "name", "anatomy", "anatomical_region", "anatomic_region", "anatomical_name",
    "bbox_name", "area", "location", "label",
)  # fmt: skip
BOX_KEYS = (
    "box", "bbox", "bbox_2d", "box_2d", "bounding_box", "boxes", "bboxes", "coordinates", "coords", "location",
    "position",
)  # fmt: skip
FINDING_KEYS = (
    "finding", "findings", "finding_text", "description", "observation", "observations", "text", "sentence",
    "phrase", "phrases", "details",
)  # fmt: skip
_WEAK_KEYS = ("area", "location", "position", "label")  # of something else as often
_CORNERS = ("x0", "x1", "xmin", "x_min", "left")

_COMMON = frozenset({NAME_KEYS[0], BOX_KEYS[0], FINDING_KEYS[0]})  # those of the traces

_TAG = re.compile(r"<\s?(/?)\s?(think|answer)\s?>", re.I)
_CONTENT = re.compile(r"[^\W_]")
_reader = LooseReader({*NAME_KEYS, *BOX_KEYS, *FINDING_KEYS} - {*_WEAK_KEYS})


@dataclass(frozen=True, slots=True)
class Region:
    """A region as it was written; `box` is in whatever space, None where there is none that can be read."""

    name: str
    box: Box | None
    finding: str


@dataclass(frozen=True, slots=True)
class Trace:
    """An output in its parts.

    complete: whether both tags are; without that `regions` is what can be read and `answer` is "".
    """

    regions: tuple[Region, ...]
    answer: str
    complete: bool


def parse_trace(text: str) -> Trace:
    """The parts of an output. Whatever the text is, this raises nothing and takes time linear in its length."""
    reasoning, answer = split_tags(text)
    regions = tuple(_regions(reasoning))
    return Trace(regions, answer or "", answer is not None)


def split_tags(text: str) -> tuple[str, str | None]:
    """The text of the reasoning and of the answer, without tags; None for the answer where the tags are incomplete."""
    blocks: list[str] = []
    thinking = answering = False
    start = 0
    for tag in _TAG.finditer(text):
        closing, name = bool(tag[1]), tag[2].lower()
        if answering:
            if (closing, name) == (True, "answer"):
                answer = _TAG.sub(" ", text[start : tag.start()]).strip()
                return "\n".join(blocks), answer if _CONTENT.search(answer) else None
        elif thinking:
            if (closing, name) == (True, "think"):
                blocks.append(_TAG.sub(" ", text[start : tag.start()]))
                thinking, start = False, tag.end()
        elif (closing, name) == (False, "think"):
            thinking, start = True, tag.end()
        elif name == "think" and blocks:  # the end of a block that had another one in it
            blocks.append(text[start : tag.start()])
            start = tag.end()
        elif (closing, name) == (False, "answer") and blocks:
            answering, start = True, tag.end()
    if thinking:
        blocks.append(_TAG.sub(" ", text[start:]))
    return "\n".join(blocks), None


def _regions(text: str) -> list[Region]:
    out: list[Region] = []
    for value in _reader.read(text):
        _collect(value, "", 0, out)
    return out


def _collect(value: Any, key: str, depth: int, out: list[Region]) -> None:
    """Append the regions in a value that stands under a key."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for one in value:
            if isinstance(one, dict | list):
                _collect(one, key, depth + 1, out)
        return
    plain = value if value.keys() == _COMMON else {_plain(one): inner for one, inner in value.items()}
    name, (boxed, box) = _name(plain, key), _boxed(plain)
    if name is not None or boxed:
        finding = next((_text(plain[one]) for one in FINDING_KEYS if one in plain), "")
        out.append(Region(key if name is None else name, box, finding))
        return
    for one, inner in value.items():
        if isinstance(inner, list) and inner and not isinstance(inner[0], dict) and (box := read_box(inner)):
            out.append(Region(str(one), box, ""))  # {"left lung": [0.53, 0.11, 0.88, 0.84]}
        elif isinstance(inner, dict | list):
            _collect(inner, str(one), depth + 1, out)


def _name(entry: dict[str, Any], key: str) -> str | None:
    for own in NAME_KEYS:
        if isinstance(name := entry.get(own), str) and not (own == "location" and read_box(name)):
            # {"left lung": {"label": "effusion", "box": ...}}
            return key if own in _WEAK_KEYS and key and is_region(key) else name
    return None


def _boxed(entry: dict[str, Any]) -> tuple[bool, Box | None]:
    """Whether an object says that it has a box, and the first that can be read."""
    said = False
    for key in BOX_KEYS:
        if key in entry:
            if box := read_box(entry[key]):
                return True, box
            said = said or key not in _WEAK_KEYS
    box = read_box(entry) if any(key in entry for key in _CORNERS) else None
    return said or box is not None, box


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return " ".join(filter(None, map(_text, value[:100])))
    if isinstance(value, dict):
        return " ".join(f"{key}: {text}." for key, one in list(value.items())[:100] if (text := _text(one)))
    return "" if value is None or isinstance(value, bool) else str(value)


def _plain(key: str) -> str:
    return key.strip().lower().replace(" ", "_").replace("-", "_")
