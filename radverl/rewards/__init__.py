"""One reward a file. Each has `compute_score(data_source, solution_str, ground_truth, extra_info=None, **settings)`,
`COMPONENTS` (the keys it reports beside "score" and "failed") and `GOLD` (a report and a truth that score 1.0 or more).
One whose perfect score or form depends on its settings has `gold(settings)` as well, see `perfect_example`.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def available() -> list[str]:
    """Names of the rewards in this package, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")


def load(name: str) -> ModuleType:
    """The module of the reward `name`.

    Raises:
        ValueError: radverl has no such reward; the sentence lists those there are.
    """
    if name not in available():
        raise ValueError(f"radverl has no reward {name!r}; choose one of {', '.join(available())}.")
    return importlib.import_module(f"radverl.rewards.{name}")


def perfect_example(reward: ModuleType, settings: Mapping[str, Any]) -> tuple[str, str, dict[str, Any], float]:
    """A text that deserves all points under these settings: text, ground truth, extra_info, the least it must score."""
    if hasattr(reward, "gold"):
        example: tuple[str, str, dict[str, Any], float] = reward.gold(settings)
        return example
    return (*reward.GOLD, {}, 1.0)
