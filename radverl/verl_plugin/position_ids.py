"""Fix for verl 0.9.1: mrope position_ids of equal-length rows come back ragged on the wrong dimension.

Shapes: B rows, C = 4 rope channels (text, t, h, w), L tokens. Each row's position_ids are (C, L_b). The jagged tensor
of a batch should be ragged on dim 2: values (C, sum L_b), offsets (0, L_0, L_0 + L_1, ...). TransferQueue rebuilds it
with torch.nested.as_nested_tensor, which makes rows of *equal* length ragged on dim 1: values (B * C, L), offsets
(0, C, 2C, ...). verl's maybe_fix_3d_position_ids then only relabels the ragged dimension, and the next split or
unbind raises. Not specific to a device: any vision-language batch whose rows have one length meets it, always so with
one row per worker.
"""

from typing import Any

import torch


def rows_if_ragged_on_channels(position_ids_BCL: torch.Tensor) -> list[torch.Tensor] | None:
    """The B rows (C, L) of a jagged tensor that is ragged on dim 1, or None where it needs no change.

    Args:
        position_ids_BCL: nested (jagged) tensor of rows (C, L_b), or any other tensor (left alone).
    """
    if not (position_ids_BCL.is_nested and position_ids_BCL.dim() == 3):
        return None
    if getattr(position_ids_BCL, "_ragged_idx", None) == 2:  # pickling loses it, nothing sets it wrongly before us
        return None
    values, offsets = position_ids_BCL.values(), position_ids_BCL.offsets()
    n_rows, total = offsets.numel() - 1, int(offsets[-1])
    # Ragged on channels <=> the offsets count dim 0 of the values, in equal steps of C. One row with C == L reads the
    # same both ways.
    if values.shape[0] != total or (n_rows == 1 and values.shape[-1] == total):
        return None
    if not bool((offsets.diff() * n_rows == total).all()):  # rows whose tokens happen to add up to C
        return None
    return list(values.reshape(n_rows, total // n_rows, values.shape[-1]).unbind(0))


def install(tensordict_utils: Any) -> None:
    """Replace verl.utils.tensordict_utils.maybe_fix_3d_position_ids by one that repairs the layout first."""
    relabel = tensordict_utils.maybe_fix_3d_position_ids

    def maybe_fix_3d_position_ids(data: Any) -> None:
        rows = rows_if_ragged_on_channels(data["position_ids"]) if "position_ids" in data.keys() else None  # noqa: SIM118
        if rows is None:
            relabel(data)
        else:
            data["position_ids"] = tensordict_utils.nested_tensor_from_tensor_list(rows, ragged_idx=2)

    tensordict_utils.maybe_fix_3d_position_ids = maybe_fix_3d_position_ids
