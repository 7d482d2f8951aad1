"""verl's replay buffer with short polling: the stock one asks every 2.0 s, which is most of a small step.

Use: trainer.v1.sampler.custom_sampler.{path: pkg://radverl.verl_plugin.cpu.replay_buffer, name: FastPollReplayBuffer}
"""

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

POLL_SECONDS = 0.1


class FastPollReplayBuffer(ReplayBuffer):
    """verl's synchronous ReplayBuffer; `sampler_kwargs.poll_interval` overrides the 0.1 s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        settings = kwargs.get("sampler_kwargs") or {}
        kwargs["poll_interval"] = float(settings.get("poll_interval", POLL_SECONDS))
        super().__init__(*args, **kwargs)
