"""How far row mode's DPO gradient is from the exact one when the policy is updated several times per rollout batch.

    python -m benchmarks.staleness [--docs]

Row mode takes g_ij = sigma(-tau (D+_i - D-_ij)) before the first update and keeps it (radverl/orapo/dpo.py). Here a
small transformer is trained so, as the trainer does: sampled rollouts, OraPO loss, AdamW and clipping as in verl, up to
8 mini-batches and 4 epochs for each rollout batch. Before each update both gradients are taken at the same parameters:

    error    |stale - exact| / |exact| of the DPO gradient; also of the whole gradient, GRPO and KL included
    cosine   between the two DPO gradients
    move     tau |change of D+ - D-| of a pair since g was taken: |change of g| <= move / 4, because |sigma'| <= 1/4

The benchmark's ratio is the largest |change of g| over its bound, goal 1. `--docs` also writes the tables of
docs/orapo_exactness.md from the JSON.

Shapes: P prompts of a rollout batch, K rollouts, G = K + 1 rows of a prompt (the true report last), T tokens.
"""

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.result import FOLDER, write
from benchmarks.toy_policy import Batch, Policy, Simulation
from radverl.orapo import dpo_group_loss, dpo_row_coefficients, dpo_row_loss, grpo_loss

P, K, TAU = 16, 8, 0.1
MINI_BATCHES, EPOCHS = (1, 2, 4, 8), (1, 2, 4)
LEARNING_RATES = (1e-5, 1e-4, 1e-3)
SEEDS = (0, 1)
WARM_STEPS, STEPS_BEFORE = 150, 6  # maximum likelihood up to the reference; OraPO steps up to the measured batch

DOCS = Path("docs/orapo_exactness.md")
MARKS = ("<!-- tables: begin -->\n", "<!-- tables: end -->\n")


def main(argv: list[str] | None = None) -> int:
    """Run; 0 if the bound holds everywhere, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.staleness", description=__doc__.splitlines()[0])
    parser.add_argument("--docs", action="store_true", help=f"write the tables of {DOCS} from the JSON of this run")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for seed in SEEDS:
        simulation = Simulation(seed, WARM_STEPS)
        for learning_rate, normalised in product(LEARNING_RATES, (True, False)):
            rows += measure(simulation, learning_rate, normalised)
    detail = {"prompts": P, "rollouts": K, "tau": TAU, "seeds": len(SEEDS), "updates": len(rows)}
    text = f"{len(rows)} updates in {time.perf_counter() - started:.0f} s"
    ratio = max(row["of_bound"] for row in rows)
    holds = write("staleness", ratio, 1.0, {**detail, "table": summary(rows)}, text)
    if args.docs:
        write_docs(json.loads((FOLDER / "staleness.json").read_text(encoding="utf-8")), DOCS)
    return 0 if holds else 1


def measure(
    simulation: Simulation, learning_rate: float, normalised: bool, prompts: int = P, steps_before: int = STEPS_BEFORE
) -> list[dict[str, Any]]:
    """All updates of one rollout batch, for each number of mini-batches from the same state of policy and AdamW."""
    torch.manual_seed(simulation.seed)
    policy = copy.deepcopy(simulation.reference)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=learning_rate, betas=(0.9, 0.999), weight_decay=0.01)
    for _ in range(steps_before):
        list(updates(policy, optimizer, simulation.rollouts(policy, prompts, K), 1, 1, normalised))
    batch = simulation.rollouts(policy, prompts, K)
    rows = []
    for mini_batches in MINI_BATCHES:
        start = copy.deepcopy((policy, optimizer))
        setting = {"normalised": normalised, "lr": learning_rate, "mini_batches": mini_batches}
        rows += [setting | update for update in updates(*start, batch, mini_batches, max(EPOCHS), normalised)]
    return rows


def updates(
    policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch, mini_batches: int, epochs: int, normalised: bool
) -> Iterator[dict[str, float]]:
    """Update the policy in row mode; yields, before each update, what g of the start of the batch does to it."""
    options: dict[str, Any] = {"tau": TAU, "length_normalised": normalised}
    before = batch.dpo_arguments(batch.old_PGT)
    coef_P, coef_PK = dpo_row_coefficients(*before, batch.weights_P, **options)
    coef_PG = torch.cat([coef_PK, coef_P[:, None]], 1)
    old_margins_PK = _margins(*before, normalised)
    for epoch in range(1, epochs + 1):
        for part in torch.randperm(len(batch.weights_P)).chunk(mini_batches):
            mini = batch[part]
            log_probs_PGT = policy.log_probs(mini.prompts_PL, mini.tokens_PGT)
            now = mini.dpo_arguments(log_probs_PGT)
            log_probs_RT, old_RT, ref_RT, mask_RT = (
                tensor[:, :-1].flatten(0, 1) for tensor in (log_probs_PGT, mini.old_PGT, mini.ref_PGT, mini.mask_PGT)
            )
            grpo_weights_R = (1 - mini.weights_P).repeat_interleave(mini.advantages_PK.shape[1])
            advantages_R = mini.advantages_PK.flatten()
            grpo = grpo_loss(log_probs_RT, old_RT, mask_RT, advantages_R, ref_RT, row_weights_R=grpo_weights_R)
            stale = _gradient(dpo_row_loss(log_probs_PGT, mini.mask_PGT, coef_PG[part]) / len(part), policy)
            exact = _gradient((mini.weights_P * dpo_group_loss(*now, **options)).mean(), policy)
            rest = _gradient(grpo, policy)
            yield {
                "epoch": epoch,
                "error": float((stale - exact).norm() / exact.norm()),
                "error_whole": float((stale - exact).norm() / (exact + rest).norm()),
                "cosine": float(torch.cosine_similarity(stale, exact, dim=0)),
                **_moves(_margins(*now, normalised).detach(), old_margins_PK[part]),
            }
            _step(policy, optimizer, stale + rest)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each loss, learning rate, number of mini-batches and of epochs, over all updates and seeds."""
    names = ("normalised", "lr", "mini_batches")
    settings = dict.fromkeys(tuple(row[name] for name in names) for row in rows)
    table = []
    for setting, epochs in product(settings, EPOCHS):
        some = [row for row in rows if tuple(row[name] for name in names) == setting and row["epoch"] <= epochs]
        line: dict[str, Any] = dict(zip(names, setting, strict=True)) | {"epochs": epochs}
        line |= {f"{key}_mean": statistics.fmean(row[key] for row in some) for key in ("error", "move", "margin")}
        line |= {f"{key}_max": max(row[f"{key}_max"] for row in some) for key in ("move", "g_move")}
        line |= {f"{key}_max": max(row[key] for row in some) for key in ("error", "error_whole")}
        table.append(line | {"cosine_min": min(row["cosine"] for row in some)})
    return table


