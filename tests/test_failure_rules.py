"""When a run stops, what validation counts, which settings are refused, and what the hooks log."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("verl")
from omegaconf import OmegaConf

from radverl.verl_plugin.failures.flags import RowFlags, Tally, tally_of
from radverl.verl_plugin.failures.hooks import FailureAccount
from radverl.verl_plugin.failures.stop import MIN_FAILED, FailureWindow, StopRule, stop_rule_from
from radverl.verl_plugin.failures.validation import without_failed


def tally(samples, **causes):
    return Tally(samples, sum(causes.values()), causes)


def window(*tallies, **rule):
    made = FailureWindow(StopRule(**rule))
    for each in tallies:
        made.add(each)
    return made


def test_a_judge_that_is_down_stops_the_first_batch():
    sentence = window(tally(128, timeout=100, connection=28)).verdict()
    assert "128 of the last 128 samples (100.0%) have no reward (timeout 100, connection 28)" in sentence
    assert "max_failure_rate=0.05" in sentence
    assert sentence.count(". ") == 0


def test_a_few_unlucky_samples_do_not():
    """One of 16 is more than 5 %; a small batch that failed as a whole waits for the next."""
    assert window(tally(16, timeout=1)).verdict() is None
    assert window(tally(16, timeout=16)).verdict() is None
    assert window(tally(16, timeout=16), tally(16, timeout=16)).verdict() is not None


def test_the_limit_itself_is_allowed():
    assert window(tally(400, timeout=20)).verdict() is None
    assert window(tally(399, timeout=20)).verdict() is not None


def test_what_is_long_past_is_forgotten():
    bad, good = tally(16, timeout=16), tally(16)
    assert window(bad, bad, *[good] * 3, failure_window=4).verdict() is None  # 16 of 64, but no more than 16
    assert window(bad, bad, *[good] * 2, failure_window=4).verdict() is not None
    assert window(bad, bad, *[good] * 4, failure_window=4).batches.count(bad) == 0


def test_a_spent_budget_stops_at_once():
    sentence = window(tally(16), tally(16, budget=1), max_failure_rate=1.0).verdict()
    assert "budget on 1 of the last 32 samples" in sentence


def test_the_ends_of_the_scale():
    assert window(tally(16, other=1), max_failure_rate=0).verdict() is not None
    assert window(tally(16), max_failure_rate=0).verdict() is None
    assert window(*[tally(128, other=128)] * 9, max_failure_rate=1.0).verdict() is None


@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0, 1)), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_it_stops_where_the_share_is_above_the_limit(batches, limit):
    tallies = [tally(n, timeout=int(n * share)) for n, share in batches]
    last = tallies[-50:]
    samples, failed = sum(t.samples for t in last), sum(t.failed for t in last)
    stops = window(*tallies, max_failure_rate=limit).verdict() is not None
    assert stops == (failed >= MIN_FAILED and failed > limit * samples)


def test_groups_that_verl_throws_away_count_too(monkeypatch):
    """With DAPO and a judge that is down all groups look alike: they would be filtered and refilled for ever."""
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    from radverl.verl_plugin.failures import hooks
    from radverl.verl_plugin.failures.stop import TooManyFailures

    cleared = []
    buffer = SimpleNamespace(
        failures=FailureAccount(StopRule(), grouped=True),
        partitions={"train": {f"{uid}_{k}_0": {} for uid in "abc" for k in range(8)}},
        prompt_global_steps={"train": {}},
        _metrics_prefix=ReplayBuffer._metrics_prefix,
        _clear_groups=lambda _, uids: cleared.append(uids),
    )
    monkeypatch.setattr(hooks, "read_flags", lambda keys, _: RowFlags(keys, ["timeout"] * len(keys)))
    ReplayBuffer._evict_terminal_groups(buffer, 1, "train", (set(), {"a"}, {"b"}, {}))
    assert cleared == [{"a", "b"}]
    assert buffer.failures.evicted == tally(16, timeout=16)
    with pytest.raises(TooManyFailures, match=r"24 of the last 24 samples .* \(timeout 24\)"):
        ReplayBuffer._evict_terminal_groups(buffer, 1, "train", (set(), {"c"}, set(), {}))
    buffer.failures.evicted = tally(16, timeout=16)
    metrics = buffer.failures.take(RowFlags(["d_0_0"], [""]))
    assert metrics["reward/evicted_failed/sum"] == 16
    assert metrics["reward/failed/sum"] == 0
    assert buffer.failures.window.batches[0] == tally(17, timeout=16)
    assert buffer.failures.evicted == Tally()


def config(reward=None, **algorithm):
    return OmegaConf.create({"reward": {"radverl": reward} | {}, "algorithm": algorithm})


def test_settings_and_their_defaults():
    assert stop_rule_from(config()) == StopRule(0.05, 50)
    assert stop_rule_from(config({"reward": "facts", "kwargs": {"beta": 1}})) == StopRule()
    assert stop_rule_from(config({"max_failure_rate": 0.5, "failure_window": 3})) == StopRule(0.5, 3)
    assert stop_rule_from(config({"max_failure_rate": 1})).max_failure_rate == 1


@pytest.mark.parametrize(
    ("section", "says"),
    [
        *(
            ({"max_failure_rate": value}, "a share from 0 to 1")
            for value in (-0.1, 5, "0.1", True, float("nan"), [0.1])
        ),
        *(({"failure_window": value}, "a whole number of batches above 0") for value in (0, 2.5, "50", True)),
        ({"max_failures": 3}, "max_failures is unknown; it takes reward, kwargs, max_failure_rate"),
        ("facts", "takes `reward`, a name"),
        ({"kwargs": 3}, "takes `reward`, a name"),
    ],
)
def test_impossible_settings_are_named(section, says):
    with pytest.raises(ValueError, match=says) as caught:
        stop_rule_from(config(section))
    assert str(caught.value).startswith("+reward.radverl")


def test_what_would_hide_failures_is_refused():
    with pytest.raises(ValueError, match="use_pf_ppo"):
        stop_rule_from(config(use_pf_ppo=True))
    beside = OmegaConf.create({"reward": {"reward_model": {"enable": True, "enable_resource_pool": False}}})
    with pytest.raises(ValueError, match="enable_resource_pool=True"):
        stop_rule_from(beside)
    beside.reward.reward_model.enable_resource_pool = True
    assert stop_rule_from(beside) == StopRule()


def test_the_dry_run_checks_the_rule():
    from radverl.verl_plugin.config_values import check_reward

    reward = {
        "radverl": {"reward": "facts", "max_failure_rate": 2},
        "reward_manager": {"name": "radverl"},
        "custom_reward_function": {"path": None},
    }
    with pytest.raises(ValueError, match="max_failure_rate=2"):
        check_reward(OmegaConf.create({"reward": reward}))
    reward["radverl"]["max_failure_rate"] = 0.2
    check_reward(OmegaConf.create({"reward": reward}))


def test_metrics_of_a_batch():
    account = FailureAccount(StopRule(), grouped=True)
    keys = ["a_0_0", "a_1_0", "a_2_0", "b_0_0", "b_1_0", "b_2_0", "pad0_0_0"]
    first = account.take(RowFlags(keys, ["", "timeout", "", "timeout", "auth", "", "timeout"]))
    assert first == {
        "reward/failed/sum": 3.0,
        "reward/failed/rate": 0.5,
        "reward/failed_auth/sum": 1.0,
        "reward/failed_timeout/sum": 2.0,
        "reward/groups_without_advantage/sum": 1.0,
    }
    assert account.failed_keys == {"a_1_0", "b_0_0", "b_1_0", "pad0_0_0"}
    second = account.take(RowFlags(keys[:2], ["", ""]))
    assert second["reward/failed_timeout/sum"] == 0  # a curve has no gaps
    assert second["reward/groups_without_advantage/sum"] == 0


def test_verl_adds_the_counts_of_a_steps_batches_up():
    """parameter_sync_step > 1: several batches a step, joined by the names of the metrics."""
    from verl.trainer.ppo.v1.utils import MetricsAggregator

    account, joined = FailureAccount(StopRule(), grouped=True), MetricsAggregator()
    for causes in (["", "timeout", "timeout", ""], ["", "", "rate_limit", ""]):
        joined.add_step_metrics(account.take(RowFlags([f"a_{k}_0" for k in range(4)], causes)), sample_count=4)
    metrics = joined.get_aggregated_metrics()
    assert metrics["reward/failed/sum"] == 3
    assert metrics["reward/failed/rate"] == 3 / 8
    assert metrics["reward/failed_timeout/sum"] == 2
    assert metrics["reward/failed_rate_limit/sum"] == 1


def val_metrics(sources, uids, infos, expected=None):
    """What verl logs of a validation, with the failed samples left out."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    trainer = SimpleNamespace(failures=FailureAccount(StopRule(), True), global_steps=0)
    metrics = PPOTrainer._val_metrics_update(
        trainer, sources, uids, infos, [1] * len(uids), expected_acc_counts=expected
    )
    return metrics, trainer


