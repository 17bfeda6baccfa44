#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/third_party.md names every package that the build links or `./alibi setup` installs.
#
# Usage: third_party_test.sh THIRD_PARTY_MD SYSTEM_LIBRARIES_BZL ALIBI
set -euo pipefail
page=$1 libraries=$2 script=$3
packages=$(sed -n 's/^ *packages = \[\(.*\)\],/\1/p' "$libraries" | tr -d '" ' | tr ',' '\n'
  sed -n 's|^ *\(/[^ :]*\):\([a-z0-9.+-]*\)$|\2|p; s|^[a-z_]*=(/[^ :]*:\([a-z0-9.+-]*\))$|\1|p' "$script")
(($(wc -l <<<"$packages") > 30)) || { echo "found few packages only: $packages" && exit 1; }
status=0
for package in $packages; do
  grep -q -w -F -e "$package" "$page" || { echo "$page does not name $package" && status=1; }
done
exit $status
