#!/usr/bin/env bash
# OraPO + FactS (arXiv 2509.18600): Qwen2.5-VL-3B-Instruct, RL only, on 1,000 balanced CheXpert Plus studies, on verl.
# Sized for four A10 of 24 GB. This recipe was dry-run only: nobody has trained with it yet. Research, not clinical use.
#
#   bash recipes/orapo_qwen25vl3b.sh [overrides of verl.trainer.main_ppo ...]
#   DRY_RUN=1 bash recipes/orapo_qwen25vl3b.sh     checks config, data and memory and starts nothing: exit 0, or 2 and a
#                                                  sentence. Data that are not there yet are named; that alone is no 2.
#                                                  The verdict stands below the config: | tail -n 12
# DATA    folder with train.parquet, val.parquet of `radverl data chexpert_plus` (default data/chexpert_plus_STUDIES)
# MODEL   hub name or local folder (default Qwen/Qwen2.5-VL-3B-Instruct); with a folder, prompts are counted beforehand
# OUT     checkpoints, rollouts, metrics (default outputs/orapo_qwen25vl3b and the switches below); run again to resume
# SEED, GPUS, GPU_MEMORY_GB, B, K, LR, EPOCHS or STEPS, MAX_PROMPT, MAX_RESPONSE: see below
#
# Ablations of the paper (Table 3, and SFT in place of DPO):
#   REWARD=accuracy   1 if all 14 labels are right, else 0, in place of FactS
#   ORAPO=0           plain GRPO           (REWARD=accuracy ORAPO=0 is the second row of Table 3, ORAPO=0 the third)
#   STUDIES=400       a balanced 400 (from data/chexpert_plus_400), or 400 of the rows of DATA, drawn by SEED
#   ORACLE=sft        likelihood of the true report in place of DPO
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
source recipes/gpu_env.sh

REWARD=${REWARD:-facts} ORAPO=${ORAPO:-1} ORACLE=${ORACLE:-dpo}
ENGINE=${ENGINE:-fsdp2} # recipes/orapo_qwen25vl3b_megatron.sh sets megatron
MODEL=${MODEL:-Qwen/Qwen2.5-VL-3B-Instruct} # OraPO, sec. 4.1
STUDIES=${STUDIES:-1000}                    # OraPO, sec. 4.1; Table 3 also has 400
B=${B:-16} K=${K:-8}                        # OraPO, sec. 4.1
LR=${LR:-2.5e-7}                            # OraPO, hyper-parameter search over 1e-6 and 2.5e-7
EPOCHS=${EPOCHS:-3}                         # ours: the paper names no length; 3 x 62 steps go past the 50 of sec. 3.2
MAX_PROMPT=${MAX_PROMPT:-768}               # ours: 512 tokens for the film (0.4 megapixels), the rest for the question
MAX_RESPONSE=${MAX_RESPONSE:-512}           # ours: longer than nearly all findings with impression
GPUS=${GPUS:-4} GPU_MEMORY_GB=${GPU_MEMORY_GB:-24} # OraPO, sec. 4.1: four A10 of 24 GB
SEED=${SEED:-0}                             # ours: the paper names none

one_of REWARD facts accuracy
one_of ORAPO 0 1
one_of ORACLE dpo sft
one_of ENGINE fsdp2 megatron
whole_numbers STUDIES B K EPOCHS MAX_PROMPT MAX_RESPONSE GPUS ${STEPS:+STEPS}
[[ $SEED =~ ^[0-9]+$ ]] || stop "SEED=$SEED is not a whole number; correct it."
numbers 2.5e-7 LR
[[ $ORAPO == 1 || $ORACLE == dpo ]] || stop "ORACLE=$ORACLE does nothing with ORAPO=0; unset one of them."
((STUDIES >= B)) || stop "STUDIES=$STUDIES is less than a batch of B=$B; correct one of them."
((B * K % GPUS == 0)) || stop "B x K = $((B * K)) rollouts do not divide among GPUS=$GPUS; change one of them."
export GPU_MEMORY_GB

