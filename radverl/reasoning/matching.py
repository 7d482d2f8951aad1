"""Regions of an output beside those of the truth, paired by anatomical name; the first of a region counts.

IoU_m of annotated region m is that of the box written for it, 0 where the output has none.

Shape legend: M annotated regions, N written ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from radverl.boxes.parse import Box, box_spaces, is_finite, to_unit
from radverl.reasoning.names import is_region, other_side, plain_name, region_key
from radverl.reasoning.trace import Region
from radverl.reasoning.truth import Annotated

TOLERANCE = 1e-9  # two decimals leave such an error in an IoU; one that equals tau is not above it


@dataclass(frozen=True, slots=True)
class Match:
    """How the regions of an output stand to the annotated ones.

    found_M: the place of the written region of each annotated one, None where there is none.
    iou_M: 0.0 where there is none.
    other_iou_M: with the annotated box of the same region on the other side; 0.0 where nothing such is annotated.
    n_duplicated, n_unknown, n_extra: written regions that repeat an earlier one, have a name that is neither annotated
        nor in Chest ImaGenome, or are known and not annotated. With those found they are all N.
    spaces_N: of the boxes that were written, "" for a region without.
    """

    found_M: tuple[int | None, ...]
    iou_M: tuple[float, ...]
    other_iou_M: tuple[float, ...]
    n_duplicated: int
    n_unknown: int
    n_extra: int
    spaces_N: tuple[str, ...]

    @property
    def mean_iou(self) -> float:
        """Over the annotated regions."""
        return math.fsum(self.iou_M) / len(self.iou_M) if self.iou_M else 0.0

    def n_swapped(self, tau: float) -> int:
        """Annotated regions whose box was drawn on the other side: there its IoU is above tau, and above its own."""
        pairs = zip(self.iou_M, self.other_iou_M, strict=True)
        return sum(other > tau + TOLERANCE and other > own for own, other in pairs)


def match_regions(
    regions_N: Sequence[Region],
    annotated_M: Sequence[Annotated],
    *,
    space: str | None = None,
    width: float | None = None,
    height: float | None = None,
) -> Match:
    """Pair what was written with what is annotated.

    Args:
        space: of the written boxes; None: found by their numbers (`radverl.boxes.parse.box_spaces`).
        width, height: of the image, where boxes may be in pixels.
    Raises:
        ValueError: space is pixel and the image has no size.
    """
    keys_M = [region_key(one.name) for one in annotated_M]
    places = {plain_name(one.name): m for m, one in enumerate(annotated_M)}
    for m, key in enumerate(keys_M):
        places.setdefault(key, m)  # a name that is annotated as it is written comes before a synonym of another
    found: list[int | None] = [None] * len(annotated_M)
    seen: set[str] = set()
    duplicated = unknown = extra = 0
    for n, region in enumerate(regions_N):
        place = places.get(plain_name(region.name))
        if place is None:
            key = region_key(region.name)
            place = places.get(key)
            if place is None:
                if key in seen:
                    duplicated += 1
                elif is_region(region.name):
                    extra += 1
                else:
                    unknown += 1
                seen.add(key)
                continue
        if found[place] is None:
            found[place] = n
        else:
            duplicated += 1
    boxed = [n for n, region in enumerate(regions_N) if region.box and is_finite(region.box)]
    boxes = [box for n in boxed if (box := regions_N[n].box)]
    spaces = box_spaces(boxes, width, height) if space is None else [space] * len(boxes)
    unit = dict(zip(boxed, to_unit(boxes, spaces, width, height), strict=True))
    own, other = [], []
    for m, first in enumerate(found):
        written = None if first is None else unit.get(first)
        twin = places.get(other_side(keys_M[m]) or "")
        own.append(overlap(written, annotated_M[m].box) if written else 0.0)
        other.append(overlap(written, annotated_M[twin].box) if written and twin is not None else 0.0)
    used = dict(zip(boxed, spaces, strict=True))
    return Match(
        tuple(found), tuple(own), tuple(other), duplicated, unknown, extra,
        tuple(used.get(n, "") for n in range(len(regions_N))),
    )  # fmt: skip


def overlap(a: Box, b: Box) -> float:
    """`radverl.boxes.iou` of one pair of finite boxes, without the cost of arrays."""
    ax0, ay0, ax1, ay1 = a
    bx0, by0, bx1, by1 = b
    width = (ax1 if ax1 < bx1 else bx1) - (ax0 if ax0 > bx0 else bx0)
    height = (ay1 if ay1 < by1 else by1) - (ay0 if ay0 > by0 else by0)
    if width <= 0 or height <= 0:  # so, too, where a box has its corners inverted
        return 0.0
    both = width * height
    return both / ((ax1 - ax0) * (ay1 - ay0) + (bx1 - bx0) * (by1 - by0) - both)