def test_validation_by_hand():
    infos = {
        "reward": [1.0, 0.0, 0.5, 0.0],
        "score": [1.0, 0.0, 0.5, 0.0],
        "failed": [0.0, 1.0, 0.0, 0.0],
        "failed_timeout": [0.0, 1.0, 0.0, None],
    }
    before = {name: list(values) for name, values in infos.items()}
    metrics, trainer = val_metrics(["s"] * 4, list("abcd"), infos)
    assert metrics["val-core/s/reward/mean@1"] == 0.5
    assert metrics["val-aux/s/score/mean@1"] == 0.5
    assert metrics["val-aux/s/failed/mean@1"] == 0.25
    assert metrics["val-aux/s/failed/sum"] == 1
    assert metrics["val-aux/s/failed_timeout/sum"] == 1
    assert infos == before  # verl has dumped them, and may do so again
    assert trainer.failures.window.batches[0] == tally(4, timeout=1)


def test_validation_of_several_samples_a_prompt():
    infos = {"reward": [1.0, 0.0, 0.5, 1.0], "failed": [0.0, 1.0, 0.0, 0.0]}
    metrics, _ = val_metrics(["s"] * 4, ["a", "a", "b", "b"], infos)
    assert metrics["val-core/s/reward/mean@2"] == 0.75  # of b; a has one sample left
    assert metrics["val-aux/s/reward/mean@1"] == 1.0
    assert metrics["val-core/s/reward/best@2/mean"] <= 1.0


