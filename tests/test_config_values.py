"""Values that hydra composes and verl would fail at, or quietly take for something else."""

import copy

import pytest

from radverl.verl_plugin.config_values import COUNTS, check_values

DEFAULTS = {
    "data": {
        "train_files": "~/train.parquet",
        "val_files": "~/test.parquet",
        "train_max_samples": -1,
        "train_batch_size": 16,
        "max_prompt_length": 512,
        "max_response_length": 512,
    },
    "actor_rollout_ref": {
        "model": {"path": "~/model", "lora": {"rank": 0}},
        "actor": {"ppo_mini_batch_size": 16, "ppo_epochs": 1, "use_kl_loss": False, "entropy_coeff": 0, "clip": 0.2},
        "rollout": {"n": 8, "temperature": 1.0, "max_model_len": None, "enforce_eager": True},
    },
    "trainer": {"n_gpus_per_node": 8, "nnodes": 1, "total_epochs": 3, "default_local_dir": "checkpoints"},
}


def changed(name, value):
    made = copy.deepcopy(DEFAULTS)
    *path, last = name.split(".")
    section = made
    for part in path:
        section = section[part]
    section[last] = value
    return made


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actor_rollout_ref.actor.entropy_coeff", 0.001),  # a whole number as default does not ask for one
        ("actor_rollout_ref.rollout.temperature", 1),
        ("actor_rollout_ref.rollout.temperature", float("inf")),
        ("actor_rollout_ref.rollout.max_model_len", 1280),  # verl leaves it open
        ("actor_rollout_ref.rollout.enforce_eager", None),
        ("actor_rollout_ref.model.lora", None),
        ("data.train_files", ["a.parquet", "b.parquet"]),
        ("data.val_files", "it's here.parquet"),
        ("data.new", [1]),
    ],
)
def test_what_a_setting_may_hold(name, value):
    check_values(changed(name, value), DEFAULTS)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        *((name, value, "a whole number above 0") for name in COUNTS for value in (0, -1, 2.5, None, "8", True, [8])),
        ("actor_rollout_ref.actor.use_kl_loss", "False", "give True or False, without quotes"),
        ("actor_rollout_ref.actor.use_kl_loss", 1, "give True or False"),
        ("actor_rollout_ref.actor.clip", "0.2", "give a number, without quotes"),
        ("actor_rollout_ref.actor.clip", True, "give a number"),
        ("actor_rollout_ref.actor.clip", [0.2], "give a number"),
        ("actor_rollout_ref.rollout.temperature", float("nan"), "give a number"),
        ("actor_rollout_ref.model.lora", 8, "it is a section"),
        ("actor_rollout_ref.model.path", None, "give a name or a path"),
        ("actor_rollout_ref.model.path", " ", "give a name or a path"),
        ("data.train_max_samples", None, "-1 takes all rows"),
        *((f"data.{split}_files", value, "Parquet") for split in ("train", "val") for value in (None, [], "", 3)),
        ("data.train_files", [None], "a list of them"),
        ("data.train_files", {"a": "b"}, "a list of them"),
    ],
)
def test_the_setting_is_named(name, value, says):
    with pytest.raises(ValueError, match=says) as caught:
        check_values(changed(name, value), DEFAULTS)
    assert str(caught.value).startswith(f"{name}=")
