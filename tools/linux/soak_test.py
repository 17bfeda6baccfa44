#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py without a machine: what it makes of the guest's lines, and how it sees that threads wait.

    soak_test.py soak.py
"""

import pathlib
import subprocess
import sys
import time
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(SCRIPT.parent))
sys.dont_write_bytecode = True

import soak  # pylint: disable=wrong-import-position

MS = 1_000_000


class LateInterrupts(unittest.TestCase):
    """A timer interrupt that took long is the guest's problem, unless the host kept it waiting."""

    def watch(self, waited_ms):
        """A guest whose clock is 1000 s behind ours, and whose threads waited so long a second ago."""
        watch = soak.Watch(pid=0)
        watch.waits = soak.Waits(pid=0)
        now = time.monotonic()
        for tenth in range(100):
            at = now - 10 + tenth / 10
            watch.waits.seen.append((at, 7 * MS + (waited_ms * MS if at > now - 1 else 0)))
        watch.line(f"late {now - 1000 - 1:.6f} {12 * MS}")
        watch.line(f"clock {now - 1000:.2f} available 1 processes 2 load 3")
        return watch.problems

    def test_the_host_kept_it_waiting(self):
        self.assertEqual(self.watch(waited_ms=12), [])

    def test_the_host_did_not(self):
        problem = "a timer interrupt took 12.0 ms; threads waited for 11.0 ms"
        self.assertEqual(self.watch(waited_ms=11), [problem])

    def test_it_was_at_another_time(self):
        watch = soak.Watch(pid=0)
        now = time.monotonic()
        watch.waits.seen.extend([(now - 9, 0), (now - 8, 50 * MS), (now - 2, 50 * MS), (now, 50 * MS)])
        watch.line(f"late 99 {12 * MS}")
        watch.line("clock 100 available 1")
        self.assertEqual(len(watch.problems), 1)

    def test_nothing_is_known_of_that_time(self):
        watch = soak.Watch(pid=0)
        watch.line(f"late 99 {12 * MS}")
        watch.line("clock 100 available 1")
        self.assertEqual(len(watch.problems), 1)


class WaitsOfThreads(unittest.TestCase):
    """More threads than one CPU can run wait, and it is seen."""

    def test_two_programs_on_one_cpu(self):
        # Named as a machine is.
        program = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
        start = f"import subprocess, sys\n" \
                f"children = [subprocess.Popen([sys.executable, '-c', {program!r}, 'run', ''])\n" \
                f"            for _ in range(2)]\n" \
                f"for child in children: child.wait()"
        starter = subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c", start])
        waits = soak.Waits(starter.pid)
        waits.start()
        begin = time.monotonic() + 0.5
        starter.wait()
        # One of the two is looked at: half of its time, if nobody else wants the CPU.
        self.assertGreater(waits.between(begin, time.monotonic()), 300 * MS)


if __name__ == "__main__":
    unittest.main()
