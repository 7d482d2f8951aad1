"""A micro-batch of text alone through verl's forward of Qwen2.5-VL: fails in stock verl, works with the fix."""

import importlib.util
import sys

import pytest

pytest.importorskip("verl")

import torch

from radverl.verl_plugin.text_only import install


def fresh_copy():
    """verl's module under a name of its own, so that the plugin's fix is not in it."""
    import verl.models.transformers.qwen2_vl as loaded

    spec = importlib.util.spec_from_file_location("stock_qwen2_vl", loaded.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules["stock_qwen2_vl"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    del sys.modules["stock_qwen2_vl"]
    return module


@pytest.fixture(scope="module")
def model():
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel

    torch.manual_seed(0)
    text = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {
        "num_key_value_heads": 1,
        "vocab_size": 64,
        "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]},
    }
    vision = {
        "hidden_size": 32,
        "out_hidden_size": 32,
        "depth": 1,
        "num_heads": 2,
        "intermediate_size": 32,
        "patch_size": 14,
    }
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, image_token_id=60, video_token_id=61)
    return Qwen2_5_VLModel(config)


def test_text_alone_embeds_as_text_and_reaches_the_vision_tower(model):
    ids = torch.tensor([[1, 2, 3]])
    module = fresh_copy()
    with pytest.raises(AttributeError, match="mean"):
        module._get_input_embeds(model, ids)
    install(module)
    embeds, mask = module._get_input_embeds(model, ids, torch.ones_like(ids))
    assert torch.equal(embeds, model.get_input_embeddings()(ids))
    assert torch.equal(mask, torch.ones_like(ids))
    embeds.sum().backward()
    grads = [parameter.grad for parameter in model.visual.parameters()]
    assert all(grad is not None and not grad.any() for grad in grads)


def test_batches_with_images_go_the_old_way(model):
    module = fresh_copy()
    install(module)
    ids = torch.tensor([[1, 60, 60, 60, 60, 2]])
    pixels = torch.randn(16, 3 * 2 * 14 * 14)
    grid = torch.tensor([[1, 4, 4]])
    embeds, _ = module._get_input_embeds(model, ids, None, pixels, None, grid, None)
    assert torch.equal(embeds[0, [0, 5]], model.get_input_embeddings()(torch.tensor([1, 2])))
    assert not torch.equal(embeds[0, 1:5], model.get_input_embeddings()(ids[0, 1:5]))


def test_the_plugin_installs_it():
    import verl.models.transformers.qwen2_vl as loaded

    assert loaded._get_input_embeds.__module__ == "radverl.verl_plugin.text_only"
