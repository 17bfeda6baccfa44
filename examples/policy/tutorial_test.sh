#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/policies.md shows the example as it is, its command line builds it, and Alibi runs it.
set -euo pipefail
tutorial=$1 example=$2 alibi=$3 kernel=$4 built=$5

awk '/^```cpp$/ {on = 1; next} /^```$/ {on = 0} on' "$tutorial" >"$TEST_TMPDIR/shown.cc"
if ! diff -u "$example" "$TEST_TMPDIR/shown.cc"; then
  echo "docs/policies.md does not show $example"
  exit 1
fi

command=$(grep '^c++ ' "$tutorial")
cd "$TEST_SRCDIR/$TEST_WORKSPACE"
${command/-o quiet.so/-o $TEST_TMPDIR/quiet.so}

run() {
  set +e
  "$alibi" run --ram 16M --policy "$1" --stats-json "$TEST_TMPDIR/stats" "$kernel" \
    >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err"
  status=$?
  set -e
}
run "$TEST_TMPDIR/quiet.so(2,64)"
if [[ $status != 1 ]] || ! grep -q '"policy": "quiet-pages"' "$TEST_TMPDIR/stats" ||
  grep -q policy_fault\" "$TEST_TMPDIR/stats"; then
  echo "the tutorial's plug-in did not run: status $status"
  cat "$TEST_TMPDIR/out" "$TEST_TMPDIR/err" "$TEST_TMPDIR/stats"
  exit 1
fi
run "$built(2,64)"
[[ $status == 1 ]] || { echo "Bazel's plug-in did not run"; exit 1; }
