# SPDX-License-Identifier: Apache-2.0
# What tests of `alibi lab` have in common, to be sourced: fail, and run, which calls
# `alibi lab "${lab_command[@]}" ...`. They set alibi and lab_command.

export ALIBI_DATA=${alibi%/cli/alibi}

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

run() { # run STATUS ARGUMENTS...: errors.txt has what it said
  local wanted=$1 status=0
  shift
  timeout -k 2 200 "$alibi" lab "${lab_command[@]}" "$@" >out.txt 2>errors.txt || status=$?
  [[ $status == "$wanted" ]] ||
    fail "alibi lab ${lab_command[*]} $*: status $status: $(cat errors.txt)"
}
