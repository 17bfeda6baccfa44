#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Policy plug-ins in a running machine, of sites and of engines: those that work, those that
# misbehave, one that crashes.
set -euo pipefail
alibi=$1 kernel=$2 plugins=$3

fail() {
  echo "FAIL: $*" >&2
  cat "$TEST_TMPDIR/err" >&2
  exit 1
}

run() {
  set +e
  "$alibi" run --ram 128M --policy "$1" --stats-json "$TEST_TMPDIR/stats" "$kernel" \
    >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err"
  status=$?
  set -e
}

run "$plugins/good.so"
[[ $status == 1 && ! -s $TEST_TMPDIR/err ]] || fail "a sound plug-in: status $status"
grep -q '"policy_faults": 0' "$TEST_TMPDIR/stats" || fail "a sound plug-in has no faults"

# The guest does not notice; we say so once.
for bad in "throws.so(3)" "throws_int.so" "nonsense.so(7)"; do
  run "$plugins/$bad"
  [[ $status == 1 ]] || fail "$bad: status $status"
  [[ $(wc -l <"$TEST_TMPDIR/err") == 1 ]] || fail "$bad: not one line"
  grep -q "^alibi: policy plug-in '.*${bad%%(*}' .*; hysteresis decides from now on$" \
    "$TEST_TMPDIR/err" || fail "$bad: another line"
  grep -q '"policy_fault": "policy plug-in' "$TEST_TMPDIR/stats" || fail "$bad: no mark in the stats"
  grep -q '"policy_faults": 1' "$TEST_TMPDIR/stats" || fail "$bad: not counted"
done

run "$plugins/crashes.so"
[[ $status == 70 ]] || fail "a crash: status $status"
grep -q "^alibi: the policy plug-in '.*crashes.so' has crashed: signal 11, address (nil)$" \
  "$TEST_TMPDIR/err" || fail "a crash: another line"

# Engine policies: the host must be one whose user code can run directly. This kernel's cannot (its
# segments are not Linux's), but a policy is told that.
run_auto() {
  set +e
  "$alibi" run --ram 128M --engine "$1" ${2:+--engine-policy "$2"} --stats-json "$TEST_TMPDIR/stats" \
    "$kernel" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err"
  status=$?
  set -e
}
run_auto direct ""
if [[ $status != 1 ]]; then
  echo "no direct execution on this host: engine policies are not tested: $(<"$TEST_TMPDIR/err")"
  exit 0
fi

run_auto auto "$plugins/engine_computes.so(0)"
[[ $status == 1 && ! -s $TEST_TMPDIR/err ]] || fail "a sound engine policy: status $status"
grep -q '"engine_policy": "engines"' "$TEST_TMPDIR/stats" || fail "an engine policy has a name"
grep -q '"policy_faults": 0' "$TEST_TMPDIR/stats" || fail "a sound engine policy has no faults"

for bad in "engine_throws.so" "engine_nonsense.so(2)"; do
  run_auto auto "$plugins/$bad"
  [[ $status == 1 ]] || fail "$bad: status $status"
  [[ $(wc -l <"$TEST_TMPDIR/err") == 1 ]] || fail "$bad: not one line"
  grep -q "^alibi: engine policy plug-in '.*${bad%%(*}' .*; cost-model decides from now on$" \
    "$TEST_TMPDIR/err" || fail "$bad: another line"
  grep -q '"engine_policy_fault": "engine policy plug-in' "$TEST_TMPDIR/stats" ||
    fail "$bad: no mark in the stats"
  grep -q '"policy_faults": 1' "$TEST_TMPDIR/stats" || fail "$bad: not counted"
done
