"""``maybe_fix_3d_position_ids`` on samples of equal length, whose mRoPE position_ids come ragged on rope_dim."""

import pickle

import pytest
import torch
from tensordict import TensorDict

from verl.utils import tensordict_utils as tu

ROPE_DIM = 4


def _samples(lengths: list[int]) -> list[torch.Tensor]:
    return [torch.arange(ROPE_DIM * n).reshape(ROPE_DIM, n) + 1000 * i for i, n in enumerate(lengths)]


def _fixed(position_ids: torch.Tensor) -> TensorDict:
    data = TensorDict({"position_ids": position_ids}, batch_size=[position_ids.size(0)])
    tu.maybe_fix_3d_position_ids(data)
    tu.maybe_fix_3d_position_ids(data)  # workers call it several times
    return data


def _assert_rows(position_ids: torch.Tensor, samples: list[torch.Tensor]):
    assert position_ids._ragged_idx == 2
    assert position_ids.offsets().diff().tolist() == [sample.shape[1] for sample in samples]
    assert all(torch.equal(a, b) for a, b in zip(position_ids.unbind(), samples, strict=True))


@pytest.mark.parametrize("lengths", [[7], [7, 7], [7, 7, 7], [4, 4], [1, 1, 1]], ids=str)
def test_equal_lengths(lengths: list[int]):
    samples = _samples(lengths)
    packed = torch.nested.as_nested_tensor(samples, layout=torch.jagged)
    assert packed.offsets().diff().tolist() == [ROPE_DIM] * len(samples)  # what TransferQueue hands to a worker

    _assert_rows(_fixed(packed)["position_ids"], samples)
    _assert_rows(_fixed(pickle.loads(pickle.dumps(packed)))["position_ids"], samples)


def test_equal_lengths_survive_what_workers_do():
    samples = _samples([7, 7, 7, 7])
    data = _fixed(torch.nested.as_nested_tensor(samples, layout=torch.jagged))

    first, second = tu.chunk_tensordict(data, 2)
    _assert_rows(first["position_ids"], samples[:2])
    _assert_rows(second["position_ids"], samples[2:])
    _assert_rows(tu.index_select_tensor_dict(data, [2, 0])["position_ids"], [samples[2], samples[0]])
    _assert_rows(tu.concat_tensordict([second, first])["position_ids"], samples[2:] + samples[:2])


@pytest.mark.parametrize("lengths", [[3, 9, 5], [1, 3], [9, 9], [4]], ids=str)
def test_ragged_layout_stays(lengths: list[int]):
    samples = _samples(lengths)
    packed = tu.nested_tensor_from_tensor_list(samples, ragged_idx=2)
    _assert_rows(_fixed(packed)["position_ids"], samples)

    # consolidate() and pickle lose _ragged_idx, the reason for maybe_fix_3d_position_ids
    data = TensorDict({"position_ids": packed}, batch_size=[len(samples)])
    restored = pickle.loads(pickle.dumps(data.consolidate()))["position_ids"]
    assert restored._ragged_idx == 1
    _assert_rows(_fixed(restored)["position_ids"], samples)


def test_other_position_ids_stay():
    dense = torch.zeros(2, ROPE_DIM, 5)
    text = torch.nested.as_nested_tensor([torch.arange(3), torch.arange(5)], layout=torch.jagged)
    for position_ids in (dense, text):
        assert _fixed(position_ids)["position_ids"] is position_ids
