"""OraPO (arXiv 2509.18600): GRPO plus DPO against the true report, mixed per prompt by its zero-reward rate.

    schedule.py   eqs 8-10   rewards -> zero-reward rate -> moving average -> weight w_i          (numpy)
    dpo.py        eqs 5-7    preference loss over all pairs of a prompt; the same gradient row by row (torch)
    grpo.py       eqs 1-4    group advantages, clipped policy loss, KL                            (torch)
    loss.py       eq. 11     the whole objective on padded tensors                                (torch)

Mathematics only: nothing here knows verl, Ray or a model. Torch is loaded with the first name that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from radverl.orapo.schedule import ZeroRewardEma, ema, mixing_weight, zero_reward_rate

if TYPE_CHECKING:
    from radverl.orapo.dpo import (
        dpo_group_loss,
        dpo_pair_loss,
        dpo_row_coefficients,
        dpo_row_loss,
        log_ratio_sums,
        negative_mask,
        preference_metrics,
    )
    from radverl.orapo.grpo import group_advantages, grpo_loss
    from radverl.orapo.loss import orapo_loss

_NEEDS_TORCH = {
    "dpo_group_loss": "dpo",
    "dpo_pair_loss": "dpo",
    "dpo_row_coefficients": "dpo",
    "dpo_row_loss": "dpo",
    "group_advantages": "grpo",
    "grpo_loss": "grpo",
    "log_ratio_sums": "dpo",
    "negative_mask": "dpo",
    "orapo_loss": "loss",
    "preference_metrics": "dpo",
}

__all__ = [
    "ZeroRewardEma",
    "dpo_group_loss",
    "dpo_pair_loss",
    "dpo_row_coefficients",
    "dpo_row_loss",
    "ema",
    "group_advantages",
    "grpo_loss",
    "log_ratio_sums",
    "mixing_weight",
    "negative_mask",
    "orapo_loss",
    "preference_metrics",
    "zero_reward_rate",
]


def __dir__() -> list[str]:
    """All public names, also those whose module is not loaded yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the torch half on first use."""
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NEEDS_TORCH[name]}"), name)
