"""The contact sheet of a Parquet file: some pictures with the boxes of their rows, and a caption under each.

Boxes of findings are drawn in the colour of their label, with its name; regions of a trace as thin lines, grey where
the region is normal. A picture that is missing or cannot be read is a grey cell that says so. Look at the sheet.
"""

import os
import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw, ImageFont

from data_preprocess.core.images import ImageError, load_image, open_stored, save_png, to_eight_bit
from data_preprocess.core.sheet_rows import SheetRow, box_list, choose_rows, label_names

if TYPE_CHECKING:
    Pixels = tuple[int, int, int, int]  # left, top, right, bottom; a frame: left, top, width, height
    Shape = tuple[dict[str, Any], str, str, int]  # a box or region, its name, colour and line width
    Font = ImageFont.ImageFont | ImageFont.FreeTypeFont

SIDE, GAP, COLUMNS = 360, 8, 4  # pixels of a picture's cell and between cells; cells in a row
LINE, LINES = 15, 8  # pixels of a line of text; lines of a caption
TEXT, TAG = 12, 11  # font sizes
BACKGROUND, EMPTY, PALE, WHITE, RED = "#101010", "#6e6e6e", "#9e9e9e", "#ffffff", "#ff5252"
COLOURS = (
    "#ffd400", "#ff8c1a", "#4fc3f7", "#29b6a8", "#ff5c5c", "#b388ff", "#f06292", "#aed581", "#64ffda", "#ffab91",
    "#90caf9", "#fff59d", "#e0e0e0",
)  # fmt: skip
# What Pillow's own font lacks and Unicode does not take apart.
SPELT = {
    "ß": "ss", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "ı": "i", "–": "-", "—": "-",
    "×": "x", "±": "+/-", "≥": ">=", "≤": "<=", "→": "->", "⁄": "/", "μ": "u", "µ": "u",
}  # fmt: skip
NORMAL = re.compile(r"(no|normal|clear|unremarkable)\b", re.IGNORECASE)


