#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The report of the recorded experiment (report_test compares it) as a browser shows it.
#   usage: report_browser_test.sh REPORT
set -euo pipefail
if [[ ! -x /usr/bin/chromium ]]; then
  echo "skipped: no chromium here (./alibi setup installs it)"
  exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
exec timeout -k 2 120 python3 "$(dirname "$0")/check_report.py" --sections "$1"
