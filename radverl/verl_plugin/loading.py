"""Registers radverl with the installed verl: version guard, hooks, and a record of what was done in this process."""

import importlib.metadata
import os
from types import ModuleType
from typing import Any

from radverl.required_verl import unsupported_verl
from radverl.verl_plugin.post_import import after_import

_status: dict[str, Any] = {"loaded": False, "verl": None, "applied": [], "reward_managers": [], "trainers": []}


def load() -> None:
    """Plant radverl's hooks in this process; a second call does nothing.

    Raises:
        ImportError: the installed verl is not one that radverl was written against (REQUIRED_VERL.txt).
    """
    if _status["loaded"]:
        return
    _status["verl"] = _installed_verl()
    problem = unsupported_verl(_status["verl"])
    if problem:
        raise ImportError(problem)
    after_import("verl.utils.tensordict_utils", _fix_position_ids)
    after_import("verl.models.transformers.qwen2_vl", _allow_text_only)
    after_import("verl.workers.rollout.vllm_rollout.vllm_rollout", _tag_sender)
    after_import("verl.workers.rollout.vllm_rollout.utils", _tag_receiver)
    after_import("verl.experimental.reward_loop.reward_manager", _register_reward_manager)
    after_import("verl.trainer.ppo.v1.trainer_base", _account_for_failures)
    after_import("verl.experimental.agent_loop.agent_loop", _keep_sessions_without_reward)
    after_import("verl.trainer.ppo.v1", _register_trainers)
    if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
        from radverl.verl_plugin import cpu

        _status["applied"] += cpu.activate()
    _status["loaded"] = True


def status() -> dict[str, Any]:
    """What this process has: {"loaded", "verl", "applied", "reward_managers", "trainers"} (names so far registered)."""
    return {key: list(value) if isinstance(value, list) else value for key, value in _status.items()}


def _installed_verl() -> str | None:
    try:
        return importlib.metadata.version("verl")
    except importlib.metadata.PackageNotFoundError:
        return None


def _fix_position_ids(tensordict_utils: ModuleType) -> None:
    from radverl.verl_plugin.position_ids import install

    install(tensordict_utils)
    _status["applied"].append("position_ids")


def _allow_text_only(qwen2_vl: ModuleType) -> None:
    from radverl.verl_plugin.text_only import install

    install(qwen2_vl)
    _status["applied"].append("text-only micro-batches")


def _tag_sender(vllm_rollout: ModuleType) -> None:
    from radverl.verl_plugin.zmq_handle import install_sender

    install_sender(vllm_rollout)
    _status["applied"].append("weight socket of the trainer")


def _tag_receiver(vllm_utils: ModuleType) -> None:
    from radverl.verl_plugin.zmq_handle import install_receiver

    install_receiver(vllm_utils)
    _status["applied"].append("weight socket of vLLM")


def _account_for_failures(trainer_base: ModuleType) -> None:
    from radverl.verl_plugin.failures import dump, hooks, workers

    hooks.install(trainer_base)
    dump.install(trainer_base)
    workers.install_restarts(trainer_base)
    _status["applied"] += ["failed samples", "rollout dumps", "restarting reward workers"]


def _keep_sessions_without_reward(agent_loop: ModuleType) -> None:
    from radverl.verl_plugin.failures.workers import install_failed_samples

    install_failed_samples(agent_loop)
    _status["applied"].append("sessions of a dead reward worker")


def _register_trainers(v1: ModuleType) -> None:
    from radverl.verl_plugin.orapo import trainer

    _status["trainers"] += trainer.NAMES


def _register_reward_manager(reward_manager: ModuleType) -> None:
    import radverl.verl_plugin.reward_manager  # noqa: F401  (registers itself)

    _status["reward_managers"].append("radverl")
