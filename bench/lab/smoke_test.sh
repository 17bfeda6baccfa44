#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `alibi lab run` from end to end: a small matrix, its CSV, its report in a browser; then again, with
# nothing left to do; runs that fail; and files and folders that are wrong.
#   usage: smoke_test.sh ALIBI EXPERIMENT
set -euo pipefail

here=$(readlink -f "$(dirname "$0")")
alibi=$(readlink -f "$1")
experiment=$(readlink -f "$2")
lab_command=()
source "$(dirname "$0")/lab_test.sh"
export PYTHONDONTWRITEBYTECODE=1
work=${TEST_TMPDIR:-$(mktemp -d)}
cd "$work"

# --- The experiment ---
run 0 run "$experiment" --out smoke
[[ $(cat out.txt) == smoke/report.html ]] || fail "it prints $(cat out.txt)"
python3 - <<'PYTHON'
import csv, json
rows = list(csv.DictReader(open("smoke/results.csv")))
assert not [r for r in rows if r["metric"] == "failed" and float(r["value"]) != 0], "a run failed"
# 2 workloads, each natively and with 2 policies x 2 sizes, twice; and the observed ones.
runs = {r["run"] for r in rows}
assert len(runs) == 2 * (1 + 4) * 2 + 2 * 4, len(runs)
for policy in ("never", "hysteresis"):
    faults = [float(r["value"]) for r in rows if r["metric"] == "pgfault" and r["policy"] == policy
              and r["repeat"] != "0"]
    assert len(faults) == 4 and min(faults) > 0, faults
assert {r["unit"] for r in rows if r["metric"] == "syscall"} == {"cycles"}
assert {r["tc-size"] for r in rows if r["system"] == "alibi"} == {"8M", "64M"}
report = json.load(open("smoke/experiment.json"))
assert report["runs_planned"] == len(report["runs"]) == len(runs)
for run in report["runs"]:
    if run["repeat"] == 0:
        digest = json.load(open(f"smoke/logs/{run['run']}.digest.json"))
        assert digest["damage"] == "" and digest["seconds"] > 0, digest["damage"]
        # With an execution profile, too, callouts cost what they cost.
        for event, (count, cycles) in digest["callouts"].items():
            assert cycles < 1e6 * count, (event, count, cycles)
        profile = json.load(open(f"smoke/logs/{run['run']}.profile.json"))
        assert profile["profile"]["instructions"] > 0
PYTHON

# --- Once more: nothing is measured again, and the report is made from what is there ---
before=$(stat -c %Y smoke/logs/001-*-1.out)
cp smoke/report.html first.html
run 0 run "$experiment" --out smoke
grep -q "28 runs of an earlier time" errors.txt || fail "it did not take them over: $(cat errors.txt)"
[[ $(stat -c %Y smoke/logs/001-*-1.out) == "$before" ]] || fail "a run was made again"
rm smoke/report.html
run 0 report smoke
cmp smoke/report.html first.html || fail "the report depends on when it is made"
rm smoke/logs/*.log # digests do as well
run 0 report smoke
cmp smoke/report.html first.html || fail "the report depends on the logs, not on their digests"

# --- A run that fails is recorded, and the others are made ---
cat >failing.toml <<'TOML'
title = "Too little memory"
policies = ["hysteresis"]
repeats = 1
quick = true
observe = false
[parameters]
ram = ["4K", "128M"]
[[workload]]
program = "nanobench"
only = ["callret"]
TOML
run 83 run failing.toml
grep -q "001-nanobench-alibi-hysteresis-4K-1: exit status 64: alibi: --ram: " errors.txt ||
  fail "$(cat errors.txt)"
grep -q "128M,1,callret," failing-lab/results.csv || fail "the other run was not made"
grep -q "exit status 64: alibi: --ram: " failing-lab/report.html || fail "the report does not say so"

# --- Engines are a parameter; what running directly costs here is among the metrics ---
cat >engines.toml <<'TOML'
title = "Engines"
policies = ["hysteresis"]
repeats = 1
quick = true
observe = false
[parameters]
engine = ["translate", "direct"]
[[workload]]
program = "nanobench"
only = ["callret"]
TOML
run 0 run engines.toml
python3 - <<'PYTHON'
import csv
rows = list(csv.DictReader(open("engines-lab/results.csv")))
def values(engine, metric):
    return [float(r["value"]) for r in rows if r["engine"] == engine and r["metric"] == metric]
assert len(values("translate", "callret")) == len(values("direct", "callret")) == 1
assert values("direct", "prices.direct_stop_cycles")[0] > 1000
assert not values("translate", "prices.direct_stop_cycles")
PYTHON

# Linux guests are not run on hardware that is none; where it is some, they have figures.
use_users_cache
if [[ -e $XDG_CACHE_HOME/alibi/linux/cloud-amd64/done ]]; then
  cat >hardware.toml <<'TOML'
title = "Hardware"
policies = ["hysteresis"]
repeats = 1
quick = true
observe = false
time-limit = 60
[parameters]
engine = ["translate", "hardware"]
[[workload]]
program = "linux"
only = ["entries/1000"]
TOML
  ALIBI_OFFLINE=1 timeout -k 2 200 "$alibi" lab run hardware.toml >out.txt 2>errors.txt ||
    grep -q "its clock is off" errors.txt || fail "$(cat errors.txt)"
  python3 - <<'PYTHON'
import csv, json
report = json.load(open("hardware-lab/experiment.json"))
rows = list(csv.DictReader(open("hardware-lab/results.csv")))
engines = {r["engine"] for r in rows}
assert engines == ({"translate"} if report.get("notes") else {"translate", "hardware"}), engines
PYTHON
else
  echo "skipped Linux guests: no kernel in $XDG_CACHE_HOME/alibi/linux (./alibi linux fetches it)"
fi

# --- What is wrong is said on one line ---
sed 's/never/nevver/' "$experiment" >wrong.toml
run 64 run wrong.toml
[[ $(wc -l <errors.txt) == 1 ]] || fail "more than one line: $(cat errors.txt)"
grep -q "wrong.toml:[0-9]*: policies: " errors.txt || fail "$(cat errors.txt)"
run 66 run absent.toml
sed 's/Smoke/Other/' "$experiment" >other.toml
run 66 run other.toml --out smoke
grep -q "smoke: holds another experiment" errors.txt || fail "$(cat errors.txt)"
run 66 report absent
run 0 run --check "$experiment"
[[ $(wc -l <out.txt) == 28 ]] || fail "--check: $(cat out.txt)"

timeout -k 2 120 python3 "$here/check_report.py" first.html failing-lab/report.html
