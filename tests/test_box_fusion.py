"""Fusion of several readers' boxes: the formula by hand, what it never does, and no say of the order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radverl.boxes import iou
from radverl.boxes.fusion import clusters, fuse

A = (0.2, 0.2, 0.6, 0.6)
B = (0.3, 0.2, 0.7, 0.6)  # IoU with A: .12 / .20 = .6
FAR = (0.8, 0.8, 0.9, 0.9)

corner = st.floats(0, 0.8, allow_nan=False).map(lambda x: round(x, 3))
side = st.floats(0.01, 0.2).map(lambda x: round(x, 3))
boxes = st.tuples(corner, corner, side, side).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))
marks = st.lists(st.tuples(boxes, st.sampled_from(["R1", "R2", "R3"])), max_size=8)


def test_the_mean_of_two_readers() -> None:
    np.testing.assert_allclose(fuse([A, B], ["R1", "R2"], of=2), [[0.25, 0.2, 0.65, 0.6]])


def test_scores_weigh() -> None:
    (one,) = clusters([A, B], ["R1", "R2"], scores=[0.9, 0.3])
    np.testing.assert_allclose(one.box, [0.225, 0.2, 0.625, 0.6])  # (.9 * .2 + .3 * .3) / 1.2, ...
    assert one.score(2) == pytest.approx(0.6)
    assert one.score(3) == pytest.approx(0.6 * 2 / 3)  # a third reader saw nothing
    assert clusters([A, A, A], ["R1", "R1", "R2"])[0].score(2) == 1.0  # more boxes than readers do not go above


def test_matches_are_sought_among_fused_boxes() -> None:
    # C overlaps B by .6 like B does A, but the mean of A and B only by .4545.
    c = (0.4, 0.2, 0.8, 0.6)
    np.testing.assert_allclose(iou([A], [c]), [[1 / 3]])
    np.testing.assert_allclose(iou([[0.25, 0.2, 0.65, 0.6]], [c]), [[0.25 * 0.4 / 0.22]])  # .4545
    assert len(fuse([A, B, c], ["R1", "R2", "R3"], of=3)) == 2
    np.testing.assert_allclose(fuse([A, B, c], list("123"), of=3, iou_threshold=0.45), [[0.3, 0.2, 0.7, 0.6]])
    assert len(fuse([A, B, c], list("123"), of=3, iou_threshold=0.65)) == 3


def test_the_threshold_itself_is_no_match() -> None:
    half = (0.0, 0.0, 0.5, 1.0)
    assert len(fuse([(0.0, 0.0, 1.0, 1.0), half], ["R1", "R2"], of=2, iou_threshold=0.5)) == 2


@pytest.mark.parametrize(
    ("how", "least", "expected"),
    [
        ("wbf", 1, [[0.25, 0.2, 0.65, 0.6], list(FAR)]),
        ("wbf", 2, [[0.25, 0.2, 0.65, 0.6]]),
        ("union", 1, [[0.2, 0.2, 0.7, 0.6], list(FAR)]),
        ("union", 2, [[0.2, 0.2, 0.7, 0.6]]),
        ("majority", 1, [[0.25, 0.2, 0.65, 0.6]]),
        ("majority", 3, []),
        ("none", 1, [list(A), list(B), list(FAR)]),
        ("none", 3, [list(A), list(B), list(FAR)]),
    ],
)
def test_every_way(how: str, least: int, expected: list[list[float]]) -> None:
    found = fuse([FAR, B, A], ["R2", "R2", "R1"], of=3, how=how, min_readers=least)
    np.testing.assert_allclose(np.reshape(found, (-1, 4)), np.reshape(expected, (-1, 4)))


def test_one_reader_twice_is_no_majority() -> None:
    assert fuse([A, B], ["R1", "R1"], of=3, how="majority") == []
    assert fuse([A, B], ["R1", "R1"], of=1, how="majority") != []


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="fusion is 'nms'"):
        fuse([A], ["R1"], of=1, how="nms")


@settings(max_examples=60, deadline=None)
@given(marks, st.randoms(use_true_random=False))
def test_order_has_no_say_and_no_box_is_lost(drawn: list, random) -> None:
    shuffled = random.sample(drawn, len(drawn))
    for how in ("wbf", "union", "none"):
        first = fuse([b for b, _ in drawn], [r for _, r in drawn], of=3, how=how)
        assert fuse([b for b, _ in shuffled], [r for _, r in shuffled], of=3, how=how) == first
        if how == "union":  # every box lies in a fused one
            assert all(
                any(f[0] <= b[0] and f[1] <= b[1] and f[2] >= b[2] and f[3] >= b[3] for f in first) for b, _ in drawn
            )
    found = clusters([b for b, _ in drawn], [r for _, r in drawn])
    assert sum(len(cluster.boxes) for cluster in found) == len(drawn)
    for cluster in found:  # a mean lies within its hull
        low_2, high_2 = np.array(cluster.hull()).reshape(2, 2)
        box_22 = np.array(cluster.box).reshape(2, 2)
        assert (box_22 >= low_2 - 1e-12).all()
        assert (box_22 <= high_2 + 1e-12).all()
