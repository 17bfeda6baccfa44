#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What test_summary.py prints, and its exit status, for small made-up build event files.
set -euo pipefail
summary=$(dirname "$0")/test_summary.py
dir=$TEST_TMPDIR

expect() { # NAME STATUS LAST_LINE
  local status=0 output
  output=$(python3 "$summary" "$dir/events") || status=$?
  if [[ $status != "$2" || ${output##*$'\n'} != "$3" ]]; then
    printf '%s: expected status %s and "%s", got %s and:\n%s\n' "$1" "$2" "$3" "$status" "$output"
    exit 1
  fi
}

configured() {
  printf '{"id":{"targetConfigured":{"label":"%s"}},"configured":{"testSize":"SMALL"}}\n' "$1"
}
result() { # LABEL STATUS XML
  printf '{"id":{"testResult":{"label":"%s","run":1}},"testResult":{"status":"%s",' "$1" "$2"
  printf '"testActionOutput":[{"name":"test.xml","uri":"file://%s"}]}}\n' "$3"
}

printf '<testsuites><testsuite><testcase name="a"/><testcase name="b"/></testsuite></testsuites>' \
  >"$dir/good.xml"
printf '<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure message="x"/>%s' \
  '</testcase></testsuite></testsuites>' >"$dir/bad.xml"

: >"$dir/events"
expect "no tests" 1 "0 passed, 0 failed"

{ configured //x:good; result //x:good PASSED "$dir/good.xml"; } >"$dir/events"
expect "all pass" 0 "2 passed, 0 failed"

{ configured //x:bad; result //x:bad FAILED "$dir/bad.xml"; } >"$dir/events"
expect "one case fails" 1 "1 passed, 1 failed"

{ configured //x:odd; result //x:odd FAILED "$dir/good.xml"; } >"$dir/events"
expect "cases pass, the process fails" 1 "2 passed, 1 failed"

{ configured //x:gone; configured //x:good; result //x:good PASSED "$dir/good.xml"; } >"$dir/events"
expect "one target does not build" 1 "2 passed, 1 failed"

{ result //x:good FAILED "$dir/bad.xml"; result //x:good PASSED "$dir/good.xml"; } >"$dir/events"
expect "only the last attempt counts" 0 "2 passed, 0 failed"

{ configured //x:lost; result //x:lost PASSED "$dir/none.xml"; } >"$dir/events"
expect "a report is missing" 1 "0 passed, 1 failed"
