"""From a data set to its files, for every data script: `sys.exit(run(DATASET))`.

tables -> candidates -> leakage guard -> draw -> content and images (worker processes, journal) -> Parquet files, cards,
contact sheets, skip logs, subjects.json. No arrow points backwards, except that a drawn row whose image turns out to be
bad is replaced by another (`balance.fill`).
"""

import argparse
import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from data_preprocess.core import content, guard, options
from data_preprocess.core.balance import Carried, balanced, carried, drawing_order, fill, histogram
from data_preprocess.core.balance_card import add_to_card, balance_card, balance_lines
from data_preprocess.core.candidates import REPORT_TASKS, Candidate, DataSet, Intake, data_source
from data_preprocess.core.journal import Entry, Journal, row_key
from data_preprocess.core.llm_priors import open_client, rewritten
from data_preprocess.core.outputs import output_folder
from data_preprocess.core.parallel import ordered_map
from data_preprocess.core.skiplog import SkipLog, SkipRow
from data_preprocess.core.split_files import refuse_others_files, remove_files, write_split
from data_preprocess.core.splits import SPLITS, in_part
from data_preprocess.core.subject_lists import known_subjects, write_record
from data_preprocess.core.work import forget_images, labels_of, make_entry, refuse_absent_images
from radverl import __version__
from radverl.judge.failure import JudgeFailure

UNWANTED = content.UNWANTED | {
    "no frontal view", "no lateral view", "no image", guard.OWN_OVERLAP, guard.LEAK, "duplicate row",
}  # fmt: skip
# Options that say which rows, or how; the others decide what a row is.
NOT_OF_ROWS = {
    "out", "split", "balance", "limit", "train_part", "seed", "workers", "held_out", "on_leak", "contact_sheet",
    "skip_bad",
}  # fmt: skip
NOT_IN_CARD = {"out", "split", "workers", "contact_sheet", "skip_bad", "held_out", "judge_url", "prompt_file"}
ROWS_AT_ONCE = 256  # of the journal


def run(dataset: DataSet, argv: list[str] | None = None) -> int:
    """Run the command line of a data script: 0 done, 1 nothing usable or not finished, 2 bad input, 130 Ctrl-C."""
    args = options.parser_of(dataset).parse_args(argv)
    try:
        return _carry_out(dataset, args)
    except KeyboardInterrupt:
        print(f"{dataset.name}: interrupted; the same command goes on where this one stopped.", file=sys.stderr)
        return 130


