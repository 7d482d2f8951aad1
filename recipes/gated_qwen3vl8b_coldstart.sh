#!/usr/bin/env bash
# Stage 2 of 3 of the gated reasoning reward (arXiv 2609.31911, "Gated" below): the model of stage 1 learns the format, a
# trace of regions in <think> and the report in <answer>, on Chest ImaGenome. Next: recipes/gated_qwen3vl8b_grpo.sh.
# This recipe was dry-run only: nobody has trained with it yet. Research, not clinical use. docs/gated.md.
#
#   bash recipes/gated_qwen3vl8b_coldstart.sh [overrides of verl.trainer.sft_trainer ...]
#   DRY_RUN=1 as in recipes/gated_qwen3vl8b_sft.sh
# DATA    folder with sft_train.parquet, sft_val.parquet of `radverl data chest_imagenome` (default data/gated_coldstart)
# MODEL   Hugging Face folder (default: where stage 1 leaves its own, outputs/gated_qwen3vl8b_sft/model)
# OUT     checkpoints, metrics, OUT/model (default outputs/gated_qwen3vl8b_coldstart); run again to resume
# SEED, GPUS, GPU_MEMORY_GB, ROWS, BATCH, LR, WARMUP, EPOCHS or STEPS, MAX_LENGTH: see below
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
source recipes/gpu_env.sh

STAGE=coldstart
MODEL=${MODEL:-$PWD/outputs/gated_qwen3vl8b_sft/model} # Gated, method: from the checkpoint of stage 1
ROWS=${ROWS:-13000}                         # Gated, training settings: 13,000 traces
EPOCHS=${EPOCHS:-1}                         # Gated, training settings
LR=${LR:-5e-6}                              # Gated, training settings
BATCH=${BATCH:-64}                          # Gated, training settings
MAX_LENGTH=${MAX_LENGTH:-1792}              # ours: prompt and response of stage 3, 768 and 1,024 tokens
DATA_DEFAULT=data/gated_coldstart
TRAIN_PART=0:0.15                           # ours: 13,000 of 13,000 + 74,000, by patient
earlier_stage recipes/gated_qwen3vl8b_sft.sh Qwen/Qwen3-VL-8B-Instruct
source recipes/gated_traces.sh
source recipes/gated_sft.sh
