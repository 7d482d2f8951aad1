"""Steady training step and the reward's share of it, from one real run: 8 prompts x 8 rollouts, at most 64 tokens.

    python -m benchmarks.step [--steps 10]

Runs recipes/demo_cpu.sh with few steps in outputs/bench/run (stock verl, Ray, vLLM, FSDP2), takes the median step
after the first two, and times the FactS reward on the very rollouts of those steps, one at a time as verl scores them.
Goals: step at most 4.0 s on two cores; reward at most 2 % of it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.result import write
from radverl.evaluation.verl_log import read_log

RUN = Path("outputs/bench/run")
GOAL_STEP_SECONDS = 4.0
GOAL_REWARD_SHARE = 0.02
WARM_UP_STEPS = 2
SIZES = {"B": "8", "K": "8", "MAX_RESPONSE": "64", "N_TRAIN": "512", "N_TEST": "32", "WARM_STEPS": "120"}


def main(argv: list[str] | None = None) -> int:
    """Run; 0 if both goals hold, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args(argv)
    environment = {**os.environ, **SIZES, "OUT": str(RUN), "STEPS": str(args.steps)}
    subprocess.run(["bash", "recipes/demo_cpu.sh"], env=environment, check=True, stdout=sys.stderr)
    records = [r for r in read_log(RUN / "rl/metrics.jsonl") if "timing_s/step" in r][WARM_UP_STEPS:]
    step_seconds = statistics.median(r["timing_s/step"] for r in records)
    reward_seconds = statistics.median(_reward_seconds(int(r["step"])) for r in records)
    parts = {
        key.removeprefix("timing_s/"): round(statistics.median(r[key] for r in records if key in r), 3)
        for key in ("timing_s/gen", "timing_s/old_log_prob", "timing_s/ref", "timing_s/update_actor")
    }
    detail = {"step_seconds": round(step_seconds, 3), "steps": len(records), "cores": os.cpu_count(), **parts}
    holds = write("step", step_seconds / GOAL_STEP_SECONDS, 1.0, detail, f"{step_seconds:.2f} s a step")
    detail = {"reward_seconds": round(reward_seconds, 4), "step_seconds": round(step_seconds, 3)}
    share = reward_seconds / step_seconds
    text = f"{reward_seconds * 1e3:.0f} ms of {step_seconds:.2f} s"
    return 0 if write("reward_share", share, GOAL_REWARD_SHARE, detail, text) and holds else 1


def _reward_seconds(step: int) -> float:
    """Time to score the rollouts of a step, with the labeller's sentence cache empty at its start."""
    from radverl.chexpert.labeller import forget
    from radverl.rewards.facts import compute_score

    lines = (RUN / f"rl/rollouts/{step}.jsonl").read_text(encoding="utf-8").splitlines()
    rollouts = [json.loads(line) for line in lines]
    forget()
    started = time.perf_counter()
    for rollout in rollouts:
        compute_score("simulated", rollout["output"], rollout["gts"])
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
