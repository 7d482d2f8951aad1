#!/usr/bin/env bash
# A tiny OraPO run for the tests: tests/orapo_run.sh DATA.parquet MODEL OUT [overrides of verl.trainer.main_ppo ...]
set -euo pipefail
cd "$(dirname "$0")/.."
source recipes/cpu_env.sh
export VERL_USE_EXTERNAL_MODULES=radverl.verl_plugin,tests.orapo_probe PYTHONPATH=$PWD
DATA=$1 MODEL=$2 OUT=$3
shift 3
B=${B:-4} K=${K:-4}
export VERL_FILE_LOGGER_PATH=${LOG:-$OUT/metrics.jsonl}
exec "${PYTHON:-.venv/bin/python}" -m radverl.watchdog -- "${PYTHON:-.venv/bin/python}" -m verl.trainer.main_ppo "${CPU_RL[@]}" \
  trainer.logger='[console,file]' trainer.default_local_dir="$OUT/checkpoints" trainer.rollout_data_dir="$OUT/rollouts" \
  trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq=-1 trainer.total_epochs=1000 \
  trainer.total_training_steps="${STEPS:-2}" hydra.run.dir="$OUT/hydra" trainer.v1.trainer_mode=orapo_sync \
  algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False \
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm actor_rollout_ref.actor.loss_scale_factor=24 \
  data.train_files="$DATA" data.val_files="$DATA" data.image_key=images data.train_batch_size="$B" \
  data.max_prompt_length=128 data.max_response_length=24 data.filter_overlong_prompts=False data.dataloader_num_workers=0 \
  actor_rollout_ref.model.path="$MODEL" actor_rollout_ref.actor.optim.lr=1e-2 \
  actor_rollout_ref.actor.ppo_mini_batch_size="$B" actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
  actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.04 \
  actor_rollout_ref.{ref,rollout}.log_prob_micro_batch_size_per_gpu=8 \
  actor_rollout_ref.rollout.n="$K" actor_rollout_ref.rollout.temperature=1.0 actor_rollout_ref.rollout.max_model_len=152 \
  actor_rollout_ref.rollout.max_num_batched_tokens=2048 actor_rollout_ref.rollout.max_num_seqs=16 \
  'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]' \
  reward.custom_reward_function.path=pkg://tests.orapo_probe reward.custom_reward_function.name=by_text \
  reward.reward_manager.name=radverl "$@"
