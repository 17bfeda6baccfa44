#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A guest measures its clocks while Alibi is stopped half of the time. Nobody can see when a hypervisor
# takes the host's own CPU away: a run that fails while it did so is made again, a few times.
#   usage: busy_host_test.sh ALIBI PASSED KERNEL [OPTIONS]
# The kernel says that so many checks passed.
set -uo pipefail

out=$TEST_TMPDIR/out

# The time that the hypervisor took from all CPUs so far (proc(5)).
stolen() { awk '$1 == "cpu" { print $9 }' /proc/stat; }

measure() {
  local alibi=$1 passed=$2
  shift 2
  "$alibi" run --stats "$@" > "$out" 2>&1 &
  local pid=$!
  while kill -STOP $pid 2> /dev/null; do
    sleep 0.01
    kill -CONT $pid 2> /dev/null
    sleep 0.01
  done
  wait $pid
  local status=$?
  cat "$out"
  # The kernel's exit code 0, by the debug-exit port.
  [[ $status == 1 ]] && grep -q "^SUMMARY $passed passed 0 failed" "$out"
}

for _ in {1..8}; do
  before=$(stolen)
  measure "$@" && exit 0
  [[ $(stolen) == "$before" ]] && exit 1
done
exit 1
