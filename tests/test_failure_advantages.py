"""verl's estimators without the samples that have no reward: against numbers by hand and our own formula."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("verl")
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories as stock

from radverl.orapo import group_advantages
from radverl.verl_plugin.failures.advantages import estimate_on_usable, is_grouped
from radverl.verl_plugin.failures.flags import RowFlags, row_flags

F = None  # a reward that failed
GROUPED = [
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "rloo",
    "rloo_vectorized",
    "opo",
    "reinforce_plus_plus_baseline",
    "gpg",
]
ALL = [*GROUPED, "reinforce_plus_plus", "gae"]
SETTINGS = OmegaConf.create({"gamma": 1.0, "norm_adv_by_std_in_grpo": True})


def batch(groups, lengths=None, padding=0, failed_as=0.0, outputs=1):
    """(data, keys, flags) of groups of rewards; the rows in an order that mixes the groups, as verl has them."""
    rows = [
        (f"u{p}", k, o, reward)
        for k in range(max(map(len, groups)))
        for p, rewards in enumerate(groups)
        if k < len(rewards)
        for reward in [rewards[k]]
        for o in range(outputs)
    ]
    rows += [("padff", n, 0, 0.0) for n in range(padding)]
    n_tokens = [3] * len(rows) if lengths is None else [lengths[i % len(lengths)] for i in range(len(rows))]
    mask = torch.zeros(len(rows), max(n_tokens))
    rewards = torch.zeros_like(mask)
    for i, (uid, _, _, reward) in enumerate(rows):
        if uid != "padff":
            mask[i, : n_tokens[i]] = 1
            rewards[i, n_tokens[i] - 1] = failed_as if reward is F else reward
    keys = [f"{uid}_{k}_{o}" for uid, k, o, _ in rows]
    # The extra info of a padding row is a copy of the first row's.
    infos = [
        {"reward_extra_info": {"failed": float((rows[0][3] if uid == "padff" else r) is F)}} for uid, _, _, r in rows
    ]
    values = torch.linspace(-1, 1, rewards.numel()).view_as(rewards) * mask
    tensors = {"token_level_rewards": rewards, "response_mask": mask, "values": values}
    uids = np.array([uid for uid, *_ in rows], dtype=object)
    data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": uids})
    return data, keys, row_flags(keys, infos, rewards.sum(-1).tolist())


def estimated(name, groups, by_std=True, n_rollouts=4, **more):
    data, keys, flags = batch(groups, **more)
    estimate_on_usable(
        stock, data, keys, flags, adv_estimator=name, gamma=1.0, lam=1.0, num_repeat=n_rollouts,
        norm_adv_by_std_in_grpo=by_std, config=OmegaConf.merge(SETTINGS, {"norm_adv_by_std_in_grpo": by_std}),
    )  # fmt: skip
    return data, keys


def by_group(data, keys, groups, column="advantages"):
    """What each sample got, in the form of `groups`; one number a sample."""
    out = [[math.nan] * len(rewards) for rewards in groups]
    for key, values, mask in zip(keys, data.batch[column], data.batch["response_mask"], strict=True):
        uid, k, _ = key.rsplit("_", 2)
        assert not values[mask == 0].any()
        if uid.startswith("u"):
            (out[int(uid[1:])][int(k)],) = set(values[mask == 1].tolist())
    return out


def test_grpo_by_hand():
    """[1, 0, 0, F]: mean 1/3, sample deviation sqrt(1/3)."""
    groups = [[1.0, 0.0, 0.0, F], [0.2, 0.4, 0.6, 0.8]]
    found = by_group(*estimated("grpo", groups), groups)
    assert found[0] == pytest.approx([2 / math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3), 0], abs=1e-5)
    root = math.sqrt(0.2 / 3)  # deviation of the untouched group
    assert found[1] == pytest.approx([-0.3 / root, -0.1 / root, 0.1 / root, 0.3 / root], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "group", "wanted"),
    [
        ("grpo", [1.0, 0.0, 0.0, F], [2 / 3, -1 / 3, -1 / 3, 0]),  # Dr.GRPO: not divided
        ("rloo", [1.0, 0.0, 0.0, F], [1, -0.5, -0.5, 0]),  # less the mean of the other two
        ("rloo_vectorized", [1.0, 0.0, 0.0, F], [1, -0.5, -0.5, 0]),
        ("opo", [1.0, 0.0, 0.0, F], [2 / 3, -1 / 3, -1 / 3, 0]),  # equal lengths
        ("grpo_passk", [1.0, 0.25, 0.0, F], [0.75, 0, 0, 0]),  # best less second best
        ("gpg", [1.0, 0.0, 0.0, F], [2, -1, -1, 0]),  # 3 samples over 1 with reward
    ],
)
def test_other_estimators_by_hand(name, group, wanted):
    found = by_group(*estimated(name, [group], by_std=False), [group])
    assert found[0] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("group", [[0.7, F, F, F], [F, F, F, F], [0.7]])
def test_fewer_than_two_rewards_are_no_group(name, group):
    """verl gives a lone rollout its bare reward, or stops (grpo_passk)."""
    groups = [group, [1.0, 0.0, 0.5, 0.25]]
    found = by_group(*estimated(name, groups), groups)
    assert found[0] == [0] * len(group)
    assert any(found[1])


@pytest.mark.parametrize("name", ALL)
def test_nothing_usable_at_all(name):
    groups = [[F, F], [F, 0.5]]
    found = by_group(*estimated(name, groups, n_rollouts=2), groups)
    assert found == [[0, 0], [0, 0]]


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=25, deadline=None)
@given(
    groups=st.lists(
        st.lists(st.sampled_from([F, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=5), min_size=1, max_size=4
    ),
    lengths=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    failed_as=st.sampled_from([0.0, 1.0, -3.0]),
)
def test_a_failed_sample_is_as_good_as_absent(name, groups, lengths, failed_as):
    """Same advantages for the others whatever number stands in its place, and as in a batch that never had it."""
    first, keys = estimated(name, groups, lengths=lengths, failed_as=failed_as)
    again, _ = estimated(name, groups, lengths=lengths, failed_as=0.5)
    torch.testing.assert_close(first.batch["advantages"], again.batch["advantages"], rtol=0, atol=0)
    data, _, flags = batch(groups, lengths=lengths)
    failed = torch.tensor(flags.failed)
    assert not first.batch["advantages"][failed].any()
    torch.testing.assert_close(
        first.batch["returns"][failed], first.batch["values"][failed]
    )  # so that a critic learns nothing from it
    if name == "gae":
        rows = (~failed).nonzero().flatten().tolist()
        if len(rows) > 1:
            alone = stock(
                data.select_idxs(rows), batch_keys=[keys[row] for row in rows], adv_estimator="gae",
                config=SETTINGS, num_repeat=4,
            )  # fmt: skip
            torch.testing.assert_close(first.batch["advantages"][rows], alone.batch["advantages"])


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 5).flatmap(
        lambda k: st.lists(
            st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.5, 0.875, 1.0])), min_size=k, max_size=k),
            min_size=1, max_size=4,
        )
    ),
    st.booleans(),
    st.integers(0, 2),
)  # fmt: skip
def test_grpo_is_the_formula_of_orapo(groups, by_std, padding):
    rewards = torch.tensor([[0.0 if r is F else r for r in rewards] for rewards in groups])
    failed = torch.tensor([[r is F for r in rewards] for rewards in groups])
    wanted = group_advantages(rewards, failed, "sample" if by_std else "dr_grpo")
    found = by_group(*estimated("grpo", groups, by_std=by_std, padding=padding), groups)
    torch.testing.assert_close(torch.tensor(found), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_without_failures_verl_is_left_alone(name):
    groups = [[1.0, 0.0, 0.5], [0.25, 0.25, 1.0]]
    found, keys = estimated(name, groups, padding=2)
    plain, _, _ = batch(groups, padding=2)
    stock(plain, batch_keys=keys, adv_estimator=name, gamma=1.0, lam=1.0, num_repeat=4, config=SETTINGS)
    for column in ("advantages", "returns"):
        # opo divides 0 by 0 in padding rows, which have no tokens.
        torch.testing.assert_close(found.batch[column], plain.batch[column], rtol=0, atol=0, equal_nan=True)


def test_one_rollout_a_prompt_is_verls_own_choice():
    """GRPO with n = 1 is REINFORCE in verl; a failed sample is left out of it all the same."""
    groups = [[0.5], [F], [0.25]]
    found = by_group(*estimated("grpo", groups, by_std=False, n_rollouts=1), groups)
    assert found == [[0.5], [0.0], [0.25]]


def test_outputs_of_a_session_share_its_advantage():
    groups = [[1.0, 0.0, 0.0, F]]
    data, keys = estimated("grpo", groups, by_std=False, outputs=2)
    assert by_group(data, keys, groups)[0] == pytest.approx([2 / 3, -1 / 3, -1 / 3, 0])
    _, _, flags = batch(groups, outputs=2)
    assert flags.tally().samples == 4
    assert flags.tally().failed == 1


def test_which_estimators_compare_rollouts():
    assert is_grouped("grpo", 4)
    assert is_grouped("my_own", 4)
    assert not is_grouped("gae", 4)
    assert not is_grouped("grpo", 1)


def test_flags_and_causes():
    infos = [
        {"reward_extra_info": {"failed": 1.0, "failed_timeout": 1.0, "failed_auth": 0.0}},
        {"reward_extra_info": {"failed": True}},
        {"reward_extra_info": {"failed": 0.0, "failed_timeout": 0.0}},
        {"reward_extra_info": {}},
        {},
        None,
        {"reward_extra_info": {"failed": 1.0, "failed_timeout": 1.0}},
    ]
    keys = ["a_0_0", "a_1_0", "a_2_0", "b_0_0", "b_1_0", "b_2_0", "pad1_0_0"]
    flags = row_flags(keys, infos, [0.0, 0.0, 0.5, math.nan, 1.0, math.inf, 0.0])
    assert flags.causes == ["timeout", "other", "", "other", "", "other", "timeout"]
    tally = flags.tally()
    assert (tally.samples, tally.failed, tally.causes) == (6, 4, {"other": 3, "timeout": 1})
    assert flags.valid_sessions() == {"a": 1, "b": 1}


def test_an_empty_batch_has_no_samples():
    assert RowFlags([], []).tally().samples == 0