def test_verl_does_not_count_a_failed_accuracy_as_wrong():
    """verl takes an expected `acc` that is missing for 0."""
    infos = {"reward": [1.0, 0.0], "acc": [1.0, 0.0], "failed": [0.0, 1.0]}
    expected = {("s", "a"): 1, ("s", "b"): 1, ("s", "c"): 1}
    metrics, _ = val_metrics(["s", "s"], ["a", "b"], infos, expected)
    assert metrics["val-core/s/acc/mean@1"] == 0.5  # c, whose session is lost, counts as verl has it
    assert expected[("s", "b")] == 1


def test_a_validation_without_any_score():
    metrics, _ = val_metrics(["s", "t"], ["a", "b"], {"reward": [0.0, 0.5], "failed": [1.0, 0.0]})
    assert "val-core/s/reward/mean@1" not in metrics
    assert metrics["val-aux/s/failed/sum"] == 1
    assert metrics["val-core/t/reward/mean@1"] == 0.5
    assert metrics["val-aux/t/failed/sum"] == 0


def test_causes_of_a_validation_are_per_data_source():
    blanked, left, metrics, counted = without_failed(
        ["s", "t", "t"],
        ["a", "b", "c"],
        {"reward": [0.0, 0.0, float("nan")], "failed": [1.0, 0.0, 0.0], "failed_auth": [1.0, 0.0, 0.0]},
        None,
    )
    assert blanked["reward"] == [None, 0.0, None]
    assert left is None
    assert metrics == {"val-aux/s/failed/sum": 1, "val-aux/s/failed_auth/sum": 1} | {
        "val-aux/t/failed/sum": 1,
        "val-aux/t/failed_other/sum": 1,
    }
    assert counted == tally_of(["auth", "", "other"])


def test_a_sample_whose_worker_stays_dead_is_failed_not_lost():
    import ray.exceptions
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    class Gone:
        class compute_score:
            @staticmethod
            def remote(data):
                async def result():
                    raise ray.exceptions.ActorDiedError()

                return result()

    manager = {"source": "register", "name": "radverl"}
    worker = SimpleNamespace(
        config=OmegaConf.create({"reward": {"reward_manager": manager}}),
        reward_loop_worker_handles=[Gone],
        _compute_multi_modal_inputs=lambda *_: {},
        _compute_position_ids=lambda ids, *_: ids,
        _get_mm_processor_kwargs=lambda *_: None,
    )
    output = SimpleNamespace(
        prompt_ids=[1, 2], response_ids=[3], reward_score=None, extra_fields={}, num_turns=2, multi_modal_data=None,
        mm_processor_kwargs={}, metrics=SimpleNamespace(),
    )  # fmt: skip
    asyncio.run(AgentLoopWorker._compute_score(worker, [output], kwargs={}))
    assert output.extra_fields["reward_extra_info"] == {"score": 0.0, "failed": 1.0, "failed_worker": 1.0}
    manager["name"] = "naive"
    worker.config.reward.reward_manager.name = "naive"
    output.reward_score = None
    with pytest.raises(ray.exceptions.ActorDiedError):
        asyncio.run(AgentLoopWorker._compute_score(worker, [output], kwargs={}))
