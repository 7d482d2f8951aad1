"""Settings of OraPO in a verl config (`+algorithm.orapo.<name>=...`), and what it refuses to run with.

Read on the driver before anything starts, and by `DRY_RUN=1`. A refusal says which setting, why, and what to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from radverl.orapo.dpo import TAU
from radverl.orapo.schedule import ALPHA, GAMMA, W_MAX, W_MIN, ZeroRewardEma, mixing_weight

Mode = Literal["auto", "row", "group"]
Negatives = Literal["all", "zero_reward"]
OracleLoss = Literal["dpo", "sft"]
# verl's losses that are homogeneous in the advantages, so that 1 - w scales them (tests/test_orapo_loss_modes.py).
LOSS_MODES = ("vanilla", "gspo", "sapo", "gpg", "cispo", "dppo_tv", "dppo_kl")
LOSS_AGG_MODES = ("seq-mean-token-sum-norm", "seq-mean-token-sum", "seq-mean-token-mean", "token-mean")
TAU_RANGE = (1e-6, 1e3)  # ours: in float32, less is no preference at all and much more is NaN


@dataclass(frozen=True)
class OrapoSettings:
    """What `+algorithm.orapo` may hold. Numbers are those of arXiv 2509.18600 unless marked *ours*."""

    tau: float = TAU
    """DPO temperature (eq. 7), *ours*: the paper gives no value."""
    alpha: float = ALPHA
    w_min: float = W_MIN
    w_max: float = W_MAX
    gamma: float = GAMMA
    init: Literal["first", "zero"] = "first"
    """Start of the moving average: the first rate seen or 0 (*ours*, undisclosed)."""
    scope: Literal["prompt", "batch"] = "prompt"
    """One average for each prompt, or one for all (*ours*: the paper allows both)."""
    length_normalised: bool = True
    """LN-DPO: each sequence log-prob divided by its length."""
    negatives: Negatives = "all"
    """All rollouts of the prompt (eq. 12), or those of reward 0."""
    mode: Mode = "auto"
    """row: DPO as constant row coefficients, any batch split, exact for one update per rollout batch. group: the K + 1
    rows of a prompt in one micro-batch, always exact. auto: row where it is exact, else group."""
    oracle_loss: OracleLoss = "dpo"
    """sft: token mean of -log pi(true report) in place of DPO, the paper's ablation."""
    allow_temperature: bool = False
    """Consent to rollout.temperature != 1: verl divides the log-probs by it, so DPO is tempered too."""
    allow_stale: bool = False
    """Consent to row mode with several updates per rollout batch (docs/orapo_exactness.md)."""


def settings_from(config: Any) -> OrapoSettings:
    """The settings of a composed config, with `mode` decided ("row" or "group").

    Args:
        config: the config of verl.trainer.main_ppo, its trainer.v1.trainer_mode still as the user gave it.
    Raises:
        ValueError: an unknown or impossible setting, or a verl setting that OraPO cannot run with.
    """
    section = config.algorithm.get("orapo")
    if section is not None and not isinstance(section, Mapping):
        raise ValueError(f"+algorithm.orapo={section}: it is a section; give +algorithm.orapo.alpha=0.5, for example.")
    given = dict(section or {})
    names = [field.name for field in fields(OrapoSettings)]
    unknown = sorted(map(str, set(given) - set(names)))
    if unknown:
        raise ValueError(f"+algorithm.orapo.{unknown[0]} is unknown; it takes {', '.join(names)}.")
    settings = OrapoSettings(**given)
    _check_values(settings)
    _refuse(config, settings)
    return replace(settings, mode=_decide_mode(config, settings))


