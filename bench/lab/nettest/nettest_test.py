#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nettest natively, with a server of its own: what it prints, and that nothing of it is left behind.

usage: nettest_test.py NETTEST
"""
import ctypes
import os
import re
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36


def main():
    nettest = os.path.abspath(sys.argv[1])
    # Below who adopts orphans, as in a container: they do not become children of process 1.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    operations = [f"{what}:127.0.0.1:%PORT%:1000000:4096" for what in ("send", "receive")]
    # Its pipe is closed only when the last process that has it is gone.
    run = subprocess.run([nettest, "with", "127.0.0.1", nettest, *operations],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=30,
                         check=True)
    for line in (r"@nettest send-4096 bytes=1000000 us=\d+", r"@nettest receive-4096 bytes=1000000 us=\d+",
                 r"@nettest used send-4096 busiest=\d+ all=\d+", r"@nettest host user=\d+ system=\d+"):
        if not re.search(line, run.stdout):
            sys.exit(f"FAILED: no line {line} in:\n{run.stdout}")
    failing = subprocess.run([nettest, "with", "127.0.0.1", "false"], timeout=30, check=False,
                             stdout=subprocess.PIPE)
    if failing.returncode != 1:
        sys.exit(f"FAILED: the command's status 1 became {failing.returncode}")


if __name__ == "__main__":
    main()
