#!/usr/bin/env bash
# The three stages of arXiv 2609.31911 on a CPU, with a tiny Qwen3-VL on simulated films: SFT on reports, cold-start SFT on
# think + answer, GRPO with the gated reward. Then its Table 6 in miniature (none, spatial, factual, both) and its tau sweep.
#
#   bash recipes/gated_cpu.sh [overrides of verl.trainer.main_ppo, for all runs ...]
#   SEEDS="0 1 2" ARMS="spatial both" TAUS="" STEPS=80 bash recipes/gated_cpu.sh
#   DRY_RUN=1 bash recipes/gated_cpu.sh                     compose and validate the config of every arm only
#
# All arms start from one cold start and, with one seed, see the same prompts in the same order. A finished run is not run
# again, an interrupted one starts from its first step: call it again after a break. Writes reproduce_gated.json, .png and
# .md to OUT, and with DOCS=docs also there. OUT default outputs/reproduce_gated. JOBS=2 runs two at a time (8 GB each).
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
MAX_PROMPT=${MAX_PROMPT:-96} MAX_RESPONSE=${MAX_RESPONSE:-176} # ours: a simulated trace has at most 168 tokens
source recipes/cpu_env.sh
source recipes/rl_cpu.sh
if [[ -n ${OUT:-} ]]; then OUT=$(from_here "$OUT"); else OUT=outputs/reproduce_gated; fi
[[ ! -e $OUT || -d $OUT ]] || stop "OUT=$OUT is a file; name a folder."
[[ -z ${DOCS:-} ]] || DOCS=$(from_here "$DOCS")
SEEDS=${SEEDS-0 1} ARMS=${ARMS-none spatial factual both}
TAUS=${TAUS-0 .5}              # of the sweep, beside the 0.25 of the arm "both"; "" leaves it out
STEPS=${STEPS:-48}             # ours: four arms of two seeds within the hour
SWEEP_STEPS=${SWEEP_STEPS:-24} # ours: the sweep at half of that
SAVE_EVERY=${SAVE_EVERY:-24}   # checkpoints that are evaluated; STEPS and SWEEP_STEPS must be multiples
SFT_STEPS=${SFT_STEPS:-700}    # ours: learns to see; the paper takes 2 epochs
COLD_STEPS=${COLD_STEPS:-400}  # ours: keeps the format, places the large region well and the small ones badly; the paper 1 epoch
N_SFT=${N_SFT:-4000} N_COLD=${N_COLD:-4000} N_POOL=${N_POOL:-600} # studies of the stages; the paper 120,000, 13,000, 74,000
N_TEST=${N_TEST:-512}
JOBS=${JOBS:-1}
whole_numbers STEPS SWEEP_STEPS SAVE_EVERY SFT_STEPS COLD_STEPS N_SFT N_COLD N_POOL N_TEST JOBS
((STEPS % SAVE_EVERY == 0)) || stop "STEPS=$STEPS is no multiple of SAVE_EVERY=$SAVE_EVERY; change one of them."
((SWEEP_STEPS % SAVE_EVERY == 0 && SWEEP_STEPS <= STEPS)) ||
  stop "SWEEP_STEPS=$SWEEP_STEPS is no multiple of SAVE_EVERY=$SAVE_EVERY up to STEPS=$STEPS; change one of them."
