"""Which images of a study a row gets: PA before AP before other frontal ones before lateral ones, unknown ones last.

An image whose view nobody says is unknown; it is never taken for a frontal one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from data_preprocess.core.skiplog import SkipRow

VIEWS = ("frontal", "lateral", "pair", "all")
_RANK = {"PA": 0, "AP": 1, "FRONTAL": 2, "LATERAL": 3, "LL": 4, "": 6}
_OTHER = 5
FRONTAL = {
    "PA", "AP", "FRONTAL", "AP AXIAL", "PA LLD", "AP LLD", "PA RLD", "AP RLD", "AP SUPINE", "AP ERECT", "AP PORTABLE",
}  # fmt: skip
LATERAL = {"LATERAL", "LL", "RL", "XTABLE LATERAL"}


class HasKind(Protocol):
    """An image of which is known whether it is frontal, lateral or neither ("")."""

    @property
    def kind(self) -> str: ...


AnyFilm = TypeVar("AnyFilm", bound=HasKind)


@dataclass(frozen=True, slots=True)
class Film:
    """One image of a study: `view` as the data set writes it ("PA", "LATERAL", ""), `name` breaks ties."""

    name: str
    path: str
    view: str = ""
    size: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        """frontal, lateral or "" (unknown, or neither)."""
        view = self.view.strip().upper()
        return "frontal" if view in FRONTAL else "lateral" if view in LATERAL else ""


def ordered(films: Sequence[Film]) -> list[Film]:
    """PA, AP, other frontal, LATERAL, LL, others, unknown; then by name."""

    def place(film: Film) -> tuple[int, str]:
        view = film.view.strip().upper()
        rank = _RANK.get(view)
        return (rank if rank is not None else _RANK["FRONTAL"] if film.kind == "frontal" else _OTHER), film.name

    return sorted(films, key=place)


def choose(films: Sequence[Film], option: str, study: str) -> list[Film]:
    """The images that `--views` asks for: the best frontal or lateral one, a pair of both, or all.

    A pair has no lateral image where the study has none.

    Raises:
        SkipRow: the study has no such image.
    """
    return choose_of_ordered(ordered(films), option, study)


def choose_of_ordered(films: Sequence[AnyFilm], option: str, study: str) -> list[AnyFilm]:
    """The same of images that are in order, whatever else is known of them."""
    if not films:
        raise SkipRow(f"{study} has no image", "no image")
    if option == "all":
        return list(films)
    first = "lateral" if option == "lateral" else "frontal"
    chosen = [film for film in films if film.kind == first][:1]
    if not chosen:
        raise SkipRow(f"{study} has no image that is known to be {first}", f"no {first} view")
    if option == "pair":
        chosen += [film for film in films if film.kind == "lateral"][:1]
    return chosen
