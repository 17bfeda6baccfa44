#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example counts the same with any number of CPUs, each of which has its part in it.
set -euo pipefail
for cpus in 1 2 4 16; do
  expected="$cpus CPUs have counted 148933 primes below 2000000."
  got=$("$1" "$cpus")
  if [[ $got != "$expected" ]]; then
    printf 'expected:\n%s\ngot:\n%s\n' "$expected" "$got"
    exit 1
  fi
done
got=$("$1" 17 2>&1) && { echo "17 CPUs are accepted" && exit 1; }
[[ $got == *"1 to 16"* ]] || { printf 'unexpected: %s\n' "$got" && exit 1; }
