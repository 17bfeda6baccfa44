#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The experiment about VMI, at its shortest and without a Linux kernel: every form and group of calls
# gives its figures in 32 and in 64 bits, and the report has a section about them. And the program that measures in a Linux
# guest, on the host.
#   usage: vmi_test.sh ALIBI EXPERIMENT VMI_INIT
set -euo pipefail

here=$(readlink -f "$(dirname "$0")")
alibi=$(readlink -f "$1")
experiment=$(readlink -f "$2")
program=$(readlink -f "$3")
lab_command=()
source "$here/lab_test.sh"
export PYTHONDONTWRITEBYTECODE=1
work=${TEST_TMPDIR:-$(mktemp -d)}
cd "$work"

sed '/^peers = /d' "$experiment" >vmi.toml
run 0 run --quick vmi.toml --out quick
python3 - <<'PYTHON'
import csv, json
rows = list(csv.DictReader(open("quick/results.csv")))
assert not [r for r in rows if r["metric"] == "failed" and float(r["value"]) != 0], "a run failed"
assert {r["workload"] for r in rows} == {"vmibench", "vmibench64"}
forms = {r["vmi"] for r in rows}
groups = {f for f in forms if "," not in f} - {"none", "transparent", "full"}
without = {frozenset(groups - set(f.split(","))) for f in forms if "," in f}
assert without == {frozenset([g]) for g in groups} and len(groups) == 7, (groups, without)
for form in forms:
    for workload, some in (("vmibench", {"clisti", "ptechange", "iret", "apicwrite", "delay", "clock"}),
                           ("vmibench64", {"clisti", "ptebatch", "iret", "invlpg", "cr3", "syscall"})):
        names = {r["metric"] for r in rows if r["vmi"] == form and r["workload"] == workload}
        assert some <= names, (form, workload, names)
assert any("--kernel" in note for note in json.load(open("quick/experiment.json"))["notes"])
PYTHON
grep -q "no kernel was given" quick/report.html || fail "the report does not say that Linux is not there"
timeout -k 2 120 python3 "$here/check_report.py" quick/report.html
grep -q "mmu with the others" quick/report.html || fail "the report has no groups"

run 66 run --quick vmi.toml --out none --kernel nowhere
grep -q "nowhere: cannot be read" errors.txt || fail "it says: $(cat errors.txt)"

# Hosts without 32-bit programs cannot execute it.
if "$program" exit 2>/dev/null; then
  "$program" quick >lines.txt || fail "vmi_init ends with $?"
  python3 - <<'PYTHON'
import json
lines = [json.loads(line) for line in open("lines.txt")]
assert lines.pop() == {"done": True}
values = {line["name"]: line["samples"] for line in lines}  # none has an "error" instead
assert {"syscall", "pgfault", "ctxswitch", "forkwait", "forkexec", "mremap", "ldt"} <= values.keys(), values
assert all(len(v) == 5 and min(v) > 0 for v in values.values()), values
PYTHON
else
  echo "SKIP: this host runs no 32-bit programs"
fi
