"""What OraPO reads from a verl config, how it chooses its mode, and what it refuses with which reason."""

import copy
import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("verl")
from omegaconf import OmegaConf

from radverl.verl_plugin.orapo.settings import OrapoSettings, settings_from, updates_per_batch

CONFIG = {
    "algorithm": {
        "adv_estimator": "grpo",
        "use_kl_in_reward": False,
        "filter_groups": {"enable": False},
        "rollout_correction": {"bypass_mode": False},
    },
    "actor_rollout_ref": {
        "actor": {"use_kl_loss": True, "ppo_mini_batch_size": 16, "ppo_epochs": 1, "shuffle": False},
        "rollout": {"temperature": 1.0, "n": 8},
    },
    "data": {"train_batch_size": 16},
    "distillation": {"enabled": False},
    "trainer": {
        "critic_warmup": 0,
        "v1": {"trainer_mode": "orapo_sync", "colocate_async": {"parameter_sync_step": 1}},
    },
}


def config(**changes):
    """CONFIG with dotted changes, written with __ for the dots."""
    made = OmegaConf.create(copy.deepcopy(CONFIG))
    for name, value in changes.items():
        OmegaConf.update(made, name.replace("__", "."), value, force_add=True)
    return made


def test_the_defaults_are_the_papers():
    settings = settings_from(config())
    assert (settings.alpha, settings.w_min, settings.w_max, settings.gamma) == (0.5, 0.05, 0.15, 2.0)
    assert (settings.length_normalised, settings.negatives, settings.mode) == (True, "all", "row")


def test_settings_are_taken():
    given = {"tau": 0.3, "negatives": "zero_reward", "scope": "batch", "w_max": 0.3}
    settings = settings_from(config(algorithm__orapo=given))
    assert (settings.tau, settings.negatives, settings.scope, settings.w_max) == (0.3, "zero_reward", "batch", 0.3)


