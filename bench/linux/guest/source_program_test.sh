#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# linuxbench as a script makes itself, and is linuxbench with the rows of debian.inc.
#   usage: source_program_test.sh LINUXBENCH32
set -euo pipefail
cp "$1" "$TEST_TMPDIR/linuxbench"
chmod u+wx "$TEST_TMPDIR/linuxbench"
truncate -s %4096 "$TEST_TMPDIR/linuxbench"
cd "$TEST_TMPDIR"
./linuxbench nothing
"$TEST_TMPDIR/linuxbench" run quick:only=getppid "$TEST_TMPDIR" "" >out.txt
grep -q '"mark":"begin"' out.txt && grep -q '"mark":"done"' out.txt
if grep -q '"begin":"getppid"' out.txt; then exit 1; fi
# Begins, and finds no Debian here.
"$TEST_TMPDIR/linuxbench" run quick:only=forkwait-40000 "$TEST_TMPDIR" "" >out.txt
grep -q '"begin":"forkwait-40000"' out.txt
status=0
./linuxbench 2>err.txt || status=$?
[[ $status == 64 ]] && grep -q '^usage: linuxbench run' err.txt
