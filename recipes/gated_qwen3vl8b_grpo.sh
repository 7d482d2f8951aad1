#!/usr/bin/env bash
# Stage 3 of 3 of the gated reasoning reward (arXiv 2609.31911, "Gated" below): GRPO from the model of stage 2, rewarded for
# boxes (IoU) and, where a box is right, for the finding (RadGraph F1). Eight A100 of 80 GB. docs/gated.md.
# This recipe was dry-run only: nobody has trained with it yet. Research, not clinical use.
#
#   bash recipes/gated_qwen3vl8b_grpo.sh [overrides of verl.trainer.main_ppo ...]
#   DRY_RUN=1 bash recipes/gated_qwen3vl8b_grpo.sh   checks config, data and memory and starts nothing: exit 0, or 2 and a
#                                                    sentence. What is not there yet is named; that alone is no 2.
# DATA        folder with train.parquet, val.parquet of `radverl data chest_imagenome` (default data/gated_grpo)
# MODEL       Hugging Face folder (default: where stage 2 leaves its own, outputs/gated_qwen3vl8b_coldstart/model)
# CHECKPOINT  of RadGraph-XL (default: RADVERL_RADGRAPH)
# OUT         checkpoints, rollouts, metrics (default outputs/gated_qwen3vl8b_grpo and the switches below); again to resume
# SEED, GPUS, GPU_MEMORY_GB, ROWS, B, K, LR, WARMUP, EPOCHS or STEPS, MAX_PROMPT, MAX_RESPONSE: see below
#
# Ablations of the paper:
#   REWARD=spatial, factual or none, default both   Table 6, with ROWS=18500 (25 % of the data)
#   TAU=0 or 0.5, default 0.25                      Table 5, with ROWS=18500
#   VERIFY=answer or reasoning, default both        Table 4
# Ours: GATE=sample (one gate a sample, default region), ANNOTATOR=rules (offline, and then it is no RadGraph) or radgraph
# (the older model), default radgraph-xl.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
source recipes/gpu_env.sh

REWARD=${REWARD:-both}                      # Gated, reward; Table 6 has the others
VERIFY=${VERIFY:-both}                      # Gated, Table 4: its joint row has the RadGraph-F1 of Table 1, 27.9
GATE=${GATE:-region}                        # Gated, reward: a region with IoU <= tau keeps the spatial term alone
TAU=${TAU:-0.25}                            # Gated, reward and Table 5
ANNOTATOR=${ANNOTATOR:-radgraph-xl}         # Gated, reward: RadGraph-XL
CHECKPOINT=${CHECKPOINT:-${RADVERL_RADGRAPH:-}} # yours
MODEL=${MODEL:-$PWD/outputs/gated_qwen3vl8b_coldstart/model} # Gated, method: from the checkpoint of stage 2
ROWS=${ROWS:-74000}                         # Gated, training settings: 74,000
B=${B:-32} K=${K:-8}                        # Gated, training settings
LR=${LR:-1e-6}                              # Gated, training settings
WARMUP=${WARMUP:-0.1}                       # Gated, training settings
EPOCHS=${EPOCHS:-1}                         # ours: the paper names no length; 2,312 steps in its 35 hours
MAX_PROMPT=${MAX_PROMPT:-768}               # ours: 512 tokens for the film, the rest for the question
MAX_RESPONSE=${MAX_RESPONSE:-1024}          # Gated, training settings
GPUS=${GPUS:-8} GPU_MEMORY_GB=${GPU_MEMORY_GB:-80} # Gated, training settings: eight A100 of 80 GB
SEED=${SEED:-0}                             # ours: the paper names none

one_of REWARD both spatial factual none
one_of VERIFY reasoning answer both
one_of GATE region sample
[[ $ANNOTATOR != files ]] ||
  stop "ANNOTATOR=files cannot train, for no file holds the texts that a policy will write; use radgraph-xl or rules."
