#!/usr/bin/env bash
# A tiny GRPO run on verl's own trainer for the tests: tests/failure_run.sh TRAIN.parquet MODEL OUT [overrides ...]
set -euo pipefail
cd "$(dirname "$0")/.."
EXTERNAL_MODULES=tests.failure_probe
source recipes/cpu_env.sh
export PYTHONPATH=$PWD
DATA=$1 MODEL=$2 OUT=$3
shift 3
B=4 K=4
export VERL_FILE_LOGGER_PATH=$OUT/metrics.jsonl
exec "${PYTHON:-.venv/bin/python}" -m radverl.watchdog --stats "$OUT/stats.json" -- "${PYTHON:-.venv/bin/python}" -m verl.trainer.main_ppo \
  "${CPU_RL[@]}" trainer.logger='[console,file]' trainer.default_local_dir="$OUT/checkpoints" \
  trainer.rollout_data_dir="$OUT/rollouts" trainer.validation_data_dir="$OUT/validation" trainer.val_before_train=True \
  trainer.test_freq=-1 trainer.save_freq=1 trainer.total_epochs=1000 trainer.total_training_steps="${STEPS:-2}" \
  hydra.run.dir="$OUT/hydra" algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=True \
  data.train_files="$DATA" data.val_files="$DATA" data.image_key=images data.train_batch_size="$B" \
  data.max_prompt_length=128 data.max_response_length=24 data.filter_overlong_prompts=False data.dataloader_num_workers=0 \
  actor_rollout_ref.model.path="$MODEL" actor_rollout_ref.actor.optim.lr=1e-4 \
  actor_rollout_ref.actor.ppo_mini_batch_size="$B" actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.n="$K" \
  actor_rollout_ref.rollout.val_kwargs.{do_sample=True,temperature=1.0} actor_rollout_ref.rollout.max_model_len=152 \
  actor_rollout_ref.rollout.max_num_batched_tokens=2048 actor_rollout_ref.rollout.max_num_seqs=16 \
  reward.reward_manager.name=radverl +reward.radverl.reward=facts "$@"
