#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One round of the soak run; options go to `alibi run`. Needs Debian's package servers, or packages fetched before.
#   usage: soak_test.sh ALIBI SOAK_PY KERNEL [OPTION...]
set -euo pipefail

export ALIBI_PROGRAM=$PWD/$1
export PYTHONDONTWRITEBYTECODE=1
# A user without a home that can be written to.
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
[[ -w $home ]] || export ALIBI_LINUX_CACHE=$TEST_TMPDIR/cache

# Any time makes one round.
status=0
timeout -k 5 800 python3 "$2" --kernel "$3" --minutes 0.01 "${@:4}" || status=$?
if [[ $status == 69 && -n ${ALIBI_OFFLINE:-} ]]; then
  echo "SKIP: packages are missing, and ALIBI_OFFLINE forbids to get them"
  exit 0
fi
exit "$status"
