# Sourced by every recipe: what bad input gets, and paths as the caller and hydra mean them.
stop() { # bad input: one sentence, exit 2
  printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
  exit 2
}
one_of() { # name of a variable, what it may be
  local name=$1 value=${!1} allowed
  for allowed in "${@:2}"; do [[ $value != "$allowed" ]] || return 0; done
  shift
  stop "$name=$value is unknown; use one of: $*."
}
whole_numbers() { # names of variables that must hold one
  local name
  for name in "$@"; do
    [[ ${!name} =~ ^[1-9][0-9]*$ ]] || stop "$name=${!name} is not a whole number above 0; correct it."
  done
}
numbers() { # such as 2.5e-7, then names of variables that must hold one
  local name
  for name in "${@:2}"; do
    [[ ${!name} =~ ^[0-9]*\.?[0-9]+(e-?[0-9]+)?$ ]] || stop "$name=${!name} is not a number such as $1; correct it."
  done
}
quoted() { # a path as hydra's grammar takes it: backslashes count where a quote follows
  printf "'%s'" "$(printf '%s' "$1" | sed -E "s/(\\\\*)'/\1\1\\\\'/g; s/(\\\\*)\$/\1\1/")"
}
from_here() { if [[ $1 == /* ]]; then printf '%s' "$1"; else printf '%s' "$here/$1"; fi; } # as the caller meant it
