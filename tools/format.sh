#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lays out every C++ file with clang-format. With --check changes nothing, names the files that
# would change, and fails when there are any. `tools/format.sh [--check] FILE...` does these only.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
check=
if [[ ${1:-} == --check ]]; then
  check=1
  shift
fi
if (($#)); then
  files=("$@")
else
  # Not `git ls-files`: in a test the tree may belong to somebody git does not trust.
  mapfile -t files < <(find . \( -path './bazel-*' -o -path ./.git \) -prune -o \
    -type f \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) -print)
fi
((${#files[@]})) || exit 0
if [[ -z $check ]]; then
  exec clang-format --style=file -i "${files[@]}"
fi
different=$(clang-format --style=file --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^ :]*\):[0-9].*/\1/p' | sort -u)
[[ -z $different ]] && exit 0
printf 'Not laid out by clang-format; run tools/format.sh:\n%s\n' "$different"
exit 1
