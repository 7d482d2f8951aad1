# Sourced by recipes/gated_qwen3vl8b_{sft,coldstart}.sh, which set the values in which the two supervised stages differ:
# MODEL, DATA_DEFAULT, MAKE_DATA, ROWS, BATCH, EPOCHS, LR, MAX_LENGTH, STAGE. Both train on eight A100 of 80 GB.
GPUS=${GPUS:-8} GPU_MEMORY_GB=${GPU_MEMORY_GB:-80} # Gated, training settings: eight A100 of 80 GB
WARMUP=${WARMUP:-0.1}                       # Gated, training settings (stage 1); ours for stage 2, where none is given
SEED=${SEED:-0}                             # ours: the paper names none

whole_numbers ROWS BATCH EPOCHS MAX_LENGTH GPUS ${STEPS:+STEPS}
[[ $SEED =~ ^[0-9]+$ ]] || stop "SEED=$SEED is not a whole number; correct it."
numbers 1e-5 LR
[[ $WARMUP =~ ^(0|0?\.[0-9]+)$ ]] || stop "WARMUP=$WARMUP is not a share of the steps such as 0.1; correct it."
((ROWS >= BATCH)) || stop "ROWS=$ROWS is less than a batch of BATCH=$BATCH; correct one of them."
((BATCH % GPUS == 0)) || stop "BATCH=$BATCH rows do not divide among GPUS=$GPUS; change one of them."
export GPUS GPU_MEMORY_GB
resolve_paths "outputs/gated_qwen3vl8b_$STAGE" "$DATA_DEFAULT"
for file in sft_train.parquet sft_val.parquet; do
  [[ -f $DATA/$file ]] || { lacking "$DATA has no $file; make it with: $MAKE_DATA --out $DATA"; break; }
done

DATA_ARGS=(
  data.train_files="$(quoted "$DATA/sft_train.parquet")" data.val_files="$(quoted "$DATA/sft_val.parquet")" # yours
  data.messages_key=messages +data.image_key=images   # ours: columns of `radverl data`
  +data.image_patch_size=16                           # ours: Qwen3-VL's patches
  data.train_max_samples="$ROWS"                      # Gated, training settings
  +data.shuffle=True +data.seed="$SEED"               # ours: which rows, if there are more
  data.val_max_samples=512                            # ours: a loss to look at
  data.train_batch_size="$BATCH"                      # Gated, training settings
  data.max_length="$MAX_LENGTH" data.truncation=right # ours: a long report is cut; the film comes first
  data.pad_mode=no_padding data.use_dynamic_bsz=True  # ours: micro-batches by tokens, reports differ in length
  data.max_token_len_per_gpu=16384                    # ours: eight full rows and more, see docs/gated.md
  data.micro_batch_size_per_gpu=4 data.num_workers=8  # ours: the first is not read with use_dynamic_bsz
)
MODEL_ARGS=(
  model.path="$(quoted "$MODEL")"                     # Gated, training settings
  model.enable_gradient_checkpointing=True            # ours: memory
  model.use_remove_padding=True                       # ours: rows packed without padding (needs flash-attn)
  engine.strategy=fsdp2                               # ours
  engine.model_dtype=fp32                             # ours: weights and Adam's state; bf16 would round steps away
  engine.dtype=bfloat16                               # ours: computed in bf16, as stage 3 (Gated, training settings)
  engine.seed="$SEED"                                 # ours
)
OPTIM=(
  optim.optimizer=AdamW                               # Gated, training settings (stage 1); ours: the same in stage 2
  optim.lr="$LR"                                      # Gated, training settings
  optim.lr_scheduler_type=cosine optim.min_lr_ratio=0 # Gated, training settings (stage 1); ours: the same in stage 2
  optim.lr_warmup_steps_ratio="$WARMUP"               # Gated, training settings (stage 1); ours: the same in stage 2
  optim.weight_decay=0.01                             # ours: the paper gives none; AdamW's default in PyTorch
  optim.clip_grad=1.0                                 # ours: the default of verl
)
TRAINER=(
  trainer.total_epochs="$EPOCHS" ${STEPS:+trainer.total_training_steps="$STEPS"} # Gated, training settings
  trainer.n_gpus_per_node="$GPUS" trainer.nnodes=1    # Gated, training settings
  trainer.seed="$SEED"                                # ours
  trainer.logger='[console,file]' trainer.project_name=radverl trainer.experiment_name="$(quoted "${OUT##*/}")" # yours
  trainer.default_local_dir="$(quoted "$OUT/checkpoints")" hydra.run.dir="$(quoted "$OUT/hydra")" # yours
  trainer.resume_mode=auto trainer.save_freq=200 trainer.max_ckpt_to_keep=2 # ours: about 140 GB each
  trainer.test_freq=after_each_epoch                  # ours
  'checkpoint.save_contents=[model,optimizer,extra,hf_model]' # ours: hf_model is what the next stage starts from
)
RUN=("${DATA_ARGS[@]}" "${MODEL_ARGS[@]}" "${OPTIM[@]}" "${TRAINER[@]}")

if [[ $DRY_RUN == 1 ]]; then
  exec "$PYTHON" -m radverl.verl_plugin.dry_run_sft "${RUN[@]}" "$@"
fi

settings="$STAGE DATA=$DATA MODEL=$MODEL SEED=$SEED ROWS=$ROWS BATCH=$BATCH EPOCHS=$EPOCHS LR=$LR WARMUP=$WARMUP"
settings+=" MAX_LENGTH=$MAX_LENGTH GPUS=$GPUS $*"
same_run "$settings"
"$PYTHON" -m radverl.verl_plugin.dry_run_sft "${RUN[@]}" "$@" >/dev/null
check_machine
check_files --role sft -- "$DATA/sft_train.parquet" "$DATA/sft_val.parquet"
start_run "$settings"
"$PYTHON" -m radverl.watchdog --stats "$OUT/stats.json" -- "$PYTHON" -m torch.distributed.run --standalone --nnodes=1 \
  --nproc_per_node="$GPUS" -m verl.trainer.sft_trainer "${RUN[@]}" "$@" 2>&1 | tee -a "$OUT/train.log"
if [[ -d $(last_step)/huggingface ]]; then # not where a finished run was started again
  rm -rf "$OUT/model"
  mv "$(last_step)/huggingface" "$OUT/model"
fi
printf '\nthe model is in %s\n' "$OUT/model"
