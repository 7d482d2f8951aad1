"""Seconds that OraPO's own work takes on the driver for a large batch, with a real TransferQueue under a local Ray."""

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
PROMPT_TOKENS, RESPONSE_TOKENS, PATCHES, PATCH_WIDTH = 96, 64, 64, 1176  # a film of 112 x 112


class Words:
    """A tokenizer as quick as a fast one: the model's own time is not what is measured."""

    eos_token_id = 0

    def encode(self, text: str, add_special_tokens: bool, split_special_tokens: bool) -> list[int]:
        return [len(word) for word in text.split()]


def seconds_on_driver(prompts: int, rollouts: int) -> dict[str, float]:
    """Time of each part of one step, in seconds: groups, oracle rows, order, reading, weights, writing."""
    import ray
    import torch
    import transfer_queue as tq
    from tensordict import TensorDict
    from transfer_queue import KVBatchMeta
    from verl.utils import tensordict_utils as tu

    from radverl.orapo import ZeroRewardEma
    from radverl.verl_plugin.orapo import exchange, layout
    from radverl.verl_plugin.orapo.mixing import groups_of, mix
    from radverl.verl_plugin.orapo.settings import OrapoSettings

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tq.init()
    seconds: dict[str, float] = {}

    def timed(name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        started = time.perf_counter()
        result = function(*args, **kwargs)
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started
        return result

    def put(keys: list[str], rows: list[dict]) -> None:
        tq.kv_batch_put(
            keys=keys, partition_id="train", fields=tu.list_of_dict_to_tensordict(rows), tags=[{}] * len(keys)
        )

    def numbers(count: int) -> Any:
        return torch.nested.as_nested_tensor(
            [torch.randn(RESPONSE_TOKENS - i % 9) for i in range(count)], layout=torch.jagged
        )

    keys = [f"u{p}_{k}_0" for p in range(prompts) for k in range(rollouts)]
    firsts = keys[::rollouts]
    truth = {"ground_truth": json.dumps({"report": "word " * (RESPONSE_TOKENS - 1)})}
    for start in range(0, len(firsts), 64):
        part = firsts[start : start + 64]
        rows = [
            {
                "prompts": torch.arange(PROMPT_TOKENS + number % 3),
                "position_ids": torch.zeros(4, PROMPT_TOKENS + RESPONSE_TOKENS + number % 3, dtype=torch.long),
                "multi_modal_inputs": {"pixel_values": torch.randn(PATCHES, PATCH_WIDTH)},
                "extra_info": {"prompt_id": key},
                "reward_model": truth,
                "data_source": "bench",
            }
            for number, key in enumerate(part)
        ]
        put(part, rows)
    for start in range(0, len(keys), 512):
        part = keys[start : start + 512]
        fields = {name: numbers(len(part)) for name in ("old_log_probs", "ref_log_prob", "rm_scores")}
        fields["response_mask"] = torch.nested.as_nested_tensor(
            [torch.ones(len(row), dtype=torch.long) for row in fields["rm_scores"].unbind()], layout=torch.jagged
        )
        batch = TensorDict(fields, batch_size=len(part))
        batch["extra_fields"] = tu.NonTensorStack(*[{"reward_extra_info": {"failed": 0.0}} for _ in part])
        tq.kv_batch_put(keys=part, partition_id="train", fields=batch, tags=[{} for _ in part])
    batch = KVBatchMeta(keys=keys, tags=[{"seq_len": PROMPT_TOKENS} for _ in keys], partition_id="train")

    groups = timed("groups", groups_of, keys)
    oracle, names, _ = timed("oracle rows", exchange.put_oracle_rows, batch, groups, Words(), 0, RESPONSE_TOKENS, False)
    lengths = dict.fromkeys(oracle.keys, PROMPT_TOKENS)
    timed("order", layout.row_order, keys, oracle.keys, 4, lengths)
    fields = {name: numbers(prompts) for name in ("old_log_probs", "ref_log_prob")}
    masks = [torch.zeros(len(row), dtype=torch.long) for row in fields["ref_log_prob"].unbind()]
    fields["response_mask"] = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    tq.kv_batch_put(keys=oracle.keys, partition_id="train", fields=TensorDict(fields, batch_size=prompts))
    step = timed("reading", exchange.read_step, batch, oracle.keys, groups, names)
    of_rollouts, of_oracle, _ = timed("weights", mix, OrapoSettings(), ZeroRewardEma(), step)
    timed("writing", exchange.put_loss_fields, keys, "train", of_rollouts, is_oracle=False)
    timed("writing", exchange.put_loss_fields, oracle.keys, "train", of_oracle, is_oracle=True)
    timed("writing", exchange.put_without_advantage, oracle.keys, "train", False)
    tq.close()
    ray.shutdown()
    return seconds
