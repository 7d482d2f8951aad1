#!/usr/bin/env bash
# Stage 1 of 3 of the gated reasoning reward (arXiv 2609.31911, "Gated" below): Qwen3-VL-8B-Instruct learns to write the
# report alone, on MIMIC-CXR, with verl's SFT trainer. Next: recipes/gated_qwen3vl8b_coldstart.sh. docs/gated.md.
# This recipe was dry-run only: nobody has trained with it yet. Research, not clinical use.
#
#   bash recipes/gated_qwen3vl8b_sft.sh [overrides of verl.trainer.sft_trainer ...]
#   DRY_RUN=1 bash recipes/gated_qwen3vl8b_sft.sh   checks config, data and memory and starts nothing: exit 0, or 2 and a
#                                                   sentence. What is not there yet is named; that alone is no 2.
# DATA    folder with sft_train.parquet, sft_val.parquet of `radverl data mimic_cxr` (default data/gated_sft)
# MODEL   hub name or local folder (default Qwen/Qwen3-VL-8B-Instruct)
# OUT     checkpoints, metrics, OUT/model (default outputs/gated_qwen3vl8b_sft); run again to resume
# SEED, GPUS, GPU_MEMORY_GB, ROWS, BATCH, LR, WARMUP, EPOCHS or STEPS, MAX_LENGTH: see below
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
source recipes/gpu_env.sh

STAGE=sft
MODEL=${MODEL:-Qwen/Qwen3-VL-8B-Instruct}   # Gated, training settings
ROWS=${ROWS:-120000}                        # Gated, training settings: 120,000 pairs
EPOCHS=${EPOCHS:-2}                         # Gated, training settings
LR=${LR:-1e-5}                              # Gated, training settings
BATCH=${BATCH:-128}                         # Gated, training settings
MAX_LENGTH=${MAX_LENGTH:-1536}              # ours: 512 tokens for the film, and more than nearly any report takes
DATA_DEFAULT=data/gated_sft
# Gated, data: frontal films, both sections, no references to prior studies. --max-pixels: ours, 512 tokens of 32 x 32
# pixels. The patients that Chest ImaGenome keeps for its gold standard stay out of every stage.
MAKE_DATA=".venv/bin/radverl data mimic_cxr --root mimic-cxr-jpg-2.1.0 --reports mimic-cxr-2.1.0 --views frontal \
--target both --priors drop --split train val --max-pixels 524288 \
--held-out chest-imagenome-dataset-1.0.0/silver_dataset/splits/images_to_avoid.csv --on-leak drop"
source recipes/gated_sft.sh
