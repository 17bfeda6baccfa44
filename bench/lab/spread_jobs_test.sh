#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# alibi lab run --spread from end to end: the plan, the jobs, what they left merged, a cell that is
# missing, and folders that are wrong.
#   usage: spread_jobs_test.sh ALIBI parallel|slurm
set -euo pipefail

alibi=$(readlink -f "$1") engine=$2
lab_command=(run)
source "$(dirname "$0")/lab_test.sh"
export HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/a lab.XXXXXX")
cd "$work"

# One node, this one, with everything in the test's folder.
start_slurm() {
  PATH=$PATH:/usr/sbin
  # Sockets' names are short, and Slurm takes no spaces in its file.
  slurm=$(mktemp -d /tmp/slurm.XXXXXX)
  chmod 755 "$slurm"
  mkdir -m 700 "$slurm/munge"
  mkdir "$slurm/state" "$slurm/spool"
  head -c 1024 /dev/urandom >"$slurm/munge/key"
  chmod 400 "$slurm/munge/key"
  cat >"$slurm/slurm.conf" <<CONF
ClusterName=alibi
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$slurm/munge/socket
CredType=cred/munge
SlurmctldPort=16827
SlurmdPort=16828
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.log
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$slurm/slurm.conf
  stop_slurm() {
    local pid
    for pid in "$slurm"/slurmd.pid "$slurm"/slurmctld.pid "$slurm"/munge/pid; do
      [[ ! -s $pid ]] || kill "$(<"$pid")" 2>/dev/null || true
    done
    rm -rf "$slurm"
  }
  trap stop_slurm EXIT
  munged --key-file="$slurm/munge/key" --socket="$slurm/munge/socket" --force \
    --pid-file="$slurm/munge/pid" --log-file="$slurm/munge/log" --seed-file="$slurm/munge/seed"
  slurmctld -i
  slurmd
  for _ in {1..50}; do
    ! sinfo --noheader --states=idle | grep -q . || return 0
    sleep 0.2
  done
  fail "no node is idle: $(tail -n 5 "$slurm/slurmctld.log" "$slurm/slurmd.log" 2>&1)"
}

cat >small.toml <<'TOML'
title = "Small"
policies = ["never", "hysteresis"]
peers = ["native"]
repeats = 2
quick = true
[[workload]]
program = "nanobench"
only = ["callret"]
[[workload]]
program = "compute"
only = ["fib"]
TOML

# --- The plan: six jobs, nothing measured ---
run 0 small.toml --out spread --spread "$engine" --plan
[[ $(grep -c -- "--cell [1-6]  # " out.txt) == 6 ]] || fail "the plan: $(cat out.txt)"
grep -q -- "--cell 5  # nanobench, observed, 2 runs$" out.txt || fail "the plan: $(cat out.txt)"
[[ -z $(ls spread/cells) ]] || fail "a plan measures: $(ls spread/cells)"
# A line of it is a job, as it stands.
grep -- "--cell 3 " out.txt | bash >/dev/null 2>&1 || fail "a job of the plan does not run"
[[ $(ls spread/cells/3/logs/*-2.json | wc -l) == 3 ]] || fail "the job left $(ls spread/cells/3/logs)"
before=$(stat -c %Y spread/cells/3/results.csv)

program=parallel
[[ $engine != slurm ]] || program=sbatch
if ! command -v "$program" >/dev/null; then
  run 69 small.toml --out spread --spread "$engine"
  grep -q "no $program here; run: sudo apt-get install" errors.txt || fail "$(cat errors.txt)"
  echo "skipped the jobs: no $program here (./alibi setup installs parallel)"
  exit 0
fi
[[ $engine != slurm ]] || start_slurm

# --- The jobs, but for the one that is done ---
run 0 small.toml --out spread --spread "$engine"
[[ $(tail -n 1 out.txt) == spread/report.html ]] || fail "it prints $(cat out.txt)"
[[ $(stat -c %Y spread/cells/3/results.csv) == "$before" ]] || fail "a cell was measured again"
check() {
  /usr/bin/python3 - "$(hostname)" <<'PYTHON'
import csv, json, os, sys
rows = list(csv.DictReader(open("spread/results.csv")))
assert {r["host"] for r in rows} == {sys.argv[1]}
runs = {r["run"] for r in rows}
assert len(runs) == 2 * 3 * 2 + 2 * 2, sorted(runs)
about = json.load(open("spread/experiment.json"))
assert about["runs_planned"] == len(about["runs"]) == len(runs)
assert list(about["hosts"]) == [sys.argv[1]] and "host" not in about
for run in about["runs"]:
    if run["repeat"] == 0:
        assert os.path.exists(f"spread/logs/{run['run']}.log"), run
# The cell's values are the merged ones.
cell = [dict(r, host=sys.argv[1]) for r in csv.DictReader(open("spread/cells/3/results.csv"))]
assert [r for r in rows if r["run"] in {c["run"] for c in cell}] == cell
PYTHON
}
check
[[ -s spread/report-$(hostname).html ]] || fail "the host has no report: $(ls spread)"
grep -q "href=\"report-$(hostname).html\"" spread/report.html || fail "no link to its report"

# --- A cell that is gone is made again, and it alone ---
rm -r spread/cells/6
run 0 small.toml --out spread --spread "$engine"
[[ $(stat -c %Y spread/cells/3/results.csv) == "$before" && -e spread/cells/6/results.csv ]] ||
  fail "a second time does not complete the first"
check

# --- What is wrong is said on one line ---
run 66 small.toml --out spread
grep -q "spread: was spread over hosts" errors.txt || fail "$(cat errors.txt)"
sed 's/Small/Other/' small.toml >other.toml
run 66 other.toml --out spread --spread "$engine"
grep -q "spread: holds another experiment" errors.txt || fail "$(cat errors.txt)"
run 64 small.toml --out spread --spread condor
grep -q "there is no 'condor', but parallel, slurm" errors.txt || fail "$(cat errors.txt)"
run 64 small.toml --out spread --plan
run 64 small.toml --out spread --cell 7
grep -q "small.toml has 6 cells" errors.txt || fail "$(cat errors.txt)"
run 64 small.toml --out spread --cell 1 --spread "$engine"
# The engine itself fails before any run.
run 69 small.toml --out none --spread "$engine" --spread-options "--no-such-option"
grep -q "and no run has been made" errors.txt || fail "$(cat errors.txt)"
