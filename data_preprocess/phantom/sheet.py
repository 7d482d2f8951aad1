"""A contact sheet: films with the boxes of their findings and a caption under each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from data_preprocess.phantom.findings import LABEL_KIND
from data_preprocess.phantom.study import Study

COLOURS = (
    "#ffd400",
    "#ff8c1a",
    "#4fc3f7",
    "#29b6a8",
    "#ff5c5c",
    "#b388ff",
    "#f06292",
    "#aed581",
    "#64ffda",
    "#ffab91",
    "#90caf9",
    "#fff59d",
    "#e0e0e0",
)
COLOUR = dict(zip(LABEL_KIND, COLOURS, strict=True))
CAPTION = 44
GAP = 6


def contact_sheet(studies: Sequence[Study], titles: Sequence[str], columns: int = 6, side: int = 256) -> Image.Image:
    """Films in a grid of cells of `side` pixels, boxes and captions (label and side) in the label's colour."""
    columns = max(1, min(columns, len(studies)))
    rows = -(-len(studies) // columns)
    cell_w, cell_h = side + GAP, side + CAPTION + GAP
    sheet = Image.new("RGB", (columns * cell_w + GAP, rows * cell_h + GAP), "#101010")
    font, small = _font(11), _font(10)
    for i, (study, title) in enumerate(zip(studies, titles, strict=True)):
        x, y = GAP + (i % columns) * cell_w, GAP + (i // columns) * cell_h
        film = Image.fromarray(study.image)
        if film.width != side:
            film = film.resize((side, side), Image.Resampling.LANCZOS)
        sheet.paste(film, (x, y))
        draw = ImageDraw.Draw(sheet)
        draw.text((x, y + side + 1), title, fill="#9e9e9e", font=small)
        words, line = x, 0
        for box in study.boxes:
            colour = COLOUR[box["label"]]
            x0, y0, x1, y1 = (v * side for v in box["box"])
            draw.rectangle([x + x0, y + y0, x + min(x1, side - 1), y + min(y1, side - 1)], outline=colour)
            width = draw.textlength(box["name"] + "   ", font=font)
            if words + width > x + side and words > x:
                words, line = x, line + 1
            if line < 2:
                draw.text((words, y + side + 13 + 14 * line), box["name"], fill=colour, font=font)
            words += int(width)
        if not study.boxes:
            draw.text((x, y + side + 13), "no finding", fill="#ffffff", font=font)
    return sheet


def spread(positives: Sequence[set[str]], most: int) -> list[int]:
    """Indices of up to `most` studies that between them show every label, rarest company first, in order."""
    chosen: list[int] = []
    for label in LABEL_KIND:
        having = [i for i, p in enumerate(positives) if label in p and i not in chosen]
        if having and len(chosen) < most:
            chosen.append(min(having, key=lambda i: (len(positives[i]), i)))
    for i in np.argsort([len(p) for p in positives], kind="stable")[:1].tolist():
        if i not in chosen and len(chosen) < most:
            chosen.append(i)
    chosen += [i for i in range(len(positives)) if i not in chosen][: most - len(chosen)]
    return sorted(chosen)


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)
