"""The verl reward manager `radverl`: decodes a rollout, scores it with a reward of radverl, flags failures.

    reward.reward_manager.name=radverl +reward.radverl.reward=facts [+reward.radverl.kwargs.beta=2.0]

A reward that raises does not end the session (verl would pad the group with a copy and go on): the sample comes back
with score 0.0 and failed = 1.0, the components at 0.0, and the cause in the log. Every sample has the same keys. What
becomes of failed samples: radverl.verl_plugin.failures, docs/failures.md.
"""

import asyncio
import inspect
import logging
import math
from collections.abc import Callable
from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from radverl.rewards import load, perfect_example
from radverl.rewards.base import failed, failure_causes
from radverl.verl_plugin.failures.workers import is_restart

logger = logging.getLogger(__name__)


@register("radverl")
class RadverlRewardManager(RewardManagerBase):
    """Scores one sample at a time with `radverl.rewards.<name>.compute_score`, or verl's custom reward function.

    Args:
        config: the run's config; `config.reward.radverl` holds `reward` (name) and `kwargs` (for compute_score).
        tokenizer: the policy's tokenizer.
        compute_score: verl's custom reward function, used where `config.reward.radverl` names none.
    Raises:
        ValueError: no reward named, a name radverl does not have, or settings under which the reward does not give
            1.0 to a report that deserves it (a mistyped setting, a judge out of reach).
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Callable[..., Any] | None = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        settings = config.reward.get("radverl") or {}
        self.name = settings.get("reward")
        self.kwargs = dict(settings.get("kwargs") or {})
        self.components: tuple[str, ...] = ()
        self.n_failed = 0
        if self.name:
            if not is_restart():  # a judge that is away for a moment should not keep a worker from coming back
                check_on_gold(self.name, self.kwargs)
            reward = load(self.name)
            self.compute_score = getattr(reward, "compute_score_async", reward.compute_score)
            self.components = reward.COMPONENTS
        elif config.reward.custom_reward_function.get("path") is None:
            raise ValueError("reward manager `radverl` was given no reward; add +reward.radverl.reward=facts.")

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last output of a session.

        Returns:
            {"reward_score": float, "reward_extra_info": {"score", "failed", components...}}, all numbers.
        """
        row = data[-1:][0]
        response_ids_T = row.batch["responses"]
        length = int(row.batch["attention_mask"][-response_ids_T.shape[-1] :].sum())
        fields = row.non_tensor_batch
        numbers = await self._score(
            data_source=fields["data_source"],
            solution_str=self.tokenizer.decode(response_ids_T[:length], skip_special_tokens=True),
            ground_truth=fields["reward_model"]["ground_truth"],
            # A copy: verl's own managers write into it, and it is shared between the rollouts of a prompt.
            extra_info=dict(fields.get("extra_info") or {}),
        )
        return {"reward_score": numbers["score"], "reward_extra_info": numbers}

    async def _score(self, **sample: Any) -> dict[str, float]:
        try:
            if inspect.iscoroutinefunction(self.compute_score):
                result = await self.compute_score(**sample, **self.kwargs)
            else:
                result = await asyncio.to_thread(self.compute_score, **sample, **self.kwargs)
            if not isinstance(result, dict):  # a custom function may return a bare number
                result = {"score": result}
            numbers = {"failed": 0.0, **{key: float(value) for key, value in result.items()}}
            if numbers["failed"]:
                numbers["score"] = 0.0  # no score, whatever stands there
            elif not math.isfinite(numbers["score"]):
                raise ValueError(f"the score is {numbers['score']}")
        except Exception as error:
            where = sample["extra_info"].get("prompt_id", "without prompt_id")
            logger.exception("reward %s failed on row %s", self.name or "function", where)
            numbers = {key: float(value) for key, value in failed(self.components, error).items()}
        if numbers["failed"]:
            self.n_failed += 1
            logger.warning("%d samples without a reward so far in this worker", self.n_failed)
        return numbers


def check_on_gold(name: str, settings: dict[str, Any]) -> None:
    """Score the reward's own perfect report under these settings, before a run does anything with them.

    Raises:
        ValueError: no such reward, or it gives less than that deserves: a mistyped setting, a judge out of reach.
    """
    reward = load(name)
    try:
        report, ground_truth, extra_info, least = perfect_example(reward, settings)
        result = reward.compute_score("radverl check", report, ground_truth, extra_info, **settings)
    except Exception as error:
        raise ValueError(f"+reward.radverl.reward={name} with {settings}: {error}") from error
    if result["failed"]:
        causes = ", ".join(failure_causes(result)) or "no cause given"
        raise ValueError(
            f"+reward.radverl.reward={name} with {settings}: its judge or annotator gives no answer to the "
            f"reward's own example ({causes}; the warning above says more); check its settings and its server."
        )
    if result["score"] < least - 1e-6:
        raise ValueError(
            f"+reward.radverl.reward={name} with {settings} gives {result['score']:.3f} to a perfect report, "
            f"and {least:g} was due; check its settings and its judge or annotator."
        )
