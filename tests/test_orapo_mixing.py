"""From the rows of a step to the numbers of each row: groups, weights, coefficients, failed samples, metrics."""

import dataclasses
import math

import pytest

pytest.importorskip("torch")
import torch

from radverl.orapo import ZeroRewardEma, dpo_row_coefficients
from radverl.verl_plugin.orapo.mixing import Step, groups_of, mix
from radverl.verl_plugin.orapo.settings import OrapoSettings

KEYS = ["b_1_0", "a_0_0", "pad7_0_0", "a_2_0", "b_0_0", "a_1_0", "b_2_0"]  # as verl balances them: in any order


def step(keys=tuple(KEYS), rewards=None, failed=None, seed=0):
    groups = groups_of(list(keys))
    generator = torch.Generator().manual_seed(seed)
    n_rows, n_prompts = len(keys), len(groups.uids)
    return Step(
        groups=groups,
        prompt_ids=[f"prompt {uid}" for uid in groups.uids],
        rewards_R=torch.tensor([0.0] * n_rows if rewards is None else rewards),
        failed_R=torch.tensor([False] * n_rows if failed is None else failed),
        delta_R=torch.randn(n_rows, generator=generator).double(),
        lengths_R=torch.randint(1, 9, (n_rows,), generator=generator),
        delta_gt_P=torch.randn(n_prompts, generator=generator).double(),
        lengths_gt_P=torch.randint(1, 9, (n_prompts,), generator=generator),
    )


def test_groups_are_read_from_the_keys():
    groups = groups_of(KEYS)
    assert groups.uids == ["b", "a"]
    assert groups.prompt_R.tolist() == [0, 1, -1, 1, 0, 1, 0]
    assert groups.row_PK.tolist() == [[4, 0, 6], [1, 5, 3]]


def test_several_outputs_of_a_session_are_refused():
    with pytest.raises(ValueError, match="several outputs of one session"):
        groups_of(["a_0_0", "a_1_0", "a_0_1"])


def test_rollouts_that_a_correction_emptied_are_no_negatives():
    """Their reward still counts in z."""
    made = dataclasses.replace(
        step(rewards=[0.5, 0, 0, 0, 0, 0, 0]), rejected_R=torch.tensor([False, True] + [False] * 5)
    )
    rollouts, oracle, metrics = mix(OrapoSettings(), ZeroRewardEma(), made)
    assert rollouts["orapo_negative"].tolist() == [1, 0, 0, 1, 1, 1, 1]
    assert oracle["orapo_dpo_weight"].tolist() == pytest.approx([0.05 + 0.1 * (2 / 3) ** 2, 0.15])
    assert metrics["orapo/pairs"] == 5


def test_session_ten_comes_after_session_nine():
    groups = groups_of([f"a_{k}_0" for k in range(11)])
    assert groups.row_PK.tolist() == [list(range(11))]


def test_weights_follow_the_zero_rewards():
    """b: 2 of 3 zero; a: all zero. First observation: z = rate, w = .05 + .1 z^2."""
    rollouts, oracle, metrics = mix(OrapoSettings(), ZeroRewardEma(), step(rewards=[0.5, 0, 0, 0, 0, 0, 0]))
    weights = [0.05 + 0.1 * (2 / 3) ** 2, 0.15]
    assert oracle["orapo_dpo_weight"].tolist() == pytest.approx(weights)
    assert rollouts["orapo_grpo_weight"].tolist() == pytest.approx(
        [1 - weights[0], 1 - weights[1], 1.0, 1 - weights[1], 1 - weights[0], 1 - weights[1], 1 - weights[0]]
    )
    assert metrics["orapo/zrr/mean"] == pytest.approx(5 / 6)
    assert metrics["orapo/all_zero_groups"] == 0.5
    assert (metrics["orapo/w/min"], metrics["orapo/w/max"]) == pytest.approx(weights)
    assert metrics["orapo/pairs"] == 6


def test_coefficients_land_on_their_rows():
    made = step(rewards=[0.5, 0, 0, 0, 0, 0, 0])
    rollouts, oracle, _ = mix(OrapoSettings(tau=1.5), ZeroRewardEma(), made)
    rows_PK = made.groups.row_PK
    coef_gt_P, coef_PK = dpo_row_coefficients(
        made.delta_gt_P, made.delta_R[rows_PK], made.lengths_gt_P.double(), made.lengths_R[rows_PK].double(),
        oracle["orapo_dpo_weight"].double(), tau=1.5,
    )  # fmt: skip
    torch.testing.assert_close(rollouts["orapo_coef"][rows_PK], coef_PK.float())
    torch.testing.assert_close(oracle["orapo_coef"], coef_gt_P.float())
    assert rollouts["orapo_coef"][2] == 0  # padding
    assert rollouts["orapo_negative"].tolist() == [1, 1, 0, 1, 1, 1, 1]
    assert rollouts["orapo_prompt"].tolist() == [0, 1, -1, 1, 0, 1, 0]
    assert oracle["orapo_prompt"].tolist() == [0, 1]


