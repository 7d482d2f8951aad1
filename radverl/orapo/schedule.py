"""How much oracle education a prompt gets: eqs 8-10 of OraPO (arXiv 2509.18600, sec. 3.2).

    z_i  = (1/K) sum_j 1[r_ij = 0]                                        (8)  zero-reward rate of the group
    z~_i = alpha z~_i(previous) + (1 - alpha) z_i                          (9)  moving average
    w_i  = clip(w_min + (w_max - w_min) z~_i^gamma, w_min, w_max)         (10)  weight of DPO in the loss

The paper's remark that z = 0 "indicates at least one non-zero reward" contradicts eq. 8 (there z = 0 means that no
reward is zero); we implement the equation.

Shapes: P prompts of a step, K rollouts of a prompt. NaN stands for "nothing was observed" and for nothing else: a
sample whose judge failed has no reward, so it is not a zero reward (*ours*, the paper is silent).
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

ALPHA = 0.5  # "Implementation details"; .4, .5 and .6 were searched
W_MIN = 0.05  # .02, .05 and .1 were searched
W_MAX = 0.15  # .15 and .3 were searched
GAMMA = 2.0  # 1 and 2 were searched

_ROUNDING = 1e-9  # a moving average of rates may leave [0, 1] by an ulp
_BATCH_KEY = "batch"  # the only key of a state with scope "batch"
_STATE_VERSION = 1


def zero_reward_rate(rewards_K: ArrayLike, failed_K: ArrayLike | None = None) -> float:
    """Share of a group's valid rewards that are exactly zero (eq. 8).

    Args:
        rewards_K: rewards of the K rollouts of one prompt, in [0, 1] by the paper.
        failed_K: True where the judge failed; such a reward counts neither as zero nor in the denominator (*ours*).
    Returns:
        A number in [0, 1], or NaN where no reward is valid: `ema` then keeps its previous value.
    Raises:
        ValueError: no rollout at all, masks that do not fit, or a valid reward that is not finite.
    """
    rewards = np.asarray(rewards_K, dtype=np.float64)
    if rewards.ndim != 1 or rewards.size == 0:
        raise ValueError(f"rewards_K has shape {rewards.shape}: pass the rewards of one group, shape (K,) with K >= 1.")
    if failed_K is not None:
        failed = np.asarray(failed_K, dtype=bool)
        if failed.shape != rewards.shape:
            raise ValueError(f"failed_K has shape {failed.shape}, rewards_K {rewards.shape}: they must be equal.")
        rewards = rewards[~failed]
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards_K holds a value that is not finite ({rewards.tolist()}): mark it in failed_K.")
    return float(np.mean(rewards == 0.0)) if rewards.size else math.nan


def ema(prev: float | None, z: float, alpha: float = ALPHA) -> float:
    """One step of the moving average (eq. 9).

    Args:
        prev: previous average; None where there is none, then the first observation is returned (*ours*: the paper
            does not tell its initial value; pass 0.0 to start from zero).
        z: zero-reward rate of this step in [0, 1]; NaN where nothing was observed, then `prev` is returned.
        alpha: weight of the past, in [0, 1).
    Returns:
        The new average; NaN only if `prev` is None and `z` is NaN.
    """
    if not 0.0 <= alpha < 1.0:
        raise ValueError(f"alpha is {alpha}: it must lie in [0, 1).")
    _check_rates(np.asarray([z]), "z")
    _check_rates(np.asarray([math.nan if prev is None else prev]), "prev")
    if prev is None or math.isnan(prev):
        return float(z)
    return float(prev) if math.isnan(z) else alpha * float(prev) + (1.0 - alpha) * float(z)


@overload
def mixing_weight(z: float, w_min: float = ..., w_max: float = ..., gamma: float = ...) -> float: ...
@overload
def mixing_weight(
    z: Sequence[float] | NDArray[Any], w_min: float = ..., w_max: float = ..., gamma: float = ...
) -> NDArray[np.float64]: ...
def mixing_weight(
    z: float | Sequence[float] | NDArray[Any], w_min: float = W_MIN, w_max: float = W_MAX, gamma: float = GAMMA
) -> float | NDArray[np.float64]:
    """Weight of the DPO term (eq. 10), monotonic in z.

    Args:
        z: averaged zero-reward rate in [0, 1], a number or an array of any shape. NaN (never observed) gets w_min
            (*ours*: such a group has no reward to learn from and no pair either).
        w_min, w_max: range of the weight, 0 <= w_min <= w_max <= 1. With w_min > 0 DPO never switches off.
        gamma: > 0; the larger, the more the weight is kept for the worst prompts.
    Returns:
        A float for a number, a float64 array of the same shape for an array.
    """
    if not 0.0 <= w_min <= w_max <= 1.0:
        raise ValueError(f"w_min {w_min} and w_max {w_max} must satisfy 0 <= w_min <= w_max <= 1.")
    if not 0.0 < gamma < math.inf:
        raise ValueError(f"gamma is {gamma}: it must be positive and finite.")
    rates = np.asarray(z, dtype=np.float64)
    _check_rates(rates, "z")
    rates = np.clip(np.nan_to_num(rates, nan=0.0), 0.0, 1.0)
    weights = np.clip(w_min + (w_max - w_min) * rates**gamma, w_min, w_max)
    return float(weights) if weights.ndim == 0 else weights


class ZeroRewardEma:
    """The moving averages of a run, one per prompt or one for all, to be saved with each checkpoint.

    Args:
        alpha: weight of the past in eq. 9, in [0, 1).
        init: "first", start from the first observation, or "zero" (*ours*, the paper does not tell).
        scope: "prompt", keyed by a stable prompt id (*ours*: the paper allows both), or "batch", one average of the
            step's mean rate that every prompt of the step gets.
    """

    def __init__(
        self,
        alpha: float = ALPHA,
        init: Literal["first", "zero"] = "first",
        scope: Literal["prompt", "batch"] = "prompt",
    ) -> None:
        if not 0.0 <= alpha < 1.0:
            raise ValueError(f"alpha is {alpha}: it must lie in [0, 1).")
        if init not in ("first", "zero"):
            raise ValueError(f"init is {init!r}: choose 'first' or 'zero'.")
        if scope not in ("prompt", "batch"):
            raise ValueError(f"scope is {scope!r}: choose 'prompt' or 'batch'.")
        self.alpha = alpha
        self.init = init
        self.scope = scope
        self.values: dict[str, float] = {}

    def update(self, prompt_ids: Sequence[str], rates_P: ArrayLike) -> NDArray[np.float64]:
        """Take in one step and return its averages z~, shape (P,), in the order of `prompt_ids`.

        A prompt that occurs more than once in a step is updated once, with the mean of its rates (*ours*: the result
        does not depend on their order). A NaN rate changes nothing; where it is all there ever was, the average is
        NaN with init "first" and 0 with init "zero".
        """
        rates = np.asarray(rates_P, dtype=np.float64)
        if rates.shape != (len(prompt_ids),):
            raise ValueError(f"rates_P has shape {rates.shape} for {len(prompt_ids)} prompt ids: give one rate each.")
        _check_rates(rates, "rates_P")
        for prompt_id in prompt_ids:
            if not isinstance(prompt_id, str):  # JSON would turn it into a string, and the resumed run would miss it
                raise TypeError(f"prompt id {prompt_id!r} is a {type(prompt_id).__name__}: it must be a string.")
        keys = list(prompt_ids) if self.scope == "prompt" else [_BATCH_KEY] * len(prompt_ids)
        observed: dict[str, list[float]] = {}
        for key, rate in zip(keys, rates.tolist(), strict=True):
            if not math.isnan(rate):
                observed.setdefault(key, []).append(rate)
        start = None if self.init == "first" else 0.0
        for key, seen in observed.items():
            self.values[key] = ema(self.values.get(key, start), math.fsum(seen) / len(seen), self.alpha)
        unseen = math.nan if start is None else start
        return np.array([self.values.get(key, unseen) for key in keys], dtype=np.float64)

    def state_dict(self) -> dict[str, Any]:
        """Everything to resume from: plain JSON types, restored exactly by json.loads(json.dumps(...))."""
        return {
            "version": _STATE_VERSION,
            "scope": self.scope,
            "alpha": self.alpha,
            "init": self.init,
            "values": dict(self.values),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the averages by saved ones; alpha and init stay those of this run, the scope must be the same."""
        if state.get("version") != _STATE_VERSION or not isinstance(state.get("values"), dict):
            raise ValueError(f"not a zero-reward state of version {_STATE_VERSION} (keys {sorted(state)}).")
        if state.get("scope") != self.scope:
            raise ValueError(
                f"the saved state has scope {state.get('scope')!r}, this run {self.scope!r}: "
                "resume with the saved scope or start anew."
            )
        for key, value in state["values"].items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"the saved zero-reward state holds {value!r} for {key!r}, which is no number.")
        values = {str(key): float(value) for key, value in state["values"].items()}
        averages = np.asarray(list(values.values()), dtype=np.float64)
        if np.isnan(averages).any():
            raise ValueError("the saved zero-reward state holds NaN: restore it from an earlier checkpoint.")
        _check_rates(averages, "values")
        self.values = values


def _check_rates(rates: NDArray[np.float64], name: str) -> None:
    """Raise unless each rate is in [0, 1] or NaN."""
    wrong = (rates < -_ROUNDING) | (rates > 1.0 + _ROUNDING)  # NaN compares False
    if wrong.any():
        raise ValueError(f"{name} holds {float(rates[wrong].flat[0])}: a zero-reward rate lies in [0, 1].")
