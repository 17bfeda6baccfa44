#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# alibi bench vmi, at its shortest: every benchmark gives a figure in each column, and does what it
# says it does.
#
#   bench_vmi_test.sh ALIBI DATA_FOLDER
set -euo pipefail

alibi=$(readlink -f "$1")
ALIBI_DATA=$(readlink -f "$2")
export ALIBI_DATA
json=${TEST_TMPDIR:-/tmp}/bench_vmi.json
table=$("$alibi" bench vmi --quick --repeats 1 --no-qemu --json "$json")
echo "$table"
for name in clisti saveflags cr2 cr3 ts gdtentry cpuid iret sysenter ptechange ptemap ptetouch \
  pgfault_map delay clock apicread apicwrite; do
  row=$(grep "^$name " <<<"$table")
  [[ $(wc -w <<<"$row") == 4 && $row != *" -"* ]] || { echo "FAIL: $row" >&2; exit 1; }
done