((N_POOL >= B)) || stop "N_POOL=$N_POOL is less than one step's B=$B prompts; raise it."
read -ra SEEDS <<<"$SEEDS"
read -ra ARMS <<<"$ARMS"
read -ra TAUS <<<"$TAUS"
for seed in "${SEEDS[@]}"; do [[ $seed =~ ^[0-9]+$ ]] || stop "SEEDS holds $seed, which is not a whole number; correct it."; done
((${#SEEDS[@]} && ${#ARMS[@]})) || stop "SEEDS or ARMS is empty; name at least one of each."
for arm in "${ARMS[@]}"; do
  [[ " none spatial factual both " == *" $arm "* ]] || stop "ARMS holds $arm; choose from none, spatial, factual and both."
done
for tau in "${TAUS[@]}"; do
  [[ $tau =~ ^0?\.?[0-9]+$ ]] || stop "TAUS holds $tau, which is no number from 0 to 1 such as .5; correct it."
done
if ((${#TAUS[@]})) && [[ " ${ARMS[*]} " != *" both "* ]]; then
  stop "the sweep over TAUS=${TAUS[*]} needs the arm both in ARMS; add it, or set TAUS=\"\"."
fi

# ours: three regions whose boxes and findings the film decides. One is large; of the two small ones a cold start places
# many below IoU .25, so that the gate shuts. BORDER moves and scales the film in the image: no box is nearly constant.
COHORT=(
  --size 160 --style template --cue 1.25 --border "${BORDER:=0.3}"
  --prevalence Cardiomegaly=.35 "Pleural Effusion=.4" Pneumothorax=.2
)
TRACE=(--task trace --trace-regions "cardiac silhouette" "right costophrenic angle" "left costophrenic angle")
REPORT_ARGS=("${COHORT[@]}" --seed 0 --n-train "$N_SFT" --n-val 0 --n-test 0)
TRACE_ARGS=("${COHORT[@]}" "${TRACE[@]}" --seed 1 --n-train "$N_COLD" --n-val 0 --n-test "$N_TEST")
POOL_ARGS=("${COHORT[@]}" "${TRACE[@]}" --seed 2 --n-train "$N_POOL" --n-val 0 --n-test 0)
SFT="steps=$SFT_STEPS seed=0" COLD="steps=$COLD_STEPS seed=0 after $SFT"

arguments() { # run-folder reward tau seed steps: the overrides of one run, into RL
  grpo "$1" "$OUT/cold_start/model" "$OUT/pool/train.parquet" "$OUT/trace/test.parquet" "$4" "$5" "$SAVE_EVERY"
  RL+=( # arXiv 2609.31911, sec. "Optimisation": A with std, clip of DAPO, unbiased estimate of the KL, warm-up .1
    algorithm.norm_adv_by_std_in_grpo=True
    actor_rollout_ref.actor.clip_ratio_low=0.2 actor_rollout_ref.actor.clip_ratio_high=0.28
    actor_rollout_ref.actor.kl_loss_coef=0.04 actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.1
    trainer.v1.trainer_mode=sync
    +reward.radverl.reward=gated +reward.radverl.kwargs.reward="$2" +reward.radverl.kwargs.tau="$3"
    +reward.radverl.kwargs.annotator=rules # ours: the RadGraph checkpoint is credentialed
  )
}
RUNS=() # name reward tau seed steps
for seed in "${SEEDS[@]}"; do
  for arm in "${ARMS[@]}"; do RUNS+=("${arm}_seed$seed $arm 0.25 $seed $STEPS"); done
done
for tau in "${TAUS[@]}"; do RUNS+=("tau${tau}_seed${SEEDS[0]} both $tau ${SEEDS[0]} $SWEEP_STEPS"); done

if [[ ${DRY_RUN:-0} == 1 ]]; then
  for arm in "${ARMS[@]}"; do
    arguments "$OUT/runs/${arm}_seed${SEEDS[0]}" "$arm" 0.25 "${SEEDS[0]}" "$STEPS"
    printf '# arm %s\n' "$arm"
    "$PYTHON" -m radverl.verl_plugin.dry_run "${RL[@]}" "$@" || exit $?
  done
  exit 0
fi

same "$OUT/report" "${REPORT_ARGS[*]}" || true
same "$OUT/trace" "${TRACE_ARGS[*]}" || true
same "$OUT/pool" "${POOL_ARGS[*]}" || true
same "$OUT/sft" "$SFT" || true
same "$OUT/cold_start" "$COLD" || true
for run in "${RUNS[@]}"; do
  read -r name reward tau seed steps <<<"$run"
  arguments "$OUT/runs/$name" "$reward" "$tau" "$seed" "$steps"
  same "$OUT/runs/$name" "$(settings_of_run "$@")" || true
done
mkdir -p "$OUT/runs"
"$PYTHON" -m radverl.doctor || stop "the checks above must pass first."

draw "$OUT/report" "${REPORT_ARGS[@]}"
draw "$OUT/trace" "${TRACE_ARGS[@]}"
draw "$OUT/pool" "${POOL_ARGS[@]}"

stage() { # folder settings steps what sft.parquet [VARIABLE=value ...]
  local folder=$1 settings=$2 steps=$3 what=$4 data=$5
  shift 5
  if same "$folder" "$settings"; then
    say "$what: already in $folder/model"
  else
    say "$what: $steps steps of verl's SFT trainer"
    watched "$folder.stats.json" "$folder.log" "$steps" env STEPS="$steps" SEED=0 KIND=qwen3_vl IMAGE_SIZE=160 \
      MAX_LENGTH=$((MAX_PROMPT + MAX_RESPONSE)) PYTHON="$PYTHON" "$@" bash recipes/warm_start_cpu.sh "$data" "$folder"
    finished "$folder" "$settings"
  fi
}
stage "$OUT/sft" "$SFT" "$SFT_STEPS" "stage 1, report only" "$OUT/report/sft_train.parquet" \
  CORPUS="$OUT/trace/sft_train.parquet" # the tokenizer of all stages has seen traces
stage "$OUT/cold_start" "$COLD" "$COLD_STEPS" "stage 2, think + answer" "$OUT/trace/sft_train.parquet" FROM="$OUT/sft/model"
for file in "$OUT/pool/train.parquet" "$OUT/trace/test.parquet"; do # also the rows that verl would drop as too long
  "$PYTHON" -m radverl.cli data check "$file" --model "$OUT/cold_start/model" --max-prompt-length "$MAX_PROMPT" || exit $?
done

evaluate() { # a run or the cold start, and where the numbers go
  "$PYTHON" -m radverl.evaluation.reproduce_gated evaluate "$1" --out "$2" --data "$OUT/trace/test.parquet" \
    --max-new-tokens "$MAX_RESPONSE" 2>"$2.log" || { tail -n 5 "$2.log" >&2; exit 1; }
}
evaluate "$OUT/cold_start/model" "$OUT/cold_start/eval"

train() { # name reward tau seed steps overrides...
  local name=$1 run=$OUT/runs/$1 steps=$5
  arguments "$run" "$2" "$3" "$4" "$5"
  shift 5
  if same "$run" "$(settings_of_run "$@")"; then
    say "$name: already in $run"
  else
    say "stage 3, $name: $B prompts x $K rollouts a step, $steps steps (Ray, vLLM and FSDP2 start first)"
    rm -rf "$run"
    mkdir -p "$run"
    VERL_FILE_LOGGER_PATH="$run/metrics.jsonl" \
      watched "$run/stats.json" "$run/rl.log" "$steps" "$PYTHON" -m verl.trainer.main_ppo "${RL[@]}" "$@"
    [[ $(cat "$run/checkpoints/latest_checkpointed_iteration.txt" 2>/dev/null) == "$steps" ]] ||
      stop "$run has no checkpoint of step $steps; see its rl.log."
    finished "$run" "$(settings_of_run "$@")"
  fi
  evaluate "$run" "$run/eval"
}
failed=0
for run in "${RUNS[@]}"; do # arms of a seed one after the other: a break leaves whole comparisons
  read -r name reward tau seed steps <<<"$run"
  if ((JOBS == 1)); then
    train "$name" "$reward" "$tau" "$seed" "$steps" "$@"
    continue
  fi
  while (($(jobs -rp | wc -l) >= JOBS)); do wait -n || failed=1; done
  ((failed == 0)) || break
  (train "$name" "$reward" "$tau" "$seed" "$steps" "$@" 2>&1) | sed -u "s/^/$name: /" &
done
while (($(jobs -rp | wc -l))); do wait -n || failed=1; done
((failed == 0)) || exit 1

say "comparison"
SHOWN=(
  --setting "model=tiny Qwen3-VL, 0.6 M parameters, from random weights"
  --setting "films=${COHORT[*]}"
  --setting "regions of a trace=${TRACE[*]:3}"
  --setting "stage 1, report only=$SFT_STEPS steps of 16, $N_SFT studies"
  --setting "stage 2, think + answer=$COLD_STEPS steps of 16, $N_COLD studies"
  --setting "stage 3=$N_POOL studies, prompts x rollouts a step $B x $K, at most $MAX_RESPONSE tokens"
  --setting "learning rate of stage 3=$LR, warm-up .1, then cosine"
  --setting "loss=GRPO, A with std, clip .2/.28, KL coefficient .04 (low_var_kl), token mean; one update a step"
  --setting "reward=reasoning only, gate per region, annotator rules, level partial"
)
(($# == 0)) || SHOWN+=(--setting "overrides=$*")
"$PYTHON" -m radverl.evaluation.reproduce_gated report "$OUT" --arms "${ARMS[@]}" --seeds "${SEEDS[@]}" \
  ${TAUS[0]:+--taus "${TAUS[@]}"} "${SHOWN[@]}" ${DOCS:+--docs "$DOCS"}
