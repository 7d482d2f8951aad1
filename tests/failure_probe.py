"""Loaded into a real run by VERL_USE_EXTERNAL_MODULES: writes what the actor is trained on to RADVERL_PROBE_OUT."""

import json
import os
from pathlib import Path
from typing import Any

from radverl.verl_plugin.post_import import after_import


def _record(trainer_base: Any) -> None:
    import transfer_queue as tq

    update_actor = trainer_base.PPOTrainer._update_actor

    def recorded(self: Any, batch: Any, metrics: dict) -> Any:
        names = ["advantages", "response_mask", "rm_scores", "extra_fields"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        columns = zip(batch.keys, *(data[name].unbind() for name in names[:3]), list(data["extra_fields"]), strict=True)
        rows = [
            {
                "key": key,
                "advantage": sorted(set(advantages[mask.bool()].tolist())),
                "reward": float(scores.sum()),
                "failed": bool(extra["reward_extra_info"]["failed"]),
            }
            for key, advantages, mask, scores, extra in columns
        ]
        file = Path(os.environ["RADVERL_PROBE_OUT"]) / f"trained_{self.global_steps}.json"
        file.write_text(json.dumps(rows))
        return update_actor(self, batch, metrics)

    trainer_base.PPOTrainer._update_actor = recorded


after_import("verl.trainer.ppo.v1.trainer_base", _record)
