#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A guest measures the TSC while Alibi is stopped half of the time.
#   usage: busy_host_test.sh ALIBI COUNTDOWN_KERNEL
set -uo pipefail

out=$TEST_TMPDIR/out
"$1" run --stats "$2" > "$out" 2>&1 &
pid=$!
while kill -STOP $pid 2> /dev/null; do
  sleep 0.01
  kill -CONT $pid 2> /dev/null
  sleep 0.01
done
wait $pid
status=$?
cat "$out"
# The kernel's exit code 0, by the debug-exit port.
[[ $status == 1 ]] && grep -q '^SUMMARY 2 passed 0 failed' "$out"
