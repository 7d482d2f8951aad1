# Sourced after cpu_env.sh by the recipes that train by RL on a CPU: their settings, and how a stage is run.
say() { printf '\n== %s\n' "$*"; }
# A stage's whole output goes to a log; what a person wants to see of it goes to the terminal.
watched() { # stats.json log steps command...
  local stats=$1 log=$2 steps=$3
  shift 3
  if ! { "$PYTHON" -m radverl.watchdog --stats "$stats" -- "$@" 2>&1 | "$PYTHON" -m radverl.progress --log "$log" --steps "$steps"; }; then
    printf '\n%s: this stage failed; the last lines of %s:\n' "$(basename "$0" .sh)" "$log" >&2
    grep -av 'WARNING' "$log" | tail -n 25 >&2
    exit 1
  fi
}

# What was made with other settings is never mixed in nor overwritten.
settings_of_run() { local all="${RL[*]} $*"; printf '%s' "${all//"$OUT"/OUT}"; } # the same wherever OUT lies
same() { # folder wanted: whether the folder is finished with these settings; refuses where it is with others
  [[ -f $1/settings ]] || return 1
  [[ $(<"$1/settings") == "$2" ]] || stop "$1 was made with other settings (see its file settings): set OUT to another folder, or remove it."
}
finished() { printf '%s' "$2" >"$1/settings"; }
draw() { # folder options...
  local folder=$1
  shift
  if same "$folder" "$*"; then
    say "films: already in $folder"
  else
    say "drawing simulated films with their reports: $folder"
    rm -rf "$folder"
    "$PYTHON" -m data_preprocess.simulated --out "$folder" --workers 2 "$@"
    finished "$folder" "$*"
  fi
}

PYTHON=${PYTHON:-.venv/bin/python}
command -v "$PYTHON" >/dev/null || stop "PYTHON=$PYTHON is not there; run make setup."
B=${B:-8} K=${K:-8}            # K: OraPO, implementation details; B: ours (the paper's 16 takes twice as long here)
LR=${LR:-3e-4}                 # ours: a 0.6 M model takes a far larger step than the paper's 3 B
MAX_PROMPT=${MAX_PROMPT:-128} MAX_RESPONSE=${MAX_RESPONSE:-64} # ours: the simulated reports have at most 54 tokens
whole_numbers B K MAX_PROMPT MAX_RESPONSE
numbers 3e-4 LR
((B * K % RANKS == 0)) || stop "B x K = $((B * K)) rollouts do not divide among RANKS=$RANKS; change one of them."

# GRPO as overrides of verl.trainer.main_ppo, into the array RL: all but the loss and the reward.
grpo() { # folder-of-the-run model train.parquet test.parquet seed steps save-every
  local run=$1 model=$2 train=$3 test=$4 seed=$5 steps=$6 save=$7
  RL=( "${CPU_RL[@]}"
    trainer.logger='[console,file]' trainer.project_name=radverl trainer.experiment_name="$(basename "$0" .sh)"
    trainer.default_local_dir="$(quoted "$run/checkpoints")" trainer.rollout_data_dir="$(quoted "$run/rollouts")"
    trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq="$save" trainer.resume_mode=disable
    trainer.total_epochs=1000 trainer.total_training_steps="$steps"
    hydra.run.dir="$(quoted "$run/hydra")"
    algorithm.adv_estimator=grpo reward.reward_manager.name=radverl
  )
  RL+=(
    data.train_files="$(quoted "$train")" data.val_files="$(quoted "$test")" data.image_key=images data.seed="$seed"
    data.train_batch_size="$B" data.max_prompt_length="$MAX_PROMPT" data.max_response_length="$MAX_RESPONSE"
    data.filter_overlong_prompts=False data.truncation=error # rows that would be dropped are named before the run
    data.dataloader_num_workers=0
  )
  RL+=(
    # ours: the decay makes the last steps small, so that the result depends less on the seed
    actor_rollout_ref.actor.optim.lr="$LR" actor_rollout_ref.actor.optim.lr_scheduler_type=cosine
    actor_rollout_ref.actor.optim.min_lr_ratio=0.05
    actor_rollout_ref.actor.ppo_mini_batch_size="$B" actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=$((B * K / RANKS))
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.{ref,rollout}.log_prob_micro_batch_size_per_gpu=$((B * K / RANKS))
    'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]'
  )
  RL+=(
    actor_rollout_ref.rollout.n="$K" actor_rollout_ref.rollout.seed="$seed" actor_rollout_ref.rollout.temperature=1.0
    actor_rollout_ref.rollout.max_model_len=$((MAX_PROMPT + MAX_RESPONSE))
    actor_rollout_ref.rollout.max_num_batched_tokens=8192 actor_rollout_ref.rollout.max_num_seqs=$((B * K))
    actor_rollout_ref.model.path="$(quoted "$model")"
  )
}

# Dr.GRPO with the FactS reward, as OraPO's implementation details have it: no division by std, constant length normaliser.
facts_grpo() { # as grpo
  grpo "$@"
  RL+=(
    algorithm.norm_adv_by_std_in_grpo=False
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm actor_rollout_ref.actor.loss_scale_factor="$MAX_RESPONSE"
    actor_rollout_ref.actor.kl_loss_coef=0.003 # ours: the paper does not give lambda_KL
    actor_rollout_ref.actor.optim.lr_warmup_steps=4
    +reward.radverl.reward=facts # beta 2.0, its default (ours: the paper gives none)
  )
}
