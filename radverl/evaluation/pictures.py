"""Two pictures of a training run: its curves, and sample studies with the report before and after.

Everything is drawn at positions computed in inches from measured text, so that long reports wrap, rows grow, and no two
texts can meet. A colour never stands alone: every coloured label also carries a sign, for readers who see no colours.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from data_preprocess.core.skiplog import write_bytes
from radverl.evaluation.files import row_name, truth_of
from radverl.evaluation.generate import open_image
from radverl.evaluation.verl_log import Record, read_log

# Okabe and Ito's colours, told apart by most colour-blind readers.
GREEN, ORANGE, PURPLE, BLUE, GREY = "#007a5a", "#c04a00", "#8a3d76", "#0072b2", "#555555"
RUN_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#000000")
# Boxes take none of the colours that mean found, missed or not in the truth; legible on film and on white paper.
BOX_COLOURS = (BLUE, "#a87900", "#c2185b", "#00868b", "#5d3fd3")
FONT_PT, LINE_IN = 9.0, 9.0 * 1.4 / 72
IMAGE_IN, TEXT_IN, GAP_IN, MARGIN_IN, HEAD_IN = 2.9, 3.7, 0.35, 0.3, 1.15
MAX_LINES = 26  # about 200 words: longer than nearly every chest report, short enough for a page of four

# (title, y label, candidate metrics as `_series` reads them)
_PANELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Training reward", "mean reward of the rollouts", ("critic/score/mean", "critic/rewards/mean", "reward_mean")),
    ("Rollouts with reward zero", "share of rollouts", ("zero_reward_rate",)),
    ("Prompts without signal (every rollout zero)", "share of prompts", ("all_zero_groups",)),
    ("Validation label F1", "macro F1 over labels", ("macro_f1",)),
    ("Validation reward", "mean reward", ("val-core/",)),
)

Line = tuple[str, str, str]  # text, colour, weight


def curves(runs: str | Path | Sequence[Record] | Mapping[str, Sequence[Record]], out_png: str | Path) -> list[str]:
    """Draw a training run, or several over each other, against the training step.

    Panels: mean reward, zero-reward rate, share of all-zero groups, validation macro F1, validation reward; a panel
    that no run has data for is left out.

    Args:
        runs: a log (see `verl_log.read_log`), its records (joined with `rollout_rates` by `merge`, for the zero-reward
            panels), or {name of the run: records}.
    Returns:
        titles of the panels drawn.
    Raises:
        ValueError: no record has any of the metrics.
    """
    if isinstance(runs, str | Path):
        runs = read_log(runs)
    named = dict(runs) if isinstance(runs, Mapping) else {"": list(runs)}
    drawn = []
    for title, ylabel, candidates in _PANELS:
        series = {name: _series(records, candidates) for name, records in named.items()}
        if any(series.values()):
            drawn.append((title, ylabel, series))
    if not drawn:
        raise ValueError("the records hold none of the metrics that are drawn: is this the log of a verl run?")

    columns = 2 if len(drawn) in (2, 4) else min(len(drawn), 3)
    lines = math.ceil(len(drawn) / columns)
    figure = _figure(5.0 * columns, 3.6 * lines + 0.2)
    for place, (title, ylabel, series) in enumerate(drawn):
        axes = figure.add_subplot(lines, columns, place + 1)
        for number, (name, points) in enumerate(series.items()):
            _draw_series(axes, points, RUN_COLOURS[number % len(RUN_COLOURS)], name)
        axes.set(title=title, xlabel="training step", ylabel=ylabel)
        if ylabel.startswith("share"):
            axes.set_ylim(-0.03, 1.03)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    _save(figure, out_png, 120)
    return [title for title, _, _ in drawn]


def samples(
    rows: Sequence[dict],
    before: Sequence[str],
    after: Sequence[str],
    out_png: str | Path,
    n: int = 4,
    *,
    names: tuple[str, str] = ("before RL", "after RL"),
) -> int:
    """Draw the first n studies: image with the true findings boxed, the true report, and two generated ones.

    Under each generated report its CheXpert labels: found (in the truth too), missed, or not in the truth. The studies
    are the first of `rows`, not chosen by result; pass others to choose.

    Args:
        rows: rows of our RL Parquet; `before` and `after` their reports.
        names: headings of the two columns of generated reports.
    Returns:
        number of studies drawn.
    Raises:
        ValueError: lengths differ, nothing to draw, or a row that cannot be read.
    """
    if not len(rows) == len(before) == len(after):
        raise ValueError(f"{len(rows)} rows, {len(before)} and {len(after)} reports: give one of each per study.")
    count = min(n, len(rows))
    if count < 1:
        raise ValueError("no study to draw: give at least one row and n >= 1.")
    from matplotlib.patches import Rectangle

    studies = [_study(rows[i], i, before[i], after[i]) for i in range(count)]
    heights = [
        max(max(map(len, columns[1:])) * LINE_IN, IMAGE_IN + (len(columns[0]) + 0.5) * LINE_IN) + LINE_IN
        for _, _, columns in studies
    ]
    width = 2 * MARGIN_IN + IMAGE_IN + 3 * (TEXT_IN + GAP_IN)
    height = HEAD_IN + sum(h + GAP_IN for h in heights) + MARGIN_IN
    figure = _figure(width, height)

    def write(x: float, y: float, text: str, **style: Any) -> None:
        shown = "".join(map(_drawable, text))
        figure.text(x / width, 1 - y / height, shown, va="top", parse_math=False, **style)

    columns_x = [MARGIN_IN + IMAGE_IN + GAP_IN + k * (TEXT_IN + GAP_IN) for k in range(3)]
    write(MARGIN_IN, 0.15, "Chest radiographs and their reports", fontsize=13, fontweight="bold")
    legend_x = MARGIN_IN
    meanings = {"✓ finding found": GREEN, "✗ finding missed": ORANGE, "+ not in the true report": PURPLE}
    for text, colour in meanings.items():
        write(legend_x, 0.47, text, fontsize=10, color=colour)
        legend_x += _text_inches(text, 10) + 0.3
    headings = ["image, true findings boxed", "true report", *names]
    for x, heading in zip([MARGIN_IN, *columns_x], headings, strict=True):
        write(x, 0.8, heading, fontsize=10.5, fontweight="bold")

    top = HEAD_IN
    for (image, boxes, columns), row_height in zip(studies, heights, strict=True):
        figure.add_artist(
            Rectangle((MARGIN_IN / width, 1 - (top - 0.08) / height), 1 - 2 * MARGIN_IN / width, 0, ec="#cccccc")
        )
        axes = figure.add_axes((MARGIN_IN / width, 1 - (top + IMAGE_IN) / height, IMAGE_IN / width, IMAGE_IN / height))
        axes.imshow(image, cmap="gray", aspect="equal")
        axes.set_axis_off()
        for number, box in enumerate(boxes):
            _draw_box(axes, image.size, box, number)
        for x, y, lines in [
            (MARGIN_IN, top + IMAGE_IN + LINE_IN / 2, columns[0]),
            *((x, top, lines) for x, lines in zip(columns_x, columns[1:], strict=True)),
        ]:
            for number, (text, colour, weight) in enumerate(lines):
                write(x, y + number * LINE_IN, text, fontsize=FONT_PT, color=colour, fontweight=weight)
        top += row_height + GAP_IN
    _save(figure, out_png, 110)
    return count


def wrap(text: str, inches: float, size: float = FONT_PT, max_lines: int = MAX_LINES) -> list[str]:
    """Break a text into lines no wider than so many inches; words wider than a line are cut, line breaks kept.

    A text of more than `max_lines` lines ends with a line that counts the words left out.
    """
    lines: list[str] = []
    starts: list[int] = []  # number of words before each line, for the count of what is left out
    seen = 0
    for paragraph in text.strip().splitlines() or [""]:
        line, started = "", seen
        for word in paragraph.split():
            rest = word
            while rest:
                joined = f"{line} {rest}" if line else rest
                if _text_inches(joined, size) <= inches:
                    line, rest = joined, ""
                elif line:
                    lines.append(line)
                    starts.append(started)
                    line, started = "", seen
                else:
                    fits = next((k for k in range(len(rest) - 1, 1, -1) if _text_inches(rest[:k], size) <= inches), 1)
                    line, rest = rest[:fits], rest[fits:]
            seen += 1
        lines.append(line)
        starts.append(started)
    if len(lines) <= max_lines:
        return lines
    return [*lines[: max_lines - 1], f"… and {seen - starts[max_lines - 1]} more words"]


def label_lines(truth: Mapping[str, int | None], predicted: Mapping[str, int | None]) -> list[tuple[str, str]]:
    """(text, colour) of every label present in the truth or in the report: found, then missed, then not in the truth.

    Uncertain counts as present on both sides.
    """
    there = [name for name, value in truth.items() if value in (1, -1)]
    said = [name for name, value in predicted.items() if value in (1, -1)]
    return [
        *((f"✓ {name}", GREEN) for name in there if name in said),
        *((f"✗ {name} (missed)", ORANGE) for name in there if name not in said),
        *((f"+ {name} (not in the true report)", PURPLE) for name in said if name not in there),
    ]


def _study(row: dict, index: int, before: str, after: str) -> tuple[Any, list[dict], list[list[Line]]]:
    """The image, its boxes, and the lines of the four columns: caption, true report, before, after."""
    from radverl.chexpert import label_report

    truth = truth_of(row, row_name(row, index))
    if not row["images"]:
        raise ValueError(f"{row_name(row, index)} has no image to draw.")
    boxes = truth.get("boxes") or []
    caption: list[Line] = [(line, GREY, "normal") for line in wrap(row_name(row, index), IMAGE_IN)]
    for number, box in enumerate(boxes):
        colour = BOX_COLOURS[number % len(BOX_COLOURS)]
        name = f"{number + 1} {box.get('name') or box.get('label')}"
        caption += [(line, colour, "normal") for line in wrap(name, IMAGE_IN)]
    if len(row["images"]) > 1:
        caption.append((f"first of {len(row['images'])} images", GREY, "normal"))
    true_names = [name for name, value in truth["labels"].items() if value in (1, -1)]
    columns = [caption, _report_lines(truth.get("report", ""), [(f"• {name}", GREY) for name in true_names])]
    columns += [_report_lines(text, label_lines(truth["labels"], label_report(text))) for text in (before, after)]
    return open_image(row["images"][0], row_name(row, index)), boxes, columns


def _report_lines(report: str, labels: list[tuple[str, str]]) -> list[Line]:
    body = [(line, "black", "normal") for line in wrap(report.strip() or "(empty report)", TEXT_IN)]
    signs = [(line, colour, "bold") for text, colour in labels for line in wrap(text, TEXT_IN * 0.94)]
    return [*body, ("", "black", "normal"), *signs]


def _draw_box(axes: Any, size: tuple[int, int], box: dict, number: int) -> None:
    from matplotlib.patches import Rectangle

    colour = BOX_COLOURS[number % len(BOX_COLOURS)]
    x0, y0, x1, y1 = (value * side for value, side in zip(box["box"], (*size, *size), strict=True))
    axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, ec=colour, lw=1.8))
    # Numbers go round the corners, so that boxes sharing one corner keep theirs apart.
    x, y = ((x0, y0), (x1, y0), (x0, y1), (x1, y1))[number % 4]
    tag = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
    axes.text(x, y, str(number + 1), color="white", fontsize=8, ha="center", va="center", bbox=tag, clip_on=False)


def _series(records: Sequence[Record], candidates: Sequence[str]) -> list[tuple[float, float]]:
    """(step, value) of the first candidate any record has: a whole name, a part between slashes, or a prefix."""
    keys = sorted({key for record in records for key in record})
    for candidate in candidates:
        if candidate.endswith("/"):
            fits = [key for key in keys if key.startswith(candidate) and "/reward/mean@" in key]
        else:
            fits = [key for key in keys if key == candidate or candidate in key.split("/")]
        if fits:
            # The whole name before a path that holds it; then alphabetical, so that a picture is repeatable.
            key = min(fits, key=lambda fit: (fit != candidate, fit))
            return [(record["step"], record[key]) for record in records if key in record]
    return []


def _draw_series(axes: Any, points: Sequence[tuple[float, float]], colour: str, name: str) -> None:
    if not points:
        return
    steps, values = zip(*points, strict=True)
    window = len(values) // 20
    if window < 2:
        axes.plot(steps, values, color=colour, marker="o", markersize=3, lw=1.4, label=name or None)
        return
    means = [sum(values[max(0, i - window + 1) : i + 1]) / min(window, i + 1) for i in range(len(values))]
    axes.plot(steps, values, color=colour, alpha=0.3, lw=0.8)
    label = f"{name}, mean of {window} steps" if name else f"mean of {window} steps"
    axes.plot(steps, means, color=colour, lw=1.8, label=label)


def _text_inches(text: str, size: float) -> float:
    """Width of a line without kerning, which a proportional font only makes narrower."""
    return sum(map(_advance_em, text)) * size / 72


@cache
def _advance_em(character: str) -> float:
    """How far one character moves the pen, in units of the font size."""
    font = _font()
    font.set_size(100, 72)
    # FreeType gives linear advances, which hinting leaves alone, in 1/65536 of a pixel.
    return font.load_char(ord(_drawable(character))).linearHoriAdvance / 65536 / 100


@cache
def _drawable(character: str) -> str:
    """The character, or U+FFFD where the font has none: a young model also writes control characters."""
    return character if _font().get_char_index(ord(character)) else "\ufffd"


def _font() -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties()))


def _figure(width: float, height: float) -> Any:
    # A bare figure with Agg: no window system, no global pyplot state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, out_png: str | Path, dpi: int) -> None:
    drawn = BytesIO()  # whole before it gets its name
    # The default metadata names the matplotlib version; without it equal pictures are equal bytes.
    figure.savefig(drawn, dpi=dpi, format="png", metadata={"Software": None})
    write_bytes(out_png, drawn.getvalue())
