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
# BITS NAMES...: of the table that "BITS-bit code" is the head of.
check() {
  local bits=$1 rows name row
  rows=$(sed -n "/^$bits-bit code/,/^\$/p" <<<"$table")
  shift
  for name in "$@"; do
    row=$(grep "^$name " <<<"$rows")
    [[ $(wc -w <<<"$row") == 4 && $row != *" -"* ]] || { echo "FAIL $bits: $name $row" >&2; exit 1; }
  done
}
check 32 clisti saveflags cr2 cr3 ts gdtentry cpuid iret sysenter ptechange ptemap ptetouch \
  pgfault_map delay clock apicread apicwrite
check 64 syscall in in_device cr8wr callret icall pgfault pgfault_map divzero ptemod_unchanged \
  ptemod_p_np ptemod_np_p ptebatch ptemod_touch cr3 cr3_pti copy cr0wp cr4pge invlpg clisti \
  pushfpopf rdtsc iret int3 int80 isprime
