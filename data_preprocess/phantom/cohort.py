"""Who is in a simulated cohort: subjects with one to three studies, their split, and the findings of every study.

With `balance` kinds are picked greedily: a study shows m kinds (m = 1..4 with chances `KINDS_PER_STUDY`), each time
the label with the fewest positives so far, ties at random; "No Finding" is one of the labels and, when rarest, makes
the study normal (a device may still come in). The counts are those of the labels that the report states, so that a
consolidation called an opacity also counts as a Lung Opacity. Without it every kind is drawn on its own by the chance
of its label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data_preprocess.phantom.findings import KINDS, LABEL_KIND
from data_preprocess.phantom.study import EVEN_PREVALENCE, MAX_KINDS, plan_findings, sample_kinds, write_study_report
from radverl.labels import NO_FINDING

SPLITS = ("train", "val", "test")
KINDS_PER_STUDY = (0.25, 0.30, 0.25, 0.20)
STUDIES_PER_SUBJECT = (0.70, 0.20, 0.10)


@dataclass(frozen=True)
class Entry:
    """One study to draw. `seed` and `patient` go to `draw_study`; subjects belong to one split."""

    split: str
    index: int
    subject_id: str
    study_id: str
    seed: tuple[int, ...]
    patient: tuple[int, ...]
    kinds: tuple[str, ...]


def split_counts(n: int, shares: Sequence[float]) -> dict[str, int]:
    """Number of studies of train, val and test; train takes what rounding leaves."""
    val, test = round(n * shares[1]), round(n * shares[2])
    return {"train": n - val - test, "val": val, "test": test}


def plan(
    counts: Mapping[str, int],
    seed: int,
    *,
    prevalence: Mapping[str, float] | None = None,
    balance: bool = False,
    style: str = "prose",
) -> list[Entry]:
    """All studies of a cohort in order, deterministic by seed; a split does not depend on the size of the others.

    Args:
        counts: studies per split.
        prevalence: label -> chance; `EVEN_PREVALENCE` with at most five kinds a study where None.
        balance: even positives instead.
        style: of the reports, whose labels `balance` counts.
    """
    entries: list[Entry] = []
    for number, split in enumerate(SPLITS):
        tally = dict.fromkeys([NO_FINDING, *LABEL_KIND], 0)
        rng = np.random.default_rng([seed, number, 30])
        subject, left = -1, 0
        for index in range(counts.get(split, 0)):
            if left == 0:
                subject += 1
                left = 1 + int(rng.choice(3, p=STUDIES_PER_SUBJECT))
            left -= 1
            study_seed = (seed, number, index)
            if balance:
                kinds = _rarest(tally, np.random.default_rng([*study_seed, 31]))
                stated = write_study_report(study_seed, plan_findings(study_seed, kinds), style).labels
                for label in tally:
                    tally[label] += stated[label] == 1
            elif prevalence is None:
                kinds = sample_kinds(np.random.default_rng([*study_seed, 10]), EVEN_PREVALENCE, MAX_KINDS)
            else:
                kinds = _by_prevalence(np.random.default_rng([*study_seed, 10]), dict(prevalence))
            entries.append(
                Entry(
                    split,
                    index,
                    f"{number + 1}{subject:06d}",
                    f"{split[0]}{index:06d}",
                    study_seed,
                    (seed, number, subject),
                    tuple(kinds),
                )
            )
    return entries


def check_prevalence(prevalence: Mapping[str, float]) -> None:
    """Refuse unknown labels, chances outside [0, 1], and a share of normal films that leaves no room for a finding.

    Raises:
        ValueError: one sentence that says which.
    """
    known = [NO_FINDING, *LABEL_KIND]
    for label, p in prevalence.items():
        if label not in known:
            raise ValueError(f"label {label!r} is unknown; use one of {', '.join(known)}.")
        if not 0 <= p <= 1:
            raise ValueError(f"prevalence of {label} is {p}; use a number from 0 to 1.")
    room = 1 - prevalence.get(NO_FINDING, 0.0)
    for label, p in prevalence.items():
        if label not in (NO_FINDING, "Support Devices") and p > room + 1e-9:
            raise ValueError(
                f"prevalence {p} of {label} and {1 - room:g} of {NO_FINDING} exceed 1 together; lower one."
            )


def _by_prevalence(rng: np.random.Generator, prevalence: dict[str, float]) -> list[str]:
    """Normal with the chance of No Finding; the other films carry the findings, so that each label keeps its chance."""
    normal = prevalence.pop(NO_FINDING, 0.0)
    if rng.random() < normal:
        return sample_kinds(rng, {"Support Devices": prevalence.get("Support Devices", 0.0)}, None)
    room = max(1 - normal, 1e-9)
    return sample_kinds(rng, {k: p if k == "Support Devices" else p / room for k, p in prevalence.items()}, None)


def _rarest(tally: Mapping[str, int], rng: np.random.Generator) -> list[str]:
    """Kinds of the labels with the fewest positives; empty for a normal film."""
    chosen: list[str] = []
    for _ in range(1 + int(rng.choice(4, p=KINDS_PER_STUDY))):
        rest = [label for label in tally if label not in chosen]
        low = min(tally[label] for label in rest)
        ties = [label for label in rest if tally[label] == low]
        label = ties[int(rng.integers(len(ties)))]
        if label == NO_FINDING and any(c != "Support Devices" for c in chosen):
            break
        chosen.append(label)
        if label == NO_FINDING:
            low_device = tally["Support Devices"] <= low
            return (
                ["device"] if low_device and rng.random() < 0.5 else ["device"] if "Support Devices" in chosen else []
            )
    return [k for k in KINDS if KINDS[k] in chosen]
