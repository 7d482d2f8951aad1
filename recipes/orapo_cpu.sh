#!/usr/bin/env bash
# Figure 2 of OraPO (arXiv 2509.18600) on a CPU: GRPO + FactS against OraPO + FactS, on simulated films with a long tail.
#
#   bash recipes/orapo_cpu.sh [overrides of verl.trainer.main_ppo, for all arms ...]
#   SEEDS="0 1 2" ARMS="grpo orapo" STEPS=80 bash recipes/orapo_cpu.sh
#   DRY_RUN=1 bash recipes/orapo_cpu.sh                     compose and validate the config of every arm only
#
# Both arms start from one warm start and, with one seed, see the same prompts in the same order. A finished run is
# not run again, an interrupted one starts from its first step: call it again after a break. Writes reproduce_orapo.json, .png and .md to OUT, and
# with DOCS=docs also there. OUT default outputs/reproduce_orapo. Further variables: see below.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
source recipes/cpu_env.sh
source recipes/rl_cpu.sh
if [[ -n ${OUT:-} ]]; then OUT=$(from_here "$OUT"); else OUT=outputs/reproduce_orapo; fi
[[ ! -e $OUT || -d $OUT ]] || stop "OUT=$OUT is a file; name a folder."
SEEDS=${SEEDS:-0 1 2} ARMS=${ARMS:-grpo orapo}
STEPS=${STEPS:-80}             # ours: two arms of three seeds within the hour
SAVE_EVERY=${SAVE_EVERY:-20}   # checkpoints for the F1 curves; STEPS must be a multiple
WARM_STEPS=${WARM_STEPS:-750}  # ours: sees the common findings, of the two rarest one in part
N_TRAIN=${N_TRAIN:-4000}       # ours: studies of the warm start
N_POOL=${N_POOL:-1000}         # OraPO, sec. 4.1: RL on 1,000 studies balanced over the labels
N_TEST=${N_TEST:-2048}         # ours: some 40 positives of the rarest label
TAU=${TAU:-1}                  # ours: DPO's gradient is then about as large as GRPO's (docs/reproduce_orapo.md)
whole_numbers STEPS SAVE_EVERY WARM_STEPS N_TRAIN N_POOL N_TEST
((STEPS % SAVE_EVERY == 0)) || stop "STEPS=$STEPS is no multiple of SAVE_EVERY=$SAVE_EVERY; change one of them."
((N_POOL >= B)) || stop "N_POOL=$N_POOL is less than one step's B=$B prompts; raise it."
[[ $TAU =~ ^[0-9]*\.?[0-9]+$ ]] || stop "TAU=$TAU is not a number such as 0.1; correct it."
read -ra SEEDS <<<"$SEEDS"
read -ra ARMS <<<"$ARMS"
for seed in "${SEEDS[@]}"; do [[ $seed =~ ^[0-9]+$ ]] || stop "SEEDS holds $seed, which is not a whole number; correct it."; done
((${#SEEDS[@]} && ${#ARMS[@]})) || stop "SEEDS or ARMS is empty; name at least one of each."
for arm in "${ARMS[@]}"; do [[ $arm == grpo || $arm == orapo ]] || stop "ARMS holds $arm; choose from grpo and orapo."; done

# ours: a long tail that ends at 2 %. CUE makes findings a little plainer, so that the tiny model can learn to see the two
# rarest: of a finding that it cannot see, no reward and no preference can teach anything in this time.
TAIL=(
  "Pleural Effusion=.25" "Cardiomegaly=.20" "Edema=.15" "Support Devices=.05" "Lung Opacity=.035" "Atelectasis=.035"
  "Consolidation=.035" "Pneumothorax=.03" "Lung Lesion=.03" "Fracture=.03" "Pleural Other=.03"
  "Pneumonia=.0225" "Enlarged Cardiomediastinum=.02"
)
CUE=1.25
COHORT=$OUT/cohort POOL=$OUT/pool
ORAPO=( # OraPO, implementation details: alpha, w_min, w_max, gamma, LN-DPO
  trainer.v1.trainer_mode=orapo_sync +algorithm.orapo.alpha=0.5 +algorithm.orapo.gamma=2.0
  +algorithm.orapo.w_min=0.05 +algorithm.orapo.w_max=0.15
  +algorithm.orapo.length_normalised=True +algorithm.orapo.tau="$TAU"
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=$((B * (K + 1) / RANKS)) # the true reports are rows too
)
arguments() { # arm seed: the overrides of one run, into RL
  facts_grpo "$OUT/runs/$1_seed$2" "$OUT/warm_start/model" "$POOL/train.parquet" "$COHORT/test.parquet" "$2" "$STEPS" "$SAVE_EVERY"
  if [[ $1 == orapo ]]; then RL+=("${ORAPO[@]}"); else RL+=(trainer.v1.trainer_mode=sync); fi
}

if [[ ${DRY_RUN:-0} == 1 ]]; then
  for arm in "${ARMS[@]}"; do
    arguments "$arm" "${SEEDS[0]}"
    printf '# arm %s\n' "$arm"
    "$PYTHON" -m radverl.verl_plugin.dry_run "${RL[@]}" "$@" || exit $?
  done
  exit 0
fi

FILMS=(--size 112 --style template)
COHORT_ARGS=("${FILMS[@]}" --cue "$CUE" --seed 0 --n-train "$N_TRAIN" --n-val 0 --n-test "$N_TEST" --prevalence "${TAIL[@]}")
POOL_ARGS=("${FILMS[@]}" --cue "$CUE" --seed 1 --n-train "$N_POOL" --n-val 0 --n-test 0 --balance)
WARM="steps=$WARM_STEPS seed=0"

same "$COHORT" "${COHORT_ARGS[*]}" || true
same "$POOL" "${POOL_ARGS[*]}" || true
same "$OUT/warm_start" "$WARM" || true
for seed in "${SEEDS[@]}"; do
  for arm in "${ARMS[@]}"; do
    arguments "$arm" "$seed"
    same "$OUT/runs/${arm}_seed$seed" "$(settings_of_run "$@")" || true
  done
done
mkdir -p "$OUT/runs"
"$PYTHON" -m radverl.doctor || stop "the checks above must pass first."

draw "$COHORT" "${COHORT_ARGS[@]}"
draw "$POOL" "${POOL_ARGS[@]}"

if same "$OUT/warm_start" "$WARM"; then
  say "warm start: already in $OUT/warm_start/model"
else
  say "warm start: $WARM_STEPS steps of verl's SFT trainer from random weights, on the long tail"
  watched "$OUT/warm_start.stats.json" "$OUT/warm_start.log" "$WARM_STEPS" env STEPS="$WARM_STEPS" SEED=0 PYTHON="$PYTHON" \
    bash recipes/warm_start_cpu.sh "$COHORT/sft_train.parquet" "$OUT/warm_start"
  finished "$OUT/warm_start" "$WARM"
fi
for file in "$POOL/train.parquet" "$COHORT/test.parquet"; do # also the rows that verl would drop as too long
  "$PYTHON" -m radverl.cli data check "$file" --model "$OUT/warm_start/model" --max-prompt-length "$MAX_PROMPT" || exit $?
done

evaluate() { # a run or the warm start, and where the numbers go
  "$PYTHON" -m radverl.evaluation.reproduce_orapo evaluate "$1" --out "$2" --data "$COHORT/test.parquet" \
    --max-new-tokens "$MAX_RESPONSE" 2>"$2.log" || { tail -n 5 "$2.log" >&2; exit 1; }
}
evaluate "$OUT/warm_start/model" "$OUT/warm_start/eval"
[[ -f $OUT/warm_start/gradient_share.json ]] ||
  "$PYTHON" -m radverl.evaluation.gradient_share --model "$OUT/warm_start/model" --data "$POOL/train.parquet" \
    --max-new-tokens "$MAX_RESPONSE" --out "$OUT/warm_start/gradient_share.json" 2>"$OUT/warm_start/gradient_share.log"

for seed in "${SEEDS[@]}"; do
  for arm in "${ARMS[@]}"; do # arms of a seed one after the other: a break leaves whole pairs
    run=$OUT/runs/${arm}_seed$seed
    arguments "$arm" "$seed"
    if same "$run" "$(settings_of_run "$@")"; then
      say "$arm, seed $seed: already in $run"
    else
      say "$arm, seed $seed: $B prompts x $K rollouts a step, $STEPS steps (Ray, vLLM and FSDP2 start first)"
      rm -rf "$run"
      mkdir -p "$run"
      export VERL_FILE_LOGGER_PATH="$run/metrics.jsonl"
      watched "$run/stats.json" "$run/rl.log" "$STEPS" "$PYTHON" -m verl.trainer.main_ppo "${RL[@]}" "$@"
      [[ $(cat "$run/checkpoints/latest_checkpointed_iteration.txt" 2>/dev/null) == "$STEPS" ]] ||
        stop "$run has no checkpoint of step $STEPS; see its rl.log."
      finished "$run" "$(settings_of_run "$@")"
    fi
    evaluate "$run" "$run/eval"
  done
done

say "comparison"
SHOWN=(
  --setting "model=tiny Qwen2.5-VL, 0.6 M parameters, warmed up for $WARM_STEPS steps on $N_TRAIN studies of the cohort"
  --setting "cohort: prevalences=${TAIL[*]}"
  --setting "conspicuity of findings=$CUE"
  --setting "RL studies=$N_POOL, balanced over the labels"
  --setting "prompts x rollouts a step=$B x $K"
  --setting "learning rate=$LR, warm-up over 4 steps, then cosine"
  --setting "loss=Dr.GRPO, KL coefficient 0.003"
  --setting "OraPO=alpha 0.5, w 0.05 to 0.15, gamma 2, LN-DPO, tau $TAU"
)
(($# == 0)) || SHOWN+=(--setting "overrides=$*")
"$PYTHON" -m radverl.evaluation.reproduce_orapo report "$OUT" --arms "${ARMS[@]}" --seeds "${SEEDS[@]}" "${SHOWN[@]}" \
  ${DOCS:+--docs "$(from_here "$DOCS")"}
