#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guest that resets its machine 60 times loses no time, although the host often stops it.

    reset_clock_test.py ALIBI RESET_CLOCK_KERNEL
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time

RESETS = 60
MOST_LOST = 0.1  # seconds
DAY = 86400


def disturb(process):
    """Half of the time the guest is stopped: that is hidden from it while it measures."""
    while process.poll() is None:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            os.kill(process.pid, number)
            time.sleep(0.01)


def main():
    process = subprocess.Popen([sys.argv[1], "run", sys.argv[2]], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True)
    threading.Thread(target=disturb, args=[process], daemon=True).start()
    behind = []  # the guest's clock, when it told of the beginning of a second
    for line in process.stdout:
        now = time.time()
        if found := re.match(r"second (\d\d):(\d\d):(\d\d)$", line):
            hours, minutes, seconds = map(int, found.groups())
            behind.append((now - hours * 3600 - minutes * 60 - seconds + DAY / 2) % DAY - DAY / 2)
    status = process.wait()
    # It can be told late, but not early.
    lost = min(behind[-10:], default=DAY) - min(behind[:10], default=0)
    print(f"status {status}, {len(behind)} starts, {lost:.3f} s lost")
    print(" ".join(f"{seconds:.3f}" for seconds in behind))
    return 0 if status == 1 and len(behind) == RESETS + 1 and abs(lost) < MOST_LOST else 1


if __name__ == "__main__":
    sys.exit(main())
