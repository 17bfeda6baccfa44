#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The licence lines: that spdx.py adds them where they belong, and that the whole tree has them.
#
# Usage: spdx_test.sh SPDX_PY
set -euo pipefail
spdx=$PWD/$1
# The runfiles are links into the source tree, all of which is looked at, not what Bazel was told of.
source_root=$(dirname "$(dirname "$(readlink -f "$spdx")")")
(cd "$source_root" && "$spdx")

cd "$TEST_TMPDIR"
mkdir tree tree/golden
printf '#!/bin/sh\necho\n' >tree/a.sh
printf '// A header.\n#include <b>\n' >tree/b.h
printf '/* For C. */\n' >tree/c.h
printf 'x\n' >tree/golden/d.cc
if "$spdx" tree >found; then
  echo 'spdx.py finds nothing where three lines are missing'
  exit 1
fi
[[ $(wc -l <found) == 3 ]] || { cat found && exit 1; }
"$spdx" --fix tree
"$spdx" tree
"$spdx" --fix tree
line='SPDX-License-Identifier: Apache-2.0'
diff <(printf '#!/bin/sh\n# %s\necho\n' "$line") tree/a.sh
diff <(printf '// %s\n// A header.\n#include <b>\n' "$line") tree/b.h
diff <(printf '/* %s */\n/* For C. */\n' "$line") tree/c.h
[[ $(<tree/golden/d.cc) == x ]]
