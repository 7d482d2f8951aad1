"""Report generation with a tiny random model: alignment, batching, the blind shuffle, and unusable folders."""

import json
import shutil
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from radverl.evaluation.generate import ModelError, chat_messages, generate_reports, load_model, open_image

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

PROMPTS = (
    "<image>Write the findings and impression of this chest radiograph.",
    "Report, please.<image>",
    "<image>Clinical question: pneumothorax after a line was placed, compare both lungs and the heart size. Report.",
)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    from radverl.tiny_model import make_tiny_model

    corpus = [*PROMPTS, "Findings: The heart is enlarged. No pneumothorax. Impression: Cardiomegaly."] * 20
    folder = make_tiny_model("qwen2_5_vl", tmp_path_factory.mktemp("tiny"), corpus, image_size=112)
    _make_sensitive(folder)
    return folder


def _make_sensitive(folder):
    """Scale up the random weights, so that the greedy answer depends on prompt and image, and never ends early."""
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.02 if "patch_embed" in name else 0.25)
    model.save_pretrained(folder)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    made = []
    for i in range(5):
        path = folder / f"study {i} 50%.png"
        Image.fromarray(rng.integers(0, 255, (112, 112), dtype=np.uint8)).save(path)
        made.append(
            {
                "prompt": [{"role": "user", "content": PROMPTS[i % 3]}],
                "images": [{"image": f"file://{path}", "bytes": None}],
                "extra_info": {"prompt_id": f"toy/{i}"},
            }
        )
    return made


def reports(model_dir, rows, **options):
    return generate_reports(model_dir, rows, max_new_tokens=12, device="cpu", progress=False, **options)


@pytest.fixture(scope="module")
def one_by_one(model_dir, rows):
    return reports(model_dir, rows, batch_size=1)


def test_padding_and_batching_change_nothing(model_dir, rows, one_by_one):
    """Left padding must be invisible: prompts of three lengths, alone and in batches, give the same greedy reports."""
    assert len(set(one_by_one)) == len(rows), "the toy model must answer each study differently to test anything"
    assert reports(model_dir, rows, batch_size=2) == one_by_one
    assert reports(model_dir, rows, batch_size=32) == one_by_one


def test_reports_hold_no_prompt_and_no_special_tokens(one_by_one):
    assert not any("<|" in text or "assistant" in text or PROMPTS[0][7:] in text for text in one_by_one)