one_of ANNOTATOR radgraph-xl radgraph rules
whole_numbers ROWS B K EPOCHS MAX_PROMPT MAX_RESPONSE GPUS ${STEPS:+STEPS}
[[ $SEED =~ ^[0-9]+$ ]] || stop "SEED=$SEED is not a whole number; correct it."
numbers 1e-6 LR
[[ $WARMUP =~ ^(0|0?\.[0-9]+)$ ]] || stop "WARMUP=$WARMUP is not a share of the steps such as 0.1; correct it."
[[ $TAU =~ ^(0|0?\.[0-9]+)$ ]] || stop "TAU=$TAU is not an IoU from 0 to below 1, such as 0.25; correct it."
[[ $REWARD == both || ($TAU == 0.25 && $GATE == region) ]] ||
  stop "TAU and GATE do nothing with REWARD=$REWARD, which has no gate; unset them."
[[ $REWARD != none || $VERIFY != reasoning ]] ||
  stop "REWARD=none with VERIFY=reasoning rewards nothing; set VERIFY to answer or both."
[[ $ANNOTATOR == radgraph* || $CHECKPOINT == "${RADVERL_RADGRAPH:-}" ]] ||
  stop "CHECKPOINT does nothing with ANNOTATOR=$ANNOTATOR; unset one of them."
((ROWS >= B)) || stop "ROWS=$ROWS is less than a batch of B=$B; correct one of them."
((K > 1)) || stop "K=$K rollouts have no group to compare with; set K to 2 or more."
((B * K % GPUS == 0)) || stop "B x K = $((B * K)) rollouts do not divide among GPUS=$GPUS; change one of them."
export GPU_MEMORY_GB

name=gated_qwen3vl8b_grpo
[[ $REWARD == both ]] || name+=_$REWARD
[[ $VERIFY == both ]] || name+=_$VERIFY
[[ $GATE == region ]] || name+=_$GATE
[[ $TAU == 0.25 ]] || name+=_tau$TAU
[[ $ANNOTATOR == radgraph-xl ]] || name+=_$ANNOTATOR
[[ $ROWS == 74000 ]] || name+=_$ROWS
resolve_paths "outputs/$name" data/gated_grpo
TRAIN_PART=0.15:1                           # ours: the patients that are not in stage 2
earlier_stage recipes/gated_qwen3vl8b_coldstart.sh Qwen/Qwen3-VL-8B-Instruct
source recipes/gated_traces.sh
for file in train.parquet val.parquet; do
  [[ -f $DATA/$file ]] || { lacking "$DATA has no $file; make it with: $MAKE_DATA --out $DATA"; break; }
done
if [[ $ANNOTATOR == radgraph* ]]; then
  [[ -z $CHECKPOINT ]] || CHECKPOINT=$(from_here "$CHECKPOINT")
  [[ $CHECKPOINT != *'${'* && $CHECKPOINT != *$'\n'* ]] || stop "CHECKPOINT holds \${ or a line break; use another path."
  if [[ -z $CHECKPOINT || ! -e $CHECKPOINT ]]; then
    lacking "CHECKPOINT=$CHECKPOINT is no checkpoint of $ANNOTATOR; name yours (get one with: hf download \
StanfordAIMI/RRG_scorers $ANNOTATOR.tar.gz), or train with ANNOTATOR=rules."
    export STAND_IN_ANNOTATOR=rules
  fi
fi

