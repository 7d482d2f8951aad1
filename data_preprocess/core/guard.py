"""Leakage guard: no subject in two splits, and none of a known held-out subject in training.

Known held-out subjects are those in the val and test splits of
- this run, and of files of OUT that it leaves as they are,
- the other folders beside OUT: each run leaves its subjects in OUT/subjects.json, with the cohort, because
  Chest ImaGenome and MS-CXR hold the patients of MIMIC-CXR under the same numbers,
- the files of --held-out: Parquet files and subjects.json of ours, tables with a subject_id (or a MIMIC path) and
  perhaps a split, or one subject a line.
What is in training there counts the other way round: a subject that is in somebody's training split must not be in
this run's val or test.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from data_preprocess.core.candidates import Candidate, Intake
from data_preprocess.core.subject_lists import Known

ON_LEAK = ("refuse", "drop", "allow")
LEAK = "known held-out subject"
OWN_OVERLAP = "subject of a held-out split"
SHOWN = 3


class LeakError(ValueError):
    """A train split holds known held-out subjects, or the other way round."""


def drop_own_overlap(candidates: Iterable[Candidate], intake: Intake) -> list[Candidate]:
    """The candidates without those of subjects that are held out in another split of this data set: test goes first,
    then val."""
    candidates = list(candidates)
    for candidate in candidates:
        intake.hold_out(candidate.subject_id, candidate.split)
    kept = []
    for candidate in candidates:
        split = intake.held_out.get(candidate.subject_id, "train")
        if candidate.split == split:
            kept.append(candidate)
        else:
            message = f"{candidate.subject_id} is held out for {split} by the data set"
            intake.add(candidate.shown, OWN_OVERLAP, message, candidate.split)
    return kept


def check_leaks(
    candidates: Sequence[Candidate], splits: Collection[str], known: Known, on_leak: str, intake: Intake, hint: str = ""
) -> list[Candidate]:
    """The candidates that may be written.

    Args:
        splits: that will be written; candidates of others only say who has rows.
        on_leak: refuse (raise), drop (the rows go to the log) or allow.
        hint: what else may help with this data set.
    Raises:
        LeakError: under "refuse", there are leaks; names some and where they come from.
    """
    with_rows = {candidate.subject_id for candidate in candidates}
    candidates = [candidate for candidate in candidates if candidate.split in splits]
    leaks = {c.row_id: place for c in candidates if (place := known.place(c.subject_id, c.split))}
    # Held out by the data set without a row of its own: somebody else trains on them, and only there can it be mended.
    elsewhere = {
        subject: place
        for subject, split in intake.held_out.items()
        if subject not in with_rows and (place := known.place(subject, split))
    }
    if not leaks and not elsewhere:
        return list(candidates)
    message = _message(candidates, leaks) if leaks else _elsewhere(elsewhere)
    if on_leak == "refuse":
        remedy = "pass --on-leak drop to leave their rows out" if leaks else "pass --on-leak drop and make that again"
        raise LeakError(f"{message}; {remedy}, or --on-leak allow to write them all the same{hint and f'; {hint}'}.")
    if on_leak == "allow":
        print(f"--on-leak allow: {message}.", file=sys.stderr)
        return list(candidates)
    if elsewhere:
        print(f"--on-leak drop: {_elsewhere(elsewhere)}; make that data set again.", file=sys.stderr)
    for candidate in candidates:
        if candidate.row_id in leaks:
            detail = f"{candidate.subject_id} is in {leaks[candidate.row_id]}"
            intake.add(candidate.shown, LEAK, detail, candidate.split)
            intake.held_out.pop(candidate.subject_id, None)  # it is not tested on here
    return [candidate for candidate in candidates if candidate.row_id not in leaks]


def _message(candidates: Sequence[Candidate], leaks: Mapping[str, str]) -> str:
    leaking = [c for c in candidates if c.row_id in leaks]
    splits = ", ".join(f"{split} {n}" for split, n in sorted(Counter(c.split for c in leaking).items()))
    who = _who({c.subject_id for c in leaking}, f"rows: {splits}")
    return f"{who} in {_places(leaks.values())}, so training would see who it is tested on"


def _elsewhere(subjects: Mapping[str, str]) -> str:
    return f"{_who(subjects, 'held out by this data set')} in {_places(subjects.values())}"


def _who(subjects: Iterable[str], what: str) -> str:
    names = sorted(subjects)
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return f"{len(names)} subject{'s' * (len(names) != 1)} ({shown}; {what}) {'are' if len(names) != 1 else 'is'}"


def _places(places: Iterable[str]) -> str:
    return ", ".join(sorted(set(places))[:SHOWN])