def test_matches_the_argmax_of_the_model_step_by_step(model_dir, rows, one_by_one):
    processor, model = load_model(model_dir, "cpu")
    text = processor.apply_chat_template(chat_messages(rows[2]), add_generation_prompt=True, tokenize=False)
    inputs = processor(text=[text], images=[open_image(rows[2]["images"][0])], return_tensors="pt")
    tokens: list[int] = []
    for _ in range(12):
        more = torch.tensor([tokens], dtype=torch.long)
        step = dict(inputs, input_ids=torch.cat([inputs["input_ids"], more], 1))
        step["attention_mask"] = torch.ones_like(step["input_ids"])
        step["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], torch.zeros_like(more)], 1)
        with torch.no_grad():
            token = int(model(**step, use_cache=False).logits[0, -1].argmax())
        if token in model.generation_config.eos_token_id:
            break
        tokens.append(token)
    assert processor.tokenizer.decode(tokens, skip_special_tokens=True).strip() == one_by_one[2]


def test_blind_run_shows_the_images_of_the_donor(model_dir, rows, one_by_one):
    donors = [3, 4, 0, 1, 2]
    swapped = [dict(row, images=rows[donor]["images"]) for row, donor in zip(rows, donors, strict=True)]
    blind = reports(model_dir, rows, images_from=donors)
    assert blind == reports(model_dir, swapped)
    assert blind != one_by_one
    assert reports(model_dir, rows, images_from=range(5)) == one_by_one


def test_a_donor_with_fewer_images_is_repeated(model_dir, rows):
    two = dict(rows[0], prompt=[{"role": "user", "content": "<image><image>Report."}], images=rows[0]["images"] * 2)
    assert reports(model_dir, [two, rows[1]], images_from=[1, 0]) == [
        *reports(model_dir, [dict(two, images=rows[1]["images"] * 2)]),
        *reports(model_dir, [dict(rows[1], images=rows[0]["images"])]),
    ]


def test_bytes_and_paths_are_the_same_picture(model_dir, rows, one_by_one):
    data = BytesIO()
    open_image(rows[0]["images"][0]).save(data, format="PNG")
    assert reports(model_dir, [dict(rows[0], images=[{"bytes": data.getvalue()}])]) == one_by_one[:1]


def test_sampling_repeats_by_seed(model_dir, rows, one_by_one):
    hot = reports(model_dir, rows[:2], temperature=5.0, seed=7)
    assert hot == reports(model_dir, rows[:2], temperature=5.0, seed=7)
    assert hot != reports(model_dir, rows[:2], temperature=5.0, seed=8)
    assert hot != one_by_one[:2]


def test_a_sampling_generation_config_does_not_disturb_greedy(model_dir, rows, one_by_one, tmp_path):
    """Released checkpoints ask for sampling and a repetition penalty; the evaluation must not follow."""
    copy = shutil.copytree(model_dir, tmp_path / "copy")
    config = json.loads((copy / "generation_config.json").read_text())
    config |= {"do_sample": True, "temperature": 3.0, "top_k": 5, "repetition_penalty": 3.0}
    (copy / "generation_config.json").write_text(json.dumps(config))
    assert reports(copy, rows) == one_by_one


def test_no_rows_need_no_model():
    assert generate_reports("nowhere", [], max_new_tokens=4) == []


@pytest.mark.parametrize(
    ("remove", "words"),
    [
        (["*"], "is not a folder"),
        (["config.json"], "has no config.json"),
        (["*.safetensors"], "has no \\*.safetensors weights"),
        (["processor_config.json", "preprocessor_config.json"], "has no processor"),
        (["tokenizer.json"], "has no tokenizer"),
    ],
)
def test_a_folder_that_is_no_model_is_named(model_dir, rows, tmp_path, remove, words):
    copy = shutil.copytree(model_dir, tmp_path / "copy")
    if remove == ["*"]:
        shutil.rmtree(copy)
    for pattern in remove:
        for file in copy.glob(pattern):
            file.unlink()
    with pytest.raises(ModelError, match=words) as caught:
        reports(copy, rows)
    assert str(copy) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_weights_are_refused(model_dir, rows, tmp_path):
    copy = shutil.copytree(model_dir, tmp_path / "copy")
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(ModelError, match="weights cannot be loaded"):
        reports(copy, rows)


def test_missing_weights_are_refused_not_filled_with_noise(model_dir, rows, tmp_path):
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(model_dir, tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    del weights[next(name for name in weights if "visual" in name)]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weight.* missing"):
        reports(copy, rows)


def test_a_language_model_without_vision_is_refused(model_dir, rows, tmp_path):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    copy = shutil.copytree(model_dir, tmp_path / "copy")
    small = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    Qwen2ForCausalLM(Qwen2Config(**small, num_attention_heads=2, num_key_value_heads=2)).save_pretrained(copy)
    with pytest.raises(ModelError, match="weights cannot be loaded"):
        reports(copy, rows)


def test_code_of_a_model_folder_is_not_run(model_dir, rows, tmp_path):
    copy = shutil.copytree(model_dir, tmp_path / "copy")
    (copy / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    config = json.loads((copy / "config.json").read_text())
    config |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.Evil", "AutoModelForImageTextToText": "evil.Evil"},
    }
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        reports(copy, rows)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"images": []}, "toy/0: its prompt has 1 <image> tag.* and 0 image"),
        ({"images": [{"image": "file:///no/such.png"}]}, 'toy/0: the image "/no/such.png" cannot be read'),
        ({"images": [{"bytes": b"GIF89a nonsense"}]}, "toy/0: the image of 15 bytes cannot be read"),
        ({"images": [{"image": None, "bytes": None}]}, "toy/0: the image has neither"),
    ],
)
def test_a_bad_row_is_named(model_dir, rows, change, words):
    with pytest.raises(ValueError, match=words):
        reports(model_dir, [rows[0] | change])


@pytest.mark.parametrize("options", [{"max_new_tokens": 0}, {"batch_size": 0}, {"temperature": -1}])
def test_bad_settings_are_refused(rows, options):
    with pytest.raises(ValueError, match="at least 1"):
        generate_reports("nowhere", rows, **({"max_new_tokens": 4} | options))


@pytest.mark.parametrize("donors", [[0], [0, 1, 2, 3, 5]])
def test_bad_donors_are_refused(rows, donors):
    with pytest.raises(ValueError, match="images_from"):
        generate_reports("nowhere", rows, max_new_tokens=4, images_from=donors)