name=orapo_qwen25vl3b
[[ $ENGINE == fsdp2 ]] || name+=_$ENGINE
[[ $REWARD == facts ]] || name+=_$REWARD
[[ $ORAPO == 1 ]] || name+=_grpo
[[ $ORACLE == dpo ]] || name+=_$ORACLE
[[ $STUDIES == 1000 ]] || name+=_$STUDIES
resolve_paths "outputs/$name" "data/chexpert_plus_$STUDIES"
if [[ ! -f $DATA/train.parquet || ! -f $DATA/val.parquet ]]; then
  # --max-pixels: ours, 512 tokens of 28 x 28 pixels
  lacks=train.parquet
  [[ ! -f $DATA/$lacks ]] || lacks=val.parquet
  missing="$DATA has no $lacks; make it with: .venv/bin/radverl data chexpert_plus --csv df_chexpert_plus_240401.csv \
--image-root PNG --out $DATA --balance $STUDIES --split train val --max-pixels 401408"
  [[ $lacks == train.parquet ]] ||
    missing+=" (if you did: its studies lack a section, see $DATA/val.skipped.jsonl; try --target impression)"
  lacking "$missing"
fi

DATA_ARGS=(
  data.train_files="$(quoted "$DATA/train.parquet")" data.val_files="$(quoted "$DATA/val.parquet")" # yours
  data.image_key=images data.shuffle=True data.seed="$SEED" # ours: order, and which studies if there are more
  data.train_max_samples="$STUDIES"       # OraPO, sec. 4.1 (1,000) and Table 3 (400)
  data.train_batch_size="$B"              # OraPO, sec. 4.1
  data.max_prompt_length="$MAX_PROMPT"    # ours, see above
  data.max_response_length="$MAX_RESPONSE" # ours, see above; a longer true report is cut
  data.filter_overlong_prompts=True data.truncation=error # ours: verl says how many rows it left out
  data.dataloader_num_workers=2           # ours: decoding 16 films a step needs no more
)
ALGORITHM=(
  algorithm.adv_estimator=grpo                # OraPO, eqs 1-4
  algorithm.norm_adv_by_std_in_grpo=False     # OraPO, sec. 4.1: Dr.GRPO, no division by the standard deviation
  algorithm.filter_groups.enable=False        # OraPO, eq. 8: groups without reward are what it learns from
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm # OraPO, sec. 4.1: Dr.GRPO, no division by own length
  actor_rollout_ref.actor.loss_scale_factor="$MAX_RESPONSE"     # ours: the constant in its place, as in TRL's Dr.GRPO
)
if [[ $ORAPO == 1 ]]; then
  ALGORITHM+=(
    trainer.v1.trainer_mode=orapo_sync         # OraPO, eq. 11
    +algorithm.orapo.alpha=0.5                 # OraPO, eq. 9 and sec. 4.1
    +algorithm.orapo.w_min=0.05                # OraPO, eq. 10 and sec. 4.1
    +algorithm.orapo.w_max=0.15                # OraPO, eq. 10 and sec. 4.1
    +algorithm.orapo.gamma=2.0                 # OraPO, eq. 10 and sec. 4.1
    +algorithm.orapo.length_normalised=True    # OraPO, sec. 4.1: LN-DPO
    +algorithm.orapo.negatives=all             # OraPO, eq. 12: the whole group
    +algorithm.orapo.tau=0.1                   # ours: eq. 7 names tau, the paper gives no value
    +algorithm.orapo.init=first                # ours: eq. 9 does not say where the average starts
    +algorithm.orapo.scope=prompt              # ours: eq. 9 allows prompt or batch
    +algorithm.orapo.mode=auto                 # ours: one update a batch, so row coefficients are exact
    +algorithm.orapo.oracle_loss="$ORACLE"     # OraPO, eq. 11; sft is its ablation
  )
else
  ALGORITHM+=(trainer.v1.trainer_mode=sync) # OraPO, Table 3: GRPO alone
