#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py without a machine: what it makes of the guest's lines, and how it sees that threads wait.

    soak_test.py soak.py
"""

import contextlib
import io
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
    """Beside a timer interrupt that took long stands for how long the host kept the machine waiting."""

    def waited(self, seen):
        """What is said of one that ended 1 s ago, after `seen`: seconds ago, milliseconds up to then."""
        watch = soak.Watch(pid=0)
        watch.waits = soak.Waits(pid=0)
        now = time.monotonic()
        watch.waits.seen.extend((now - ago, waited * MS) for ago, waited in seen)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            watch.line(f"late 99 {12 * MS}")
            watch.line("clock 100 available 1")
        self.assertEqual(watch.problems, [])  # the guest's warning is what fails
        return output.getvalue().splitlines()[-1].removeprefix(
            "a timer interrupt took 12.0 ms; the machine's threads waited for ")

    def test_just_then(self):
        self.assertEqual(self.waited([(9, 7), (1.5, 7), (0.9, 18), (0, 90)]), "11.0 ms")

    def test_at_another_time(self):
        self.assertEqual(self.waited([(9, 0), (8, 50), (2, 50), (0, 50)]), "0.0 ms")

    def test_nothing_is_known_of_that_time(self):
        self.assertEqual(self.waited([]), "0.0 ms")


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
