"""Puts the accounting of failed samples into verl's PPOTrainer, and so into every V1 trainer.

On where the reward manager is `radverl` (or a subclass), and in OraPO's trainers with any manager. Metrics of a step:
    reward/failed/sum, reward/failed/rate, reward/failed_<cause>/sum, reward/groups_without_advantage/sum
and verl's critic/score/* and critic/rewards/* over the samples that have a reward.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import ModuleType
from typing import Any

from radverl.judge.limiter import budget_reached
from radverl.verl_plugin.failures.advantages import estimate_on_usable, is_grouped
from radverl.verl_plugin.failures.flags import CAUSE_PREFIX, FAILED, RowFlags, Tally, is_padding, row_flags
from radverl.verl_plugin.failures.stop import FailureWindow, StopRule, TooManyFailures, stop_rule_from
from radverl.verl_plugin.failures.validation import without_failed

_flags_of_batch: ContextVar[RowFlags | None] = ContextVar(
    "flags of the batch whose advantages are computed", default=None
)


def has_radverl_manager(config: Any) -> bool:
    """Whether the run's rewards come from the reward manager `radverl`, or one made from it."""
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    from radverl.verl_plugin.reward_manager import RadverlRewardManager

    return issubclass(resolve_reward_manager_cls(config), RadverlRewardManager)


class FailureAccount:
    """What a trainer keeps of its failed samples."""

    def __init__(self, rule: StopRule, grouped: bool) -> None:
        self.window = FailureWindow(rule)
        self.grouped = grouped
        self.causes: set[str] = set()
        """Those seen so far; each has its metric from then on."""
        self.failed_keys: set[str] = set()
        """Rows of the step that failed; a step may have several batches."""
        self.evicted = Tally()
        """Samples that verl threw away since the last batch: groups that DAPO filters, stale or broken ones."""

    def take(self, flags: RowFlags) -> dict[str, float]:
        """Count a training batch; its metrics."""
        tally = flags.tally()
        self.window.add(tally + self.evicted)
        self.causes |= set(tally.causes)
        self.failed_keys |= {key for key, failed in zip(flags.keys, flags.failed, strict=True) if failed}
        metrics = {
            f"reward/{FAILED}/sum": float(tally.failed),
            f"reward/{FAILED}/rate": tally.failed / tally.samples if tally.samples else 0.0,
        }
        metrics |= {f"reward/{CAUSE_PREFIX}{c}/sum": float(tally.causes.get(c, 0)) for c in sorted(self.causes)}
        if self.evicted.failed:
            metrics["reward/evicted_failed/sum"] = float(self.evicted.failed)
        self.evicted = Tally()
        if self.grouped:
            without = sum(n_valid < 2 for n_valid in flags.valid_sessions().values())
            metrics["reward/groups_without_advantage/sum"] = float(without)
        return metrics