fi
REWARD_ARGS=(
  reward.reward_manager.name=radverl +reward.radverl.reward="$REWARD" # OraPO, sec. 3.3 (facts) and Table 3 (accuracy)
  +reward.radverl.kwargs.judge=rules      # ours: offline rules where the paper asks GPT-4.1
  +reward.radverl.kwargs.uncertain=ones   # ours: labels of -1 count as present
  reward.num_workers=4                    # ours: a report takes about a millisecond
)
[[ $REWARD != facts ]] || REWARD_ARGS+=(
  +reward.radverl.kwargs.beta=2.0                     # ours: eq. 15 wants beta > 1 for recall, the paper gives no value
  +reward.radverl.kwargs.contradiction_fp=gt_positive # ours: denying an absent finding is right, not a false positive
)
ACTOR=(
  actor_rollout_ref.model.path="$(quoted "$MODEL")"     # OraPO, sec. 4.1
  actor_rollout_ref.model.enable_gradient_checkpointing=True # ours: memory
  actor_rollout_ref.model.use_remove_padding=True       # ours: rows packed without padding (needs flash-attn)
  actor_rollout_ref.actor.optim.lr="$LR"                # OraPO, hyper-parameter search
  actor_rollout_ref.actor.optim.weight_decay=0.0        # ours: the default of TRL, which the paper trains with
  actor_rollout_ref.actor.optim.lr_warmup_steps=0       # ours: the default of TRL
  actor_rollout_ref.actor.optim.clip_grad=1.0           # ours: the default of TRL and of verl
  actor_rollout_ref.actor.ppo_mini_batch_size="$B"      # ours: one update a batch, as GRPO in TRL; keeps row mode exact
  actor_rollout_ref.actor.ppo_epochs=1                  # ours: the same
  actor_rollout_ref.actor.clip_ratio=0.2                # ours: eq. 4 names epsilon, the paper gives no value; TRL's 0.2
  actor_rollout_ref.actor.clip_ratio_{low,high}=0.2     # ours: the same; verl takes these two
  actor_rollout_ref.actor.use_kl_loss=True              # OraPO, eq. 4; DPO needs the reference as well
  actor_rollout_ref.actor.kl_loss_coef=0.04             # ours: eq. 4 names lambda_KL without a value; DeepSeekMath's
  actor_rollout_ref.actor.kl_loss_type=low_var_kl       # ours: the estimator of GRPO in DeepSeekMath and TRL
  actor_rollout_ref.actor.entropy_coeff=0               # OraPO, eq. 4 has no entropy term
  actor_rollout_ref.actor.use_dynamic_bsz=True          # ours: micro-batches by tokens, reports differ in length
  actor_rollout_ref.actor.entropy_from_logits_with_chunking=True # ours: memory, 151,936 logits a token
  actor_rollout_ref.actor.entropy_from_logits_chunk_size=512     # ours: 0.9 GB at most
  'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra]' # ours: what a resumed run needs
)
if [[ $ENGINE == fsdp2 ]]; then
  ACTOR+=( # docs/orapo_memory.md has the budget
    actor_rollout_ref.actor.strategy=fsdp2              # ours: FSDP2 can keep weights and optimizer on the host
    actor_rollout_ref.{actor,ref}.fsdp_config.strategy=fsdp2 # ours: the same
    actor_rollout_ref.actor.fsdp_config.offload_policy=True  # ours: 15 GB of 24 would be weights, gradients and Adam
    actor_rollout_ref.actor.fsdp_config.model_dtype=fp32     # ours: bf16 weights would swallow steps of 2.5e-7
    actor_rollout_ref.ref.fsdp_config.model_dtype=bf16       # ours: only read, half the host memory
    actor_rollout_ref.actor.optim.lr_scheduler_type=constant # ours: the paper names no schedule
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((4 * (MAX_PROMPT + MAX_RESPONSE))) # ours: four full rows
    # ours: more, for there is no gradient
    actor_rollout_ref.{ref,rollout}.log_prob_max_token_len_per_gpu=$((6 * (MAX_PROMPT + MAX_RESPONSE))) # ours
  )