def contact_sheet(path: str | os.PathLike[str], most: int = 12) -> Image.Image:
    """Draw up to `most` rows of a verl RL file.

    Raises:
        ValueError: not a Parquet file of that kind.
    """
    rows = choose_rows(path, most)
    names = sorted({str(item.get("label")) for row in rows for item in box_list(row.truth, "boxes")})
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    columns = max(1, min(COLUMNS, len(rows)))
    width, height = SIDE + GAP, SIDE + LINE * LINES + GAP
    sheet = Image.new("RGB", (columns * width + GAP, max(1, -(-len(rows) // columns)) * height + GAP), BACKGROUND)
    for i, row in enumerate(rows):
        corner = (GAP + i % columns * width, GAP + i // columns * height)
        sheet.paste(_picture(row, colours), corner)
        _caption(ImageDraw.Draw(sheet), row, (corner[0], corner[1] + SIDE + 2))
    if not rows:
        ImageDraw.Draw(sheet).text((GAP, GAP), "no rows", fill=WHITE, font=_font(TEXT))
    return sheet


def write_sheet(parquet: str | os.PathLike[str], png: str | os.PathLike[str], most: int = 12) -> None:
    """Write the contact sheet of a Parquet file to `png`, atomically.

    Raises:
        ValueError: as `contact_sheet`.
    """
    save_png(contact_sheet(parquet, most), png)


def _picture(row: SheetRow, colours: dict[str, str]) -> Image.Image:
    """The cell: the row's first picture as large as fits, its boxes, or words on grey."""
    cell = Image.new("RGB", (SIDE, SIDE), BACKGROUND)
    draw = ImageDraw.Draw(cell)
    try:
        if row.image is None:
            raise ImageError("this row has no image.")
        image = row.image
        film = to_eight_bit(open_stored(image)) if isinstance(image, bytes) else load_image(image)
    except (ValueError, OSError, MemoryError) as error:
        draw.rectangle([0, 0, SIDE, SIDE], fill=EMPTY)
        for i, line in enumerate(_wrap(str(error), SIDE - 2 * GAP, 12)):
            draw.text((GAP, GAP + i * LINE), line, fill=WHITE, font=_font(TEXT))
        return cell
    scale = SIDE / max(film.size)
    size = (max(1, round(film.width * scale)), max(1, round(film.height * scale)))
    left, top = (SIDE - size[0]) // 2, (SIDE - size[1]) // 2
    cell.paste(film.convert("RGB").resize(size, Image.Resampling.LANCZOS), (left, top))
    shapes: list[Shape] = []
    if row.ability == "trace":
        for item in box_list(row.truth, "regions"):
            if finding := str(item.get("finding") or ""):
                normal = bool(NORMAL.match(finding))
                shapes.append((item, "" if normal else str(item.get("name", "")), PALE if normal else WHITE, 1))
    for item in box_list(row.truth, "boxes"):
        shapes.append((item, str(item.get("label", "")), colours[str(item.get("label"))], 2))
    _draw_boxes(draw, shapes, (left, top, *size))
    return cell


def _draw_boxes(draw: ImageDraw.ImageDraw, shapes: "Sequence[Shape]", frame: "Pixels") -> None:
    """Boxes (0-1) on the picture at `frame` (left, top, width, height), each with its name where there is room."""
    placed: list[Pixels] = []
    tags = []
    for item, name, colour, width in shapes:
        if unit := _unit_box(item.get("box")):
            tags.append((_pixels(unit, frame), name, colour, width))
            draw.rectangle(tags[-1][0], outline=colour, width=width)
    for (x0, y0, x1, y1), name, colour, width in reversed(tags):  # findings have the first choice of places
        tag = _shorten(name, SIDE - 8, TAG)
        wide = int(draw.textlength(tag, font=_font(TAG))) + 4
        high = TAG + 3
        spots = ((x0, y0 - high), (x0, y0), (x1 - wide, y1 - high), (x0, y1 - high), (x0, y1), (x1 - wide, y0 - high))
        places = [_inside(x, y, wide, high) for x, y in spots]
        free = [place for place in places if not any(_overlap(place, other) for other in placed)]
        if tag and (free or width > 1):
            place = (free or places)[0]
            placed.append(place)
            draw.rectangle(place, fill=BACKGROUND)
            draw.text((place[0] + 2, place[1]), tag, fill=colour, font=_font(TAG))


def _unit_box(box: Any) -> tuple[float, ...] | None:
    """The box as floats, None where it is not x0 <= x1, y0 <= y1 in 0-1."""
    try:
        numbers = tuple(float(v) for v in box)
    except (TypeError, ValueError):
        return None
    if len(numbers) != 4 or not all(0 <= v <= 1 for v in numbers):  # NaN too
        return None
    return numbers if numbers[0] <= numbers[2] and numbers[1] <= numbers[3] else None


def _pixels(box: tuple[float, ...], frame: "Pixels") -> "Pixels":
    """Where a box in 0-1 lies in the cell."""
    left, top, wide, high = frame
    x0, y0, x1, y1 = (round(v * (side - 1)) for v, side in zip(box, (wide, high, wide, high), strict=True))
    return left + x0, top + y0, left + x1, top + y1


def _inside(x: int, y: int, wide: int, high: int) -> "Pixels":
    x, y = max(0, min(x, SIDE - wide - 1)), max(0, min(y, SIDE - high - 1))
    return x, y, x + wide, y + high


def _overlap(a: "Pixels", b: "Pixels") -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _caption(draw: ImageDraw.ImageDraw, row: SheetRow, at: tuple[int, int]) -> None:
    extra, truth = row.extra, row.truth
    images = f"{row.images} images, the first shown" if row.images > 1 else ""
    regions = "white: regions" if any(item.get("finding") for item in box_list(truth, "regions")) else ""
    facts = [f"row {row.number}", extra.get("split"), row.ability, extra.get("view"), images, regions]
    lines = [
        (_shorten(str(extra.get("prompt_id") or ""), SIDE, TEXT), PALE),
        (_shorten(" · ".join(str(fact) for fact in facts if fact), SIDE, TEXT), PALE),
    ]
    if phrase := truth.get("phrase"):
        lines += [(line, WHITE) for line in _wrap(f"“{phrase}”", SIDE, 2)]
    named = [*label_names(truth, 1), *(f"{name}?" for name in label_names(truth, -1))]
    if named or "labels" in truth:
        lines += [(line, COLOURS[0]) for line in _wrap(", ".join(named) or "no label present", SIDE, 2)]
    boxes = [_unit_box(item.get("box")) for item in box_list(truth, "boxes")]
    if None in boxes:
        lines.append((f"{boxes.count(None)} of {len(boxes)} boxes are not xyxy in 0-1", RED))
    elif phrase and not boxes:
        lines.append(("no box", PALE))
    report = truth.get("report") or truth.get("findings") or truth.get("impression")
    if isinstance(report, str):
        lines += [(line, WHITE) for line in _wrap(report, SIDE, max(2, LINES - len(lines)))]
    for i, (line, colour) in enumerate(lines[:LINES]):
        draw.text((at[0], at[1] + i * LINE), line, fill=colour, font=_font(TEXT))


def _wrap(text: str, width: int, most: int) -> list[str]:
    """Lines of at most `width` pixels; what does not fit on `most` lines ends in an ellipsis."""
    lines: list[str] = [""]
    for word in _drawable(" ".join(text[:2000].split())).split():
        longer = f"{lines[-1]} {word}".strip()
        if _font(TEXT).getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1] + " " + lines[most]]
    return [_shorten(line, width, TEXT) for line in lines if line]


def _shorten(text: str, width: int, size: int) -> str:
    """The text, or its start and an ellipsis, in at most `width` pixels."""
    text = _drawable(" ".join(text[:500].split()))
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(text + "...") > width:
        text = text[:-1]
    return text + "..."


def _drawable(text: str) -> str:
    """The text in characters that the font has: letters lose their accents, and what is left becomes "?"."""
    return "".join(_glyphs(character) for character in text)


@cache
def _glyphs(character: str) -> str:
    if character.isspace():
        return " "
    plain = "".join(SPELT.get(c, c) for c in unicodedata.normalize("NFKD", character))
    for candidate in (character, plain, "".join(c for c in plain if not unicodedata.combining(c))):
        if candidate and all((c.isascii() and c.isprintable()) or _has(c) for c in candidate):
            return candidate
    return "?"


def _has(character: str) -> bool:
    try:
        mask, missing = (_font(TEXT).getmask(c) for c in (character, "\U0010fffe"))
    except (UnicodeError, OSError, ValueError):
        return False
    return mask.size != missing.size or bytes(mask) != bytes(missing)


@cache
def _font(size: int) -> "Font":
    return ImageFont.load_default(size)
