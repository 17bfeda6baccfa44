#!/usr/bin/env bash
# Lays out every C++ file with clang-format; with --check changes nothing and fails on a difference.
# `tools/format.sh FILE...` does these files only.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=-i
if [[ ${1:-} == --check ]]; then
  mode=--dry-run
  shift
fi
if (($#)); then
  files=("$@")
else
  mapfile -t files < <(git ls-files '*.cc' '*.h' '*.c')
fi
((${#files[@]})) || exit 0
exec clang-format --style=file --Werror "$mode" "${files[@]}"
