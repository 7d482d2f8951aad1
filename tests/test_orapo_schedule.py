"""Eqs 8-10: zero-reward rate, moving average, weight."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radverl.orapo import ZeroRewardEma, ema, mixing_weight, zero_reward_rate

rates = st.floats(0.0, 1.0)


@pytest.mark.parametrize(
    ("rewards", "rate"),
    [([0, 0, 0, 0], 1.0), ([1, 0, 0, 0], 0.75), ([0.2, 0.1], 0.0), ([1e-300, 0.0], 0.5), ([0], 1.0)],
)
def test_rate_counts_exact_zeros(rewards: list[float], rate: float) -> None:
    assert zero_reward_rate(rewards) == rate
    assert zero_reward_rate(np.array(rewards, dtype=np.float32)) == (1.0 if rewards == [1e-300, 0.0] else rate)


def test_failed_judges_are_not_zero_rewards() -> None:
    assert zero_reward_rate([0, 0, 0.5, 0.5], [True, True, False, False]) == 0.0
    assert zero_reward_rate([0, 0, 0.5, math.nan], [True, False, False, True]) == 0.5
    assert math.isnan(zero_reward_rate([0, 0], [True, True]))


@pytest.mark.parametrize("rewards", [[], [[0.0, 1.0]], [0.0, math.nan], [0.0, math.inf]])
def test_rate_refuses_what_is_no_group(rewards: list) -> None:
    with pytest.raises(ValueError, match="rewards_K"):
        zero_reward_rate(rewards)
    with pytest.raises(ValueError, match="failed_K"):
        zero_reward_rate([0.0, 1.0], [True])


def test_average_from_zero() -> None:
    average, seen = 0.0, []
    for _ in range(4):
        average = ema(average, 1.0, 0.5)
        seen.append(average)
    assert seen == [0.5, 0.75, 0.875, 0.9375]


def test_average_starts_with_the_first_observation_and_keeps_what_it_has() -> None:
    assert ema(None, 0.25) == 0.25
    assert ema(0.4, math.nan) == 0.4
    assert math.isnan(ema(None, math.nan))
    assert ema(0.3, 0.9, alpha=0.0) == 0.9


@pytest.mark.parametrize(("z", "alpha"), [(0.5, 1.0), (0.5, -0.1), (1.5, 0.5), (-0.5, 0.5), (0.5, math.nan)])
def test_average_refuses_what_is_out_of_range(z: float, alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha|z holds"):
        ema(0.5, z, alpha)


@pytest.mark.parametrize(("z", "w"), [(0, 0.05), (0.25, 0.05625), (0.5, 0.075), (0.75, 0.10625), (1, 0.15)])
def test_weight_of_the_paper(z: float, w: float) -> None:
    assert mixing_weight(z, 0.05, 0.15, 2) == pytest.approx(w, abs=1e-15)
    assert isinstance(mixing_weight(z), float)


@given(z=rates, low=rates, high=rates, gamma=st.floats(0.1, 8.0))
def test_weight_stays_in_its_range_and_grows(z: float, low: float, high: float, gamma: float) -> None:
    low, high = sorted((low, high))
    w = mixing_weight(z, low, high, gamma)
    assert low <= w <= high
    assert mixing_weight(min(1.0, z + 0.1), low, high, gamma) >= w


def test_weight_of_an_array_and_of_nothing_observed() -> None:
    weights = mixing_weight(np.array([[0.0, math.nan], [1.0 + 1e-15, 0.5]]))
    np.testing.assert_allclose(weights, [[0.05, 0.05], [0.15, 0.075]], atol=1e-15)
    assert mixing_weight(math.nan, 0.02) == 0.02


@pytest.mark.parametrize("wrong", [{"w_min": 0.2}, {"w_max": 1.1}, {"w_min": -0.1}, {"gamma": 0.0}, {"z": 1.1}])
def test_weight_refuses_what_is_out_of_range(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"w_min|gamma|z holds"):
        mixing_weight(**{"z": 0.5, **wrong})


def test_prompts_have_their_own_averages_and_a_batch_has_one() -> None:
    by_prompt = ZeroRewardEma()
    assert by_prompt.update(["a", "b"], [1.0, 0.0]).tolist() == [1.0, 0.0]
    assert by_prompt.update(["b", "c"], [1.0, 0.5]).tolist() == [0.5, 0.5]
    assert by_prompt.values == {"a": 1.0, "b": 0.5, "c": 0.5}

    by_batch = ZeroRewardEma(scope="batch")
    assert by_batch.update(["a", "b"], [1.0, 0.0]).tolist() == [0.5, 0.5]
    assert by_batch.update(["c", "d", "e"], [1.0, math.nan, 1.0]).tolist() == [0.75, 0.75, 0.75]


def test_start_from_zero() -> None:
    average = ZeroRewardEma(init="zero")
    assert [float(average.update(["a"], [1.0])[0]) for _ in range(4)] == [0.5, 0.75, 0.875, 0.9375]


@pytest.mark.parametrize(("init", "unseen"), [("first", math.nan), ("zero", 0.0)])
def test_a_group_without_valid_reward_changes_nothing(init: str, unseen: float) -> None:
    average = ZeroRewardEma(init=init)  # type: ignore[arg-type]
    average.update(["a"], [1.0])
    before = dict(average.values)
    np.testing.assert_array_equal(average.update(["a", "b"], [math.nan, math.nan]), [before["a"], unseen])
    assert average.values == before


@given(st.permutations([("a", 0.25), ("a", 1.0), ("b", 0.5), ("a", 0.125)]))
def test_a_prompt_twice_in_a_step_is_one_update_in_any_order(groups: list[tuple[str, float]]) -> None:
    average = ZeroRewardEma()
    average.update(["a", "b"], [0.5, 0.5])
    ids, values = zip(*groups, strict=True)
    result = dict(zip(ids, average.update(ids, values).tolist(), strict=True))
    assert result == {"a": 0.5 * 0.5 + 0.5 * (1.375 / 3), "b": 0.5}


@given(
    steps=st.lists(st.lists(st.tuples(st.sampled_from("abcdé"), rates | st.just(math.nan)), min_size=1), max_size=6),
    cut=st.integers(0, 6),
    alpha=st.floats(0.0, 0.99),
    init=st.sampled_from(["first", "zero"]),
    scope=st.sampled_from(["prompt", "batch"]),
)
def test_a_resumed_run_continues_to_the_last_bit(steps: list, cut: int, alpha: float, init: str, scope: str) -> None:
    straight = ZeroRewardEma(alpha, init, scope)  # type: ignore[arg-type]
    resumed = ZeroRewardEma(alpha, init, scope)  # type: ignore[arg-type]
    for number, step in enumerate(steps):
        if number == cut:
            saved = json.dumps(resumed.state_dict(), allow_nan=False)
            resumed = ZeroRewardEma(alpha, init, scope)  # type: ignore[arg-type]
            resumed.load_state_dict(json.loads(saved))
        ids, values = zip(*step, strict=True)
        np.testing.assert_array_equal(straight.update(ids, values), resumed.update(ids, values))
    assert straight.state_dict() == resumed.state_dict()


def test_a_saved_state_is_a_copy() -> None:
    average = ZeroRewardEma()
    average.update(["a"], [1.0])
    saved = average.state_dict()
    average.update(["a"], [0.0])
    assert saved["values"] == {"a": 1.0}


def test_state_faults_are_named() -> None:
    average = ZeroRewardEma()
    with pytest.raises(TypeError, match="prompt id 7 is a int"):
        average.update([7], [0.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="one rate each"):
        average.update(["a"], [0.5, 0.5])
    with pytest.raises(ValueError, match="rates_P holds 2"):
        average.update(["a"], [2.0])
    for values in ({"a": math.nan}, {"a": 1.5}):
        with pytest.raises(ValueError, match=r"holds NaN|values holds 1\.5"):
            average.load_state_dict({"version": 1, "scope": "prompt", "values": values})
    with pytest.raises(ValueError, match="scope 'batch', this run 'prompt'"):
        average.load_state_dict(ZeroRewardEma(scope="batch").state_dict())
    with pytest.raises(ValueError, match="not a zero-reward state"):
        average.load_state_dict({"a": 0.5})
    for wrong in ({"alpha": 1.0}, {"init": "last"}, {"scope": "epoch"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ZeroRewardEma(**wrong)
    assert average.values == {}


def test_the_schedule_does_not_load_torch() -> None:
    code = (
        "import sys, radverl.orapo as o; o.mixing_weight(o.zero_reward_rate([0, 1])); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
