"""The annotated regions of a study, as the ground truth of a row has them, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from radverl.boxes.parse import UNIT_LIMIT, Box, has_area, is_finite, read_box, to_unit
from radverl.reasoning.names import plain_name


@dataclass(frozen=True, slots=True)
class Annotated:
    """A region of the truth; its box is in 0-1 of the image, its finding "" where nothing is said of it."""

    name: str
    box: Box
    finding: str


def annotated_regions(
    regions: Any, space: str = "unit", width: float | None = None, height: float | None = None
) -> list[Annotated]:
    """The regions in a ground truth, [{"name", "box", "finding"}, ...] with boxes in `space`.

    Raises:
        ValueError: no list of such objects, a name that is missing or there twice, or a box without area.
    """
    if regions is None:
        return []
    if not isinstance(regions, list | tuple):
        raise ValueError(f'"regions" is a {type(regions).__name__}; write a list of {{"name", "box", "finding"}}.')
    out: list[Annotated] = []
    seen: set[str] = set()
    for number, one in enumerate(regions):
        where = f"regions[{number}]"
        if not isinstance(one, Mapping):
            raise ValueError(f'{where} is a {type(one).__name__}; write {{"name", "box", "finding"}}.')
        name, finding = one.get("name"), one.get("finding")
        if not isinstance(name, str) or not plain_name(name):
            raise ValueError(f"{where} has the name {name!r:.60}; write the name of its region.")
        if plain_name(name) in seen:
            raise ValueError(f"{where} is a second {name!r:.60}; write each region once.")
        seen.add(plain_name(name))
        if not isinstance(finding, str | None):
            raise ValueError(f"{where} ({name:.60}) has the finding {finding!r:.60}; write a text.")
        box = read_box(one.get("box"))
        if not box or not is_finite(box) or not has_area(box):
            raise ValueError(f"{where} {name!r:.60} has the box {one.get('box')!r:.80}, without area; leave it out.")
        (unit,) = to_unit([box], [space], width, height)
        if max(map(abs, unit)) > UNIT_LIMIT:
            raise ValueError(f"{where} {name!r:.60} has the box {list(box)}, far outside its image ({space}).")
        out.append(Annotated(name, unit, (finding or "").strip()))
    return out
