"""OraPO's seams with verl that a run meets late: templates that hold the marker, losses that 1 - w does not scale,
mini-batches with unequal shares of the prompts."""

import copy
import random
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("verl")
from omegaconf import OmegaConf

from radverl.verl_plugin.orapo import layout
from radverl.verl_plugin.orapo.rows import end_of_turn
from radverl.verl_plugin.orapo.settings import settings_from
from tests.test_orapo_settings import CONFIG

GEMMA = (
    "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role'])"
    " + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
)
NO_TEXT = "{{ raise_exception('content must be a list of parts') }}"  # a template of some vision-language models


def tokenizer(template: str) -> Any:
    """A tokenizer of letters whose turns end with <end_of_turn>, and texts with <eos>, as Gemma's do."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    marks = ["[UNK]", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"]
    words = {token: number for number, token in enumerate([*marks, *map(chr, range(32, 127)), "\n"])}
    letters = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made = PreTrainedTokenizerFast(
        tokenizer_object=letters,
        unk_token="[UNK]",
        eos_token="<eos>",
        bos_token="<bos>",
        additional_special_tokens=["<start_of_turn>", "<end_of_turn>"],
    )
    made.chat_template = template
    return made


def test_gemmas_end_of_turn_is_found() -> None:
    made = tokenizer(GEMMA)
    assert end_of_turn(made) == made.convert_tokens_to_ids("<end_of_turn>") != made.eos_token_id


def test_a_template_that_raises_leaves_the_eos() -> None:
    made = tokenizer(NO_TEXT)
    assert end_of_turn(made) == made.eos_token_id


def changed(**changes: Any) -> Any:
    config = OmegaConf.create(copy.deepcopy(CONFIG))
    for name, value in changes.items():
        OmegaConf.update(config, name.replace("__", "."), value, force_add=True)
    return config


@pytest.mark.parametrize("loss_mode", ["clip_cov", "kl_cov", "dro", "geo_mean"])
def test_losses_that_the_weight_does_not_scale_are_refused(loss_mode: str) -> None:
    with pytest.raises(ValueError, match=f"loss_mode={loss_mode}"):
        settings_from(changed(actor_rollout_ref__actor__policy_loss={"loss_mode": loss_mode}))


@pytest.mark.parametrize("loss_mode", ["vanilla", "gspo", "sapo", "gpg", "cispo", "dppo_tv", "dppo_kl"])
def test_losses_that_the_weight_scales_are_taken(loss_mode: str) -> None:
    assert settings_from(changed(actor_rollout_ref__actor__policy_loss={"loss_mode": loss_mode})).mode == "row"


def test_dr_grpo_without_its_constant_is_refused() -> None:
    """verl would divide by the longest row of each micro-batch, true reports included."""
    given = {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": None}
    names = {f"actor_rollout_ref__actor__{name}": value for name, value in given.items()}
    with pytest.raises(ValueError, match="loss_scale_factor"):
        settings_from(changed(**names))


def prompts_of_mini_batches(order: list[str], n_ranks: int, n_mini: int) -> list[int]:
    size = len(order) // (n_ranks * n_mini)
    found = Counter(
        place // size % n_mini for place, key in enumerate(order) if key.endswith("_gt") and not key.startswith("pad")
    )
    return [found[number] for number in range(n_mini)]


@pytest.mark.parametrize("seed", range(10))
def test_mini_batches_hold_as_many_prompts_when_rows_are_shorter_than_padding(seed: int) -> None:
    """Six prompts of text in two mini-batches on two ranks: three each, which is what the loss divides by."""
    draw = random.Random(seed)
    uids, n, padding = [f"u{i}" for i in range(6)], 2, 128
    oracle = [f"{uid}_0_gt" for uid in uids] + ["padb_0_0", "padb_1_0"]
    rollouts = [f"{uid}_{k}_0" for uid in uids for k in range(n)]
    filler = [f"pada_{i}_0" for i in range(2 * n)]
    lengths = {key: padding if key.startswith("pad") else draw.randint(60, 200) for key in oracle + rollouts + filler}
    rows = layout.row_order(rollouts, oracle, 4, lengths)
    assert prompts_of_mini_batches(rows, 2, 2) == [3, 3]
    groups = layout.row_groups(rollouts + filler, oracle, uids, n)
    assert prompts_of_mini_batches(layout.group_order(groups, 4, lengths), 2, 2) == [3, 3]