def write_docs(result: dict[str, Any], path: Path) -> None:
    """Replace what stands between the marks of the page by the tables of a result."""
    page = path.read_text(encoding="utf-8")
    head, rest = page.split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    path.write_text(f"{head}{MARKS[0]}{tables(result)}{MARKS[1]}{tail}", encoding="utf-8")


def tables(result: dict[str, Any]) -> str:
    """The result as Markdown: error by setting, then move, bound and whole gradient for eight mini-batches."""
    lines = result["detail"]["table"]
    rates = sorted({line["lr"] for line in lines})
    found = {(line["normalised"], line["mini_batches"], line["epochs"], line["lr"]): line for line in lines}
    out = []
    for normalised, name in _LOSSES.items():
        out += [f"{name}: error of the DPO gradient in %, mean / largest over the updates.", ""]
        out += _table_head(["mini-batches", "epochs", *(f"lr {rate:g}" for rate in rates)])
        for mini_batches, epochs in product(MINI_BATCHES, EPOCHS):
            some = [found[normalised, mini_batches, epochs, rate] for rate in rates]
            cells = [f"{_percent(line['error_mean'])} / {_percent(line['error_max'])}" for line in some]
            out.append(f"| {mini_batches} | {epochs} | {' | '.join(cells)} |")
        out.append("")
    heads = ["move, mean", "move", "bound on the change of g", "change of g", "cosine", "error of the whole gradient"]
    out += [f"{max(MINI_BATCHES)} mini-batches; largest values over the updates, but the lowest cosine:", ""]
    out += _table_head(["loss", "lr", "epochs", *heads])
    for (normalised, name), rate, epochs in product(_LOSSES.items(), rates, (min(EPOCHS), max(EPOCHS))):
        line = found[normalised, max(MINI_BATCHES), epochs, rate]
        moves = [line["move_mean"], line["move_max"], line["move_max"] / 4, line["g_move_max"]]
        numbers = " | ".join(f"{value:.2g}" for value in moves)
        whole = _percent(line["error_whole_max"])
        out.append(f"| {name} | {rate:g} | {epochs} | {numbers} | {line['cosine_min']:.6f} | {whole} % |")
    of_move = [line["error_mean"] / line["move_mean"] for line in lines if line["move_mean"]]
    out += ["", f"Mean error over mean move, over all settings: {min(of_move):.2f} to {max(of_move):.2f}."]
    return "\n".join([*out, ""])


_LOSSES = {True: "LN-DPO", False: "DPO"}
_ROUNDING = 1e-15  # of g, a number below 1 in float64


def _table_head(names: list[str]) -> list[str]:
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def _percent(share: float) -> str:
    if share < 1e-12:  # an exact gradient differs by rounding
        return "0"
    return f"{100 * share:.2g}" if share < 1.0 else f"{100 * share:.0f}"


def _margins(
    delta_gt_P: Tensor, delta_PK: Tensor, lengths_gt_P: Tensor, lengths_PK: Tensor, normalised: bool
) -> Tensor:
    """tau (D+ - D-), (P, K)."""
    if normalised:
        delta_gt_P, delta_PK = delta_gt_P / lengths_gt_P, delta_PK / lengths_PK
    return TAU * (delta_gt_P[:, None] - delta_PK)


def _moves(margins_PK: Tensor, old_margins_PK: Tensor) -> dict[str, float]:
    """Changes of the margins and of g since the coefficients were taken."""
    move_PK = (margins_PK - old_margins_PK).abs()
    g_move_PK = (torch.sigmoid(-margins_PK) - torch.sigmoid(-old_margins_PK)).abs()
    return {
        "margin": float(margins_PK.abs().mean()),
        "move": float(move_PK.mean()),
        "move_max": float(move_PK.max()),
        "g_move_max": float(g_move_PK.max()),
        "of_bound": float((g_move_PK / (move_PK / 4 + _ROUNDING)).max()),
    }


def _gradient(loss: Tensor, policy: Policy) -> Tensor:
    gradients = torch.autograd.grad(loss, list(policy.parameters()), retain_graph=True)
    return torch.cat([gradient.flatten() for gradient in gradients])


def _step(policy: Policy, optimizer: torch.optim.Optimizer, gradient: Tensor) -> None:
    sizes = [parameter.numel() for parameter in policy.parameters()]
    for parameter, part in zip(policy.parameters(), gradient.split(sizes), strict=True):
        parameter.grad = part.view_as(parameter).clone()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


if __name__ == "__main__":
    sys.exit(main())
