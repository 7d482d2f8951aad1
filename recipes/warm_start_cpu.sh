#!/usr/bin/env bash
# A tiny model that sees, from random weights, through verl's own SFT trainer on a CPU. Stops where RL has room to gain.
# usage: recipes/warm_start_cpu.sh SFT_TRAIN.parquet OUT_DIR [overrides of verl.trainer.sft_trainer ...]
# writes OUT_DIR/model, a Hugging Face folder. KIND=qwen3_vl takes that architecture; STEPS sets the length.
# FROM=model_folder goes on from that model. CORPUS=other_sft.parquet trains the tokenizer of a new one on that file's texts.
set -euo pipefail
cd "$(dirname "$0")/.."
source recipes/cpu_env.sh
[[ ${DRY_RUN:-0} != 1 ]] || stop "this recipe has no dry run; unset DRY_RUN to train."
(($# >= 2)) || stop "give the SFT Parquet and a folder to write to: recipes/warm_start_cpu.sh SFT_TRAIN.parquet OUT_DIR"
TRAIN=$1 OUT=$2
shift 2
PYTHON=${PYTHON:-.venv/bin/python}
STEPS=${STEPS:-500} SEED=${SEED:-0} KIND=${KIND:-qwen2_5_vl} IMAGE_SIZE=${IMAGE_SIZE:-112}
MAX_LENGTH=${MAX_LENGTH:-256}
whole_numbers STEPS IMAGE_SIZE MAX_LENGTH

if [[ -z ${FROM:-} ]]; then
  FROM=$OUT/random
  "$PYTHON" -m radverl.tiny_model --data "${CORPUS:-$TRAIN}" --kind "$KIND" --image-size "$IMAGE_SIZE" --seed "$SEED" \
    --out "$FROM"
fi

DATA=(
  data.train_files="$(quoted "$TRAIN")" data.val_files=null
  data.messages_key=messages +data.image_key=images
  data.train_batch_size=16 data.micro_batch_size_per_gpu=$((16 / RANKS)) data.use_dynamic_bsz=False # ours: fits one core
  data.max_length="$MAX_LENGTH" data.truncation=error
  data.num_workers=1 # the loader tokenises on the second core
)
OPTIM=( # ours, all: found by measurement for the tiny model, no paper trains one
  optim.lr=2e-3 optim.weight_decay=0.01 optim.clip_grad=1.0
  optim.lr_warmup_steps=20 optim.lr_scheduler_type=cosine optim.min_lr_ratio=0.05
)
TRAINER=(
  trainer.logger='[console]' trainer.project_name=radverl trainer.experiment_name=warm_start
  trainer.default_local_dir="$(quoted "$OUT/checkpoints")" trainer.resume_mode=disable trainer.seed="$SEED"
  trainer.total_epochs=100 trainer.total_training_steps="$STEPS" trainer.save_freq=-1 trainer.test_freq=-1
  'checkpoint.save_contents=[model,optimizer,extra,hf_model]' # hf_model: a folder RL can start from
  hydra.run.dir="$(quoted "$OUT/hydra")"
)
"$PYTHON" -m radverl.watchdog -- \
  "$(dirname "$PYTHON")/torchrun" --standalone --nnodes=1 --nproc_per_node="$RANKS" -m verl.trainer.sft_trainer \
  model.path="$(quoted "$FROM")" "${CPU_SFT[@]}" "${DATA[@]}" "${OPTIM[@]}" "${TRAINER[@]}" "$@"
rm -rf "$OUT/model"
mv "$OUT/checkpoints/global_step_$STEPS/huggingface" "$OUT/model"
rm -rf "$OUT/checkpoints"