def _carry_out(dataset: DataSet, args: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        try:
            work, candidates = _prepare(dataset, args, stack)
        except (ValueError, OSError, RecursionError) as error:
            print(f"{dataset.name}: {error}", file=sys.stderr)
            return 2
        try:
            return work.finish(candidates)
        except OSError as error:
            message = f"{args.out} is not finished ({error}); the same command goes on where this one stopped."
            print(f"{dataset.name}: {message}", file=sys.stderr)
        except (ValueError, JudgeFailure) as error:  # SkipRow too
            print(f"{dataset.name}: {error}", file=sys.stderr)
    return 1


def _prepare(dataset: DataSet, args: argparse.Namespace, stack: contextlib.ExitStack) -> tuple["_Run", list[Candidate]]:
    """Everything that can be found out before the work: options, tables, leaks, where images and results are.

    Raises:
        ValueError, OSError: bad input.
    """
    logs = {split: SkipLog() for split in SPLITS if split in args.split}
    intake = Intake(logs)
    options.settle(args)
    dataset.check(args)
    client = open_client(args)
    cohort = cohort_of(dataset, args)
    known = known_subjects(args.out, cohort, list(logs), args.held_out)
    candidates = dataset.read(args, intake)
    if not candidates and not any(logs.values()):
        raise ValueError("the tables hold no rows; pass the whole data set.")
    candidates = guard.drop_own_overlap(_unique(candidates, intake), intake)
    candidates = guard.check_leaks(candidates, logs.keys(), known, args.on_leak, intake, dataset.leak_hint)
    refuse_absent_images(candidates, args)
    output_folder(output_folder(args.out) / "images")
    refuse_others_files(args.out, list(logs))
    journal = stack.enter_context(Journal(args.out))
    return _Run(dataset, args, intake, journal, client), candidates


class _Run:
    """One run of a data script, from its candidates on."""

    def __init__(
        self, dataset: DataSet, args: argparse.Namespace, intake: Intake, journal: Journal, client: Any
    ) -> None:
        self.dataset, self.args, self.intake, self.journal, self.client = dataset, args, intake, journal, client
        self.logs = intake.logs
        of_rows = {name: value for name, value in vars(args).items() if name not in NOT_OF_ROWS}
        # Another version of this package may make other rows.
        self.salt = json.dumps([__version__, dataset.name, of_rows], sort_keys=True, default=str).encode()
        forget_images()
        self.cache = str(journal.images if args.embed_images else Path(os.path.abspath(args.out), "images"))

    def finish(self, candidates: list[Candidate]) -> int:
        """Draw and convert the rows and write all files; returns the exit status."""
        for log in self.logs.values():
            entries = ((e["row"], SkipRow(str(e["detail"]), str(e["reason"]))) for e in log.entries)
            _stop_at_damage(self.args, self.dataset, entries)
        by_split: dict[str, dict[str, Candidate]] = {split: {} for split in self.logs}
        part = self.args.train_part or (0.0, 1.0)
        for candidate in sorted(candidates, key=lambda c: c.row_id):
            if candidate.split == "train" and not in_part(candidate.subject_id, *part):
                continue
            by_split[candidate.split][candidate.row_id] = candidate
        if self.args.balance:
            self._read_labels(by_split["train"])
        done: dict[str, list[str]] = {}
        balance: dict[str, dict[str, Any]] = {}
        for split, pool in by_split.items():
            labels = {name: carried(c.labels or {}, self.args.uncertain) for name, c in pool.items()}
            taken, unusable = fill(labels, self._picker(split), functools.partial(self._convert, pool))
            done[split] = sorted(taken)
            for name, why in unusable.items():
                self.logs[split].add(pool[name].shown, why.reason, str(why))
                del labels[name]
            if self.args.balance and split == "train":
                counts = histogram(labels, taken.keys())
                balance[split] = balance_card(self.args.balance, len(taken), len(labels), self.args.uncertain, counts)
        subjects = {s: {by_split[s][name].subject_id for name in names} for s, names in done.items()}
        for subject, split in self.intake.held_out.items():
            subjects.setdefault(split, set()).add(subject)
        del by_split, candidates  # the largest thing in memory; the journal has the rows
        remove_files(self.args.out, list(done))
        cohort = cohort_of(self.dataset, self.args)
        write_record(self.args.out, self.dataset.name, cohort, subjects if any(done.values()) else {})
        self._write(done, balance)
        self.journal.remove()
        return self._report({split: len(names) for split, names in done.items()}, balance)

    def _read_labels(self, pool: dict[str, Candidate]) -> None:
        """Labels from the reports, where the data set brings none: drawing by label needs them before the draw."""
        unlabelled = [candidate for candidate in pool.values() if candidate.labels is None]
        if not unlabelled or self.args.task not in REPORT_TASKS:
            return
        work = functools.partial(labels_of, content=self.dataset.content, args=self.args)
        found = ordered_map(work, unlabelled, self.args.workers, desc="labels", chunk=64)
        for candidate, labels in zip(unlabelled, found, strict=True):
            if isinstance(labels, SkipRow):
                _stop_at_damage(self.args, self.dataset, [(candidate.shown, labels)])
                self.logs["train"].add(candidate.shown, labels.reason, str(labels))
                del pool[candidate.row_id]
            else:
                candidate.labels = labels

    def _picker(self, split: str) -> Callable[[Mapping[str, Carried], Collection[str]], list[str]]:
        """Which rows of a pool are wanted, given those taken already (see `fill`)."""
        args = self.args
        if split == "train" and args.balance:
            return lambda pool, keep: balanced(pool, args.balance, seed=args.seed, keep=keep)
        if args.limit is None:
            return lambda pool, keep: list(pool)
        return lambda pool, keep: drawing_order(pool, args.seed)[: args.limit]

    def _convert(self, pool: dict[str, Candidate], names: list[str]) -> Iterator[SkipRow | None]:
        """Convert candidates into rows of the journal; what became of each: None, or why it has no row."""
        keys, journal = self.journal.keys, self.journal
        todo = [pool[name] for name in names if name not in keys or keys[name] != row_key(self.salt, pool[name])]
        finished = journal.skips.keys() & set(names) - {candidate.row_id for candidate in todo}
        _stop_at_damage(self.args, self.dataset, ((pool[n].shown, journal.skips[n]) for n in sorted(finished)))
        work = functools.partial(
            make_entry, content=self.dataset.content, args=self.args, name=self.dataset.name, cache=self.cache,
            salt=self.salt,
        )  # fmt: skip
        chunk = 8 if self.args.check_images == "decode" else 64
        entries: list[Entry] = []
        for entry in ordered_map(work, todo, self.args.workers, desc="rows", chunk=chunk):
            entries.append(entry)
            if len(entries) == ROWS_AT_ONCE:
                self._keep(entries, pool)
                entries = []
        self._keep(entries, pool)
        return (journal.skips.get(name) for name in names)

    def _keep(self, entries: list[Entry], pool: Mapping[str, Candidate]) -> None:
        if self.client is not None:
            entries = rewritten(entries, self.client, self.args)
        self.journal.add(entries)
        _stop_at_damage(self.args, self.dataset, ((pool[e.row_id].shown, e.skip) for e in entries if e.skip))

    def _write(self, done: dict[str, list[str]], balance: dict[str, dict[str, Any]]) -> None:
        args = self.args
        settings = {name: _told(value) for name, value in sorted(vars(args).items()) if name not in NOT_IN_CARD}
        for split, names in done.items():
            self.logs[split].sort()
            card = write_split(
                args.out, split, self.journal.rows(names), self.logs[split],
                data_source=data_source(self.dataset.name, args.task), settings=settings, embed=args.embed_images,
                sheet=args.contact_sheet,
            )  # fmt: skip
            if card and split in balance:
                add_to_card(Path(args.out, f"{split}.parquet"), card, balance[split])

    def _report(self, rows: dict[str, int], balance: dict[str, dict[str, Any]]) -> int:
        for split, number in rows.items():
            what = f"{number} row{'s' * (number != 1)}" if number else "not written, no rows"
            print(f"{os.path.join(self.args.out, split)}.parquet: {what}; {self.logs[split].summary()}")
            missing = self.logs[split].counts().get("image missing", 0)
            if missing > number:
                print(f"{missing} images of it are missing: a part of the download, or not the folder it lies in?")
            if split in balance:
                print("\n".join(balance_lines(balance[split])))
        if not any(rows.values()):
            message = f"no usable row; {self.args.out}/*.skipped.jsonl name the reasons."
            print(f"{self.dataset.name}: {message}", file=sys.stderr)
            return 1
        return 0


def cohort_of(dataset: DataSet, args: argparse.Namespace) -> str:
    """Within which data sets a subject_id means the same patient; "" where nobody knows."""
    return getattr(args, "cohort", None) or dataset.cohort


def _told(value: Any) -> Any:
    """An option's value for the card: of a path only the name, so that the card is the same on every machine."""
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    return os.path.basename(os.path.abspath(value)) if isinstance(value, str) and os.path.exists(value) else value


def _unique(candidates: list[Candidate], intake: Intake) -> list[Candidate]:
    """The candidates without later ones of the same id."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        if first.setdefault(candidate.row_id, candidate) is not candidate:
            intake.add(candidate.shown, "duplicate row", "an earlier row has this id", candidate.split)
    return list(first.values())


def _stop_at_damage(args: argparse.Namespace, dataset: DataSet, skipped: Any) -> None:
    """Under `--no-skip-bad`, raise the first SkipRow that says damage."""
    if args.skip_bad:
        return
    for row, why in skipped:
        if why.reason not in UNWANTED | dataset.unwanted:
            where = row if isinstance(row, str) else f"row {row}"
            raise SkipRow(f"{where}: {why.reason}: {why}", why.reason)
