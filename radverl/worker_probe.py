"""What a Ray worker has of radverl: starts one, imports verl there as a training run does, and asks.

Not part of radverl.verl_plugin on purpose: Ray imports the module of the function it runs, and importing that package
would load the very plugin whose absence is to be found.
"""

import os
import sys
from typing import Any

PROBE_SECONDS = 180.0  # the import of torch and verl on a slow disk


def probe_ray_worker() -> dict[str, Any]:
    """Start a local Ray, look inside one worker, shut Ray down.

    Returns:
        {"error": str | None, "status": see `radverl.verl_plugin.status`, "routes", "rewards", "platform", "gpus"};
        with an error the other keys are missing.
    """
    import ray

    environment = {
        name: os.environ[name] for name in ("VERL_USE_EXTERNAL_MODULES", "VERL_PLATFORM") if name in os.environ
    }
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(
            num_cpus=1,
            include_dashboard=False,
            object_store_memory=100_000_000,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": environment},
        )
    try:
        return ray.get(ray.remote(num_cpus=1)(_look).remote(), timeout=PROBE_SECONDS)
    except ray.exceptions.GetTimeoutError:
        return {"error": f"it did not answer within {PROBE_SECONDS:.0f} s"}
    except ray.exceptions.RayError as error:  # the worker died or raised, e.g. an external module that raises
        return {"error": str(error).strip().splitlines()[-1]}
    finally:
        if started_here:
            ray.shutdown()


def _look() -> dict[str, Any]:
    """Runs in the worker."""
    import verl

    if "radverl.verl_plugin" not in sys.modules or not sys.modules["radverl.verl_plugin"].status()["loaded"]:
        return {"error": _why_not_loaded()}
    import torch
    import verl.experimental.reward_loop.reward_manager
    import verl.trainer.ppo.v1
    import verl.utils.tensordict_utils  # noqa: F401
    from verl.plugin.platform import get_platform

    from radverl.rewards import available

    modules = os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
    routes = ["VERL_USE_EXTERNAL_MODULES"] if "radverl.verl_plugin" in modules else []
    if _has_entry_point():
        routes.append("its entry point")
    return {
        "error": None,
        "status": sys.modules["radverl.verl_plugin"].status(),
        "routes": routes,
        "rewards": available(),
        "platform": get_platform().vendor_name,
        "gpus": torch.cuda.device_count(),
    }


def _why_not_loaded() -> str:
    """verl keeps quiet about it; importing the plugin ourselves raises what verl swallowed."""
    try:
        import radverl.verl_plugin  # noqa: F401
    except Exception as error:
        return f"importing radverl.verl_plugin raises {type(error).__name__}: {error}"
    if not _has_entry_point():
        return "radverl is not installed as a package here (no entry point); run `pip install -e .` in its folder"
    return "verl did not load it; is VERL_USE_EXTERNAL_PLUGINS set to `none`?"


def _has_entry_point() -> bool:
    import importlib.metadata

    return any(entry.value == "radverl.verl_plugin" for entry in importlib.metadata.entry_points(group="verl.plugins"))
