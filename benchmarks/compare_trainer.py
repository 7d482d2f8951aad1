"""verl trainer `orapo_compare` for benchmarks/orapo.py: both updates of the same batch, then steps of either kind.

Loaded in the processes of the run as an external module of verl. Its measurements go into the run's metrics:
compare/grpo_s and compare/orapo_s, the two updates of one step, order alternating; compare/grpo_peak and
compare/orapo_peak, the most memory the actor's process had during each, in bytes; afterwards, for steps of one kind,
compare/is_orapo and compare/bookkeeping_s, what OraPO spends on the driver beside verl's own stages.
"""

import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import psutil

from radverl.verl_plugin.post_import import after_import

PAIRED_STEPS = 14
STAGES = ("_step_once", "_balance_batch", "_compute_old_log_prob", "_compute_ref_log_prob", "_compute_advantage")
OURS = {  # what runs on the driver for OraPO alone, by the module that the trainer finds it in
    "exchange": ("put_oracle_rows", "read_step", "put_loss_fields", "put_without_advantage"),
    "layout": ("row_order",),
    "": ("mix", "groups_of"),
}


def _register(v1: Any) -> None:
    from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    from radverl.verl_plugin.orapo import trainer
    from radverl.verl_plugin.orapo.loss import orapo_loss

    class Compare(trainer.OrapoTrainerSync):
        def on_init_end(self) -> None:
            super().on_init_end()
            actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
            settings = {name: getattr(self.orapo, name) for name in ("mode", "tau", "length_normalised")}
            self.losses = {False: partial(ppo_loss, actor), True: partial(orapo_loss, actor, **settings)}
            self.spent = 0.0
            for module, names in OURS.items():
                for name in names:
                    owner = getattr(trainer, module) if module else trainer
                    setattr(owner, name, self.timed(getattr(owner, name)))

        def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                started = time.perf_counter()
                try:
                    return function(*args, **kwargs)
                finally:
                    self.spent += time.perf_counter() - started

            return run

        def step(self, metrics: dict, timing_raw: dict) -> Any:
            paired = self.global_steps <= PAIRED_STEPS
            self.is_orapo = paired or self.global_steps % 2 == 0
            self.spent = 0.0
            self.measured: dict[str, float] = {}
            if not paired:
                self.actor_rollout_wg.set_loss_fn(self.losses[self.is_orapo])
            batch = super().step(metrics, timing_raw)
            if not paired:
                self.measured = {"is_orapo": float(self.is_orapo), "bookkeeping_s": self.spent}
            metrics.update({f"compare/{name}": value for name, value in self.measured.items()})
            return batch

        def dump_columns(self, key: str) -> dict[str, Any]:
            return {}  # a step of GRPO has no weights

        def _update_actor(self, batch: Any, metrics: dict) -> Any:
            if self.global_steps > PAIRED_STEPS:
                owner = trainer.OrapoTrainerSync if self.is_orapo else PPOTrainerSync
                return owner._update_actor(self, batch, metrics)
            for is_orapo in (False, True) if self.global_steps % 2 else (True, False):
                self.actor_rollout_wg.set_loss_fn(self.losses[is_orapo])
                actors = [
                    p for p in psutil.process_iter(["cmdline"]) if "WorkerDict" in " ".join(p.info["cmdline"] or [])
                ]
                for process in actors:
                    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak starts anew
                owner = trainer.OrapoTrainerSync if is_orapo else PPOTrainerSync
                started = time.perf_counter()
                owner._update_actor(self, batch, metrics)
                name = "orapo" if is_orapo else "grpo"
                self.measured[f"{name}_s"] = time.perf_counter() - started
                self.measured[f"{name}_peak"] = float(sum(map(_peak, actors)))
            return batch

    for stage in STAGES:

        def run(self: Any, *args: Any, stage: str = stage, **kwargs: Any) -> Any:
            owner = trainer.OrapoTrainerSync if self.is_orapo else PPOTrainerSync
            return getattr(owner, stage)(self, *args, **kwargs)

        setattr(Compare, stage, run)
    register_trainer("orapo_compare")(Compare)


def _peak(process: psutil.Process) -> int:
    """Most resident memory of the process since its peak was cleared, in bytes."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell VmHWM.")


after_import("verl.trainer.ppo.v1", _register)
