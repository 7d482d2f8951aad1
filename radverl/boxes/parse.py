"""Boxes in what a model wrote: from text, from values that were read out of JSON, and from their space to 0-1.

Four numbers in a row are a box. The forms that models write:
  [0.38, 0.47, 0.76, 0.62]   (380, 470, 760, 620)   {"bbox_2d": [380, 470, 760, 620], "label": "heart"}
  {"x1": 0.38, "y1": 0.47, "x2": 0.76, "y2": 0.62}   x_min, y_min, x_max, y_max and left, top, right, bottom alike
  <box>(380,470),(760,620)</box>   <|box_start|>(380,470),(760,620)<|box_end|>   [[380, 470], [760, 620]]
  0.38, 0.47, 0.76, 0.62   <box>380 470 760 620</box>   [38%, 47%, 76%, 62%], which is read as 0.38, ...
A row of another length is none. Boxes are (x0, y0, x1, y1): a corner with width and height is not told apart in a list,
and not read where it is named. Linear time in the length of the text.

Shape legend: N boxes; 4 coordinates.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from radverl.boxes.geometry import SPACES, convert

Box = tuple[float, float, float, float]

UNIT_LIMIT = 1.5  # coordinates up to here are 0-1 of the image; in the other spaces such a box is smaller than a pixel
OVERSHOOT = 1.02  # how far beyond the image a box may be written for its space to be believed (ours)

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?%?"
_NUMBERS = re.compile(rf"(?<![\w.%+-]){_NUMBER}(?![\w%])")
_COMMA = re.compile(r"\s*[,;]\s*|\s+")
_POINTS = re.compile(r"\s*[)\]]\s*[,;]?\s*[(\[]\s*")
_BEFORE = re.compile(r"(?:[\[(]|<\|?box(?:_start)?\|?>)\s*$")
_LETTER = re.compile(r"[^\W\d_]")
_NAMED = re.compile(rf"""(?<![A-Za-z_])([A-Za-z][A-Za-z_ ]{{0,8}}?[0-2]?)["']?\s?[:=]\s?["']?({_NUMBER})(?![\w%])""")
_BETWEEN = re.compile(r"""["'\s]*[,;]?["'\s]*""")
_MAX_GAP = 200  # characters between two numbers of one box; more are not looked at (ours)
_CORNERS = (
    ("x1", "y1", "x2", "y2"), ("x0", "y0", "x1", "y1"), ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
)  # fmt: skip


class _Row(NamedTuple):
    """Numbers with nothing but commas or spaces between them."""

    start: int
    numbers: list[float]
    commas: bool  # between all of them
    decimal: bool  # all of them
    joined: bool = False  # the next row is the other point of a pair


def parse_boxes(text: str) -> list[Box]:
    """The boxes in a text, in their order and as written: in no space, neither clamped nor sorted by corner.

    Numbers without brackets are a box where all have decimals or percent signs, or the text has no words ("ribs 4, 5,
    6, 7" is none).
    """
    found = _named(text)
    rows = _rows(text)
    bare = None
    place = 0
    while place < len(rows):
        row = rows[place]
        place += 1
        if len(row.numbers) == 4:
            if bare is None and row.commas and not row.decimal:
                bare = not _LETTER.search(text)
            if _BEFORE.search(text, max(0, row.start - 16), row.start) or (row.commas and (row.decimal or bare)):
                found.append((row.start, _box(row.numbers)))
        elif len(row.numbers) == 2 and row.joined and len(rows[place].numbers) == 2:
            found.append((row.start, _box(row.numbers + rows[place].numbers)))
            place += 1
    return [box for _, box in sorted(found, key=lambda one: one[0])]


def read_box(value: Any) -> Box | None:
    """The box in a value that was read out of JSON: a list, an object with named corners, two points, a text.

    Of several boxes the first. None where there is none; a number that is not finite stays as it is.
    """
    if type(value) is list and len(value) == 4 and all(type(one) is float for one in value):
        return _box(value)
    for _ in range(3):  # [[x0, y0, x1, y1]] and [{"x1": ...}] are written, too
        if isinstance(value, str):
            boxes = parse_boxes(value if any(c in value for c in "[(:=<") else f"[{value}]")
            return boxes[0] if boxes else None
        if isinstance(value, Mapping):
            return _corners({_plain(key): one for key, one in value.items()})
        if not isinstance(value, Sequence) or not value:
            return None
        if len(value) == 4 and (numbers := _floats(value)):
            return _box(numbers)
        if len(value) == 2 and all(isinstance(one, list | tuple) and len(one) == 2 for one in value):
            value = [*value[0], *value[1]]
        else:
            value = value[0]
    return None


def box_spaces(boxes_N4: Sequence[Box], width: float | None = None, height: float | None = None) -> list[str]:
    """The space that each of the boxes of one output was written in, found by its numbers (ours).

    unit, where none of a box's numbers is above `UNIT_LIMIT`. The others share a space: pixel, where the size of the
    image is known and holds them all, and thousand does not or is filled less by them; else thousand. A few boxes in a
    corner of an image are a guess, so name the space where you know it.
    """
    unit_N = [max(box) <= UNIT_LIMIT and min(box) >= -UNIT_LIMIT for box in boxes_N4]
    if all(unit_N):
        return ["unit"] * len(unit_N)
    others = [box for box, unit in zip(boxes_N4, unit_N, strict=True) if not unit]
    other = "thousand"
    if width and height:
        others = [box for box, unit in zip(boxes_N4, unit_N, strict=True) if not unit]
        right = max((v for box in others for v in (box[0], box[2]) if math.isfinite(v)), default=0.0)
        bottom = max((v for box in others for v in (box[1], box[3]) if math.isfinite(v)), default=0.0)
        filled = {"thousand": (right / 1000, bottom / 1000), "pixel": (right / width, bottom / height)}
        holding = [space for space, shares in filled.items() if max(shares) <= OVERSHOOT]
        other = max(holding or ["thousand"], key=lambda space: sum(filled[space]))
    return ["unit" if unit else other for unit in unit_N]


def to_unit(
    boxes_N4: Sequence[Box], spaces_N: Sequence[str], width: float | None = None, height: float | None = None
) -> list[Box]:
    """The boxes in 0-1 of the image, each from its own space.

    Raises:
        ValueError: an unknown space, or pixels of an image without a size.
    """
    out = list(boxes_N4)
    for space in {*spaces_N} - {"unit"}:
        places = [i for i, one in enumerate(spaces_N) if one == space]
        converted = convert([boxes_N4[i] for i in places], space, "unit", width or 0, height or 0)
        for i, (x0, y0, x1, y1) in zip(places, converted.tolist(), strict=True):
            out[i] = (x0, y0, x1, y1)
    return out


def is_finite(box: Box) -> bool:
    """Whether a box has four finite numbers."""
    return math.isfinite(box[0] + box[1] + box[2] + box[3])


def has_area(box: Box) -> bool:
    """Whether the corners of a box are in their order and apart."""
    return box[2] > box[0] and box[3] > box[1]


def check_space(space: Any, where: str) -> None:
    """Refuse what is no space of boxes; None, for found by its numbers, is one.

    Raises:
        ValueError: another value; starts with `where`.
    """
    if space is not None and space not in SPACES:
        raise ValueError(f"{where}: box_space is {space!r:.40}; use one of {', '.join(SPACES)}, or leave it out.")


def _rows(text: str) -> list[_Row]:
    rows: list[_Row] = []
    last = None
    for match in _NUMBERS.finditer(text):
        near = last is not None and match.start() - last <= _MAX_GAP
        gap = text[last : match.start()] if near else ""
        last = match.end()
        number, decimal = _float(match[0]), "." in match[0] or "%" in match[0]
        assert number is not None
        if rows and _COMMA.fullmatch(gap):
            row = rows[-1]
            commas = row.commas and ("," in gap or ";" in gap)
            rows[-1] = _Row(row.start, [*row.numbers[-8:], number], commas, row.decimal and decimal)
        else:
            if rows and _POINTS.fullmatch(gap):
                rows[-1] = rows[-1]._replace(joined=True)
            rows.append(_Row(match.start(), [number], True, decimal))
    return rows


def _named(text: str) -> list[tuple[int, Box]]:
    """Boxes whose four corners are named one after the other."""
    found: list[tuple[int, Box]] = []
    latest: list[tuple[str, str, int]] = []
    last = 0
    for match in _NAMED.finditer(text):
        if match.start() - last > _MAX_GAP or not _BETWEEN.fullmatch(text, last, match.start()):
            latest = []
        last = match.end()
        latest = [*latest[-3:], (_plain(match[1]), match[2], match.start())]
        if len(latest) == 4 and (box := _corners({name: number for name, number, _ in latest})):
            found.append((latest[0][2], box))
            latest = []
    return found


def _corners(named: Mapping[str, Any]) -> Box | None:
    for names in _CORNERS:
        if all(name in named for name in names) and (numbers := _floats([named[name] for name in names])):
            return _box(numbers)
    return None


def _plain(key: Any) -> str:
    return str(key).lower().replace("_", "").replace(" ", "")


def _floats(values: Sequence[Any]) -> list[float] | None:
    numbers = [_float(value) for value in values]
    return None if None in numbers else numbers  # type: ignore[return-value]


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        if isinstance(value, str):
            value = value.strip()
            return float(value[:-1]) / 100 if value.endswith("%") else float(value)
        return float(value)
    except (ValueError, OverflowError):
        return None


def _box(numbers: Sequence[float]) -> Box:
    x0, y0, x1, y1 = numbers
    return (x0, y0, x1, y1)
