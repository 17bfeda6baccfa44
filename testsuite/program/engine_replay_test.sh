#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What engine policies were told in a run is in its log, and is replayed under others. This kernel's
# user code is unfit to run directly; //testsuite/linux:probe_test has what does.
set -euo pipefail
alibi=$1 kernel=$2
cd "$TEST_TMPDIR"
alibi=$TEST_SRCDIR/$TEST_WORKSPACE/$alibi kernel=$TEST_SRCDIR/$TEST_WORKSPACE/$kernel

status=0
"$alibi" run --ram 128M --engine direct --log direct.log --stats-json stats.json "$kernel" \
  >/dev/null 2>err.txt || status=$?
if [[ $status != 1 ]]; then
  echo "no direct execution on this host, and no records of it: $(<err.txt)"
  exit 0
fi
"$alibi" run --ram 128M --engine auto --engine-policy never --log never.log "$kernel" >/dev/null ||
  [[ $? == 1 ]]
"$alibi" run --ram 128M --engine translate --log translate.log "$kernel" >/dev/null || [[ $? == 1 ]]

"$alibi" log --json --kind engine direct.log >direct.json
"$alibi" log --json --kind engine never.log >never.json
"$alibi" log direct.log >direct.txt
grep -q '^engine direct, its policy always$' direct.txt
grep -Eq '^prices here: .*, [1-9][0-9]* a stop of direct execution, [0-9]+ a mapping call$' direct.txt
grep -Eq '[1-9][0-9]* address spaces$' direct.txt
[[ -z $("$alibi" log --json --kind engine translate.log) ]]
"$alibi" log --csv --kind engine direct.log | head -1 | grep -q ',space,stops,faults,calls$'

"$alibi" lab replay direct.log --engine-policy always --engine-policy cost-model \
  --against never.log --json out.json --csv out.csv >out.txt
cat out.txt
python3 - <<'END'
import json
direct = [json.loads(line) for line in open('direct.json')]
never = [json.loads(line) for line in open('never.json')]
stats = json.load(open('stats.json'))
for records, engines in (direct, {'translate', 'direct'}), (never, {'translate'}):
    assert records
    assert {r['from'] for r in records} | {r['to'] for r in records} <= engines, engines
    seen = set()
    for r in records:
        # An address space begins with its first event, and with the next number.
        if r['space'] not in seen:
            assert r['event'] in ('first', 'sample'), r
        seen.add(r['space'])
        assert ('stops' in r) == (r['event'] == 'ran'), r
    assert seen == set(range(1, len(seen) + 1)), seen
runs = [r for r in direct if r['event'] == 'ran']
counters = stats['direct']
assert len(runs) == counters['direct_entries']
assert sum(r['stops'] for r in runs) == counters['direct_stops']
rows = json.load(open('out.json'))['rows']
assert [(r['policy'], r['what']) for r in rows] == [
    ('always', 'recorded'), ('always', 'predicted'), ('cost-model', 'predicted'),
    ('never', 'predicted'), ('never', 'real')], rows
recorded, always, never = rows[0], rows[1], rows[3]
assert recorded['runs'] == len(runs) and recorded['stops'] == sum(r['stops'] for r in runs)
assert all(recorded[k] == always[k] for k in recorded if k != 'what'), rows
assert never['runs'] == 0 and never['direct'] == 0, never
END
grep -q '^policy,what,runs,stops,calls,switches,translated,direct,cycles,estimated_cycles$' out.csv
grep -q '^never: ' out.txt

status=0
"$alibi" lab replay translate.log --engine-policy never >out.txt 2>err.txt || status=$?
[[ $status == 65 && $(wc -l <err.txt) == 1 ]]
grep -q 'no engine policy decided in this run' err.txt