@pytest.mark.parametrize(
    ("changes", "updates", "mode"),
    [
        ({}, 1, "row"),
        ({"actor_rollout_ref__actor__ppo_mini_batch_size": 4}, 4, "group"),
        ({"actor_rollout_ref__actor__ppo_mini_batch_size": 12}, 2, "group"),
        ({"actor_rollout_ref__actor__ppo_epochs": 3}, 3, "group"),
        ({"actor_rollout_ref__actor__ppo_mini_batch_size": 4, "algorithm__orapo": {"oracle_loss": "sft"}}, 4, "row"),
        ({"algorithm__orapo": {"mode": "group"}}, 1, "group"),
        (
            {"actor_rollout_ref__actor__ppo_epochs": 2, "algorithm__orapo": {"mode": "row", "allow_stale": True}},
            2,
            "row",
        ),
        (
            {
                "trainer__v1": {"trainer_mode": "orapo_colocate_async", "colocate_async": {"parameter_sync_step": 4}},
                "actor_rollout_ref__actor__ppo_mini_batch_size": 4,
            },
            1,
            "row",
        ),
    ],
)
def test_auto_is_row_where_row_is_exact(changes, updates, mode):
    assert updates_per_batch(config(**changes)) == updates
    assert settings_from(config(**changes)).mode == mode


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm__filter_groups__enable": True}, "filter_groups.enable drops the groups"),
        ({"actor_rollout_ref__rollout__temperature": 0.7}, "temperature=0.7.*allow_temperature"),
        ({"actor_rollout_ref__actor__use_kl_loss": False}, "use_kl_loss is off.*reference log-probs"),
        ({"trainer__v1__trainer_mode": "orapo_separate_async"}, "separate_async.*orapo_colocate_async"),
        (
            {"actor_rollout_ref__actor__ppo_epochs": 2, "algorithm__orapo": {"mode": "row"}},
            "mode=row with 2 updates.*allow_stale",
        ),
        ({"actor_rollout_ref__actor__ppo_epochs": 2, "actor_rollout_ref__actor__shuffle": True}, "shuffle tears"),
        ({"algorithm__adv_estimator": "gae"}, "adv_estimator=gae"),
        ({"algorithm__use_kl_in_reward": True}, "use_kl_in_reward"),
        ({"algorithm__rollout_correction__bypass_mode": True}, "bypass_mode"),
        ({"distillation__enabled": True}, "distillation"),
        ({"trainer__critic_warmup": 3}, "critic_warmup"),
        ({"critic__enable": True}, "critic.enable"),
        ({"actor_rollout_ref__actor__policy_loss": {"loss_mode": "geo_mean"}}, "loss_mode=geo_mean.*vanilla, gspo"),
        ({"actor_rollout_ref__actor__loss_agg_mode": "token-sum"}, "token-sum is no mean"),
        ({"actor_rollout_ref__actor__loss_agg_mode": "seq-mean-token-sum-norm"}, "loss_scale_factor is not set"),
        ({"reward__reward_model__enable": True}, "enable_resource_pool=True"),
        ({"actor_rollout_ref__rollout__enable_rollout_routing_replay": True}, "routing_replay"),
        ({"algorithm__orapo": {"oracle_loss": "sft", "mode": "group"}}, "SFT has no pairs"),
        ({"algorithm__orapo": {"taw": 1}}, "orapo.taw is unknown; it takes tau,"),
        ({"algorithm__orapo": {"tau": 0}}, "tau=0: it must be positive"),
        ({"algorithm__orapo": {"tau": "big"}}, "tau='big' is not a number"),
        ({"algorithm__orapo": {"tau": float("nan")}}, "tau=nan"),
        ({"algorithm__orapo": {"w_min": 0.3}}, "w_min 0.3 and w_max 0.15"),
        ({"algorithm__orapo": {"alpha": 1.0}}, "alpha is 1.0"),
        ({"algorithm__orapo": {"gamma": -1}}, "gamma is -1"),
        ({"algorithm__orapo": {"mode": "rows"}}, "mode=rows: choose one of auto, row, group"),
        ({"algorithm__orapo": {"negatives": "some"}}, "negatives=some"),
        ({"algorithm__orapo": {"init": "one"}}, "init is 'one'"),
        ({"algorithm__orapo": {"scope": "run"}}, "scope is 'run'"),
        ({"algorithm__orapo": {"length_normalised": "yes"}}, "length_normalised='yes'"),
        ({"algorithm__orapo": {"tau": 1e-320}}, "tau=1e-320: it must be positive, from 1e-06 to 1000"),
        ({"algorithm__orapo": {"tau": 1e308}}, "tau=1e"),
        ({"algorithm__orapo": {"alpha": True}}, "alpha=True is not a number"),
        ({"algorithm__orapo": {"alpha": None}}, "alpha=None is not a number"),
        ({"algorithm__orapo": {"alpha": []}}, "alpha=\\[\\] is not a number"),
        ({"algorithm__orapo": {"gamma": float("inf")}}, "gamma is inf: it must be positive and finite"),
        ({"algorithm__orapo": {5: 1}}, "orapo.5 is unknown"),
        ({"algorithm__orapo": 3}, "orapo=3: it is a section"),
        ({"algorithm__orapo": False}, "orapo=False: it is a section"),
        ({"algorithm__orapo": ""}, "it is a section"),
        ({"actor_rollout_ref__rollout__n": 1}, "n=1: GRPO compares the rollouts"),
        ({"actor_rollout_ref__actor__ppo_mini_batch_size": 32}, "32 is more than the 16 prompts"),
        (
            {"trainer__v1": {"trainer_mode": "orapo_colocate_async", "colocate_async": {"parameter_sync_step": 0}}},
            "colocate_async.parameter_sync_step=0: give a whole number",
        ),
    ],
)
def test_refusals_say_what_and_why(changes, words):
    with pytest.raises(ValueError, match=words):
        settings_from(config(**changes))


def test_a_temperature_with_consent():
    assert settings_from(
        config(actor_rollout_ref__rollout__temperature=0.7, algorithm__orapo={"allow_temperature": True})
    )


def test_every_setting_is_documented():
    page = (Path(__file__).parents[1] / "docs/orapo.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(OrapoSettings):
        assert f"`{field.name}`" in page
