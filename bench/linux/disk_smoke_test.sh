#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `alibi bench disk` from end to end, on Debian's kernel if it is here already (a test fetches
# nothing), on QEMU TCG too if that is installed: each row once, and the same contents everywhere.
#   usage: disk_smoke_test.sh ALIBI
set -euo pipefail

alibi=$(readlink -f "$1")
export PYTHONPATH=$(cd "$(dirname "$0")" && pwd) PYTHONDONTWRITEBYTECODE=1
export ALIBI_DATA=${alibi%/cli/alibi}
export ALIBI_OFFLINE=1
work=${TEST_TMPDIR:-$(mktemp -d)}
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

status=0
"$alibi" bench disk --only getppid 2>errors.txt || status=$?
[[ $status == 64 ]] || fail "a workload of the other command: status $status"
grep -q "virtio/read-4k" errors.txt || fail "not the rows: $(cat errors.txt)"

export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)/.cache}
if [[ ! -e $XDG_CACHE_HOME/alibi/linux/cloud-amd64/done ]]; then
  echo "skipped: no kernel in $XDG_CACHE_HOME/alibi/linux (./alibi linux fetches it)"
  exit 0
fi

# Linux may measure its TSC wrongly on a busy host (smoke_test.sh): QEMU's figures are then nobody's
# failure, ours get more tries.
measure() {
  timeout -k 2 200 "$alibi" bench disk --quick --json out.json "$@" >out.txt ||
    grep -q "its clock is off" out.txt || fail "$(cat out.txt)"
  python3 - <<'PYTHON'
import smoke_report, sys
report, refused = smoke_report.read()
rows = {(row["name"], row["system"]): row["median_seconds"] for row in report["benchmarks"]}
for disk in ("virtio", "ide"):
    for what in ("read-4k", "write-4k", "read-1m", "write-1m"):
        for system in ("native", "alibi"):
            assert rows.get((f"{disk}/{what}", system), 0) > 0 or system in refused, (disk, what, system)
sys.exit(3 if "alibi" in refused else 0)
PYTHON
}
for try in 1 2 3; do
  status=0
  measure || status=$?
  [[ $status == 3 ]] || break
  echo "once more: $(grep "its clock is off" out.txt)"
done
[[ $status == 0 ]] || fail "status $status: $(cat out.txt)"
grep -q "</svg>" out.svg || fail "the SVG is not whole"
cat out.txt

# --- Beside an older report; one row alone ---
cp out.json old.json
timeout -k 2 130 "$alibi" bench disk --quick --no-qemu --only ide/read-1m --compare old.json \
  --json out.json >out.txt || grep -q "its clock is off" out.txt || fail "$(cat out.txt)"
grep -q "^Beyond the noise: " out.txt || fail "not compared: $(cat out.txt)"
! grep -q "virtio/read-4k" out.txt || fail "all rows: $(cat out.txt)"
