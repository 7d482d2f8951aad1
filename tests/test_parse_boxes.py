import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radverl.boxes import convert, parse_boxes, write_boxes
from radverl.boxes.parse import box_spaces, read_box, to_unit

BOX = (0.38, 0.47, 0.76, 0.62)
BIG = (380.0, 470.0, 760.0, 620.0)


@pytest.mark.parametrize(
    "text",
    [
        "[0.38, 0.47, 0.76, 0.62]",
        "(0.38,0.47,0.76,0.62)",
        "[ 0.38 0.47 0.76 0.62 ]",
        "0.38, 0.47, 0.76, 0.62",
        "It lies at 0.38, 0.47, 0.76, 0.62.",
        "[.38, .47, 7.6e-1, +0.62]",
        "[38%, 47%, 76%, 62%]",
        "[[0.38, 0.47], [0.76, 0.62]]",
        "<box>(0.38,0.47),(0.76,0.62)</box>",
        "<box>0.38 0.47 0.76 0.62</box>",
        "<|box_start|>(0.38,0.47),(0.76,0.62)<|box_end|>",
        '{"x1": 0.38, "y1": 0.47, "x2": 0.76, "y2": 0.62}',
        "{'x0': 0.38, 'y0': 0.47, 'x1': 0.76, 'y1': 0.62}",
        '{"score": 0.9, "x_min": "0.38", "y_min": "0.47", "x_max": "0.76", "y_max": "0.62"}',
        "left: 0.38, top: 0.47, right: 0.76, bottom: 0.62",
        '```json\n[\n {"bbox_2d": [0.38,\n 0.47,\n 0.76,\n 0.62],\n "label": "heart"}\n]\n```',
    ],
)
def test_forms_that_models_write(text):
    assert parse_boxes(text) == [pytest.approx(BOX)]


@pytest.mark.parametrize(
    "text",
    ["", "None", "[]", "[0.1, 0.2, 0.3]", "[1, 2, 3, 4, 5]", "fractures of ribs 4, 5, 6, 7", "seen on 2019-01-02 12:30",
     "[a, b, c, d]", "[nan, 0, 1, 1]", '{"x": 1, "y": 2, "w": 3, "h": 4}', "T4 T5 T6 T7", "(1, 2)", "(1,2),(3,4,5)"],
)  # fmt: skip
def test_what_is_no_box(text):
    assert parse_boxes(text) == []


def test_several_boxes_keep_their_order():
    assert parse_boxes("[1,2,3,4] and (5,6),(7,8)(9,10),(11,12)") == [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)]
    named = '{"x1": 1, "y1": 2, "x2": 3, "y2": 4}, {"x1": 5, "y1": 6, "x2": 7, "y2": 8}'
    assert parse_boxes(named) == [(1, 2, 3, 4), (5, 6, 7, 8)]
    assert parse_boxes("380, 470, 760, 620") == [BIG]


def test_values_stay_as_they_are_written():
    assert parse_boxes("[0.9, 0.8, 0.1, -0.2]") == [(0.9, 0.8, 0.1, -0.2)]


hundredths = st.integers(0, 100).map(lambda value: value / 100)


@given(st.lists(st.tuples(hundredths, hundredths, hundredths, hundredths), max_size=6))
def test_what_we_write_is_read(boxes):
    assert parse_boxes(f"The regions are {write_boxes(boxes)}.") == boxes
    assert parse_boxes(json.dumps([{"bbox_2d": box} for box in boxes])) == boxes


@settings(max_examples=200)
@given(st.text(alphabet="0123456789.,;()[]{}<>box|_: \"'xy-+e%n", max_size=120))
def test_any_text_gives_boxes_of_four_numbers(text):
    assert all(len(box) == 4 and all(isinstance(value, float) for value in box) for box in parse_boxes(text))


@pytest.mark.parametrize(
    "value",
    [list(BOX), BOX, [str(one) for one in BOX], [BOX], [BOX, BIG], [[0.38, 0.47], [0.76, 0.62]],
     "[0.38,0.47,0.76,0.62]",
     "0.38 0.47 0.76 0.62",
     {"x1": 0.38, "y1": 0.47, "x2": 0.76, "y2": 0.62}, {"X_min": "0.38", "Y_min": 0.47,
     "X_max": 0.76, "Y_max": 0.62}, ["38%", "47%", "76%", "62%"]],
)  # fmt: skip
def test_values_out_of_json(value):
    assert read_box(value) == pytest.approx(BOX)


@pytest.mark.parametrize(
    "value",
    [None, [], {}, "", "None", 5, True, [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, None], [1, 2, 3, True], [[[[[1]]]]],
     {"x": 1, "y": 2, "width": 3, "height": 4}, [10**400, 0, 1, 1]],
)  # fmt: skip
def test_values_that_are_no_box(value):
    assert read_box(value) is None


def test_numbers_that_are_not_finite_stay():
    box = read_box([math.nan, 0, math.inf, 1])
    assert [math.isnan(box[0]), *box[1:]] == [True, 0, math.inf, 1]


@pytest.mark.parametrize(
    ("boxes", "size", "spaces"),
    [
        ([BOX, (0, 0, 1.02, 1)], (640, 480), ["unit"] * 2),
        ([BIG], (None, None), ["thousand"]),
        ([(100, 200, 2000, 2500)], (2544, 3056), ["pixel"]),
        ([(530, 110, 880, 840)], (2544, 3056), ["thousand"]),  # both hold it, and it fills more of this one
        ([(20, 30, 480, 500)], (512, 512), ["pixel"]),
        ([(530, 110, 880, 840)], (512, 512), ["thousand"]),
        ([(0.1, 0.1, 0.4, 0.4), BIG], (None, None), ["unit", "thousand"]),  # one slip costs one box
        ([], (10, 10), []),
    ],
)
def test_space_by_the_numbers(boxes, size, spaces):
    assert box_spaces(boxes, *size) == spaces


@given(st.tuples(hundredths, hundredths, hundredths, hundredths), st.integers(1, 4000), st.integers(1, 4000))
def test_to_unit_undoes_convert(box, width, height):
    for space in ("unit", "pixel", "thousand"):
        written = [tuple(one) for one in convert([box], "unit", space, width, height).tolist()]
        assert to_unit(written, [space], width, height)[0] == pytest.approx(box)


def test_pixels_need_a_size():
    with pytest.raises(ValueError, match="size of the image"):
        to_unit([BIG], ["pixel"])
