"""What OraPO costs beside GRPO, K = 8: the actor's update, the whole step, its memory, and its work on the driver.

    python -m benchmarks.orapo [--steps 38]

One real run (recipes/demo_cpu.sh, 8 prompts x 8 rollouts, trainer `orapo_compare`): both updates of the same batch,
side by side, for the first steps; then steps of GRPO and of OraPO in turn. The driver's work is timed again on its own
for 512 prompts x 8 rollouts, with the TransferQueue. The bound by rows is (K + 1) / K = 1.125 for the update.
Goals: update 1.20, step 1.12, memory 1.05, driver 1 % of a step.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.compare_trainer import PAIRED_STEPS
from benchmarks.driver import seconds_on_driver
from benchmarks.result import write
from benchmarks.step import SIZES
from radverl.evaluation.verl_log import read_log

RUN = Path("outputs/bench/orapo")
WARM_UP_STEPS = 2
GOALS = {"update": 1.20, "step": 1.12, "memory": 1.05, "driver": 0.01}
PROMPTS = 512
MICRO = 8  # divides the 64 rows of GRPO and the 72 of OraPO: both run on micro-batches of one size


def main(argv: list[str] | None = None) -> int:
    """Run; 0 if all goals hold, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.orapo", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=PAIRED_STEPS + 24)
    args = parser.parse_args(argv)
    environment = {**os.environ, **SIZES, "OUT": str(RUN), "STEPS": str(args.steps), "LR": "1e-5"}
    environment["EXTERNAL_MODULES"] = "benchmarks.compare_trainer"
    environment["PYTHONPATH"] = os.getcwd()
    overrides = [
        "trainer.v1.trainer_mode=orapo_compare",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={MICRO}",
    ]
    subprocess.run(["bash", "recipes/demo_cpu.sh", *overrides], env=environment, check=True, stdout=sys.stderr)
    records = [r for r in read_log(RUN / "rl/metrics.jsonl") if r["step"] > WARM_UP_STEPS]

    def ratios(name: str) -> list[float]:
        return [r[f"compare/orapo_{name}"] / r[f"compare/grpo_{name}"] for r in records if f"compare/orapo_{name}" in r]

    def step_seconds(is_orapo: float) -> float:
        return statistics.median(r["timing_s/step"] for r in records if r.get("compare/is_orapo") == is_orapo)

    tokens = statistics.median(
        1 + r["orapo/oracle_length/mean"] / (8 * r["response_length/mean"]) for r in records if "compare/orapo_s" in r
    )
    update, memory = statistics.median(ratios("s")), statistics.median(ratios("peak"))
    spread = {"least": round(min(ratios("s")), 3), "most": round(max(ratios("s")), 3), "pairs": len(ratios("s"))}
    detail: dict[str, Any] = {**spread, "bound_by_rows": 1.125, "bound_by_response_tokens": round(tokens, 3)}
    results = [write("orapo_update", update, GOALS["update"], detail, f"{len(ratios('s'))} pairs, bound 1.125 by rows")]
    grpo, orapo = step_seconds(0.0), step_seconds(1.0)
    detail = {"grpo_seconds": round(grpo, 3), "orapo_seconds": round(orapo, 3)}
    for stage in ("gen", "old_log_prob", "ref", "adv", "update_actor"):
        of = [[r[f"timing_s/{stage}"] for r in records if r.get("compare/is_orapo") == kind] for kind in (0.0, 1.0)]
        detail[stage] = [round(statistics.median(seconds), 3) for seconds in of]  # GRPO, OraPO
    results.append(write("orapo_step", orapo / grpo, GOALS["step"], detail, f"{orapo:.2f} s, GRPO {grpo:.2f} s"))
    results.append(write("orapo_memory", memory, GOALS["memory"], {"pairs": len(ratios("peak"))}, "actor at its peak"))
    here = statistics.median(r["compare/bookkeeping_s"] for r in records if r.get("compare/is_orapo") == 1.0)
    large = seconds_on_driver(PROMPTS, 8)
    # A step of 512 prompts was not run here: its time is taken as that of 8, times 64.
    share = sum(large.values()) / (orapo * PROMPTS / 8)
    detail = {**{name: round(value, 3) for name, value in large.items()}, "seconds_at_8_prompts": round(here, 4)}
    text = f"{sum(large.values()):.2f} s for {PROMPTS} prompts x 8; {here * 1e3:.0f} ms for 8 x 8"
    results.append(write("orapo_driver", share, GOALS["driver"], detail, text))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