def updates_per_batch(config: Any) -> int:
    """Optimiser updates between two computations of the old log-probs."""
    actor = config.actor_rollout_ref.actor
    v1 = config.trainer.v1
    mode = v1.trainer_mode.removeprefix("orapo_")
    sync_step = (v1.get(mode) or {}).get("parameter_sync_step", 1)
    if isinstance(sync_step, bool) or not isinstance(sync_step, int) or sync_step < 1:
        raise ValueError(f"trainer.v1.{mode}.parameter_sync_step={sync_step}: give a whole number above 0.")
    prompts = config.data.train_batch_size // sync_step
    if prompts < actor.ppo_mini_batch_size:  # verl fills the rest with rows that count in the 1/P of the loss
        raise ValueError(
            f"actor_rollout_ref.actor.ppo_mini_batch_size={actor.ppo_mini_batch_size} is more than the {prompts} "
            f"prompts that an update can have (data.train_batch_size / parameter_sync_step); lower it to that."
        )
    return -(-prompts // actor.ppo_mini_batch_size) * actor.ppo_epochs


def _check_values(settings: OrapoSettings) -> None:
    choices = {"mode": Mode, "negatives": Negatives, "oracle_loss": OracleLoss}
    for name, kind in choices.items():
        value = getattr(settings, name)
        if value not in get_args(kind):
            raise ValueError(f"+algorithm.orapo.{name}={value}: choose one of {', '.join(get_args(kind))}.")
    for name in ("tau", "alpha", "w_min", "w_max", "gamma"):
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"+algorithm.orapo.{name}={value!r} is not a number.")
    for name in ("length_normalised", "allow_temperature", "allow_stale"):
        if not isinstance(getattr(settings, name), bool):
            raise ValueError(f"+algorithm.orapo.{name}={getattr(settings, name)!r}: give true or false.")
    if not TAU_RANGE[0] <= settings.tau <= TAU_RANGE[1]:  # False for NaN too
        raise ValueError(
            f"+algorithm.orapo.tau={settings.tau}: it must be positive, from {TAU_RANGE[0]:g} to {TAU_RANGE[1]:g}."
        )
    try:
        ZeroRewardEma(settings.alpha, settings.init, settings.scope)
        mixing_weight(0.0, settings.w_min, settings.w_max, settings.gamma)
    except ValueError as error:
        raise ValueError(f"+algorithm.orapo: {error}") from error


