"""``actor.loss_fn`` replaces ``ppo_loss`` on the actor.

The tests drive ``ActorRolloutRefWorker.init_model`` on one CPU rank. ``TrainingWorker`` is replaced by a class that
only keeps the loss function, so no model, GPU or Ray is needed.
"""

import copy
from functools import cache, partial
from types import SimpleNamespace

import pytest
import torch
from hydra import compose, initialize_config_module

from verl.base_config import BaseConfig
from verl.workers.config import ActorConfig
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.utils.losses import ppo_loss


def custom_loss(config, model_output, data, dp_group=None):
    return model_output["log_probs"].sum() * config.kl_loss_coef, {"dp_group": dp_group, "fields": sorted(data)}


class _LossKeeper:
    """Stands for TrainingWorker."""

    def __init__(self, config):
        self.loss_fn = None

    def reset(self):
        pass

    def set_loss_fn(self, loss_fn):
        self.loss_fn = loss_fn

    def get_dispatch_collect(self):
        return {"dispatch_dp_rank": {}, "collect_dp_rank": {}}


@pytest.fixture(autouse=True)
def one_rank():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@cache
def _base_config():
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
                "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
            ],
        ).actor_rollout_ref


def _actor_after_init(distillation_enabled: bool = False, **actor_config) -> _LossKeeper:
    config = copy.deepcopy(_base_config())
    for key, value in actor_config.items():
        config.actor[key] = value  # raises for a key that is not in the yaml
    worker = ActorRolloutRefWorker.__new__(ActorRolloutRefWorker)
    worker.config = SimpleNamespace(actor=config.actor, rollout=config.rollout, model=BaseConfig())
    worker.role = "actor"
    worker.actor_worker_cls = _LossKeeper
    worker.distillation_enabled = distillation_enabled
    worker.distillation_config = BaseConfig()
    worker._omega_profiler_config = {}
    worker.set_dispatch_collect = lambda mesh_name, **kwargs: None
    worker.init_model()
    return worker.actor


def test_loss_fn_is_set_on_the_actor():
    loss_fn = _actor_after_init(loss_fn=f"{__name__}.custom_loss", kl_loss_coef=0.5).loss_fn

    # The engine calls it like this.
    loss, metrics = loss_fn(
        model_output={"log_probs": torch.tensor([1.0, 2.0])}, data={"reports": 1, "advantages": 2}, dp_group="dp"
    )

    assert loss.item() == 1.5
    assert metrics == {"dp_group": "dp", "fields": ["advantages", "reports"]}


def test_loss_fn_needs_no_call_after_a_restart():
    path = f"{__name__}.custom_loss"
    first, restarted = _actor_after_init(loss_fn=path), _actor_after_init(loss_fn=path)

    assert first is not restarted
    assert restarted.loss_fn.func.__name__ == "custom_loss"
    assert isinstance(restarted.loss_fn.keywords["config"], ActorConfig)


@pytest.mark.parametrize(
    ("path", "error"), [(f"{__name__}.no_such_loss", AttributeError), ("no_such_package.loss", ImportError)]
)
def test_wrong_path_is_named(path: str, error: type[Exception]):
    with pytest.raises(error, match="no_such"):
        _actor_after_init(loss_fn=path)


def test_loss_fn_and_distillation_exclude_each_other():
    with pytest.raises(ValueError, match=r"actor\.loss_fn=.*distillation"):
        _actor_after_init(loss_fn=f"{__name__}.custom_loss", distillation_enabled=True)


def test_default_is_ppo_loss():
    loss_fn = _actor_after_init().loss_fn
    assert isinstance(loss_fn, partial)
    assert loss_fn.func is ppo_loss
