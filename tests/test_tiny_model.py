"""The tiny models load as the real ones do, fit their tokenizer, and use their image."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from radverl.tiny_model import KINDS, SPECIAL_TOKENS, main, make_tiny_model

CORPUS = ["Findings: No effusion. Impression: Normal chest.", "Findings: Left effusion. Impression: Effusion."] * 4
CLASSES = {
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLProcessor", 16),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", "Qwen3VLProcessor", 9),
}


@pytest.fixture(scope="module", params=KINDS)
def tiny(request, tmp_path_factory):
    folder = make_tiny_model(request.param, tmp_path_factory.mktemp(request.param), CORPUS)
    return (
        request.param,
        folder,
        AutoModelForImageTextToText.from_pretrained(folder),
        AutoProcessor.from_pretrained(folder),
    )


def inputs(processor, colour: int = 90, side: int = 200):
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Findings:"}]}]
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return processor(text=[text], images=[Image.new("RGB", (side, side), (colour,) * 3)], return_tensors="pt")


def test_is_the_real_architecture(tiny) -> None:
    kind, _, model, processor = tiny
    assert (type(model).__name__, type(processor).__name__) == CLASSES[kind][:2]
    assert sum(p.numel() for p in model.parameters()) < 1_000_000


def test_vocabulary_and_tokenizer_agree(tiny) -> None:
    _, folder, model, _ = tiny
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == model.config.text_config.vocab_size
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer)
    assert all(len(tokenizer(token)["input_ids"]) == 1 for token in SPECIAL_TOKENS)
    assert tokenizer.eos_token == "<|im_end|>"


def test_any_image_becomes_the_same_number_of_visual_tokens(tiny) -> None:
    kind, _, model, processor = tiny
    for side in (64, 112, 500):
        batch = inputs(processor, side=side)
        assert int((batch["input_ids"] == model.config.image_token_id).sum()) == CLASSES[kind][2]


def test_the_image_reaches_the_logits(tiny) -> None:
    _, _, model, processor = tiny
    with torch.no_grad():
        dark, light = (model(**inputs(processor, colour)).logits[0, -1] for colour in (20, 230))
    assert not torch.allclose(dark, light)


def test_text_survives_the_tokenizer(tiny) -> None:
    tokenizer = tiny[3].tokenizer
    text = "Findings: 50 % pneumothorax (right), né 2×3 cm.\n\nImpression: ok"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_same_seed_same_weights(tmp_path) -> None:
    folders = [make_tiny_model("qwen2_5_vl", tmp_path / str(i), CORPUS, seed=s) for i, s in enumerate((3, 3, 4))]
    a, b, c = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert a == b
    assert a != c


@pytest.mark.parametrize(("kind", "size", "says"), [("llama", 112, "qwen2_5_vl"), ("qwen3_vl", 20, "raise it")])
def test_bad_requests_say_what_to_do(tmp_path, kind: str, size: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_tiny_model(kind, tmp_path, CORPUS, image_size=size)


@pytest.mark.parametrize("options", [{"image_size": -5}, {"image_size": 10**6}, {"seed": -1}, {"seed": 2**70}])
def test_numbers_without_sense_are_refused(options, tmp_path):
    with pytest.raises(ValueError, match="use 1 to"):
        make_tiny_model("qwen2_5_vl", tmp_path, CORPUS, **options)


@pytest.mark.parametrize(
    "table",
    [
        {"messages": [None]}, {"messages": [[{"role": "user", "content": None}]]}, {"messages": [["text"]]},
        {"messages": []}, {"prompt": ["x"]},
    ],
)  # fmt: skip
def test_a_parquet_without_texts_exits_2_and_writes_nothing(table, tmp_path, capsys):
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    assert main(["--data", str(tmp_path / "x.parquet"), "--out", str(tmp_path / "out")]) == 2
    assert str(tmp_path / "x.parquet") in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_interrupted_save_has_no_config(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("transformers.GenerationConfig.save_pretrained", stop)
    with pytest.raises(KeyboardInterrupt):
        make_tiny_model("qwen2_5_vl", tmp_path / "m", CORPUS)
    assert list((tmp_path / "m").iterdir()) == []
