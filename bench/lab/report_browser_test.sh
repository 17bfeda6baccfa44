#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reports that other tests compare with golden files, as a browser shows them. The first has a chart in
# each section of CHARTS.
#   usage: report_browser_test.sh REPORT REPORT...
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
check="$(dirname "$0")/check_report.py"
timeout -k 2 120 python3 "$check" --sections "$1"
shift
exec timeout -k 2 120 python3 "$check" "$@"
