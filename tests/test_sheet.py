"""The contact sheet: which rows it shows, where their boxes are, and that nothing in a file stops it."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageColor

from data_preprocess.core.rows import report_row, write_rows
from data_preprocess.core.sheet import COLOURS, EMPTY, GAP, RED, SIDE, _drawable, contact_sheet, write_sheet
from data_preprocess.core.sheet_rows import LOOKED_AT, choose_rows

RAMP = np.tile(np.linspace(20, 120, 80).astype(np.uint8), (40, 1))  # 80 wide, 40 high


def encoded(pixels: np.ndarray = RAMP) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def row(index: int, image: Any, truth: dict[str, Any], ability: str = "report", **extra: Any) -> dict[str, Any]:
    return report_row(
        data_source="made", split="train", index=index, prompt_id=f"made/train/{index}", subject_id="p", study_id="s",
        images=[image], prompt="<image>Write.", ground_truth=truth, width=80, height=40, ability=ability, **extra,
    )  # fmt: skip


def file_of(path: Path, rows: list[dict[str, Any]]) -> Path:
    write_rows(path, rows, kind="rl")
    return path


def where(sheet: Image.Image, colour: str) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of all pixels of a colour."""
    ys, xs = np.nonzero((np.asarray(sheet) == ImageColor.getrgb(colour)).all(axis=2))
    return int(xs.min()), int(ys.min()), int(xs.max()), int(ys.max())


