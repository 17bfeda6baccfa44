#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An experiment file's quick form, from its first run to its report in a browser: every run is made, none
# fails, and each workload has its figures from every system that can run it. What is not on this host
# (a kernel, a whole Debian, a peer, TAP interfaces) skips the experiment with a line; a test fetches
# nothing.
#   usage: quick_test.sh ALIBI EXPERIMENT
set -euo pipefail

here=$(readlink -f "$(dirname "$0")")
alibi=$(readlink -f "$1")
experiment=$(readlink -f "$2")
source "$here/lab_test.sh"
export ALIBI_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
use_users_cache
work=${TEST_TMPDIR:-$(mktemp -d)}
cd "$work"

namespace=(unshare --net)
[[ $(id -u) == 0 ]] || namespace+=(--map-root-user)
if grep -q '^backend = "\(tap\|socket\)"' "$experiment" &&
  ! { [[ -w /dev/net/tun ]] && "${namespace[@]}" true 2>/dev/null; }; then
  echo "SKIP: no TAP interfaces for this user here"
  exit 0
fi

run_all() {
  status=0
  "$alibi" lab run --quick "$experiment" --out quick >out.txt 2>errors.txt || status=$?
}
run_all
# Beside other tests a guest may be preempted while it calibrates its clock.
if [[ $status == 83 ]] && grep -q 'refused, since its clock is off' errors.txt; then
  rm -r quick
  run_all
fi
if [[ $status == 66 ]] && grep -q '^alibi: no \(kernel\|Debian\|qemu\|linux.uml\)' errors.txt; then
  echo "SKIP: $(tail -n 1 errors.txt)"
  exit 0
fi
[[ $status == 0 ]] || fail "status $status: $(tail -n 5 errors.txt)"
python3 - <<'PYTHON'
import csv, json
report = json.load(open("quick/experiment.json"))
rows = list(csv.DictReader(open("quick/results.csv")))
assert report["runs_planned"] == len(report["runs"]) > 0, (report["runs_planned"], len(report["runs"]))
for run in report["runs"]:
    # What it measured, beside how long it took as a whole and what the engine counted.
    figures = [r["metric"] for r in rows if r["run"] == run["run"] and float(r["value"]) > 0
               and not r["metric"].startswith(("runtime.", "mmu.", "direct.", "prices."))
               and r["metric"] not in ("failed", "wall", "core_share")]
    # swap and vga-text of macro.toml are a guest's own.
    has_none = (run["workload"], run["system"]) == ("guests", "native")
    assert bool(figures) != has_none, f"{run['run']} has figures {figures}"
PYTHON

timeout -k 2 120 python3 "$here/check_report.py" quick/report.html
