#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example prints what its comment promises.
set -euo pipefail
expected='Hello from elsewhere.
Hello from elsewhere.
Hello from elsewhere.
The guest halted; its numbers add up to 6.'
got=$("$1")
if [[ $got != "$expected" ]]; then
  printf 'expected:\n%s\ngot:\n%s\n' "$expected" "$got"
  exit 1
fi
