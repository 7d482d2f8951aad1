"""Which rows of a batch have no reward, and why: `failed` and `failed_<cause>` in the reward's extra info.

A reward that is NaN or infinite is none either. A session may have several rows (outputs); it has one reward.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FAILED = "failed"
CAUSE_PREFIX = "failed_"  # one key a cause, 1 where that was it
NO_CAUSE = "other"  # the reward raised, or did not say
WORKER = "worker"  # the reward worker died, with every retry
PADDING = "pad"  # verl's padding rows have keys "pad<hex>_<n>_0", and the extra info of another row


@dataclass(frozen=True)
class Tally:
    """Samples of a batch, those of them without a reward, and how many of each cause."""

    samples: int = 0
    failed: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Tally") -> "Tally":
        causes = Counter(self.causes) + Counter(other.causes)
        return Tally(self.samples + other.samples, self.failed + other.failed, dict(sorted(causes.items())))


@dataclass(frozen=True)
class RowFlags:
    """Of the rows of a batch, in order: verl's key, and the cause where the reward failed ("" where it did not)."""

    keys: list[str]
    causes: list[str]

    @property
    def failed(self) -> list[bool]:
        return [bool(cause) for cause in self.causes]

    def tally(self) -> Tally:
        """Counts sessions, each once; padding is none."""
        of_session = {key.rsplit("_", 1)[0]: cause for key, cause in self._real()}
        return tally_of(of_session.values())

    def valid_sessions(self) -> dict[str, int]:
        """Sessions with a reward of each prompt (uid)."""
        sessions: dict[str, set[str]] = {}
        for key, cause in self._real():
            uid, session, _ = key.rsplit("_", 2)
            there = sessions.setdefault(uid, set())
            if not cause:
                there.add(session)
        return {uid: len(there) for uid, there in sessions.items()}

    def _real(self) -> list[tuple[str, str]]:
        return [(key, cause) for key, cause in zip(self.keys, self.causes, strict=True) if not is_padding(key)]


def is_padding(key: str) -> bool:
    """Whether a row of this key was put in by verl to fill a batch."""
    return key.startswith(PADDING)


def row_flags(keys: Sequence[str], extra_fields: Iterable[Any], scores: Iterable[float]) -> RowFlags:
    """The flags of rows.

    Args:
        extra_fields: verl's column of that name, which holds `reward_extra_info`.
        scores: summed reward of each row.
    """
    infos = [(extra.get("reward_extra_info") if isinstance(extra, Mapping) else None) or {} for extra in extra_fields]
    return RowFlags(list(keys), [cause_of(info, score) for info, score in zip(infos, scores, strict=True)])


def cause_of(info: Mapping[str, Any], score: float) -> str:
    """Why a sample has no reward; "" where it has one."""
    if info.get(FAILED):
        named = (key for key, value in info.items() if key.startswith(CAUSE_PREFIX) and value)
        return next(named, NO_CAUSE).removeprefix(CAUSE_PREFIX)
    return "" if math.isfinite(score) else NO_CAUSE


def tally_of(causes: Iterable[str]) -> Tally:
    """Counts of samples, given the cause of each ("" for a sample with a reward)."""
    listed = list(causes)
    by_cause = Counter(cause for cause in listed if cause)
    return Tally(len(listed), sum(by_cause.values()), dict(sorted(by_cause.items())))
