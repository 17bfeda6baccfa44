#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A recorded run, replayed under other policies, against real runs under them.
set -euo pipefail
alibi=$1 kernel=$2
cd "$TEST_TMPDIR"
alibi=$TEST_SRCDIR/$TEST_WORKSPACE/$alibi kernel=$TEST_SRCDIR/$TEST_WORKSPACE/$kernel

record() {
  "$alibi" run --ram 128M --no-reboot --policy "$1" --log "$2" \
    --append "samples=3 iters=300 only=pgfault,divzero,ptemod_unchanged,ptemod_touch" "$kernel" \
    >/dev/null || [[ $? == 1 ]]
}
record always always.log
record never never.log
record "hysteresis(3,64)" hysteresis.log
record "two-level(3,64,2)" two-level.log

"$alibi" lab replay always.log --policy "threshold(5)" --against never.log \
  --against hysteresis.log --against two-level.log --json out.json --csv out.csv >out.txt
cat out.txt
python3 - <<'END'
import json
rows = json.load(open('out.json'))['rows']
assert [(r['policy'], r['what']) for r in rows] == [
    ('always', 'recorded'), ('threshold(5)', 'predicted'),
    ('never', 'predicted'), ('never', 'real'),
    ('hysteresis(3,64)', 'predicted'), ('hysteresis(3,64)', 'real'),
    ('two-level(3,64,2)', 'predicted'), ('two-level(3,64,2)', 'real')], rows
for predicted, real in zip(rows[2::2], rows[3::2]):
    # Counts, not cycles: the machine may be busy. Few traps more or less are chance.
    for name, slack in ('traps', 12), ('callouts', 12), ('adaptations', 3), ('reversions', 3):
        allowed = 0.15 * real[name] + slack
        assert abs(predicted[name] - real[name]) <= allowed, (name, predicted, real)
    assert predicted['cycles'] > 0
never = rows[3]
assert never['callouts'] == 0 and never['traps'] > 1000, never
assert rows[0]['traps'] < 100 and rows[0]['callouts'] > 1000, rows[0]
END
[[ $(wc -l <out.csv) == 9 ]]
grep -q '^policy,what,traps,callouts,adaptations,reversions,cycles,estimated_callouts$' out.csv
grep -q '^never: ' out.txt

# A log that ends too soon.
head -c $(($(stat -c %s always.log) / 2)) always.log >half.log
status=0
"$alibi" lab replay half.log --policy never >out.txt 2>err.txt || status=$?
[[ $status == 65 && $(wc -l <err.txt) == 1 ]]
grep -q 'truncated.*replayed as far as it goes' err.txt
grep -q '^never' out.txt
