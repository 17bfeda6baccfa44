#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# alibi lab reproduce, of the one chapter that takes seconds: beside what another vendor's host has
# measured, taken over the second time, and what is wrong.
#   usage: reproduce_test.sh ALIBI TWO_HOSTS_JSON
set -euo pipefail

alibi=$(readlink -f "$1") two_hosts=$(readlink -f "$2")
lab_command=(reproduce)
source "$(dirname "$0")/../lab_test.sh"
work=${TEST_TMPDIR:-$(mktemp -d)}
export XDG_CACHE_HOME=$work/cache
cd "$work"

# The file's hosts, as if they were of two vendors that this host is not.
mkdir page
sed 's/"AMD": {/"First": {/; s/"Intel": {/"Second": {/' "$two_hosts" >page/reproduction.json
cp page/reproduction.json before.json
run 0 --quick --only vmi --out page
/usr/bin/python3 - <<'PYTHON'
import json
before, after = json.load(open("before.json"))["hosts"], json.load(open("page/reproduction.json"))["hosts"]
for vendor in ("First", "Second"):
    assert after[vendor] == before[vendor], vendor
ours, = set(after) - {"First", "Second"}
assert list(after[ours]) == ["vmi"], after[ours].keys()
figures = after[ours]["vmi"]["figures"]
assert after[ours]["vmi"]["failures"] == [] and after[ours]["vmi"]["settings"]["quick"] is True
for row in ("ptechange", "clisti", "apicread", "delay"):
    for variant in ("unmodified", "transparent", "paravirtual"):
        assert figures[f"vmi.{row}.{variant}"] >= 0, (row, variant)
page = open("page/reproduction.md").read()
chapter = page[page.index("\n## Paravirtualization"):]
for vendor in (ours, "First", "Second"):
    assert f"| {vendor} | verdict |" in chapter, vendor
PYTHON
[[ -z $(ls -A cache/alibi/reproduce) ]] || fail "a work folder is left: $(ls cache/alibi/reproduce)"

# --- What this build has measured is taken over; the page is the same from the file alone ---
cp page/reproduction.json after.json
run 0 --quick --only vmi --out page
grep -q "vmi: measured by this build before; taken over" errors.txt || fail "$(cat errors.txt)"
cmp page/reproduction.json after.json || fail "it was measured again"
run 0 --from page/reproduction.json --out again
cmp page/reproduction.md again/reproduction.md || fail "--from makes another page"
[[ ! -e again/reproduction.json ]] || fail "--from writes measurements"

# --- Other repeats are another measurement ---
run 0 --quick --repeats 2 --only vmi --out page
grep -q "taken over" errors.txt && fail "of other repeats: $(cat errors.txt)"
grep -q "alibi lab reproduce --only vmi --repeats 2" page/reproduction.md || fail "the page's command"
run 64 --repeats 0 --only vmi --out page

# --- What is wrong is said on one line ---
run 64 --only vmi,nope --out page
grep -q "there is no chapter 'nope', but translation, macro, macro32, hosted-io, vmi, type-ii, type-ii-cures" errors.txt || fail "$(cat errors.txt)"
run 64 --only vmi --from page/reproduction.json
echo '{"format": "alibi-reproduction", "version": 3}' >page/reproduction.json
run 66 --quick --only vmi --out page
grep -q "page/reproduction.json: version 3 of " errors.txt || fail "$(cat errors.txt)"
grep -q '"version": 3' page/reproduction.json || fail "what it cannot read is gone"
[[ $(wc -l <errors.txt) == 1 ]] || fail "more than one line: $(cat errors.txt)"
