"""The oracle row: the true report of a prompt as one more response to it, as verl's agent loop would have written it.

Built on the trainer's driver, because a session of the agent loop that returns two outputs fails for models with mrope
position ids, and the loop cannot tell training from validation.

Shapes: N prompt tokens, T response tokens, C rope channels.
"""

import json
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from data_preprocess.core.rows import PLACEHOLDER, SPECIAL_TOKEN


def prompt_id(data_source: str, extra_info: Mapping[str, Any]) -> str:
    """The name under which a prompt's moving average is kept, stable over epochs and restarts.

    `extra_info.prompt_id`, else data source, split and `extra_info.index`.

    Raises:
        ValueError: neither is there (verl's own uid is new at every fetch).
    """
    named = {name: extra_info[name] for name in ("prompt_id", "index") if extra_info.get(name) is not None}
    if not named:
        raise ValueError(
            f"a row of {data_source!r} has neither extra_info.prompt_id nor extra_info.index: OraPO keeps an average "
            "for each prompt; write one of them."
        )
    name, value = next(iter(named.items()))
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole and not (isinstance(value, str) and value.strip()):  # a NaN, say, would be the name of many rows
        raise ValueError(f"a row of {data_source!r} has extra_info.{name}={value!r}: give a text or a whole number.")
    return str(value) if name == "prompt_id" else f"{data_source}/{extra_info.get('split') or ''}/{value}"


def oracle_text(extra_info: Mapping[str, Any], ground_truth: Any) -> str:
    """The response that is the truth: `extra_info.oracle`, else "report" of the ground truth (a dict or its JSON).

    A recipe whose responses have a format of their own (tags, a reasoning trace) writes them to `extra_info.oracle`.

    Raises:
        ValueError: there is none, or it is empty.
    """
    text = extra_info.get("oracle")
    if text is None:
        if isinstance(ground_truth, str):
            try:
                ground_truth = json.loads(ground_truth)
            except (ValueError, RecursionError) as error:
                if ground_truth.lstrip().startswith("{"):  # learning to write it would be no better than a crash
                    raise ValueError(f"reward_model.ground_truth is broken JSON ({error}); rebuild the row.") from error
                ground_truth = {"report": ground_truth}  # a data set whose ground truth is the report itself
        text = ground_truth.get("report") if isinstance(ground_truth, Mapping) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError(
            "no true report: OraPO takes it from extra_info.oracle or from `report` in reward_model.ground_truth; "
            "write it there or leave the row out."
        )
    return text


def check_dataset(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError for the first row that OraPO cannot train on, before any worker starts.

    Args:
        rows: of the training file, with columns data_source, extra_info, reward_model.
    """
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        extra_info, truth = row.get("extra_info") or {}, row.get("reward_model") or {}
        where = f"training row {number}"
        if not isinstance(extra_info, Mapping) or not isinstance(truth, Mapping):
            raise ValueError(f"{where}: extra_info and reward_model must be structs; write the file with our scripts.")
        try:
            name = prompt_id(str(row.get("data_source")), extra_info)
            text = oracle_text(extra_info, truth.get("ground_truth"))
            _refuse_tokens(text)
        except ValueError as error:
            raise ValueError(f"{where} ({extra_info.get('prompt_id', 'no prompt_id')}): {error}") from None
        if name in seen:
            raise ValueError(
                f"training rows {seen[name]} and {number} have the same prompt id {name!r}: they would share an "
                "average; give each row its own extra_info.prompt_id."
            )
        seen[name] = number


def _refuse_tokens(text: str) -> None:
    if found := PLACEHOLDER.search(text) or SPECIAL_TOKEN.search(text):
        raise ValueError(f"the true report contains {found[0]}, an image or a control token to the model; remove it.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # half a surrogate pair, which JSON can hold and no tokenizer takes
        raise ValueError(f"the true report is not valid Unicode ({error.reason}); rebuild the row.") from error


def end_of_turn(tokenizer: Any) -> int:
    """The token that ends an assistant's turn in the chat template; the tokenizer's eos where that cannot be seen.

    Gemma, for one, ends turns with <end_of_turn> while its eos is another token.
    """
    marker = "@@answer@@"  # in no template; a common word may stand in the name of a token, as in <end_of_turn>
    try:
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": marker}]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        ids = tokenizer.encode(text[text.rindex(marker) + len(marker) :], add_special_tokens=False)
    except Exception:  # no template, or one that takes images only: jinja raises errors of its own
        return tokenizer.eos_token_id
    special = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))
    return ids[0] if ids and ids[0] in special else tokenizer.eos_token_id


def oracle_tokens(text: str, tokenizer: Any, end: int, max_length: int) -> tuple[Tensor, bool]:
    """Token ids (T,) of the true report and its end of turn, and whether they were cut at `max_length`.

    What spells a special token in the text stays text: an image token in a response has no image, an end no sequel.
    """
    ids = [*tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True), end]
    return torch.tensor(ids[:max_length], dtype=torch.int64), len(ids) > max_length


def oracle_row(
    prompt_ids_N: Tensor, position_ids: Tensor, multi_modal_inputs: Any, response_ids_T: Tensor, with_log_probs: bool
) -> dict[str, Any]:
    """The fields that verl's log-prob and update stages read of a row.

    `response_mask` and `loss_mask` are 0: the row is no part of GRPO, of its token count or of any statistic.

    Args:
        position_ids: those of one rollout of the prompt, (N + any,) or (C, N + any).
        multi_modal_inputs: of the same rollout; those of a prompt with images depend on the prompt alone.
        with_log_probs: write `rollout_log_probs` (zeros), which verl reads where the rollouts have them.
    Raises:
        ValueError: inputs with one entry for each token, which differ between the rollout and the true report.
    """
    if by_token := sorted({"mm_token_type_ids", "token_type_ids"} & set(multi_modal_inputs)):
        raise ValueError(
            f"the model's processor writes {by_token[0]}, one for each token: OraPO cannot take those of a rollout for "
            "the true report; use a model whose rope index verl knows (Qwen2-VL, Qwen2.5-VL, Qwen3-VL)."
        )
    length = response_ids_T.numel()
    n_prompt = prompt_ids_N.numel()
    # A prompt ends with text, so every rope channel grows by one per response token.
    later = position_ids[..., n_prompt - 1 : n_prompt] + torch.arange(1, length + 1, dtype=position_ids.dtype)
    zeros_T = torch.zeros(length, dtype=torch.int64)
    row = {
        "prompts": prompt_ids_N,
        "responses": response_ids_T,
        "input_ids": torch.cat([prompt_ids_N, response_ids_T]),
        "position_ids": torch.cat([position_ids[..., :n_prompt], later], dim=-1),
        "multi_modal_inputs": multi_modal_inputs,
        "response_mask": zeros_T,
        "loss_mask": zeros_T,
    }
    if with_log_probs:
        row["rollout_log_probs"] = torch.zeros(length)
    return row
