import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radverl.boxes import clamp, convert, iou, write_boxes

UNIT = st.floats(0, 1)
BOX = st.tuples(UNIT, UNIT, UNIT, UNIT)


def test_known_overlaps():
    squares = [[0, 0, 2, 2], [1, 1, 3, 3], [5, 5, 6, 6]]
    np.testing.assert_allclose(iou([[0, 0, 2, 2]], squares), [[1, 1 / 7, 0]])
    assert iou([], squares).shape == (0, 3)


@pytest.mark.parametrize("bad", [[0, 0, 0, 1], [1, 0, 0, 1], [0, 0, float("nan"), 1], [0, 0, float("inf"), 1]])
def test_a_box_without_area_overlaps_nothing(bad):
    assert iou([bad], [bad, [0, 0, 1, 1]]).tolist() == [[0, 0]]


@given(st.lists(BOX, min_size=1, max_size=5), st.lists(BOX, min_size=1, max_size=5))
def test_overlap_is_symmetric_and_in_range(a, b):
    overlap = iou(a, b)
    np.testing.assert_array_equal(overlap, iou(b, a).T)
    assert ((overlap >= 0) & (overlap <= 1 + 1e-12)).all()


def test_spaces():
    box = [[0.1, 0.2, 0.5, 1.0]]
    np.testing.assert_allclose(convert(box, "unit", "pixel", 200, 100), [[20, 20, 100, 100]])
    np.testing.assert_allclose(convert([[20, 20, 100, 100]], "pixel", "thousand", 200, 100), [[100, 200, 500, 1000]])
    np.testing.assert_allclose(convert(box, "unit", "thousand", 0, 0), [[100, 200, 500, 1000]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 0, 1, 1]], "units", "pixel", 1, 1), "box space is 'units'"),
        (([[0, 0, 1, 1]], "unit", "pixel", 0, 1), "need the size of the image"),
        (([0, 0, 1, 1], "unit", "pixel", 1, 1), r"shape \(4,\)"),
    ],
)
def test_bad_conversions_say_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        convert(*arguments)


def test_clamp():
    assert clamp([-5, 2, 30, 8], 20, 10) == (0, 2, 20, 8)
    assert clamp([25, 2, 30, 8], 20, 10) is None
    assert clamp([3, 2, 3, 8], 20, 10) is None
    assert clamp([float("nan"), 0, 1, 1]) is None


@pytest.mark.parametrize(
    ("boxes", "text"),
    [
        ([], "None"),
        ([(0.384, 0.47, 0.7591, 1)], "[0.38, 0.47, 0.76, 1.00]"),
        ([(0, 0, 1, 1)] * 2, "[0.00, 0.00, 1.00, 1.00] and [0.00, 0.00, 1.00, 1.00]"),
        (
            [(0, 0, 1, 1)] * 3,
            "[0.00, 0.00, 1.00, 1.00], [0.00, 0.00, 1.00, 1.00] and [0.00, 0.00, 1.00, 1.00]",
        ),
    ],
)
def test_written_boxes(boxes, text):
    assert write_boxes(boxes) == text
