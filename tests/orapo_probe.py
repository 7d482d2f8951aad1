"""Loaded into a real run by VERL_USE_EXTERNAL_MODULES: rewards with faults, and a trainer that measures its gradients.

`orapo_probe` takes one batch through several updates at learning rate 0, so that all see the same weights, and writes
each gradient norm and the rows themselves to the folder RADVERL_PROBE_OUT.
"""

import hashlib
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from radverl.verl_plugin.post_import import after_import


def by_text(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> dict[str, float]:
    """0, 0.5 or 1, whatever the text says."""
    return {
        "score": hashlib.sha256(solution_str.encode()).digest()[0] % 3 / 2,
        "failed": 0.0,
        "length": len(solution_str),
    }


def by_prompt(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> dict[str, float]:
    """0 for every rollout of half of the prompts, so that the averages depend on the visits alone."""
    return {"score": float(int(extra_info["index"]) % 2), "failed": 0.0}


def _register(reward_manager: Any) -> None:
    from radverl.verl_plugin.reward_manager import RadverlRewardManager

    class FaultyRewardManager(RadverlRewardManager):
        """Of every 11 samples, the third fails to be judged and the sixth ends its session."""

        count = 0

        async def run_single(self, data: Any) -> dict[str, Any]:
            type(self).count += 1
            if self.count % 11 == 6:
                raise RuntimeError("a session that fails")
            result = await super().run_single(data)
            if self.count % 11 == 3:
                result["reward_score"] = 0.0
                result["reward_extra_info"] |= {"score": 0.0, "failed": 1.0}
            return result

    reward_manager.register("faulty")(FaultyRewardManager)


def _register_trainer(v1: Any) -> None:
    import torch
    import transfer_queue as tq
    from verl.trainer.ppo.v1 import register_trainer
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass

    from radverl.verl_plugin.orapo.loss import orapo_loss
    from radverl.verl_plugin.orapo.trainer import OrapoTrainerSync

    class Probe(OrapoTrainerSync):
        def _update_actor(self, batch: Any, metrics: dict) -> Any:
            group = self.config.actor_rollout_ref.rollout.n + 1
            out = Path(os.environ["RADVERL_PROBE_OUT"])
            norms = {
                "row, one micro-batch": self.grad_norm("row", 1, self.rows_per_chunk),
                "row, micro-batches of one": self.grad_norm("row", 1, 1),
                "row, dynamic": self.grad_norm("row", 1, None),
                "group, one micro-batch": self.grad_norm("group", group, self.rows_per_chunk // group),
                "group, one prompt each": self.grad_norm("group", group, 1),
                "group, dynamic": self.grad_norm("group", group, None),
            }
            record = {"norms": norms, "n_ranks": self.n_ranks, "metrics": {k: float(v) for k, v in metrics.items()}}
            (out / f"step{self.global_steps}.json").write_text(json.dumps(record))
            torch.save([self.row(key) for key in self.rows.keys], out / f"step{self.global_steps}.pt")
            return batch

        def grad_norm(self, mode: str, force_group_size: int, micro_batch_size: int | None) -> float:
            actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
            loss = partial(
                orapo_loss, actor, mode=mode, tau=self.orapo.tau, length_normalised=self.orapo.length_normalised
            )
            self.actor_rollout_wg.set_loss_fn(loss)
            rows = self._for_update()
            rows.extra_info |= {"force_group_size": force_group_size, "use_dynamic_bsz": micro_batch_size is None}
            if micro_batch_size is None:
                longest = max(tag["seq_len"] for tag in rows.tags)
                rows.extra_info["max_token_len_per_gpu"] = longest * (force_group_size + 1)
            else:
                rows.extra_info["micro_batch_size_per_gpu"] = micro_batch_size
            return float(self.actor_rollout_wg.update_actor(rows)["metrics"]["grad_norm"][0])

        def row(self, key: str) -> dict[str, Any]:
            names = ["prompts", "responses", "response_mask", "position_ids", "multi_modal_inputs", "old_log_probs"]
            names += [
                "ref_log_prob",
                "advantages",
                "orapo_dpo_weight",
                "orapo_prompt",
                "orapo_oracle",
                "orapo_negative",
            ]
            data = tq.kv_batch_get(keys=[key], partition_id="train", select_fields=names)
            tu.maybe_fix_3d_position_ids(data)
            row: dict[str, Any] = {"key": key, "multi_modal_inputs": dict(next(iter(data["multi_modal_inputs"])))}
            row |= {name: data[name].unbind()[0] for name in names if name != "multi_modal_inputs"}
            if not key.endswith("_gt") and not key.startswith("pad"):
                more = tq.kv_batch_get(keys=[key], partition_id="train", select_fields=["rm_scores", "extra_fields"])
                row["reward"] = float(more["rm_scores"].unbind()[0].sum())
                row["failed"] = bool(next(iter(more["extra_fields"]))["reward_extra_info"]["failed"])
            return row

    register_trainer("orapo_probe")(Probe)


after_import("verl.experimental.reward_loop.reward_manager", _register)
after_import("verl.trainer.ppo.v1", _register_trainer)
