# SPDX-License-Identifier: Apache-2.0
# What tests of `alibi lab` have in common, to be sourced: fail, use_users_cache, and run, which calls
# `alibi lab "${lab_command[@]}" ...`. They set alibi and, for run, lab_command.

export ALIBI_DATA=${alibi%/cli/alibi}

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Kernels and images of Linux guests, of which Bazel hands tests no HOME to find them by.
use_users_cache() {
  export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)/.cache}
}

run() { # run STATUS ARGUMENTS...: errors.txt has what it said
  local wanted=$1 status=0
  shift
  timeout -k 2 200 "$alibi" lab "${lab_command[@]}" "$@" >out.txt 2>errors.txt || status=$?
  [[ $status == "$wanted" ]] ||
    fail "alibi lab ${lab_command[*]} $*: status $status: $(cat errors.txt)"
}
