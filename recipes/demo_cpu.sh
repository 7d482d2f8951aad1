#!/usr/bin/env bash
# The whole job on a CPU: simulated films -> warm start -> GRPO with the FactS reward on stock verl -> before and after.
#
#   bash recipes/demo_cpu.sh [overrides of verl.trainer.main_ppo ...]
#   DATA=folder/or/train.parquet MODEL=hf_folder bash recipes/demo_cpu.sh     your own Parquet and model
#   DRY_RUN=1 bash recipes/demo_cpu.sh                                        compose and validate the config only
#
# DATA   folder with train.parquet, val.parquet or test.parquet and, unless MODEL is given, sft_train.parquet;
#        or one Parquet file (val.parquet is looked for beside it). Default: a simulated cohort.
# MODEL  Hugging Face folder to start from. Default: a tiny Qwen2.5-VL, warmed up on the SFT file.
# OUT    results (default outputs/demo). STEPS, SEED, B, K, LR, MAX_PROMPT, MAX_RESPONSE: see below.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
source recipes/cpu_env.sh
from_here() { if [[ $1 == /* ]]; then printf '%s' "$1"; else printf '%s' "$here/$1"; fi; } # as the caller meant it
PYTHON=${PYTHON:-.venv/bin/python}
command -v "$PYTHON" >/dev/null || stop "PYTHON=$PYTHON is not there; run make setup."
[[ -z ${DATA:-} ]] || DATA=$(from_here "$DATA")
[[ -z ${MODEL:-} ]] || MODEL=$(from_here "$MODEL")
if [[ -n ${OUT:-} ]]; then OUT=$(from_here "$OUT"); else OUT=outputs/demo; fi
[[ ! -e $OUT || -d $OUT ]] || stop "OUT=$OUT is a file; name a folder."
SEED=${SEED:-0}
STEPS=${STEPS:-100}            # ours: what fits the 15 minutes
B=${B:-8} K=${K:-8}            # K: OraPO, implementation details; B: ours (the paper's 16 takes twice as long here)
LR=${LR:-3e-4}                 # ours: a 0.6 M model takes a far larger step than the paper's 3 B
MAX_PROMPT=${MAX_PROMPT:-128} MAX_RESPONSE=${MAX_RESPONSE:-64} # ours: the simulated reports have at most 54 tokens
WARM_STEPS=${WARM_STEPS:-450}  # ours: sees well above blind, and leaves RL room to gain
N_TRAIN=${N_TRAIN:-6000} N_TEST=${N_TEST:-1024} # ours: held-out studies enough to tell .02 of FactS from chance
whole_numbers STEPS B K MAX_PROMPT MAX_RESPONSE WARM_STEPS N_TRAIN N_TEST
[[ $SEED =~ ^[0-9]+$ ]] || stop "SEED=$SEED is not a whole number; correct it."
[[ $LR =~ ^[0-9]*\.?[0-9]+(e-?[0-9]+)?$ ]] || stop "LR=$LR is not a number such as 3e-4; correct it."
((B * K % RANKS == 0)) || stop "B x K = $((B * K)) rollouts do not divide among RANKS=$RANKS; change one of them."
started=$SECONDS
say() { printf '\n== %s\n' "$*"; }
# A stage's whole output goes to a log; what a person wants to see of it goes to the terminal.
watched() { # log steps command...
  local log=$1 steps=$2
  shift 2
  if ! { "$PYTHON" -m radverl.watchdog --stats "$OUT/stats.json" -- "$@" 2>&1 | "$PYTHON" -m radverl.progress --log "$log" --steps "$steps"; }; then
    printf '\ndemo_cpu: this stage failed; the last lines of %s:\n' "$log" >&2
    grep -av 'WARNING' "$log" | tail -n 25 >&2
    exit 1
  fi
}

if [[ -z ${DATA:-} ]]; then
  TRAIN=$OUT/data/train.parquet TEST=$OUT/data/test.parquet SFT=$OUT/data/sft_train.parquet
elif [[ -d $DATA ]]; then
  TRAIN=$DATA/train.parquet SFT=$DATA/sft_train.parquet TEST=$DATA/test.parquet
  [[ -f $TEST ]] || TEST=$DATA/val.parquet
else
  TRAIN=$DATA SFT=$(dirname "$DATA")/sft_train.parquet TEST=$(dirname "$DATA")/val.parquet
fi
if [[ -n ${DATA:-} ]]; then
  [[ -f $TRAIN ]] || stop "DATA=$DATA: there is no file $TRAIN; give a folder with train.parquet, or a Parquet file."
  if [[ ! -f $TEST ]]; then
    printf 'demo_cpu: no val.parquet or test.parquet beside %s: evaluating on the training studies themselves.\n' "$TRAIN" >&2
    TEST=$TRAIN
  fi
  rows=$("$PYTHON" -c 'import sys, pyarrow.parquet as p; print(p.read_metadata(sys.argv[1]).num_rows)' "$TRAIN" 2>/dev/null) ||
    stop "$TRAIN is not a Parquet file; make one with radverl data table, or give another."
  ((rows >= B)) || stop "$TRAIN has $rows rows but a step takes B=$B; set B=$rows or less."
  [[ -n ${MODEL:-} || -f $SFT ]] || stop "no MODEL given and no $SFT to warm up a tiny one; set MODEL=hf_folder or make that file."
fi

if [[ -n ${MODEL:-} && ! -f $MODEL/config.json ]]; then
  stop "MODEL=$MODEL is not a Hugging Face model folder (it has no config.json); give the folder of a checkpoint."
fi

for path in "${DATA:-}" "${MODEL:-}"; do # $OUT/rl is emptied before training
  [[ -z $path || $path != "$(from_here "$OUT")"/rl/* ]] || stop "$path lies in $OUT/rl, which this run replaces; set OUT to another folder."
done

RUN=( "${CPU_RL[@]}"
  trainer.logger='[console,file]' trainer.project_name=radverl trainer.experiment_name=demo_cpu
  trainer.default_local_dir="$(quoted "$OUT/rl/checkpoints")" trainer.rollout_data_dir="$(quoted "$OUT/rl/rollouts")"
  trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq="$STEPS" trainer.resume_mode=disable
  trainer.total_epochs=1000 trainer.total_training_steps="$STEPS"
  hydra.run.dir="$(quoted "$OUT/rl/hydra")"
)
ALGORITHM=( # Dr.GRPO, as OraPO's implementation details have it: no division by std, constant length normaliser
  algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm actor_rollout_ref.actor.loss_scale_factor="$MAX_RESPONSE"
  reward.reward_manager.name=radverl +reward.radverl.reward=facts # beta 2.0, its default (ours: the paper gives none)
)
DATA_ARGS=(
  data.train_files="$(quoted "$TRAIN")" data.val_files="$(quoted "$TEST")" data.image_key=images data.seed="$SEED"
  data.train_batch_size="$B" data.max_prompt_length="$MAX_PROMPT" data.max_response_length="$MAX_RESPONSE"
  data.filter_overlong_prompts=False data.truncation=error # rows that would be dropped are named before the run
  data.dataloader_num_workers=0
)
ACTOR=(
  # ours: the decay makes the last steps small, so that the result depends less on the seed
  actor_rollout_ref.actor.optim.lr="$LR" actor_rollout_ref.actor.optim.lr_scheduler_type=cosine
  actor_rollout_ref.actor.optim.lr_warmup_steps=4 actor_rollout_ref.actor.optim.min_lr_ratio=0.05
  actor_rollout_ref.actor.ppo_mini_batch_size="$B" actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=$((B * K / RANKS))
  actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.003 # ours: the paper does not give lambda_KL
  actor_rollout_ref.{ref,rollout}.log_prob_micro_batch_size_per_gpu=$((B * K / RANKS))
  'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]'
)
ROLLOUT=(
  actor_rollout_ref.rollout.n="$K" actor_rollout_ref.rollout.seed="$SEED" actor_rollout_ref.rollout.temperature=1.0
  actor_rollout_ref.rollout.max_model_len=$((MAX_PROMPT + MAX_RESPONSE))
  actor_rollout_ref.rollout.max_num_batched_tokens=8192 actor_rollout_ref.rollout.max_num_seqs=$((B * K))
)
MODEL_ARGS=(actor_rollout_ref.model.path="$(quoted "${MODEL:-$OUT/warm_start/model}")")

if [[ ${DRY_RUN:-0} == 1 ]]; then
  exec "$PYTHON" -m radverl.verl_plugin.dry_run "${RUN[@]}" "${ALGORITHM[@]}" "${DATA_ARGS[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${MODEL_ARGS[@]}" "$@"
fi
mkdir -p "$OUT"
"$PYTHON" -m radverl.doctor ${MODEL:+--model "$MODEL"} || stop "the checks above must pass first."

if [[ -z ${DATA:-} ]]; then
  wanted="N_TRAIN=$N_TRAIN N_TEST=$N_TEST seed=0 size=112 style=template"
  if [[ -f $TEST && $(cat "$OUT/data/settings" 2>/dev/null) == "$wanted" ]]; then
    say "1/5 simulated films: already in $OUT/data"
  else
    say "1/5 drawing $((N_TRAIN + N_TEST)) simulated films with their reports"
    rm -rf "$OUT/data" "$OUT/warm_start"
    "$PYTHON" -m data_preprocess.simulated --out "$OUT/data" --n-train "$N_TRAIN" --n-val 0 --n-test "$N_TEST" \
      --size 112 --style template --seed 0 --workers 2 --contact-sheet
    printf '%s\n' "$wanted" >"$OUT/data/settings"
  fi
fi

check() { # before anything is trained on it
  local file
  for file in "$TRAIN" "$TEST"; do "$PYTHON" -m radverl.cli data check "$file" "$@" || exit $?; done
}
[[ -z ${DATA:-} ]] || check

if [[ -n ${MODEL:-} ]]; then
  say "2/5 warm start: skipped, starting from $MODEL"
elif [[ -f $OUT/warm_start/model/config.json && $(cat "$OUT/warm_start/settings" 2>/dev/null) == "$SFT $WARM_STEPS $SEED" ]]; then
  say "2/5 warm start: already in $OUT/warm_start/model"
else
  say "2/5 warm start: $WARM_STEPS steps of verl's SFT trainer from random weights"
  watched "$OUT/warm_start.log" "$WARM_STEPS" env STEPS="$WARM_STEPS" SEED="$SEED" PYTHON="$PYTHON" \
    bash recipes/warm_start_cpu.sh "$SFT" "$OUT/warm_start"
  printf '%s\n' "$SFT $WARM_STEPS $SEED" >"$OUT/warm_start/settings"
fi
MODEL=${MODEL:-$OUT/warm_start/model}

say "3/5 before RL: data checked, $N_TEST held-out studies at most, with their own image and blind (images shuffled)"
check --model "$MODEL" --max-prompt-length "$MAX_PROMPT" # also the rows that verl would drop as too long
evaluate() {
  "$PYTHON" -m radverl.cli eval --model "$1" --data "$TEST" --out "$OUT/$2.json" --limit "$N_TEST" --blind \
    --max-new-tokens "$MAX_RESPONSE" --batch-size 64 2>"$OUT/$2.log" || { cat "$OUT/$2.log" >&2; exit 1; }
}
evaluate "$MODEL" before

say "4/5 GRPO on stock verl: $B prompts x $K rollouts a step, $STEPS steps (Ray, vLLM and FSDP2 start first)"
rm -rf "$OUT/rl"
mkdir -p "$OUT/rl"
export VERL_FILE_LOGGER_PATH="$OUT/rl/metrics.jsonl"
watched "$OUT/rl.log" "$STEPS" "$PYTHON" -m verl.trainer.main_ppo \
  "${RUN[@]}" "${ALGORITHM[@]}" "${DATA_ARGS[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${MODEL_ARGS[@]}" "$@"

say "5/5 after RL"
last=$(cat "$OUT/rl/checkpoints/latest_checkpointed_iteration.txt")
evaluate "$OUT/rl/checkpoints/global_step_$last/actor/huggingface" after >/dev/null
"$PYTHON" -m radverl.evaluation.before_after --run "$OUT" --data "$TEST" --seconds $((SECONDS - started))
