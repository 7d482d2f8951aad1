"""What OraPO reads from and writes to verl's TransferQueue on the driver, a few calls per step."""

from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils as tu

from radverl.orapo import log_ratio_sums
from radverl.verl_plugin.failures.flags import row_flags
from radverl.verl_plugin.orapo.mixing import Groups, Step
from radverl.verl_plugin.orapo.rows import oracle_row, oracle_text, oracle_tokens, prompt_id

ROWS_AT_ONCE = 64  # bounds the images that pass through the driver at one time
NEUTRAL = {"orapo_grpo_weight": 1.0, "orapo_prompt": -1.0}  # of padding rows; the other fields are 0 there
LOG_PROBS = ["old_log_probs", "ref_log_prob", "response_mask"]


def put_oracle_rows(
    rollouts: KVBatchMeta, groups: Groups, tokenizer: Any, end: int, max_length: int, with_log_probs: bool
) -> tuple[KVBatchMeta, list[str], int]:
    """Write the true report of each prompt as a row like its first rollout.

    Args:
        end: token that ends a turn.
        max_length: longest response of the run, in tokens.
        with_log_probs: whether the rollouts carry `rollout_log_probs`.
    Returns:
        The rows, in the order of `groups.uids`, the stable prompt id of each, and how many reports were cut.
    """
    tag_of = dict(zip(rollouts.keys, rollouts.tags, strict=True))
    sources = [rollouts.keys[int(row)] for row in groups.row_PK[:, 0]]
    read = ["prompts", "position_ids", "multi_modal_inputs", "extra_info", "reward_model", "data_source"]
    keys, tags, prompt_ids, n_cut = [], [], [], 0
    for start in range(0, len(sources), ROWS_AT_ONCE):
        part = sources[start : start + ROWS_AT_ONCE]
        data = tq.kv_batch_get(keys=part, partition_id=rollouts.partition_id, select_fields=read)
        tu.maybe_fix_3d_position_ids(data)
        columns = zip(
            data["prompts"].unbind(),
            data["position_ids"].unbind(),
            *(list(data[name]) for name in read[2:]),
            strict=True,
        )
        rows = []
        for source, (prompt_ids_N, position_ids, inputs, info, truth, data_source) in zip(part, columns, strict=True):
            text = oracle_text(info, truth.get("ground_truth"))
            ids_T, is_cut = oracle_tokens(text, tokenizer, end, max_length)
            n_cut += is_cut
            row = oracle_row(prompt_ids_N, position_ids, inputs, ids_T, with_log_probs)
            rows.append(row)
            prompt_ids.append(prompt_id(str(data_source), info))
            tags.append({**tag_of[source], "response_len": ids_T.numel(), "seq_len": row["input_ids"].numel()})
        part_keys = [f"{source.rsplit('_', 2)[0]}_0_gt" for source in part]
        tq.kv_batch_put(
            keys=part_keys,
            partition_id=rollouts.partition_id,
            fields=tu.list_of_dict_to_tensordict(rows),
            tags=tags[start:],
        )
        keys += part_keys
    return KVBatchMeta(keys=keys, tags=tags, partition_id=rollouts.partition_id), prompt_ids, n_cut


def read_step(rollouts: KVBatchMeta, oracle_keys: list[str], groups: Groups, prompt_ids: list[str]) -> Step:
    """Rewards, failures and log-ratios of a step, after verl has computed its log-probs and advantages."""
    data = tq.kv_batch_get(
        keys=rollouts.keys,
        partition_id=rollouts.partition_id,
        select_fields=[*LOG_PROBS, "rm_scores", "extra_fields"],
    )
    rewards_R = data["rm_scores"].to_padded_tensor(0.0).sum(-1)
    failed_R = torch.tensor(row_flags(rollouts.keys, list(data["extra_fields"]), rewards_R.tolist()).failed)
    mask = data["response_mask"]
    delta_R, lengths_R = _log_ratios(data, mask.to_padded_tensor(0).bool())
    # The response mask of a true report is 0 for verl's sake: all its tokens count here.
    truth = tq.kv_batch_get(keys=oracle_keys, partition_id=rollouts.partition_id, select_fields=LOG_PROBS)
    n_tokens_P = truth["response_mask"].offsets().diff()
    delta_gt_P, lengths_gt_P = _log_ratios(truth, torch.arange(int(n_tokens_P.max())) < n_tokens_P[:, None])
    return Step(
        groups=groups,
        prompt_ids=prompt_ids,
        rewards_R=rewards_R,
        failed_R=failed_R,
        delta_R=delta_R,
        lengths_R=lengths_R,
        delta_gt_P=delta_gt_P,
        lengths_gt_P=lengths_gt_P,
        rejected_R=(lengths_R == 0) & (mask.offsets().diff() > 0),
    )


def put_loss_fields(keys: list[str], partition_id: str, fields: dict[str, Tensor], *, is_oracle: bool) -> None:
    """Write the numbers of the first rows of `keys`, and neutral ones for the padding rows after them."""
    n_padding = len(keys) - len(fields["orapo_coef"])
    dense = {
        name: torch.cat([value, torch.full((n_padding,), NEUTRAL.get(name, 0.0))]) for name, value in fields.items()
    }
    dense["orapo_oracle"] = torch.full((len(keys),), float(is_oracle))
    tq.kv_batch_put(keys=keys, partition_id=partition_id, fields=TensorDict(dense, batch_size=len(keys)))


def put_without_advantage(keys: list[str], partition_id: str, with_is_weights: bool) -> None:
    """Give rows of ours the fields that verl wrote for its rollouts only; verl drops a field that one row lacks."""
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["response_mask"])
    zeros = [torch.zeros(int(n_tokens)) for n_tokens in data["response_mask"].offsets().diff()]
    fields = {"advantages": torch.nested.as_nested_tensor(zeros, layout=torch.jagged)}
    if with_is_weights:
        ones = [torch.ones_like(row) for row in zeros]
        fields["rollout_is_weights"] = torch.nested.as_nested_tensor(ones, layout=torch.jagged)
    tq.kv_batch_put(keys=keys, partition_id=partition_id, fields=TensorDict(fields, batch_size=len(keys)))


def _log_ratios(data: TensorDict, mask_RT: Tensor) -> tuple[Tensor, Tensor]:
    old_RT = data["old_log_probs"].to_padded_tensor(0.0).double()
    return log_ratio_sums(old_RT, data["ref_log_prob"].to_padded_tensor(0.0).double(), mask_RT)
