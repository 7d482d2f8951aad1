"""``actor.policy_loss_extra_fields`` hands fields of the batch to the registered policy loss."""

import pytest
import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict

from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, register_policy_loss
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

PROMPT_LENS, RESPONSE_LENS = [2, 3], [4, 2]


def _nested(lengths: list[int], offset: float = 0.0) -> torch.Tensor:
    rows = [torch.arange(n, dtype=torch.float32) + 10 * i + offset for i, n in enumerate(lengths)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def _batch(**fields) -> TensorDict:
    ones = torch.nested.as_nested_tensor([torch.ones(n) for n in RESPONSE_LENS], layout=torch.jagged)
    tensors = {
        "prompts": _nested(PROMPT_LENS),
        "responses": _nested(RESPONSE_LENS),
        "response_mask": ones,
        "old_log_probs": ones * -1.0,
        "advantages": ones * 0.5,
        **fields,
    }
    non_tensors = {"dp_size": 1, "batch_num_tokens": sum(RESPONSE_LENS), "global_batch_size": 2}
    return tu.get_tensordict(tensors, non_tensors)


def _model_output() -> dict[str, torch.Tensor]:
    log_probs = [-torch.ones(p + r) for p, r in zip(PROMPT_LENS, RESPONSE_LENS, strict=True)]
    return {"log_probs": torch.nested.as_nested_tensor(log_probs, layout=torch.jagged).requires_grad_()}


def _config(loss_mode: str, **kwargs) -> ActorConfig:
    return ActorConfig(
        strategy="fsdp",
        rollout_n=2,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=loss_mode, dro_beta=0.1),
        **kwargs,
    )


@pytest.fixture
def received():
    """What the policy loss "with_extra_fields" was called with."""
    calls = {}

    @register_policy_loss("with_extra_fields")
    def with_extra_fields(
        old_log_prob,
        log_prob,
        advantages,
        response_mask,
        loss_agg_mode="token-mean",
        config=None,
        rollout_is_weights=None,
        row_coefficients=None,
        margins=None,
    ):
        calls.update(row_coefficients=row_coefficients, margins=margins)
        return (row_coefficients[:, None] * log_prob * response_mask).sum(), {}

    @register_policy_loss("with_kwargs")
    def with_kwargs(old_log_prob, log_prob, advantages, response_mask, **kwargs):
        calls.update(kwargs)
        return log_prob.sum(), {}

    yield calls
    del POLICY_LOSS_REGISTRY["with_extra_fields"], POLICY_LOSS_REGISTRY["with_kwargs"]


def test_policy_loss_gets_padded_fields(received):
    config = _config("with_extra_fields", policy_loss_extra_fields=["row_coefficients", "margins"])
    model_output = _model_output()
    data = _batch(row_coefficients=torch.tensor([2.0, -1.0]), margins=_nested(RESPONSE_LENS, offset=1.0))

    loss, _ = ppo_loss(config, model_output, data)

    assert received["row_coefficients"].tolist() == [2.0, -1.0]
    assert received["margins"].tolist() == [[1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 0.0, 0.0]]
    assert loss.item() == 2.0 * -4 - 1.0 * -2
    # log_probs of the response stand one position to the left
    (grad,) = torch.autograd.grad(loss, model_output["log_probs"])
    assert grad.values().tolist() == [0, 2, 2, 2, 2, 0, 0, 0, -1, -1, 0]


def test_field_that_ppo_loss_reads_itself_can_be_an_extra_field(received):
    config = _config("with_kwargs", policy_loss_extra_fields=["ref_log_prob"])
    ppo_loss(config, _model_output(), _batch(ref_log_prob=_nested(RESPONSE_LENS, offset=1.0)))
    assert received["ref_log_prob"][1].tolist() == [11.0, 12.0, 0.0, 0.0]


def test_number_from_extra_info_can_be_an_extra_field(received):
    data = _batch()
    tu.assign_non_tensor(data, temperature=0.5)
    ppo_loss(_config("with_kwargs", policy_loss_extra_fields=["temperature"]), _model_output(), data)
    assert received["temperature"] == 0.5


def test_missing_field_is_named(received):
    config = _config("with_extra_fields", policy_loss_extra_fields=["row_coefficients", "margins"])
    with pytest.raises(ValueError, match=r"\['margins'\].*policy_loss_extra_fields.*'with_extra_fields'"):
        ppo_loss(config, _model_output(), _batch(row_coefficients=torch.tensor([2.0, -1.0])))


@pytest.mark.parametrize("loss_mode", sorted(set(POLICY_LOSS_REGISTRY) - {"bypass_mode"}))
def test_built_in_policy_losses_are_unaffected(loss_mode: str):
    extra = {"row_coefficients": torch.tensor([2.0, -1.0])}
    plain, _ = ppo_loss(_config(loss_mode), _model_output(), _batch())
    for data in (_batch(**extra), _batch()):  # also where the batch does not have the field
        config = _config(loss_mode, policy_loss_extra_fields=["row_coefficients"])
        assert torch.equal(ppo_loss(config, _model_output(), data)[0], plain)


def test_yaml_reaches_the_dataclass():
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
                "actor_rollout_ref.actor.policy_loss_extra_fields=[margins]",
            ],
        )
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert list(actor.policy_loss_extra_fields) == ["margins"]


def test_default_hands_over_nothing(received):
    ppo_loss(_config("with_kwargs"), _model_output(), _batch(margins=_nested(RESPONSE_LENS)))
    assert set(received) == {"loss_agg_mode", "config", "rollout_is_weights"}
