#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The program's callouts leave the vector registers alone, and the check would see it if not.
set -eu
check=$PWD/$1
program=$PWD/$2

fail() {
  echo "FAIL: $*" >&2
  exit 1
}

if nm "$program" | grep -q '__[at]san_init'; then
  echo "a sanitizer's calls are everywhere in this build: nothing to check"
  exit 0
fi
python3 "$check" "$program" || fail "callouts of $program reach code that uses vector registers"

# A program like it with one callout that copies by SSE, and one that calls the C library.
cd "$TEST_TMPDIR"
{
  echo 'using u64 = unsigned long;'
  echo 'extern "C" void* memcpy(void*, const void*, u64);'
  echo 'u64 sink[4];'
  echo 'namespace alibi::runtime { struct EngineImpl {'
  for i in $(seq 120); do echo "u64 On$(printf 'Callout%d' "$i")(void*, u64);"; done
  echo '}; '
  echo 'static __attribute__((noinline)) void Bad() { asm volatile("movups %xmm3, sink(%rip)"); }'
  for i in $(seq 120); do
    echo "u64 EngineImpl::On$(printf 'Callout%d' "$i")(void* p, u64 n) {"
    case $i in
      7) echo 'Bad();' ;;
      9) echo 'memcpy(sink, p, n);' ;;
    esac
    echo "return n + $i; }"
  done
  echo '} int main() {}'
} > bad.cc
g++ -O1 -std=c++20 -mgeneral-regs-only -fno-builtin bad.cc -o bad
status=0
python3 "$check" bad > report || status=$?
[ "$status" = 1 ] || fail "exit status $status on a program with two problems"
grep -q 'vector instructions (movups.*Bad <- alibi::runtime::EngineImpl::OnCallout7' report ||
  fail "the vector instruction is not reported: $(cat report)"
grep -q 'call of memcpy in alibi::runtime::EngineImpl::OnCallout9' report ||
  fail "the call of memcpy is not reported: $(cat report)"
grep -q ', 2 problems$' report || fail "not two problems: $(cat report)"

strip bad
status=0
python3 "$check" bad > /dev/null 2> message || status=$?
[ "$status" = 2 ] || fail "exit status $status on a stripped program"
grep -q 'is it stripped' message || fail "no message about a stripped program"
echo PASS