def test_a_failed_judge_is_no_zero_reward_and_no_negative():
    """a: one failed, two zero -> z = 1; b: one failed, one zero, one rewarded -> z = 1/2."""
    made = step(rewards=[0.5, 0, 0, 0, 0, 0, 0], failed=[False, True, False, False, True, False, False])
    rollouts, oracle, metrics = mix(OrapoSettings(), ZeroRewardEma(), made)
    assert oracle["orapo_dpo_weight"].tolist() == pytest.approx([0.05 + 0.1 * 0.25, 0.15])
    assert rollouts["orapo_negative"].tolist() == [1, 0, 0, 1, 0, 1, 1]
    assert rollouts["orapo_coef"][[1, 4]].tolist() == [0, 0]
    assert metrics["orapo/excluded_samples/sum"] == 2
    assert metrics["orapo/pairs"] == 4


def test_a_missing_session_is_no_zero_reward():
    made = step(keys=["a_1_0", "a_2_0", "b_0_0", "b_1_0", "b_2_0"], rewards=[0.5, 0, 0, 0, 0])
    rollouts, oracle, metrics = mix(OrapoSettings(), ZeroRewardEma(), made)
    assert oracle["orapo_dpo_weight"].tolist() == pytest.approx([0.05 + 0.1 * 0.25, 0.15])
    assert metrics["orapo/missing_rollouts/sum"] == 1
    assert metrics["orapo/excluded_samples/sum"] == 0
    assert rollouts["orapo_negative"].tolist() == [1] * 5


def test_a_group_whose_judges_all_failed_keeps_its_average():
    average = ZeroRewardEma()
    average.update(["prompt a"], [0.5])
    made = step(failed=[False, True, False, True, False, True, False])
    _, oracle, metrics = mix(OrapoSettings(), average, made)
    assert average.values == {"prompt a": 0.5, "prompt b": 1.0}
    assert oracle["orapo_dpo_weight"].tolist() == pytest.approx([0.15, 0.05 + 0.1 * 0.25])
    assert oracle["orapo_coef"][1] == 0  # nothing to prefer the report over
    assert metrics["orapo/zrr/mean"] == 1.0
    assert metrics["orapo/groups_without_advantage/sum"] == 1


def test_nothing_judged_at_all():
    _, oracle, metrics = mix(OrapoSettings(), ZeroRewardEma(), step(failed=[True] * 7))
    assert oracle["orapo_dpo_weight"].tolist() == pytest.approx([0.05, 0.05])
    assert not oracle["orapo_coef"].any()
    assert "orapo/zrr/mean" not in metrics
    assert metrics["orapo/pairs"] == 0
    assert all(math.isfinite(value) for value in metrics.values())


def test_negatives_of_reward_zero_only():
    rollouts, _, _ = mix(
        OrapoSettings(negatives="zero_reward"), ZeroRewardEma(), step(rewards=[0.5, 0, 0, 0, 0, 0.1, 0])
    )
    assert rollouts["orapo_negative"].tolist() == [0, 1, 0, 1, 1, 0, 1]


def test_one_average_for_all_prompts():
    _, oracle, _ = mix(OrapoSettings(scope="batch"), ZeroRewardEma(scope="batch"), step(rewards=[0.5] * 6 + [0.0]))
    assert oracle["orapo_dpo_weight"].tolist() == pytest.approx([0.05 + 0.1 * (1 / 6) ** 2] * 2)


def test_sft_in_place_of_dpo():
    """w times the token mean of -log pi of the true report; rollouts have no part in it."""
    made = step()
    rollouts, oracle, _ = mix(OrapoSettings(oracle_loss="sft"), ZeroRewardEma(), made)
    assert not rollouts["orapo_coef"].any()
    torch.testing.assert_close(oracle["orapo_coef"].double(), -0.15 / made.lengths_gt_P.double())
    _, whole, _ = mix(OrapoSettings(oracle_loss="sft", length_normalised=False), ZeroRewardEma(), made)
    assert whole["orapo_coef"].tolist() == pytest.approx([-0.15, -0.15])


def test_order_of_rows_does_not_matter():
    made = step(rewards=[0.5, 0, 0, 0, 1, 0, 0], failed=[False] * 3 + [True] + [False] * 3)
    turned = list(reversed(range(7)))
    other = Step(
        groups=groups_of([KEYS[i] for i in turned]),
        prompt_ids=["prompt b", "prompt a"],
        rewards_R=made.rewards_R[turned],
        failed_R=made.failed_R[turned],
        delta_R=made.delta_R[turned],
        lengths_R=made.lengths_R[turned],
        delta_gt_P=made.delta_gt_P,
        lengths_gt_P=made.lengths_gt_P,
    )
    assert other.groups.uids == ["b", "a"]
    first, first_gt, first_metrics = mix(OrapoSettings(), ZeroRewardEma(), made)
    second, second_gt, second_metrics = mix(OrapoSettings(), ZeroRewardEma(), other)
    for name, value in first.items():
        torch.testing.assert_close(value[turned], second[name])
        torch.testing.assert_close(first_gt[name], second_gt[name])
    assert first_metrics == pytest.approx(second_metrics)
