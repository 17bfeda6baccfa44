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

# The order of the lines, and what stands under a failed case.
expect_all() { # NAME TEXT
  local output
  output=$(python3 "$summary" "$dir/events") || true
  if [[ $output != "$2" ]]; then
    printf '%s: got\n%s\nbut expected\n%s\n' "$1" "$output" "$2"
    exit 1
  fi
}
timed() { # LABEL STATUS XML MILLISECONDS
  printf '{"id":{"testResult":{"label":"%s","run":1}},"testResult":{"status":"%s",' "$1" "$2"
  printf '"testAttemptDurationMillis":"%s","testActionOutput":[' "$4"
  printf '{"name":"test.xml","uri":"file://%s"}]}}\n' "$3"
}

printf '<testsuites><testsuite><testcase name="a, [b]">%s%s' \
  '<failure message="f.cc:1: 1 == 2&#10;more"/>' '</testcase></testsuite></testsuites>' \
  >"$dir/said.xml"
printf '<testsuites><testsuite><testcase name="x/script">%s%s' \
  '<error message="exited with error code 1"/>' \
  '</testcase><system-out>begin&#10;the answer is 41&#10;</system-out></testsuite></testsuites>' \
  >"$dir/script.xml"

{ timed //x:slow PASSED "$dir/good.xml" 20000; timed //x:fast PASSED "$dir/good.xml" 100; } \
  >"$dir/events"
expect_all "the fastest first" "ok       0.1 s  //x:fast (2)
ok      20.0 s  //x:slow (2)
4 passed, 0 failed"

timed //x:said FAILED "$dir/said.xml" 1000 >"$dir/events"
expect_all "name, reason, command" "FAIL     1.0 s  //x:said (1)
FAILED //x:said: a, [b]
  f.cc:1: 1 == 2
  bazel test -c opt //x:said '--test_arg=a\\, \\[b\\]'
0 passed, 1 failed"

timed //x:script FAILED "$dir/script.xml" 1000 >"$dir/events"
export ALIBI_BUILD_FLAGS=--config=asan
expect_all "a script's last words" "FAIL     1.0 s  //x:script (1)
FAILED //x:script
  the answer is 41
  bazel test -c opt --config=asan //x:script
0 passed, 1 failed"
unset ALIBI_BUILD_FLAGS

configured //x:gone >"$dir/events"
expect_all "a target that did not build" "FAILED //x:gone
  did not build or did not run
  bazel test -c opt //x:gone
0 passed, 1 failed"
