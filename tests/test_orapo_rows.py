"""The row of the true report, its order among the rollouts, and the checkpointed averages."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
import torch

from data_preprocess.core.skiplog import umask
from radverl.orapo import ZeroRewardEma
from radverl.verl_plugin.orapo import layout, state
from radverl.verl_plugin.orapo.rows import (
    check_dataset,
    end_of_turn,
    oracle_row,
    oracle_text,
    oracle_tokens,
    prompt_id,
)

TRUTH = json.dumps({"report": "No effusion.", "labels": {}})


class Letters:
    """A tokenizer of letters with a chat template; 0 is its eos, 1 ends a turn."""

    eos_token_id = 0
    all_special_ids = (0, 1)
    template = "<{role}>{content}{end}"

    def encode(self, text, add_special_tokens, split_special_tokens=False):
        assert not add_special_tokens
        return [1 if letter == "$" else 0 if letter == "^" else ord(letter) for letter in text]

    def apply_chat_template(self, turns, tokenize):
        return "".join(f"<{turn['role']}>{turn['content']}$\n" for turn in turns)


class NoTemplate(Letters):
    def apply_chat_template(self, turns, tokenize):
        raise ValueError("no chat template")


class PlainEnd(Letters):
    def apply_chat_template(self, turns, tokenize):
        return "\n".join(turn["content"] for turn in turns) + "\nnext"


@pytest.mark.parametrize(("tokenizer", "token"), [(Letters(), 1), (NoTemplate(), 0), (PlainEnd(), 0)])
def test_the_end_of_a_turn_is_read_off_the_template(tokenizer, token):
    assert end_of_turn(tokenizer) == token


def test_a_long_report_is_cut_like_a_rollout():
    ids, is_cut = oracle_tokens("abc", Letters(), 1, 8)
    assert (ids.tolist(), is_cut) == ([97, 98, 99, 1], False)
    ids, is_cut = oracle_tokens("abc", Letters(), 1, 3)
    assert (ids.tolist(), is_cut) == ([97, 98, 99], True)
    ids, is_cut = oracle_tokens("abc", Letters(), 1, 1)
    assert (ids.tolist(), is_cut) == ([97], True)


@pytest.mark.parametrize("n_channels", [None, 4])
def test_position_ids_go_on_where_the_prompt_ends(n_channels):
    prompt = torch.tensor([5, 6, 7])
    # An image makes text go on below the count of tokens: positions 0, 0, 4 and, of the rollout, 5, 6.
    positions = torch.tensor([0, 0, 4, 5, 6])
    if n_channels:
        positions = positions + torch.arange(n_channels)[:, None]
    row = oracle_row(prompt, positions, {"pixel_values": "p"}, torch.tensor([1, 2, 3, 4]), True)
    base = torch.tensor([0, 0, 4, 5, 6, 7, 8])
    assert torch.equal(row["position_ids"], base + torch.arange(n_channels)[:, None] if n_channels else base)
    assert row["input_ids"].tolist() == [5, 6, 7, 1, 2, 3, 4]
    assert not row["response_mask"].any()
    assert not row["loss_mask"].any()
    assert len(row["response_mask"]) == len(row["rollout_log_probs"]) == 4
    assert "rollout_log_probs" not in oracle_row(prompt, positions, {}, torch.tensor([1]), False)


@pytest.mark.parametrize(
    ("info", "truth", "text"),
    [
        ({}, TRUTH, "No effusion."),
        ({}, {"report": "Clear."}, "Clear."),
        ({"oracle": "<think>…</think>Clear."}, TRUTH, "<think>…</think>Clear."),
        ({}, "FINDINGS: plain text, not JSON.", "FINDINGS: plain text, not JSON."),
    ],
)
def test_where_the_true_report_comes_from(info, truth, text):
    assert oracle_text(info, truth) == text


@pytest.mark.parametrize(
    ("info", "truth"),
    [({}, '{"labels": {}}'), ({}, '{"report": "  "}'), ({}, None), ({"oracle": ""}, TRUTH), ({}, "[1]")],
)
def test_a_row_without_one_is_refused(info, truth):
    with pytest.raises(ValueError, match=r"no true report.*extra_info\.oracle"):
        oracle_text(info, truth)


def test_prompt_ids():
    assert prompt_id("s", {"prompt_id": "a/1", "index": 3}) == "a/1"
    assert prompt_id("s", {"index": 3, "split": "train"}) == "s/train/3"
    assert prompt_id("s", {"index": 0}) == "s//0"
    with pytest.raises(ValueError, match=r"neither extra_info\.prompt_id nor"):
        prompt_id("s", {})


def test_the_data_set_is_checked_before_the_run():
    rows = [
        {"data_source": "s", "extra_info": {"prompt_id": p}, "reward_model": {"ground_truth": TRUTH}} for p in "abc"
    ]
    check_dataset(rows)
    with pytest.raises(ValueError, match="training rows 0 and 2 have the same prompt id 'a'"):
        check_dataset([*rows[:2], rows[0]])
    with pytest.raises(ValueError, match=r"training row 1 \(b\): no true report"):
        check_dataset([rows[0], {**rows[1], "reward_model": {"ground_truth": "{}"}}])
    with pytest.raises(ValueError, match=r"training row 0 \(no prompt_id\): a row of 's'"):
        check_dataset([{**rows[0], "extra_info": None}])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
def test_row_order_shares_out_the_true_reports(n_chunks, per_chunk, rollouts_per_chunk, seed):
    rollouts = [f"r{i}" for i in range(n_chunks * rollouts_per_chunk)]
    oracle = [f"o{i}" for i in range(n_chunks * per_chunk)]
    lengths = {key: (number * 37 + seed) % 11 for number, key in enumerate(oracle)}
    order = layout.row_order(rollouts, oracle, n_chunks, lengths)
    assert sorted(order) == sorted(rollouts + oracle)
    assert [key for key in order if key in set(rollouts)] == rollouts  # verl's balance is kept
    size = len(order) // n_chunks
    for number in range(n_chunks):
        chunk = order[number * size : (number + 1) * size]
        places = [place for place, key in enumerate(chunk) if key.startswith("o")]
        assert len(places) == per_chunk
        if rollouts_per_chunk >= per_chunk:  # never two true reports in a row
            assert all(later - earlier > 1 for earlier, later in itertools.pairwise(places))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 8), st.data())
def test_group_order_keeps_prompts_together(n_chunks, per_chunk, n, data):
    n_prompts = n_chunks * per_chunk
    there = data.draw(st.lists(st.integers(0, n), min_size=n_prompts - 1, max_size=n_prompts))
    there = [max(1, sessions) for sessions in there]
    uids = [f"u{i}" for i in range(len(there))]
    rollouts = [f"{uid}_{k}_0" for uid, sessions in zip(uids, there, strict=True) for k in range(sessions)]
    rollouts += [f"padx_{i}_0" for i in range(n_prompts * n - len(rollouts))]
    oracle = [f"{uid}_0_gt" for uid in uids] + [f"pady_{i}_0" for i in range(n_prompts - len(uids))]
    lengths = {key: len(key) + int(key.split("_")[1]) for key in rollouts + oracle}
    groups = layout.row_groups(rollouts, oracle, uids, n)
    order = layout.group_order(groups, n_chunks, lengths)
    assert sorted(order) == sorted(rollouts + oracle)
    for start in range(0, len(order), n + 1):
        group = order[start : start + n + 1]
        names = {key.split("_")[0] for key in group[:-1] if not key.startswith("pad")}
        assert len(names) <= 1
        assert names <= {group[-1].split("_")[0]}


def test_a_prompt_with_more_rollouts_than_n_cannot_be_grouped():
    with pytest.raises(ValueError, match="__rollout_n__"):
        layout.row_groups(["u_0_0", "u_1_0"], ["u_0_gt"], ["u"], 1)


@pytest.mark.parametrize(
    ("rows", "at_most", "padded"),
    [(36, 4, 36), (17, 8, 18), (5, 4, 6), (9, 8, 10), (7, 7, 7), (13, 100, 13), (11, 1, 11), (1, 8, 1)],
)
def test_rows_are_padded_to_fair_micro_batches(rows, at_most, padded):
    assert layout.rows_with_padding(rows, at_most) == padded


def test_padding_is_shared_out_last():
    """A padding row is longer than these reports; both chunks still get two of them."""
    oracle = ["a_0_gt", "b_0_gt", "c_0_gt", "d_0_gt", "padx_0_0", "padx_1_0"]
    lengths = {key: 128 if key.startswith("pad") else 40 for key in oracle}
    order = layout.row_order([f"r_{i}_0" for i in range(6)], oracle, 2, lengths)
    assert [sum(key.endswith("_gt") for key in order[i : i + 6]) for i in (0, 6)] == [2, 2]


def test_inputs_for_each_token_are_refused():
    with pytest.raises(ValueError, match="mm_token_type_ids, one for each token"):
        oracle_row(torch.tensor([5]), torch.tensor([0]), {"mm_token_type_ids": 0}, torch.tensor([1]), False)


@pytest.mark.parametrize(
    ("rows", "at_most", "size"), [(36, 4, 4), (36, 8, 6), (36, 1, 1), (35, 8, 7), (7, 100, 7), (13, 4, 1)]
)
def test_micro_batches_divide_the_rows_of_a_rank(rows, at_most, size):
    assert layout.micro_batch_size(rows, at_most) == size


@pytest.mark.parametrize(("prompts", "ranks", "slots"), [(16, 4, 16), (3, 2, 4), (1, 4, 4), (5, 4, 8)])
def test_slots(prompts, ranks, slots):
    assert layout.oracle_slots(prompts, ranks) == slots


def test_averages_survive_a_checkpoint(tmp_path):
    average = ZeroRewardEma()
    average.update(["a", "b"], [1.0, 0.1])
    average.update(["a"], [0.3])
    state.save(average, tmp_path / "global_step_2")
    again = ZeroRewardEma()
    assert state.load(again, tmp_path / "global_step_2")
    assert again.values == average.values
    assert [path.name for path in (tmp_path / "global_step_2").iterdir()] == [state.FILE]  # no half-written file


def test_a_checkpoint_of_another_trainer_starts_anew_and_says_so(tmp_path, caplog):
    average = ZeroRewardEma()
    assert not state.load(average, tmp_path)
    assert "the zero-reward averages start anew" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", "[" * 100_000, '{"version": 1}', '{"version": 1, "scope": "batch", "values": {}}'),
        *(
            f'{{"version": 1, "scope": "prompt", "values": {{"a": {value}}}}}'
            for value in ('"x"', "null", "true", "NaN", "Infinity", "1.5", "9" * 400, "9" * 5000)
        ),
    ],
)
def test_a_broken_state_is_named(tmp_path, text):
    (tmp_path / state.FILE).write_text(text)
    with pytest.raises(ValueError, match=r"orapo_state\.json: .*resume from another checkpoint"):
        state.load(ZeroRewardEma(), tmp_path)


def test_a_state_that_is_no_file_is_not_taken_for_none(tmp_path):
    path = tmp_path / state.FILE
    path.mkdir()
    with pytest.raises(ValueError, match=r"orapo_state\.json: Is a directory; resume from another"):
        state.load(ZeroRewardEma(), tmp_path)
    with pytest.raises(OSError, match=r"orapo_state\.json: the zero-reward averages cannot be written"):
        state.save(ZeroRewardEma(), tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == [state.FILE]  # no unfinished file is left
    path.rmdir()
    path.symlink_to(tmp_path / "lost")
    with pytest.raises(ValueError, match="No such file"):
        state.load(ZeroRewardEma(), tmp_path)


def test_others_may_read_the_state(tmp_path):
    state.save(ZeroRewardEma(), tmp_path)
    assert (tmp_path / state.FILE).stat().st_mode & 0o777 == 0o666 & ~umask()


def row(info=None, report="Clear.", **changes):
    truth = {"ground_truth": json.dumps({"report": report})}
    return {"data_source": "s", "extra_info": info or {"prompt_id": "a"}, "reward_model": truth, **changes}


@pytest.mark.parametrize("token", ["<|im_end|>", "<|image_pad|>", "<|vision_start|>", "<image>", "<video>"])
@pytest.mark.parametrize("place", ["report", "oracle"])
def test_control_tokens_in_a_true_report_are_refused_before_the_run(token, place):
    bad = row(report=f"Clear. {token}") if place == "report" else row({"prompt_id": "a", "oracle": f"<think>{token}"})
    with pytest.raises(ValueError, match=r"training row 0 \(a\): the true report contains .*remove it"):
        check_dataset([bad])


def test_tags_are_no_control_tokens():
    check_dataset([row({"prompt_id": "a", "oracle": "<think>Lungs.</think> <answer>Clear, heart < 15 cm.</answer>"})])


def test_what_spells_a_special_token_stays_text():
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = {letter: number for number, letter in enumerate("</s>ab")}
    core = tokenizers.Tokenizer(tokenizers.models.BPE({**alphabet, "</s>": len(alphabet)}, []))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")
    assert tokenizer.eos_token_id in tokenizer.encode("a</s>b", add_special_tokens=False)
    *text, end = oracle_tokens("a</s>b", tokenizer, tokenizer.eos_token_id, 99)[0].tolist()
    assert end == tokenizer.eos_token_id
    assert end not in text
    assert text == [alphabet[letter] for letter in "a</s>b"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (row({"prompt_id": " "}), "extra_info.prompt_id=' ': give a text or a whole number"),
        (row({"prompt_id": float("nan")}), "prompt_id=nan"),
        (row({"prompt_id": ["a"]}), "prompt_id=\\['a'\\]"),
        (row({"index": True}), "index=True"),
        (row({"index": 0.5}), "index=0.5"),
        (row("text"), "must be structs"),
        (row(reward_model=["x"]), "must be structs"),
        (row(reward_model={"ground_truth": '{"report": "Clear.'}), "broken JSON"),
        (row(report="\ud800"), "not valid Unicode"),
    ],
)
def test_rows_that_mean_nothing_are_named(bad, words):
    with pytest.raises(ValueError, match=f"training row 1.*{words}"):
        check_dataset([row({"prompt_id": "first"}), bad])


def test_a_null_split_is_none():
    assert prompt_id("s", {"index": 3, "split": None}) == prompt_id("s", {"index": 3})