def install(trainer_base: ModuleType) -> None:
    """Wrap the methods of `trainer_base.PPOTrainer` and the function it computes advantages with."""
    trainer = trainer_base.PPOTrainer
    estimate = trainer_base.compute_advantage_for_multi_trajectories
    start, compute_advantage = trainer.__init__, trainer._compute_advantage
    compute_metrics, update_val_metrics = trainer._compute_metrics, trainer._val_metrics_update
    evict = trainer_base.ReplayBuffer._evict_terminal_groups

    @wraps(estimate)
    def estimate_without_failed(data: Any, batch_keys: list[str], **settings: Any) -> Any:
        flags = _flags_of_batch.get()
        if flags is None:
            return estimate(data, batch_keys=batch_keys, **settings)
        return estimate_on_usable(estimate, data, batch_keys, flags, **settings)

    @wraps(start)
    def started(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        if self.counts_failures or has_radverl_manager(config):
            rule = stop_rule_from(config)
            grouped = is_grouped(config.algorithm.adv_estimator, config.actor_rollout_ref.rollout.n)
            self.failures = FailureAccount(rule, grouped)
        start(self, config, *args, **kwargs)
        self.replay_buffer.failures = self.failures

    @wraps(compute_advantage)
    def compute_advantage_counted(self: Any, batch: Any, metrics: dict) -> Any:
        if self.failures is None:
            return compute_advantage(self, batch, metrics)
        flags = read_flags(batch.keys, batch.partition_id)
        metrics.update(self.failures.take(flags))
        _stop_if_due(self.failures, self, metrics)
        with _excluding(flags):
            return compute_advantage(self, batch, metrics)

    @wraps(compute_metrics)
    def compute_metrics_of_valid(self: Any, batch: Any, metrics: dict, *args: Any, **kwargs: Any) -> Any:
        result = compute_metrics(self, batch, metrics, *args, **kwargs)
        if self.failures is not None and self.failures.failed_keys:
            _correct_score_metrics(batch, self.failures.failed_keys, metrics)
            self.failures.failed_keys = set()
        return result

    @wraps(update_val_metrics)
    def update_val_metrics_of_valid(
        self: Any, data_sources: Any, sample_uids: Any, reward_extra_infos_dict: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if self.failures is None:
            return update_val_metrics(self, data_sources, sample_uids, reward_extra_infos_dict, *args, **kwargs)
        infos, kwargs["expected_acc_counts"], counts, tally = without_failed(
            data_sources, sample_uids, reward_extra_infos_dict, kwargs.get("expected_acc_counts")
        )
        metrics = update_val_metrics(self, data_sources, sample_uids, infos, *args, **kwargs) | counts
        self.failures.window.add(tally)
        _stop_if_due(self.failures, self, metrics)
        return metrics

    @wraps(evict)
    def evict_counted(self: Any, global_steps: int, partition_id: str, eviction_reasons: Any) -> Any:
        evicted = set().union(*eviction_reasons[:3])
        if evicted and self.failures is not None:
            keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in evicted]
            self.failures.evicted += read_flags(keys, partition_id).tally()
            # Where nothing has a reward every group looks alike, and DAPO would filter and refill for ever.
            _stop_if_due(self.failures)
        return evict(self, global_steps, partition_id, eviction_reasons)

    trainer.failures, trainer.counts_failures = None, False
    trainer_base.ReplayBuffer.failures = None
    trainer_base.ReplayBuffer._evict_terminal_groups = evict_counted
    trainer_base.compute_advantage_for_multi_trajectories = estimate_without_failed  # type: ignore[attr-defined]
    trainer.__init__ = started
    trainer._compute_advantage = compute_advantage_counted
    trainer._compute_metrics = compute_metrics_of_valid
    trainer._val_metrics_update = update_val_metrics_of_valid


def read_flags(keys: list[str], partition_id: str) -> RowFlags:
    """The flags of rows, from verl's TransferQueue."""
    import transfer_queue as tq

    if not keys:
        return RowFlags([], [])
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["rm_scores", "extra_fields"])
    scores = [float(row.sum()) for row in data["rm_scores"].unbind()]
    return row_flags(keys, list(data["extra_fields"]), scores)


@contextmanager
def _excluding(flags: RowFlags) -> Iterator[None]:
    token = _flags_of_batch.set(flags)
    try:
        yield
    finally:
        _flags_of_batch.reset(token)


def _stop_if_due(failures: FailureAccount, trainer: Any = None, metrics: Mapping[str, Any] | None = None) -> None:
    sentence = failures.window.verdict(failures.evicted)
    if sentence is None:
        return
    if (why := budget_reached()) is not None:
        sentence += f" {why[0].upper()}{why[1:]}."
    if trainer is not None:
        known = {name: value for name, value in (metrics or {}).items() if isinstance(value, int | float)}
        trainer.logger.log(data=known, step=trainer.global_steps)  # of the step that is not trained on
        trainer._shutdown_dump_executor()
    print(sentence, flush=True)
    raise TooManyFailures(sentence)


def _correct_score_metrics(batch: Any, failed_keys: set[str], metrics: dict) -> None:
    """verl's critic/score/* and critic/rewards/* over the rows that have a reward, as verl computes them."""
    import transfer_queue as tq

    fields = {"rm_scores": "critic/score", "token_level_rewards": "critic/rewards"}
    for name in [name for name in metrics if name.rsplit("/", 1)[0] in fields.values()]:
        del metrics[name]
    keys = [key for key in batch.keys if key not in failed_keys and not is_padding(key)]
    if not keys:
        return
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=[*fields, "responses"])
    there = data["responses"].offsets().diff() > 0
    for field, name in fields.items():
        # verl writes rewards of their own only where it takes the KL from them.
        values = data[field if field in data else "rm_scores"].to_padded_tensor(0.0).sum(-1)[there]
        if values.numel():
            metrics |= {f"{name}/{kind}": float(getattr(values, kind)()) for kind in ("mean", "max", "min")}