def _refuse(config: Any, settings: OrapoSettings) -> None:
    """Raise for verl settings under which the loss would not be the paper's, or not be computed at all."""
    actor, rollout, algorithm = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout, config.algorithm

    def on(section: Any, *path: str) -> bool:
        for name in path:
            section = section.get(name) if isinstance(section, Mapping) or hasattr(section, "get") else None
            if section is None:
                return False
        return bool(section)

    if config.trainer.v1.trainer_mode.endswith("separate_async"):
        raise ValueError(
            "trainer.v1.trainer_mode=separate_async: OraPO needs the reference policy and the rollouts of a prompt on "
            "one trainer; use orapo_sync or orapo_colocate_async."
        )
    loss_mode = (actor.get("policy_loss") or {}).get("loss_mode") or "vanilla"
    loss_agg_mode = actor.get("loss_agg_mode") or "token-mean"
    reward_model = config.get("reward", {}).get("reward_model") or {}
    refusals = [
        (
            loss_mode not in LOSS_MODES,
            f"actor_rollout_ref.actor.policy_loss.loss_mode={loss_mode}: OraPO scales the loss of a row by 1 - w "
            f"through its advantage, which is right for {', '.join(LOSS_MODES)} only; use one of these.",
        ),
        (
            loss_agg_mode not in LOSS_AGG_MODES,
            f"actor_rollout_ref.actor.loss_agg_mode={loss_agg_mode} is no mean, so it drowns the DPO term (eq. 11); "
            f"use one of {', '.join(LOSS_AGG_MODES)}.",
        ),
        (
            loss_agg_mode == "seq-mean-token-sum-norm" and not actor.get("loss_scale_factor"),
            "actor_rollout_ref.actor.loss_scale_factor is not set: verl would divide by the longest row of each "
            "micro-batch, true reports included; set it to data.max_response_length.",
        ),
        (
            on(config.get("critic") or {}, "enable"),
            "critic.enable: GRPO has no critic; leave it unset.",
        ),
        (
            on(reward_model, "enable") and not on(reward_model, "enable_resource_pool"),
            "reward.reward_model.enable with the model beside the actor: verl then drops the flag of failed samples, "
            "and they would count as zero rewards; set reward.reward_model.enable_resource_pool=True.",
        ),
        (
            on(rollout, "enable_rollout_routing_replay"),
            "actor_rollout_ref.rollout.enable_rollout_routing_replay: the true report was not rolled out and has no "
            "routes; set it to False.",
        ),
        (
            settings.oracle_loss == "sft" and settings.mode == "group",
            "+algorithm.orapo.oracle_loss=sft with mode=group: SFT has no pairs to keep together; leave mode at auto.",
        ),
        (
            rollout.n < 2,
            f"actor_rollout_ref.rollout.n={rollout.n}: GRPO compares the rollouts of a prompt; take at least 2.",
        ),
        (
            algorithm.adv_estimator != "grpo",
            f"algorithm.adv_estimator={algorithm.adv_estimator}: OraPO mixes DPO with GRPO; set it to grpo.",
        ),
        (
            not actor.use_kl_loss,
            "actor_rollout_ref.actor.use_kl_loss is off: DPO needs the reference log-probs, which verl computes only "
            "with it; set it to True (kl_loss_coef may be 0).",
        ),
        (
            on(algorithm, "filter_groups", "enable"),
            "algorithm.filter_groups.enable drops the groups without reward, which OraPO learns from; set it to False.",
        ),
        (
            on(algorithm, "use_kl_in_reward"),
            "algorithm.use_kl_in_reward changes the rewards that z counts; set it to False and use use_kl_loss.",
        ),
        (
            on(algorithm, "rollout_correction", "bypass_mode"),
            "algorithm.rollout_correction.bypass_mode takes vLLM's log-probs for the old ones, and vLLM has none for "
            "the true report; set it to False.",
        ),
        (
            rollout.temperature != 1.0 and not settings.allow_temperature,
            f"actor_rollout_ref.rollout.temperature={rollout.temperature}: verl divides all log-probs by it, DPO's "
            "too; set it to 1.0 or consent with +algorithm.orapo.allow_temperature=True.",
        ),
        (
            on(config.get("distillation") or {}, "enabled"),
            "distillation.enabled replaces the actor's loss, as OraPO does; switch one of them off.",
        ),
        (
            (config.trainer.get("critic_warmup") or 0) > 0,
            "trainer.critic_warmup > 0 waits for a critic that GRPO does not have; set it to 0.",
        ),
    ]
    for refused, reason in refusals:
        if refused:
            raise ValueError(reason)


def _decide_mode(config: Any, settings: OrapoSettings) -> Literal["row", "group"]:
    actor = config.actor_rollout_ref.actor
    updates = updates_per_batch(config)
    # SFT has no pair, so its row coefficients are constants whatever the number of updates.
    exact = updates == 1 or settings.oracle_loss == "sft"
    mode: Literal["row", "group"] = "row" if exact else "group"
    if settings.mode != "auto":
        mode = settings.mode
    if mode == "row" and not exact and not settings.allow_stale:
        raise ValueError(
            f"+algorithm.orapo.mode=row with {updates} updates per rollout batch (train_batch_size "
            f"{config.data.train_batch_size}, ppo_mini_batch_size {actor.ppo_mini_batch_size}, ppo_epochs "
            f"{actor.ppo_epochs}) is not exact; use mode=auto, or consent with +algorithm.orapo.allow_stale=True."
        )
    if mode == "group" and actor.shuffle:
        raise ValueError(
            "actor_rollout_ref.actor.shuffle tears the rows of a prompt apart, which group mode needs together; "
            "set it to False, or make ppo_mini_batch_size the whole batch."
        )
    return mode
