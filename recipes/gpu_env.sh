# Sourced by the recipes for GPUs: environment, paths, what is checked before a run, and which run a folder resumes.
# They set `here` to the caller's folder and go to the repository's root before that.
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

PYTHON=${PYTHON:-.venv/bin/python}
command -v "$PYTHON" >/dev/null || stop "PYTHON=$PYTHON is not there; run make setup."
DRY_RUN=${DRY_RUN:-0}
one_of DRY_RUN 0 1
export VERL_USE_EXTERNAL_MODULES=radverl.verl_plugin HYDRA_FULL_ERROR=1 TOKENIZERS_PARALLELISM=false
export VLLM_NO_USAGE_STATS=1 RAY_USAGE_STATS_ENABLED=0 DO_NOT_TRACK=1

resolve_paths() { # default OUT, default DATA, from the root; what the user gave (MODEL too, where it is a folder) from $here
  if [[ -n ${OUT:-} ]]; then OUT=$(from_here "$OUT"); else OUT=$PWD/$1; fi
  [[ ! -e $OUT || -d $OUT ]] || stop "OUT=$OUT is a file; name a folder."
  if [[ -n ${DATA:-} ]]; then DATA=$(from_here "$DATA"); else DATA=$2; fi
  [[ ! -d $(from_here "$MODEL") ]] || MODEL=$(from_here "$MODEL")
  [[ $DATA$MODEL$OUT != *'${'* && $DATA$MODEL$OUT != *$'\n'* ]] || # verl resolves its config again and again
    stop "DATA, MODEL or OUT holds \${ or a line break, which no config can hold; use another path."
}
lacking() { # something a run needs is not there: a dry run says so and goes on
  [[ $DRY_RUN == 1 ]] || stop "$1"
  printf '%s: %s\n' "$(basename "$0" .sh)" "$1" >&2
}
same_run() { # its settings: resuming continues another run's weights under its name, unless the two are the same run
  if [[ -f $OUT/settings && $(<"$OUT/settings") != "$1" ]]; then
    stop "$OUT holds a run with other settings ($OUT/settings); set OUT to another folder, or give those."
  fi
}
check_machine() { # a hub name is not looked up, a folder is
  local model=()
  [[ ! -d $MODEL ]] || model=(--model "$MODEL")
  "$PYTHON" -m radverl.doctor "${model[@]}" || stop "the checks above must pass first."
}
check_files() { # options of `radverl data check` -- files; reads every row, so only what changed since the last time
  local options=() file state
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  for file in "${@:2}"; do
    state="$file $(stat -c '%s %Y' "$file") ${options[*]}"
    ! grep -qsxF -e "$state" "$OUT/checked" || continue
    "$PYTHON" -m radverl.cli data check "$file" "${options[@]}"
    mkdir -p "$OUT"
    printf '%s\n' "$state" >>"$OUT/checked"
  done
}
start_run() { # its settings; verl empties a file of metrics when it starts, so each start has its own
  mkdir -p "$OUT"
  printf '%s\n' "$1" >"$OUT/settings"
  export VERL_FILE_LOGGER_PATH="$OUT/metrics_$(date +%Y%m%d_%H%M%S).jsonl"
}
last_step() { # folder of the newest checkpoint
  printf '%s' "$OUT/checkpoints/global_step_$(<"$OUT/checkpoints/latest_checkpointed_iteration.txt")"
}
earlier_stage() { # recipe that makes MODEL, hub name of the same shapes, by which a dry run estimates memory without it
  local folder
  folder=$(from_here "$MODEL")
  [[ ! -f $folder/config.json && ($MODEL == [/.~]* || -d $folder) ]] || return 0 # there, or a name of the hub
  lacking "MODEL=$MODEL holds no config.json; run $1 first, or set MODEL to a Hugging Face folder."
  export SHAPES_OF=$2
}
