"""Which texts go through the model together."""

from collections import defaultdict
from collections.abc import Sequence

from radverl.radgraph.forward import MAX_PAIRS


def buckets(lengths: Sequence[int], batch: int, alone: Sequence[bool]) -> list[list[int]]:
    """Places of texts, longest first: in a bucket all have the same length in tokens, `batch` of them at most, and
    fewer where they are long, for the pairs of spans take memory with the square of the length. Those marked `alone`
    are by themselves.
    """
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, length in enumerate(lengths):
        by_length[length].append(place)
    out: list[list[int]] = []
    for length in sorted(by_length, reverse=True):
        together = [place for place in by_length[length] if not alone[place]]
        out += [[place] for place in by_length[length] if alone[place]]
        size = max(1, min(batch, MAX_PAIRS // max(1, (length + 1) // 2) ** 2))
        out += [together[start : start + size] for start in range(0, len(together), size)]
    return out