def has(sheet: Image.Image, colour: str) -> bool:
    return bool((np.asarray(sheet) == ImageColor.getrgb(colour)).all(axis=2).any())


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_boxes_lie_on_the_letter_boxed_picture(tmp_path: Path, embedded: bool, turned: bool) -> None:
    pixels = RAMP.T.copy() if turned else RAMP
    (tmp_path / "x ü.png").write_bytes(encoded(pixels))
    image = encoded(pixels) if embedded else str(tmp_path / "x ü.png")
    truth = {"phrase": "a nodule", "boxes": [{"label": "", "box": [0.25, 0.5, 0.75, 1.0]}]}  # no name, so no tag
    sheet = contact_sheet(file_of(tmp_path / "x.parquet", [row(0, image, truth, "phrase")]))
    wide, high = (SIDE // 2, SIDE) if turned else (SIDE, SIDE // 2)
    left, top = GAP + (SIDE - wide) // 2, GAP + (SIDE - high) // 2
    expected = (left + 0.25 * wide, top + 0.5 * high, left + 0.75 * wide, top + high)
    assert np.abs(np.subtract(where(sheet, COLOURS[0]), expected)).max() <= 2


def test_regions_are_drawn_for_traces_only(tmp_path: Path) -> None:
    regions = [
        {"name": "left lung", "box": [0.5, 0.1, 0.9, 0.9], "finding": "nodule"},
        {"name": "right lung", "box": [0.1, 0.1, 0.5, 0.9], "finding": ""},
    ]
    for ability in ("report", "trace"):
        truth = {"regions": regions, "boxes": []}
        sheet = contact_sheet(file_of(tmp_path / "x.parquet", [row(0, encoded(), truth, ability)]))
        film = sheet.crop((GAP, GAP, GAP + SIDE, GAP + SIDE))
        if ability == "report":
            assert not has(film, "#ffffff")
        else:
            left, _, right, _ = where(film, "#ffffff")
            assert abs(left - 0.5 * SIDE) <= 5
            assert abs(right - 0.9 * SIDE) <= 2


def test_images_that_cannot_be_shown_are_grey_cells(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    for image in (str(tmp_path / "gone.png"), str(tmp_path / "text.png"), str(tmp_path), encoded()[:60], b"?"):
        sheet = contact_sheet(file_of(tmp_path / "x.parquet", [row(0, image, {"report": "Clear."})]))
        assert where(sheet, EMPTY) == (GAP, GAP, GAP + SIDE - 1, GAP + SIDE - 1)


def test_boxes_that_are_none_are_told(tmp_path: Path) -> None:
    for box in (None, [], [0.1, 0.2, 0.3], [0, 0, 80, 40], [0.5, 0.5, 0.2, 0.9], ["a", 0, 1, 1]):
        truth = {"boxes": [{"label": "Edema", "box": box}]}
        assert has(contact_sheet(file_of(tmp_path / "x.parquet", [row(0, encoded(), truth)])), RED), box
    truth = {"boxes": [{"label": "Edema", "box": [0, 0, 1, 1]}]}
    assert not has(contact_sheet(file_of(tmp_path / "x.parquet", [row(0, encoded(), truth)])), RED)


def test_rows_show_every_label_and_ability_between_them(tmp_path: Path) -> None:
    rows = []
    for i in range(3000):
        labels = {"Edema": int(i % 2), "Fracture": int(i == 2100), "Pneumonia": -1 if i == 1700 else 0}
        truth = {"report": "Clear.", "labels": labels, "boxes": [{"label": "rare", "box": [0, 0, 1, 1]}] * (i == 900)}
        rows.append(row(i, "/gone.png", truth, "anatomy" if i == 2900 else "report"))
    chosen = choose_rows(file_of(tmp_path / "x.parquet", rows), 8)
    assert {900, 1700, 2100, 2900} <= {r.number for r in chosen}
    assert len(chosen) == 8
    assert [r.number for r in chosen] == sorted({r.number for r in chosen})
    for r in chosen:
        assert r.truth == json.loads(rows[r.number]["reward_model"]["ground_truth"])
        assert (r.extra["prompt_id"], r.image) == (f"made/train/{r.number}", "/gone.png")


@pytest.mark.parametrize("group", [100, 100_000])
def test_a_large_file_is_looked_at_all_over_and_the_same_each_time(tmp_path: Path, group: int) -> None:
    n = 20_000
    abilities = ["report"] * (n - 7) + ["phrase"] * 7
    columns = {
        "ability": abilities,
        "reward_model": [{"ground_truth": json.dumps({"labels": {f"in {i // 5000}": 1}})} for i in range(n)],
        "images": [[{"image": f"file:///{i}.png"}] for i in range(n)],
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=group)
    chosen = choose_rows(tmp_path / "x.parquet", 12)
    assert {label for r in chosen for label in r.truth["labels"]} == {"in 0", "in 1", "in 2", "in 3"}
    assert group > LOOKED_AT or "phrase" in {r.ability for r in chosen}
    assert all(r.image == f"/{r.number}.png" for r in chosen)
    assert [r.number for r in choose_rows(tmp_path / "x.parquet", 12)] == [r.number for r in chosen]


@pytest.mark.parametrize(("n", "most", "size"), [(0, 12, (1, 1)), (1, 12, (1, 1)), (9, 12, (4, 3)), (9, 3, (3, 1))])
def test_size_of_the_sheet(tmp_path: Path, n: int, most: int, size: tuple[int, int]) -> None:
    path = file_of(tmp_path / "x.parquet", [row(i, encoded(), {"report": "Clear."}) for i in range(n)])
    one = contact_sheet(file_of(tmp_path / "one.parquet", [row(0, encoded(), {})])).size
    sheet = contact_sheet(path, most)
    assert (sheet.width - GAP, sheet.height - GAP) == tuple(k * (s - GAP) for k, s in zip(size, one, strict=True))


def test_a_written_sheet_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.parquet", [row(i, encoded(), {"labels": {"Edema": i % 2}}) for i in range(5)])
    write_sheet(path, tmp_path / "a" / "sheet.png", most=4)
    write_sheet(path, tmp_path / "b.png", most=4)
    assert (tmp_path / "a" / "sheet.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert Image.open(tmp_path / "b.png").size == contact_sheet(path, 4).size


def test_not_a_file_of_rows_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no Parquet")
    with pytest.raises(ValueError, match=r"x\.parquet: is not a Parquet file"):
        contact_sheet(tmp_path / "x.parquet")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "y.parquet")
    with pytest.raises(ValueError, match="has no column images or reward_model"):
        contact_sheet(tmp_path / "y.parquet")


def test_text_keeps_what_the_font_has() -> None:
    assert _drawable("No effusion, 3 cm.") == "No effusion, 3 cm."
    assert _drawable("Łódź ≥3\u00a0cm\n naïve") == "Lodz >=3 cm  naive"
    assert _drawable("肺🫁") == "??"


anything = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["report", "labels", "boxes", "regions", "phrase", "findings"])
shape = st.fixed_dictionaries({}, optional={"label": anything, "box": anything, "name": anything, "finding": anything})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(truth=st.dictionaries(keys, anything | st.lists(shape, max_size=3), max_size=6) | anything)
def test_no_ground_truth_stops_it(tmp_path: Path, truth: Any) -> None:
    text = json.dumps(truth, ensure_ascii=True)
    table = pa.table(
        {
            "ability": ["trace", None],
            "reward_model": [{"ground_truth": text}, {"ground_truth": text[:-1]}],
            "extra_info": [{"prompt_id": text.encode("ascii", "replace").decode()}, None],
            "images": [[{"bytes": encoded()}], []],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    assert contact_sheet(tmp_path / "x.parquet").width > SIDE
