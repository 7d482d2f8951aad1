"""A micro-batch without images goes through the embeddings of Qwen2.5-VL, and its gradient reaches the vision tower."""

import pytest
import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel

from verl.models.transformers.qwen2_vl import _get_input_embeds

IMAGE_TOKEN = 60


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    text_config = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 64,
        "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]},
    }
    vision_config = {
        "hidden_size": 32,
        "out_hidden_size": 32,
        "depth": 1,
        "num_heads": 2,
        "intermediate_size": 32,
        "patch_size": 14,
    }
    config = Qwen2_5_VLConfig(text_config=text_config, vision_config=vision_config, image_token_id=IMAGE_TOKEN)
    return Qwen2_5_VLModel(config)


def test_text_only(model):
    input_ids = torch.tensor([[1, 2, 3]])
    embeds, attention_mask = _get_input_embeds(model, input_ids, torch.ones_like(input_ids))
    assert torch.equal(embeds, model.get_input_embeddings()(input_ids))
    assert torch.equal(attention_mask, torch.ones_like(input_ids))


def test_all_ranks_take_part_in_the_vision_tower(model):
    model.zero_grad()
    embeds, _ = _get_input_embeds(model, torch.tensor([[1, 2, 3]]))
    embeds.sum().backward()
    grads = [parameter.grad for parameter in model.visual.parameters()]
    assert all(grad is not None and not grad.any() for grad in grads)


def test_images_go_through_as_before(model):
    input_ids = torch.tensor([[1] + [IMAGE_TOKEN] * 4 + [2]])
    pixel_values = torch.randn(16, 3 * 2 * 14 * 14)
    embeds, _ = _get_input_embeds(model, input_ids, None, pixel_values, None, torch.tensor([[1, 4, 4]]))
    assert torch.equal(embeds[0, [0, 5]], model.get_input_embeddings()(torch.tensor([1, 2])))
