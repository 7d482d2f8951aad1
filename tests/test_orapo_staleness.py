"""benchmarks/staleness.py: row mode is exact at the first update of a rollout batch, later off within its bound."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import staleness
from benchmarks.toy_policy import Simulation


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    simulation = Simulation(seed=3, warm_steps=20)
    return [
        row
        for normalised in (True, False)
        for row in staleness.measure(simulation, 3e-3, normalised, prompts=8, steps_before=1)
    ]


def test_first_update_is_exact_and_later_ones_are_not(rows: list[dict[str, Any]]) -> None:
    per_batch = {m: m * max(staleness.EPOCHS) for m in staleness.MINI_BATCHES}
    assert len(rows) == 2 * sum(per_batch.values())
    position = 0
    for _ in range(2):
        for updates in per_batch.values():
            first, *later = rows[position : position + updates]
            assert first["error"] <= 1e-9
            assert first["move_max"] <= 1e-12
            assert all(row["error"] > 1e-6 for row in later)
            position += updates


def test_change_of_g_stays_within_its_bound(rows: list[dict[str, Any]]) -> None:
    assert 0.1 < max(row["of_bound"] for row in rows) <= 1.0
    assert all(row["g_move_max"] <= row["move_max"] / 4 + 1e-15 for row in rows)


def test_more_epochs_are_never_less_stale_at_worst(rows: list[dict[str, Any]]) -> None:
    lines = staleness.summary(rows)
    assert len(lines) == 2 * len(staleness.MINI_BATCHES) * len(staleness.EPOCHS)
    worst = {(line["normalised"], line["mini_batches"], line["epochs"]): line["error_max"] for line in lines}
    for normalised in (True, False):
        assert worst[normalised, 1, 1] <= 1e-9
        for mini_batches in staleness.MINI_BATCHES:
            errors = [worst[normalised, mini_batches, epochs] for epochs in staleness.EPOCHS]
            assert errors == sorted(errors)


def test_a_row_counts_up_to_its_end_of_report() -> None:
    simulation = Simulation(seed=4, warm_steps=0)
    batch = simulation.rollouts(simulation.reference, 3, 5)
    lengths_PG = batch.mask_PGT.sum(-1)
    for tokens_T, length in zip(batch.tokens_PGT.flatten(0, 1), lengths_PG.flatten().tolist(), strict=True):
        ends = (tokens_T[:length] == 0).nonzero().flatten().tolist()
        assert ends in ([], [length - 1])
        assert tokens_T[length:].eq(0).all()
    assert batch.old_PGT.equal(batch.ref_PGT)
    probabilities = simulation.reference(batch.prompts_PL).exp().sum(-1)
    torch.testing.assert_close(probabilities, torch.ones_like(probabilities))


def test_tables_replace_only_what_stands_between_the_marks(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    result = {"detail": {"table": staleness.summary(rows)}}
    page = tmp_path / "page.md"
    page.write_text(f"before\n{'old'.join(staleness.MARKS)}after\n", encoding="utf-8")
    for _ in range(2):
        staleness.write_docs(result, page)
        begin, end = staleness.MARKS
        assert page.read_text(encoding="utf-8") == f"before\n{begin}{staleness.tables(result)}{end}after\n"
    first = staleness.tables(result).splitlines()[4]
    assert first == "| 1 | 1 | 0 / 0 |"


def test_the_page_holds_the_tables_of_this_benchmark() -> None:
    table = staleness.DOCS.read_text(encoding="utf-8").split(staleness.MARKS[0])[1].split(staleness.MARKS[1])[0]
    cells = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    settings = len(staleness.MINI_BATCHES) * len(staleness.EPOCHS)
    columns = 2 + len(staleness.LEARNING_RATES)
    assert sum(len(row) == columns for row in cells) == 2 * (settings + 1)
    assert all(f"lr {rate:g}" in table for rate in staleness.LEARNING_RATES)
