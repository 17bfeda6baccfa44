#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The figures that pages quote: that the tree's pages quote them as they are, and that figures.py
# sees where pages do not.
#
# Usage: figures_test.sh FIGURES_PY
set -euo pipefail
figures=$PWD/$1
# The runfiles are links into the source tree, all of whose pages are looked at.
"$figures" "$(dirname "$(dirname "$(readlink -f "$figures")")")"

cd "$TEST_TMPDIR"
mkdir -p tree/docs
printf '{"trap": {"text": "70 cycles"}, "stop": {"text": "3 us"}}\n' >tree/docs/figures.json
printf 'It costs <!--trap-->60\ncycles<!---->, or <!--stop-->3\nus<!---->.\n' >tree/README.md
printf '| 5 cycles |\n\n```\n$ alibi fuzz # every 200 us\n```\n' >tree/docs/page.md
printf 'That took 12 us.\n' >tree/docs/performance.md
"$figures" --write tree
"$figures" tree
grep -qF '<!--trap-->70 cycles<!---->' tree/README.md

# Each of these is one line of complaint.
printf 'A trap: <!--trap-->60 cycles<!---->; <!--nobody-->1 us<!---->; 1,200 cycles more.\n' >tree/README.md
if "$figures" tree >found; then
  echo 'figures.py finds nothing in pages that are wrong in four places'
  exit 1
fi
[[ $(wc -l <found) == 4 ]] || { cat found && exit 1; }
