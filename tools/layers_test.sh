#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The layers: that the whole tree keeps to them, and that layers.py sees where a tree does not.
#
# Usage: layers_test.sh LAYERS_PY
set -euo pipefail
layers=$PWD/$1
# The runfiles are links into the source tree, all of which is looked at, not what Bazel was told of.
"$layers" "$(dirname "$(dirname "$(readlink -f "$layers")")")"

cd "$TEST_TMPDIR"
mkdir -p tree/low tree/runtime tree/high/inner tree/testsuite tree/other tree/tools/build
cat >tree/tools/build/layers.bzl <<'LIST'
LAYERS = [("low", "lower"), ("runtime", "engine"), ("high", "higher"), ("testsuite", "tests"), ("tools", "scripts")]
LIST
printf '<!-- layers:begin -->\n<!-- layers:end -->\n' >tree/README.md
printf 'package(default_visibility = visible_above("low"))\n' >tree/low/BUILD
printf 'package(default_visibility = visible_above("high"))\n' >tree/high/inner/BUILD
printf '#include "low/a.h"\n#include "high/b.h"\n' >tree/high/inner/a.cc
printf '#include "testsuite/golden.h"\n' >tree/low/a_test.cc
printf '// u64 pc\nLinearAddr pc;\nu64 page_count;\n' >tree/runtime/a.h
printf 'u64 pc;\n' >tree/runtime/test_machine.h
"$layers" --write tree
"$layers" tree
grep -qF '| `high` | higher |' tree/README.md

# Each of these is one line of complaint.
printf '  #  include "high/b.h"\n' >tree/low/a.h
printf '#include "testsuite/golden.h"\n' >tree/low/a.cc
printf '#include "testsuite/inner/b.h"\n' >tree/low/b_test.cc
printf 'package(default_visibility = ["//visibility:public"])\n' >tree/high/BUILD
touch tree/other/BUILD
printf 'if (instr.bytes[0] == 0x90) return instr->layout.modrm;\n' >tree/low/c.cc
printf '  Ccf* Find(u64 guest_pc) const;\n' >tree/runtime/b.h
sed -i s/higher/lower/ tree/README.md
if "$layers" tree >found; then
  echo 'layers.py finds nothing in a tree that is wrong in eight places'
  exit 1
fi
[[ $(wc -l <found) == 8 ]] || { cat found && exit 1; }
