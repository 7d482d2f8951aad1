"""One check for the torch half of OraPO: where shapes differ, broadcasting would hide a mix-up of rows and prompts."""

from collections.abc import Sequence

from torch import Tensor


def check_shape(name: str, tensor: Tensor, expected: Sequence[int]) -> None:
    """Raise ValueError, naming the argument, unless `tensor` has exactly the expected shape."""
    if tuple(tensor.shape) != tuple(expected):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(expected)}.")
