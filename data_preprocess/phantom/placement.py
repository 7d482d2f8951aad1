"""Where a film lies in its image: smaller than the image, somewhere in it, black around it, as after collimation.

Every simulated patient stands in the middle, so a model can guess most boxes without looking. With a border it has to
find the film first: position and size of every box change from study to study.

    x' = left + scale x,  y' = top + scale y,  scale ~ U(1 - border, 1),  left, top ~ U(0, 1 - scale)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

MAX_BORDER = 0.5


@dataclass(frozen=True)
class Placement:
    """A film in its image, in units of the image side."""

    left: float = 0.0
    top: float = 0.0
    scale: float = 1.0

    def box(self, box: Sequence[float]) -> list[float]:
        """The box in the image of a box in the film, both [x0, y0, x1, y1] in 0..1."""
        moved = zip((self.left, self.top) * 2, box, strict=True)
        return [round(start + self.scale * value, 4) for start, value in moved]

    def image(self, film_SS: np.ndarray) -> np.ndarray:
        """The image (S, S) uint8 with the film in it."""
        if self.scale == 1.0:
            return film_SS
        side = film_SS.shape[0]
        x0, y0, x1, y1 = (round(side * value) for value in self.box((0, 0, 1, 1)))
        out = np.zeros_like(film_SS)
        out[y0:y1, x0:x1] = Image.fromarray(film_SS).resize((x1 - x0, y1 - y0), Image.Resampling.BOX)
        return out


def place(border: float, rng: np.random.Generator) -> Placement:
    """Draw a placement; 0 leaves the film as large as the image.

    Raises:
        ValueError: a border outside [0, 0.5].
    """
    if not 0 <= border <= MAX_BORDER:  # NaN too
        raise ValueError(f"border is {border}; use a share from 0 to {MAX_BORDER:g} of the image side.")
    if border == 0:
        return Placement()
    scale = float(rng.uniform(1 - border, 1))
    left, top = rng.uniform(0, 1 - scale, 2)
    return Placement(float(left), float(top), scale)
