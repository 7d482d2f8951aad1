"""Fix for verl 0.9.1: a micro-batch without any image fails for Qwen2-VL and Qwen2.5-VL under transformers 5.

verl then runs the vision tower on a blank picture, so that all ranks join FSDP's collectives, and adds 0 times the
mean of its output. transformers 5 returns that output as an object, and `.mean()` on it raises; verl's branch for
batches with images unpacks it, this one does not. Such a micro-batch is a run's normal state as soon as a session
fails: verl fills the batch up with rows of text alone.
"""

from typing import Any

import torch

BLANK_GRID_THW = (1, 4, 4)  # patches of the blank picture, as verl has it


def install(qwen2_vl: Any) -> None:
    """Replace verl.models.transformers.qwen2_vl._get_input_embeds where a batch has neither image nor video."""
    with_images = qwen2_vl._get_input_embeds

    def _get_input_embeds(
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        pixel_values_videos: torch.Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if pixel_values is not None or pixel_values_videos is not None:
            return with_images(model, input_ids, attention_mask, pixel_values, pixel_values_videos, *args, **kwargs)
        embeds = model.get_input_embeddings()(input_ids)
        vision = model.config.vision_config
        grid = torch.tensor([BLANK_GRID_THW], dtype=torch.long, device=embeds.device)
        width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        blank = embeds.new_zeros(int(grid.prod()), width)
        seen, _ = qwen2_vl.unpack_visual_output(model.visual(blank, grid_thw=grid))
        mask = None if attention_mask is None else attention_mask.to(embeds.device)
        return embeds + 0.0 * seen.mean(), mask

    qwen2_vl._get_input_embeds = _get_input_embeds
