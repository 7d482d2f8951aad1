"""DRY_RUN=1 of a recipe: composes its full config, prints it, and validates it against the installed verl.

    python -m radverl.verl_plugin.dry_run key=value ...        (the arguments of verl.trainer.main_ppo)

Goes as far as verl goes before it starts Ray: hydra composition, every interpolation, verl's own validate_config, and
the dataclasses of actor, reference, rollout, algorithm and model. Needs no GPU, no Ray cluster and no Megatron.
"""

import sys
from typing import Any

DATACLASSES = ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout", "algorithm")
# What verl's engine workers rename before they build the dataclass of the reference policy.
REF_RENAMES = {
    "ppo_micro_batch_size": ("log_prob_micro_batch_size", None),
    "ppo_micro_batch_size_per_gpu": ("log_prob_micro_batch_size_per_gpu", None),
    "use_dynamic_bsz": ("log_prob_use_dynamic_bsz", False),
    "ppo_max_token_len_per_gpu": ("log_prob_max_token_len_per_gpu", None),
}


def compose(overrides: list[str]) -> Any:
    """The resolved config of `verl.trainer.main_ppo` with these overrides.

    Raises:
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: unknown key, bad value.
    """
    import hydra
    from omegaconf import OmegaConf

    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", overrides=overrides)
    OmegaConf.resolve(config)
    return config


def validate(config: Any) -> None:
    """Raise what verl would raise on this config before it starts anything.

    Raises:
        ValueError, AssertionError, TypeError, omegaconf errors: whatever verl's own checks say.
    """
    from omegaconf import OmegaConf, open_dict
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    missing = sorted(OmegaConf.missing_keys(config))
    if not config.reward.reward_model.enable:  # verl leaves the settings of an unused reward model open
        missing = [key for key in missing if not key.startswith("reward.reward_model.")]
    if missing:
        raise ValueError(f"these settings have no value: {', '.join(missing)}")
    validate_config(config, need_reference_policy(config), need_critic(config))
    settings = config.reward.get("radverl")
    if settings and settings.get("reward"):
        from radverl.verl_plugin.reward_manager import check_on_gold

        check_on_gold(settings.reward, dict(settings.get("kwargs") or {}))
    with open_dict(config.actor_rollout_ref.ref):
        ref = config.actor_rollout_ref.ref
        ref.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
        for new, (old, default) in REF_RENAMES.items():
            ref[new] = ref.pop(old, default)
    for key in DATACLASSES:
        omega_conf_to_dataclass(OmegaConf.select(config, key))


def _place(error: BaseException) -> str:
    """The source line that raised, e.g. "total = a * b"."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.name}: {frame.line}"


def main(argv: list[str] | None = None) -> int:
    """Print the config; 0 valid, 2 not."""
    overrides = sys.argv[1:] if argv is None else argv
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = compose(overrides)
        print(OmegaConf.to_yaml(config))
        validate(config)
    except (HydraException, OmegaConfBaseException, ValueError, AssertionError, TypeError, ArithmeticError) as error:
        # verl's own checks raise these; of a bare type error only the place says which setting is meant.
        where = f" (in verl's {_place(error)})" if isinstance(error, TypeError | ArithmeticError) else ""
        print(f"dry run: not a valid verl config: {error}{where}", file=sys.stderr)
        return 2
    print("dry run: valid for the installed verl; nothing was started.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