fi
ROLLOUT=(
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n="$K" # OraPO, sec. 4.1: K = 8; vLLM is ours
  actor_rollout_ref.rollout.temperature=1.0               # ours: the paper gives none; DPO's log-probs are at 1
  actor_rollout_ref.rollout.top_p=1.0 actor_rollout_ref.rollout.top_k=-1 # ours: samples are the policy's own
  actor_rollout_ref.rollout.seed="$SEED"                  # ours: one seed for all
  actor_rollout_ref.rollout.tensor_model_parallel_size=1  # ours: 7.5 GB of weights fit on one GPU
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6    # ours: weights, work, cache for all rollouts of a GPU
  actor_rollout_ref.rollout.max_model_len=$((MAX_PROMPT + MAX_RESPONSE)) # ours: the longest row
  actor_rollout_ref.rollout.max_num_seqs=64               # ours: a GPU has B x K / GPUS = 32 rollouts
  actor_rollout_ref.rollout.max_num_batched_tokens=4096   # ours: bounds vLLM's own activations
  actor_rollout_ref.rollout.enforce_eager=True            # ours: captured graphs would stay on the GPU in the update
  actor_rollout_ref.rollout.free_cache_engine=True        # ours: vLLM gives up weights and cache in the update
  actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=1280 # ours: fp32 embedding 1,187
  # ours: vLLM never shrinks a film that passed the prompt length (28 x 28 pixels a token), and plans for none larger
  +actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_kwargs.max_pixels=$((MAX_PROMPT * 28 * 28)) # ours
  actor_rollout_ref.rollout.agent.num_workers=4           # ours: 128 short sessions a step
  actor_rollout_ref.rollout.val_kwargs.do_sample=False    # ours: greedy, as an evaluation would
)
TRAINER=(
  trainer.total_epochs="$EPOCHS" ${STEPS:+trainer.total_training_steps="$STEPS"} # ours, see above
  trainer.n_gpus_per_node="$GPUS" trainer.nnodes=1        # OraPO, sec. 4.1
  trainer.logger='[console,file]' trainer.project_name=radverl trainer.experiment_name="$(quoted "${OUT##*/}")" # yours
  trainer.default_local_dir="$(quoted "$OUT/checkpoints")" hydra.run.dir="$(quoted "$OUT/hydra")" # yours
  trainer.rollout_data_dir="$(quoted "$OUT/rollouts")" trainer.validation_data_dir="$(quoted "$OUT/validation")" # yours
  trainer.resume_mode=auto trainer.save_freq=20 trainer.max_actor_ckpt_to_keep=2 # ours: 45 GB each
  trainer.val_before_train=True trainer.test_freq=20      # ours: the first is the base model, row one of Table 3
)
RUN=("${DATA_ARGS[@]}" "${ALGORITHM[@]}" "${REWARD_ARGS[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${TRAINER[@]}")

if [[ $DRY_RUN == 1 ]]; then
  exec "$PYTHON" -m radverl.verl_plugin.dry_run "${RUN[@]}" "$@"
fi

settings="$name DATA=$DATA MODEL=$MODEL SEED=$SEED B=$B K=$K LR=$LR"
settings+=" MAX_PROMPT=$MAX_PROMPT MAX_RESPONSE=$MAX_RESPONSE GPUS=$GPUS $*"
same_run "$settings"
count=()
[[ ! -d $MODEL ]] || count=(--model "$MODEL" --max-prompt-length "$MAX_PROMPT")
"$PYTHON" -m radverl.verl_plugin.dry_run "${RUN[@]}" "$@" >/dev/null
check_machine
check_files "${count[@]}" -- "$DATA/train.parquet" "$DATA/val.parquet"
start_run "$settings"
"$PYTHON" -m radverl.watchdog --stats "$OUT/stats.json" -- "$PYTHON" -m verl.trainer.main_ppo "${RUN[@]}" "$@" 2>&1 |
  tee -a "$OUT/train.log"
printf '\nmake a Hugging Face folder of it, then evaluate it with radverl eval:\n  %s\n' \
  "$PYTHON -m verl.model_merger merge --backend ${ENGINE%2} --local_dir $(last_step)/actor --target_dir $OUT/model"
