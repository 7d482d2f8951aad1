"""Rows of equal length keep their mrope position_ids through TransferQueue's packing (fails on plain verl 0.9.1)."""

import pickle

import pytest
import torch
import verl.utils.tensordict_utils as tu
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from radverl.verl_plugin.position_ids import rows_if_ragged_on_channels

CHANNELS = 4


def rows_of(lengths: list[int]) -> list[torch.Tensor]:
    return [torch.arange(CHANNELS * n).reshape(CHANNELS, n) + 1000 * i for i, n in enumerate(lengths)]


def as_transfer_queue_packs(rows: list[torch.Tensor]) -> torch.Tensor:
    """What simple_storage_manager._pack_field_values does; ragged lengths go the way verl builds them."""
    if len({row.shape for row in rows}) == 1:
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    return tu.nested_tensor_from_tensor_list(rows, ragged_idx=2)


def after_verl(packed: torch.Tensor) -> list[torch.Tensor]:
    data = TensorDict({"position_ids": packed}, batch_size=[packed.size(0)])
    tu.maybe_fix_3d_position_ids(data)
    return list(data["position_ids"].unbind(0))


def test_transfer_queue_still_packs_this_way() -> None:
    from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager

    packed = AsyncSimpleStorageManager._pack_field_values(rows_of([5, 5]))
    assert packed.offsets().tolist() == [0, CHANNELS, 2 * CHANNELS]  # ragged on the channels: the bug's cause


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_rows_come_back_as_they_went_in(lengths: list[int]) -> None:
    rows = rows_of(lengths)
    back = after_verl(as_transfer_queue_packs(rows))
    assert all(torch.equal(a, b) for a, b in zip(rows, back, strict=True))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6))
def test_equal_lengths_come_back_too(length: int, n: int) -> None:
    rows = rows_of([length] * n)
    back = after_verl(as_transfer_queue_packs(rows))
    assert all(torch.equal(a, b) for a, b in zip(rows, back, strict=True))


def test_split_into_micro_batches_after_pickling() -> None:
    """The worker's path: pickled by Ray, repaired, then selected row by row."""
    rows = rows_of([7, 7, 7])
    data = TensorDict({"position_ids": pickle.loads(pickle.dumps(as_transfer_queue_packs(rows)))}, batch_size=[3])
    tu.maybe_fix_3d_position_ids(data)
    picked = tu.index_select_tensor_dict(data, [2, 0])["position_ids"].unbind(0)
    assert torch.equal(picked[0], rows[2])
    assert torch.equal(picked[1], rows[0])


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(3, 4, 5), torch.nested.as_nested_tensor([torch.arange(3), torch.arange(5)], layout=torch.jagged)],
    ids=["dense", "text only"],
)
def test_other_layouts_are_left_alone(tensor: torch.Tensor) -> None:
    assert rows_if_ragged_on_channels(tensor) is None