DATA_ARGS=(
  data.train_files="$(quoted "$DATA/train.parquet")" data.val_files="$(quoted "$DATA/val.parquet")" # yours
  data.image_key=images data.shuffle=True data.seed="$SEED" # ours: order, and which rows if there are more
  data.image_patch_size=16                # ours: Qwen3-VL's patches; verl's default is that of Qwen2.5-VL
  data.train_max_samples="$ROWS"          # Gated, training settings
  data.val_max_samples=512                # ours: a validation in about the time of two steps
  data.train_batch_size="$B"              # Gated, training settings
  data.max_prompt_length="$MAX_PROMPT"    # ours, see above
  data.max_response_length="$MAX_RESPONSE" # Gated, training settings
  data.filter_overlong_prompts=True data.truncation=error # ours: verl says how many rows it left out
  data.filter_overlong_prompts_workers=8  # ours: it opens every film
  data.dataloader_num_workers=4           # ours: decoding 32 films a step needs no more
)
ALGORITHM=(
  trainer.v1.trainer_mode=sync                # ours: verl's default
  algorithm.adv_estimator=grpo                # Gated, objective
  algorithm.norm_adv_by_std_in_grpo=True      # Gated, objective: A = (r - mean) / std
  algorithm.filter_groups.enable=False        # ours: of DAPO the paper takes the clip alone
  algorithm.use_kl_in_reward=False            # Gated, objective: the KL is in the loss
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean # ours: GRPO's own, each rollout by its length
)
REWARD_ARGS=(
  reward.reward_manager.name=radverl +reward.radverl.reward=gated # Gated, reward
  +reward.radverl.kwargs.reward="$REWARD"       # Gated, reward and Table 6
  +reward.radverl.kwargs.verify="$VERIFY"       # Gated, Table 4
  +reward.radverl.kwargs.gate="$GATE"           # Gated, reward
  +reward.radverl.kwargs.tau="$TAU"             # Gated, reward and Table 5: IoU > tau
  +reward.radverl.kwargs.level=partial          # ours: the paper names none
  +reward.radverl.kwargs.annotator="$ANNOTATOR" # Gated, reward: RadGraph-XL
  reward.num_workers=8                          # ours: they share one annotator a node
)
[[ $ANNOTATOR != radgraph* ]] || REWARD_ARGS+=(
  +reward.radverl.kwargs.annotator_settings.checkpoint="$(quoted "$CHECKPOINT")" # yours
)
ACTOR=(
  actor_rollout_ref.model.path="$(quoted "$MODEL")"     # Gated, method; the reference is the same (ours: it says not which)
  actor_rollout_ref.model.enable_gradient_checkpointing=True # ours: memory
  actor_rollout_ref.model.use_remove_padding=True       # ours: rows packed without padding (needs flash-attn)
  actor_rollout_ref.actor.optim.lr="$LR"                # Gated, training settings
  actor_rollout_ref.actor.optim.lr_warmup_steps_ratio="$WARMUP" # Gated, training settings
  actor_rollout_ref.actor.optim.lr_scheduler_type=cosine actor_rollout_ref.actor.optim.min_lr_ratio=0 # ours: as stage 1
  actor_rollout_ref.actor.optim.weight_decay=0.01       # ours: the paper gives none; AdamW's default in PyTorch
  actor_rollout_ref.actor.optim.clip_grad=1.0           # ours: the default of verl
  actor_rollout_ref.actor.ppo_mini_batch_size="$B"      # ours: one update a batch, see docs/gated.md
  actor_rollout_ref.actor.ppo_epochs=1                  # ours: the same
  actor_rollout_ref.actor.clip_ratio=0.2                # Gated, objective; verl takes the next two
  actor_rollout_ref.actor.clip_ratio_low=0.2            # Gated, objective
  actor_rollout_ref.actor.clip_ratio_high=0.28          # Gated, objective
  actor_rollout_ref.actor.use_kl_loss=True              # Gated, objective
  actor_rollout_ref.actor.kl_loss_coef=0.04             # Gated, objective: beta
  actor_rollout_ref.actor.kl_loss_type=low_var_kl       # Gated, objective: the unbiased estimator, k3
  actor_rollout_ref.actor.entropy_coeff=0               # Gated, objective: no entropy term
  actor_rollout_ref.actor.use_dynamic_bsz=True          # ours: micro-batches by tokens, traces differ in length
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 # ours: nine full rows, see docs/gated.md
  # ours: more, for there is no gradient
  actor_rollout_ref.{ref,rollout}.log_prob_max_token_len_per_gpu=24576 # ours
  actor_rollout_ref.actor.entropy_from_logits_with_chunking=True # ours: memory, 151,936 logits a token
  actor_rollout_ref.actor.entropy_from_logits_chunk_size=1024    # ours: 1.9 GB at most
  actor_rollout_ref.actor.strategy=fsdp2                # ours: the paper has DeepSpeed's ZeRO-3, which shards the same
  actor_rollout_ref.{actor,ref}.fsdp_config.strategy=fsdp2 # ours: the same
  actor_rollout_ref.actor.fsdp_config.model_dtype=fp32  # ours: bf16 weights would swallow steps of 1e-6
  actor_rollout_ref.actor.fsdp_config.dtype=bfloat16    # Gated, training settings: bf16
  actor_rollout_ref.ref.fsdp_config.model_dtype=bf16    # Gated, training settings: bf16; only read
  'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra]' # ours: what a resumed run needs
)
ROLLOUT=(
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n="$K" # Gated, training settings: G = 8; vLLM is ours
  actor_rollout_ref.rollout.dtype=bfloat16                # Gated, training settings: bf16
  actor_rollout_ref.rollout.temperature=1.0               # ours: the paper gives none
  actor_rollout_ref.rollout.top_p=1.0 actor_rollout_ref.rollout.top_k=-1 # ours: samples are the policy's own
  actor_rollout_ref.rollout.seed="$SEED"                  # ours: one seed for all
  actor_rollout_ref.rollout.tensor_model_parallel_size=1  # ours: 17.5 GB of weights fit on one GPU
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5    # ours: weights, work, cache for all rollouts of a GPU
  actor_rollout_ref.rollout.max_model_len=$((MAX_PROMPT + MAX_RESPONSE)) # ours: the longest row
  actor_rollout_ref.rollout.max_num_seqs=64               # ours: a GPU has B x K / GPUS = 32 rollouts
  actor_rollout_ref.rollout.max_num_batched_tokens=8192   # ours: bounds vLLM's own activations
  actor_rollout_ref.rollout.enforce_eager=False           # ours: captured graphs are faster and fit
  actor_rollout_ref.rollout.free_cache_engine=True        # ours: vLLM gives up weights and cache in the update
  actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=2560 # ours: fp32 embedding 2,374
  # ours: vLLM never shrinks a film that passed the prompt length (32 x 32 pixels a token), and plans for none larger
  +actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_kwargs.max_pixels=$((MAX_PROMPT * 32 * 32)) # ours
  +actor_rollout_ref.rollout.engine_kwargs.vllm.limit_mm_per_prompt.image=1 # ours: one film a row, no memory for videos
  +actor_rollout_ref.rollout.engine_kwargs.vllm.limit_mm_per_prompt.video=0 # ours: the same
  actor_rollout_ref.rollout.agent.num_workers=8           # ours: 256 short sessions a step
  actor_rollout_ref.rollout.val_kwargs.do_sample=False    # ours: greedy, as an evaluation would
)
TRAINER=(
  trainer.total_epochs="$EPOCHS" ${STEPS:+trainer.total_training_steps="$STEPS"} # ours, see above
  trainer.n_gpus_per_node="$GPUS" trainer.nnodes=1        # Gated, training settings
  trainer.logger='[console,file]' trainer.project_name=radverl trainer.experiment_name="$(quoted "${OUT##*/}")" # yours
  trainer.default_local_dir="$(quoted "$OUT/checkpoints")" hydra.run.dir="$(quoted "$OUT/hydra")" # yours
  trainer.rollout_data_dir="$(quoted "$OUT/rollouts")" trainer.validation_data_dir="$(quoted "$OUT/validation")" # yours
  trainer.resume_mode=auto trainer.save_freq=100 trainer.max_actor_ckpt_to_keep=2 # ours: 105 GB each
  trainer.val_before_train=True trainer.test_freq=100     # ours: the first is the model of stage 2
)
RUN=("${DATA_ARGS[@]}" "${ALGORITHM[@]}" "${REWARD_ARGS[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${TRAINER[@]}")

if [[ $DRY_RUN == 1 ]]; then
  exec "$PYTHON" -m radverl.verl_plugin.dry_run "${RUN[@]}" "$@"
fi

settings="$name DATA=$DATA MODEL=$MODEL CHECKPOINT=$CHECKPOINT SEED=$SEED B=$B K=$K LR=$LR WARMUP=$WARMUP"
settings+=" MAX_PROMPT=$MAX_PROMPT MAX_RESPONSE=$MAX_RESPONSE GPUS=$GPUS $*"
same_run "$settings"
"$PYTHON" -m radverl.verl_plugin.dry_run "${RUN[@]}" "$@" >/dev/null
check_machine
check_files -- "$DATA/train.parquet" "$DATA/val.parquet"
start_run "$settings"
"$PYTHON" -m radverl.watchdog --stats "$OUT/stats.json" -- "$PYTHON" -m verl.trainer.main_ppo "${RUN[@]}" "$@" 2>&1 |
  tee -a "$OUT/train.log"
printf '\nmake a Hugging Face folder of it, then evaluate it with radverl eval:\n  %s\n' \
  "$PYTHON -m verl.model_merger merge --backend fsdp --local_dir $(last_step)/actor --target_dir $OUT/model"
