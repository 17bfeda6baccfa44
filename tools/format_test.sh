#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails on a C++ file that clang-format would lay out differently (`tools/format.sh` mends it).
set -euo pipefail
# Other versions lay out differently, and none is needed to build and run Alibi.
if ! clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
  echo "skipped: clang-format 14 is not installed"
  exit 0
fi
# The runfile is a link into the source tree, which format.sh follows to see all of it.
exec "$(dirname "$0")/format.sh" --check
