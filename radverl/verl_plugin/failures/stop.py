"""When a run has too many samples without a reward: counts over the last batches, and one sentence that ends it.

    +reward.radverl.max_failure_rate=0.05   share of the samples of the last batches that may fail; 1 never stops
    +reward.radverl.failure_window=50       how many batches that is; a validation counts as one

Not before MIN_FAILED samples failed (*ours*), so that a few unlucky ones in a small first batch are no reason, while a
judge that is down ends the run in its first batch or two. With max_failure_rate=0 the first one ends it, and so does,
whatever the rate, a cause in FATAL.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from radverl.verl_plugin.failures.flags import Tally

MIN_FAILED = 20
FATAL = ("budget",)  # the same for every sample to come
NONE = Tally()
# What else `+reward.radverl` holds (radverl/verl_plugin/reward_manager.py).
OTHER_SETTINGS = ("reward", "kwargs")


class TooManyFailures(RuntimeError):
    """Ends a run; its text is the sentence."""


@dataclass(frozen=True)
class StopRule:
    """What `+reward.radverl` says of failures."""

    max_failure_rate: float = 0.05
    failure_window: int = 50


def stop_rule_from(config: Any) -> StopRule:
    """The rule of a composed config.

    Raises:
        ValueError: an unknown or impossible setting, or one of verl's under which failures could not be told apart.
    """
    section = config.reward.get("radverl") or {}
    if not isinstance(section, Mapping) or not isinstance(section.get("kwargs") or {}, Mapping):
        raise ValueError(
            "+reward.radverl takes `reward`, a name, and `kwargs`, a section: +reward.radverl.reward=facts."
        )
    names = [field.name for field in fields(StopRule)]
    unknown = sorted(map(str, set(section) - {*names, *OTHER_SETTINGS}))
    if unknown:
        known = ", ".join([*OTHER_SETTINGS, *names])
        raise ValueError(
            f"+reward.radverl.{unknown[0]} is unknown; it takes {known}; the settings of a reward go into kwargs."
        )
    rule = StopRule(**{name: section[name] for name in names if section.get(name) is not None})
    rate, window = rule.max_failure_rate, rule.failure_window
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:  # NaN too
        raise ValueError(f"+reward.radverl.max_failure_rate={rate!r}: give a share from 0 to 1, such as 0.05.")
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ValueError(f"+reward.radverl.failure_window={window!r}: give a whole number of batches above 0.")
    model = config.reward.get("reward_model") or {}
    if model.get("enable") and not model.get("enable_resource_pool"):
        raise ValueError(
            "reward.reward_model.enable with the model beside the actor: verl then gives the reward manager no ground "
            "truth and drops the flag of failed samples; set reward.reward_model.enable_resource_pool=True."
        )
    if (config.get("algorithm") or {}).get("use_pf_ppo"):
        raise ValueError(
            "algorithm.use_pf_ppo shuffles the rows of a batch, so that a failed sample could not be told from the "
            "others; set it to False."
        )
    return rule


class FailureWindow:
    """The samples of the last batches."""

    def __init__(self, rule: StopRule) -> None:
        self.rule = rule
        self.batches: deque[Tally] = deque(maxlen=rule.failure_window)

    def add(self, tally: Tally) -> None:
        """Take a batch in; the oldest leaves."""
        self.batches.append(tally)

    def verdict(self, pending: Tally = NONE) -> str | None:
        """The sentence that ends the run, or None; `pending` counts with the batches."""
        seen = sum(self.batches, pending)
        samples, failed, causes = seen.samples, seen.failed, Counter(seen.causes)
        fatal = [cause for cause in FATAL if causes[cause]]
        if fatal:
            return (
                f"radverl: stopped, because the reward failed for {fatal[0]} on {causes[fatal[0]]} of the last "
                f"{samples} samples and would on every other; raise that limit and start the same command again to "
                "resume from the last checkpoint."
            )
        limit = self.rule.max_failure_rate
        if not failed or failed <= limit * samples or (failed < MIN_FAILED and limit > 0):
            return None
        listed = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        return (
            f"radverl: stopped, because {failed} of the last {samples} samples ({failed / samples:.1%}) have no reward "
            f"({listed}), more than +reward.radverl.max_failure_rate={limit:g}; see to the judge, or raise the limit, "
            "and start the same command again to resume from the last checkpoint."
        )
