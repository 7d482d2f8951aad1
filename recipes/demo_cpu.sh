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
source recipes/rl_cpu.sh
[[ -z ${DATA:-} ]] || DATA=$(from_here "$DATA")
[[ -z ${MODEL:-} ]] || MODEL=$(from_here "$MODEL")
if [[ -n ${OUT:-} ]]; then OUT=$(from_here "$OUT"); else OUT=outputs/demo; fi
[[ ! -e $OUT || -d $OUT ]] || stop "OUT=$OUT is a file; name a folder."
SEED=${SEED:-0}
STEPS=${STEPS:-100}            # ours: what fits the 15 minutes
WARM_STEPS=${WARM_STEPS:-450}  # ours: sees well above blind, and leaves RL room to gain
N_TRAIN=${N_TRAIN:-6000} N_TEST=${N_TEST:-1024} # ours: held-out studies enough to tell .02 of FactS from chance
whole_numbers STEPS WARM_STEPS N_TRAIN N_TEST
[[ $SEED =~ ^[0-9]+$ ]] || stop "SEED=$SEED is not a whole number; correct it."
started=$SECONDS

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

facts_grpo "$OUT/rl" "${MODEL:-$OUT/warm_start/model}" "$TRAIN" "$TEST" "$SEED" "$STEPS" "$STEPS"

if [[ ${DRY_RUN:-0} == 1 ]]; then
  exec "$PYTHON" -m radverl.verl_plugin.dry_run "${RL[@]}" "$@"
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
  watched "$OUT/stats.json" "$OUT/warm_start.log" "$WARM_STEPS" env STEPS="$WARM_STEPS" SEED="$SEED" PYTHON="$PYTHON" \
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
watched "$OUT/stats.json" "$OUT/rl.log" "$STEPS" "$PYTHON" -m verl.trainer.main_ppo "${RL[@]}" "$@"

say "5/5 after RL"
last=$(cat "$OUT/rl/checkpoints/latest_checkpointed_iteration.txt")
evaluate "$OUT/rl/checkpoints/global_step_$last/actor/huggingface" after >/dev/null
"$PYTHON" -m radverl.evaluation.before_after --run "$OUT" --data "$TEST" --seconds $((SECONDS - started))
