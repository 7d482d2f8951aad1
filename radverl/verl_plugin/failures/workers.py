"""Reward workers that outlive a kill: Ray starts them again, and their samples go to the new process.

verl starts them without a restart, so that a worker killed by the kernel for memory, say, takes every later sample of
its share with it. A sample that kills its worker each time counts as failed (cause "worker") in the end.
"""

import warnings
from functools import wraps
from types import ModuleType
from typing import Any

from radverl.rewards import load
from radverl.verl_plugin.failures.flags import CAUSE_PREFIX, FAILED, WORKER
from radverl.verl_plugin.failures.hooks import has_radverl_manager

MAX_TASK_RETRIES = 2  # ours: more would let a sample that kills its worker hold up the run
RESTARTS = {"max_restarts": -1, "max_task_retries": MAX_TASK_RETRIES}


def install_restarts(trainer_base: ModuleType) -> None:
    """Have `trainer_base.RewardLoopManager` start workers that Ray restarts."""
    import ray
    from verl.experimental.reward_loop import RewardLoopWorker

    manager = trainer_base.RewardLoopManager
    start_workers = manager._init_reward_loop_workers

    @wraps(start_workers)
    def start_restartable(self: Any) -> None:
        if has_radverl_manager(self.config):
            # No CPU of Ray's: placement groups may have taken them all by the time a worker has to come back.
            self.reward_loop_workers_class = ray.remote(num_cpus=0, **RESTARTS)(RewardLoopWorker)
        start_workers(self)

    manager._init_reward_loop_workers = start_restartable


def install_failed_samples(agent_loop: ModuleType) -> None:
    """Have `agent_loop.AgentLoopWorker` count a sample whose reward worker died as failed, not lose its session."""
    import ray.exceptions

    worker = agent_loop.AgentLoopWorker
    compute_score = worker._compute_score

    @wraps(compute_score)
    async def compute_score_or_fail(self: Any, outputs: list[Any], *args: Any, **kwargs: Any) -> None:
        try:
            await compute_score(self, outputs, *args, **kwargs)
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):
            if not has_radverl_manager(self.config):
                raise
            agent_loop.logger.exception(
                "a reward worker died and did not come back in time; the sample counts as failed"
            )
            outputs[-1].reward_score = 0.0
            flags = {"score": 0.0, FAILED: 1.0, f"{CAUSE_PREFIX}{WORKER}": 1.0}
            # With the reward's own keys: DAPO ends a run where the one that it filters by is missing.
            name = (self.config.reward.get("radverl") or {}).get("reward")
            info = dict.fromkeys(load(name).COMPONENTS if name else (), 0.0) | flags
            outputs[-1].extra_fields["reward_extra_info"] = info

    worker._compute_score = compute_score_or_fail


def is_restart() -> bool:
    """Whether this process is a Ray actor that was started again."""
    import ray

    if not ray.is_initialized():
        return False
    context = ray.get_runtime_context()
    with warnings.catch_warnings():  # Ray warns of a call of its own in there
        warnings.simplefilter("ignore", DeprecationWarning)
        return context.get_actor_id() is not None and bool(context.was_current_actor_reconstructed)
