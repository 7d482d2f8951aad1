"""A subsample in which every label is carried by about as many studies as any other.

Greedy, the rarest first (*ours*: OraPO, arXiv 2509.18600, only says "balanced"). Until `number` studies are taken:

1. of the labels that still have an untaken study, choose the one with the lowest count among the taken
   (ties: the one with fewer studies in the pool, then CheXpert order);
2. of the untaken studies that carry it, take the one with the smallest sum over its labels of
   (count - lowest count - HEADROOM): it serves the labels that lack studies and spares those that have many;
   ties go by the SHA-256 of `seed:id`.

Studies without any label come last. So each label ends with at least min(its studies in the pool, number // labels)
studies, the result depends neither on the order of the pool nor on the machine, and the first n of a sample are the
sample of n: 400 studies are a part of the 1,000. "No Finding" is a label like the others. The best sample is a hard
problem (set cover); on a pool of a few studies this one may miss it.

Shape legend: L labels, P distinct sets of labels in the pool.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from data_preprocess.core.skiplog import SkipRow
from radverl.labels import CHEXPERT_14, Labels, UncertainPolicy, apply_uncertain

Carried = frozenset[str]
# Of 48,000 studies with made-up labels as frequent as CheXpert's, 1,000 give each label 150-152 studies with 0,
# 227-231 with 2 and 233-243 with 5.
HEADROOM = 2
Result = TypeVar("Result")


class Histogram(NamedTuple):
    """Studies of a label in the pool and in the sample; `exhausted`: all are taken, yet others have more."""

    label: str
    pool: int
    sample: int
    exhausted: bool


def carried(labels: Labels, uncertain: UncertainPolicy = "ones") -> Carried:
    """The labels a study counts for: present ones, and uncertain ones too unless the policy says otherwise."""
    return frozenset(name for name, value in apply_uncertain(labels, uncertain).items() if value == 1)


def drawing_order(ids: Iterable[str], seed: int = 0) -> list[str]:
    """The ids in an order drawn by `seed` that no other id and no order of the input has a say in."""

    def place(name: str) -> tuple[bytes, str]:
        return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).digest(), name

    return sorted(ids, key=place)


def balanced(
    pool: Mapping[str, Carried],
    number: int,
    *,
    seed: int = 0,
    keep: Collection[str] = (),
    labels: tuple[str, ...] = CHEXPERT_14,
) -> list[str]:
    """The ids of a label-balanced sample of exactly `number` studies (of all, where the pool is smaller).

    Args:
        pool: id of each study -> the labels it carries.
        keep: ids that are taken already; they come first and count, so that a sample can be completed after studies
            turned out to be unusable (leave those out of `pool`).
        labels: what is balanced; other labels of the pool are ignored.
    Raises:
        ValueError: a negative number, or an id in `keep` that is not in the pool.
    """
    if number < 0:
        raise ValueError(f"the number of studies to draw is {number}; use 0 or more.")
    if missing := [name for name in keep if name not in pool]:
        raise ValueError(f"{missing[0]!r} is to be kept, but is not in the pool.")
    chosen = drawing_order(keep, seed)
    order = drawing_order(pool.keys() - set(keep), seed)
    count_L = np.array([sum(label in pool[name] for name in chosen) for label in labels], dtype=np.int64)
    queues: dict[tuple[bool, ...], list[int]] = {}
    for place, name in enumerate(order):
        queues.setdefault(tuple(label in pool[name] for label in labels), []).append(place)
    unlabelled = queues.pop((False,) * len(labels), [])
    carries_PL = np.array(list(queues), dtype=np.int64).reshape(len(queues), len(labels))
    waiting = [places[::-1] for places in queues.values()]  # the next study of each set is the last
    next_P = np.array([places[-1] for places in waiting], dtype=np.int64)
    left_L = np.array([len(places) for places in waiting], dtype=np.int64) @ carries_PL
    pool_L = left_L + count_L
    while len(chosen) < number and left_L.any():
        open_L = np.flatnonzero(left_L)
        label = open_L[np.lexsort((open_L, pool_L[open_L], count_L[open_L]))[0]]
        some_P = np.flatnonzero(carries_PL[:, label] * (next_P >= 0))
        cost_P = carries_PL[some_P] @ (count_L - count_L[label] - HEADROOM)
        best = some_P[np.lexsort((next_P[some_P], cost_P))[0]]
        chosen.append(order[waiting[best].pop()])
        next_P[best] = waiting[best][-1] if waiting[best] else -1
        count_L += carries_PL[best]
        left_L -= carries_PL[best]
    return chosen + [order[place] for place in unlabelled[: max(0, number - len(chosen))]]


def fill(
    pool: Mapping[str, Carried],
    pick: Callable[[Mapping[str, Carried], Collection[str]], Iterable[str]],
    convert: Callable[[list[str]], Iterable[Result | SkipRow]],
) -> tuple[dict[str, Result], dict[str, SkipRow]]:
    """Convert the studies that `pick` chooses; where some turn out to be unusable, let it choose others instead.

    Only chosen studies are converted, so nothing opens the images of the whole pool.

    Args:
        pick: `pick(pool, keep)` -> the ids wanted, those of `keep` among them; `balanced`, for example.
        convert: what became of each id, in the order given; a SkipRow says why it cannot be used.
    Returns:
        id -> result of the usable, id -> reason of the unusable.
    """
    left, done, unusable = dict(pool), dict[str, Result](), dict[str, SkipRow]()
    while new := [name for name in pick(left, done.keys()) if name not in done]:
        for name, result in zip(new, convert(new), strict=True):
            if isinstance(result, SkipRow):
                unusable[name] = result
                del left[name]
            else:
                done[name] = result
    return done, unusable


def histogram(
    pool: Mapping[str, Carried], sample: Collection[str], labels: tuple[str, ...] = CHEXPERT_14
) -> list[Histogram]:
    """How often each label is carried in the pool and in a sample of it.

    A label is exhausted when the sample holds all its studies and still fewer than of any label that has some left:
    the pool cannot fill it.
    """
    of_pool = {label: sum(label in pool[name] for name in pool) for label in labels}
    of_sample = {label: sum(label in pool[name] for name in sample) for label in labels}
    level = min((n for label, n in of_sample.items() if n < of_pool[label]), default=0)
    return [Histogram(label, of_pool[label], n, n == of_pool[label] and n < level) for label, n in of_sample.items()]
