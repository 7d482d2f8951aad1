"""Gradient norms of OraPO's two terms on what a tiny model samples."""

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from data_preprocess import simulated
from radverl.evaluation import gradient_share as module
from radverl.evaluation.files import read_parquet
from radverl.evaluation.gradient_share import gradient_share, main
from radverl.tiny_model import make_tiny_model, read_corpus


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model with random weights, and four studies."""
    folder = tmp_path_factory.mktemp("share")
    counts = ["--n-train", "4", "--n-val", "0", "--n-test", "0"]
    assert simulated.main(["--out", str(folder), *counts, "--size", "64", "--style", "template", "--quiet"]) == 0
    corpus = read_corpus(folder / "sft_train.parquet")
    return make_tiny_model("qwen2_5_vl", folder / "model", corpus, image_size=56), folder / "train.parquet"


def test_without_reward_only_the_preference_has_a_gradient(made: tuple[Path, Path]) -> None:
    """Random weights never write a finding, so every group is all-zero and GRPO has nothing to learn from."""
    model, data = made
    share = gradient_share(model, read_parquet(data), prompts=2, rollouts=2, max_new_tokens=12)
    assert share["prompts"] == 4
    assert share["all_zero_groups"] == 1.0
    assert share["grpo_norm"] == 0.0
    assert share["dpo_norm"]["1"] > 0
    assert share["dpo_norm"]["5"] == pytest.approx(5 * share["dpo_norm"]["1"])
    assert share["ratio"] == {"0.1": None, "1": None, "5": None}
    assert share["cosine"] is None


def test_a_group_of_right_and_wrong_reports_has_both(made: tuple[Path, Path], monkeypatch) -> None:
    model, data = made

    def half_right(processor, _model, rows, max_new_tokens):
        end = processor.tokenizer.eos_token_id
        truths = [json.loads(row["reward_model"]["ground_truth"])["report"] for row in rows]
        texts = [truth if i % 2 else "No." for i, truth in enumerate(truths)]
        return [[*processor.tokenizer(text)["input_ids"], end][:max_new_tokens] for text in texts]

    monkeypatch.setattr(module, "_sample", half_right)
    share = gradient_share(model, read_parquet(data), prompts=4, rollouts=2, max_new_tokens=64)
    assert share["all_zero_groups"] == 0.0
    assert share["grpo_norm"] > 0
    assert share["ratio"]["1"] == pytest.approx(share["dpo_norm"]["1"] / share["grpo_norm"])
    assert share["cosine"] > 0.2  # both teach the true report against "No."


def test_samples_end_with_their_turn_and_hold_no_image(made: tuple[Path, Path]) -> None:
    import torch

    model_dir, data = made
    processor, model = module.load_model(model_dir, "cpu")
    torch.manual_seed(0)
    responses = module._sample(processor, model, read_parquet(data), 40)
    end, image = processor.tokenizer.eos_token_id, model.config.image_token_id
    assert len(responses) == 4
    for response in responses:
        assert 1 <= len(response) <= 40
        assert end not in response[:-1]
        assert image not in response


def test_command_writes_json_and_refuses_too_few_prompts(made: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    model, data = made
    arguments = ["--model", str(model), "--data", str(data), "--out", str(tmp_path / "a.json")]
    assert main(arguments) == 2
    assert "4 rows do not fill one step of 8 prompts" in capsys.readouterr().err
    assert not (tmp_path / "a.json").exists()
