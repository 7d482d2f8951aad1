#!/usr/bin/env bash
# recipes/orapo_qwen25vl3b.sh with Megatron in place of FSDP: same model, data, method and switches (see there).
# Composes and validates without Megatron (DRY_RUN=1); nobody has trained with it yet. Needs megatron-core,
# transformer-engine and megatron-bridge, as verl asks for them.
#
#   bash recipes/orapo_qwen25vl3b_megatron.sh [overrides of verl.trainer.main_ppo ...]
set -euo pipefail
length=$((${MAX_PROMPT:-768} + ${MAX_RESPONSE:-512}))
megatron=actor_rollout_ref.actor.megatron
optimizer=+actor_rollout_ref.actor.optim.override_optimizer_config
ARGS=( # docs/orapo_memory.md has the budget
  model_engine=megatron                             # ours: verl's config group
  $megatron.tensor_model_parallel_size=2            # ours: Qwen2.5-VL-3B has two key-value heads to share
  $megatron.pipeline_model_parallel_size=1          # ours: two replicas of two GPUs
  $megatron.param_offload=True                      # ours: vLLM needs the room; frees the gradient buffers too
  $megatron.optimizer_offload=True                  # ours: the same
  $optimizer.optimizer_cpu_offload=True             # ours: Adam's 12 bytes a parameter do not fit beside the gradients
  $optimizer.optimizer_offload_fraction=1.0         # ours: all of it on the host
  $optimizer.overlap_cpu_optimizer_d2h_h2d=True     # ours: copies while it computes
  $optimizer.use_precision_aware_optimizer=True     # ours: Megatron's optimizer on the host asks for it
  $megatron.override_transformer_config.recompute_granularity=full # ours: memory, as gradient checkpointing
  $megatron.override_transformer_config.recompute_method=uniform   # ours: the same
  $megatron.override_transformer_config.recompute_num_layers=1     # ours: the same
  actor_rollout_ref.ref.megatron.param_offload=True # ours: the reference leaves the GPU when it is done
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((2 * length)) # ours: two full rows
  actor_rollout_ref.{ref,rollout}.log_prob_max_token_len_per_gpu=$((4 * length)) # ours: no gradient
)
ENGINE=megatron exec bash "$(dirname "$0")/orapo_qwen25vl3b.sh" "${ARGS[@]}" "$@"
