# Sourced by recipes that run without a GPU: environment and the verl settings a CPU needs, as bash arrays.
# What each is for: docs/cpu.md.
export VERL_PLATFORM=cpu
export VERL_USE_EXTERNAL_MODULES=radverl.verl_plugin${EXTERNAL_MODULES:+,$EXTERNAL_MODULES} # yours, loaded everywhere
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HYDRA_FULL_ERROR=1
export VLLM_NO_USAGE_STATS=1 RAY_USAGE_STATS_ENABLED=0 DO_NOT_TRACK=1
export RAY_prestart_worker_first_driver=0 RAY_enable_worker_prestart=0 RAY_AUTH_MODE=disabled RAY_DEDUP_LOGS=1
export TORCHDYNAMO_DISABLE=1 TOKENIZERS_PARALLELISM=false VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARN}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} VLLM_CPU_OMP_THREADS_BIND=nobind
RANKS=${RANKS:-1} # FSDP ranks; each is a logical Ray GPU

source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
whole_numbers RANKS

CPU_SFT=(
  engine.strategy=fsdp2 engine.use_torch_compile=False
  +engine.mixed_precision.param_dtype=fp32 +engine.mixed_precision.reduce_dtype=fp32
  model.use_remove_padding=False model.enable_gradient_checkpointing=False
  +model.override_config.attn_implementation=sdpa
  trainer.device=cpu trainer.nnodes=1 trainer.n_gpus_per_node="$RANKS"
)

CPU_RL=(
  ray_kwargs.ray_init.num_cpus=$((5 + 3 * RANKS)) +ray_kwargs.ray_init.num_gpus="$RANKS"
  +ray_kwargs.ray_init.include_dashboard=False +ray_kwargs.ray_init.object_store_memory=300000000
  trainer.device=cpu trainer.nnodes=1 trainer.n_gpus_per_node="$RANKS"
  trainer.v1.sampler.custom_sampler.path=pkg://radverl.verl_plugin.cpu.replay_buffer
  trainer.v1.sampler.custom_sampler.name=FastPollReplayBuffer
  transfer_queue.backend.SimpleStorage.num_data_storage_units=1
  actor_rollout_ref.model.use_remove_padding=False actor_rollout_ref.model.enable_gradient_checkpointing=False
  +actor_rollout_ref.model.override_config.attn_implementation=sdpa
  actor_rollout_ref.actor.strategy=fsdp2
  actor_rollout_ref.actor.use_torch_compile=False
  actor_rollout_ref.{actor,ref}.fsdp_config.strategy=fsdp2
  actor_rollout_ref.{actor,ref}.fsdp_config.use_torch_compile=False
  +actor_rollout_ref.{actor,ref}.fsdp_config.mixed_precision.param_dtype=fp32
  +actor_rollout_ref.{actor,ref}.fsdp_config.mixed_precision.reduce_dtype=fp32
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1
  actor_rollout_ref.rollout.dtype=float32 actor_rollout_ref.rollout.enforce_eager=True
  actor_rollout_ref.rollout.free_cache_engine=False +actor_rollout_ref.rollout.enable_sleep_mode=False
  actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16
  +actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes=134217728
  actor_rollout_ref.rollout.agent.num_workers=1
  reward.num_workers=1
)
