"""Boxes as the text that a model learns to write: `[0.38, 0.47, 0.76, 0.62]`, in 0-1 of the image.

The form of RadVLM-GRPO (arXiv 2512.10691): two decimals, boxes joined by ", " and the last by " and ".
"""

from collections.abc import Sequence

DECIMALS = 2
NO_BOX = "None"  # the answer where nothing is to be boxed (ours)


def write_boxes(boxes: Sequence[Sequence[float]]) -> str:
    """The text of xyxy boxes in 0-1, in the order given; `NO_BOX` where there are none."""
    texts = ["[" + ", ".join(f"{value:.{DECIMALS}f}" for value in box) + "]" for box in boxes]
    if not texts:
        return NO_BOX
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
