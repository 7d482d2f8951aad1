"""Fix for verl 0.9.1: two runs on one machine share the socket that carries weights to vLLM.

verl names it by Ray's job id to keep runs apart, but the id is 01000000 in every cluster that a run starts for itself.
The runs then load each other's weights, or fail in the middle of a sync and hang. We add the run's tag to the name at
both ends, on every device. The watchdog makes the tag; Ray's workers and vLLM's processes inherit it. Without one, as
in a cluster that was started beforehand, names stay as they are.
"""

import functools
import os
from typing import Any

RUN_TAG = "RADVERL_RUN_TAG"
PREFIX = "rl-colocate-zmq-"


def tagged(handle: str) -> str:
    """The handle with this run's tag in it, or as it is where the run has none."""
    tag = os.environ.get(RUN_TAG)
    return handle.replace(PREFIX, f"{PREFIX}{tag}-", 1) if tag else handle


def install_sender(vllm_rollout: Any) -> None:
    """Tag the trainer's end, given verl.workers.rollout.vllm_rollout.vllm_rollout."""
    adapter = vllm_rollout.ServerAdapter
    init = adapter.__init__

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.zmq_handle = tagged(self.zmq_handle)

    adapter.__init__ = __init__


def install_receiver(vllm_utils: Any) -> None:
    """Tag vLLM's end, given verl.workers.rollout.vllm_rollout.utils."""
    extension = vllm_utils.vLLMColocateWorkerExtension
    get_handle = extension._get_zmq_handle

    @functools.wraps(get_handle)
    def _get_zmq_handle(self: Any) -> str:
        return tagged(get_handle(self))

    extension._get_zmq_handle = _get_zmq_handle
