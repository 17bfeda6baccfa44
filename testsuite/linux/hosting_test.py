#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Less than all that a machine keeps over switches (--hosting): a guest does not see it, and it costs.

    hosting_test.py ALIBI BOOT_PY LINUXBENCH KERNEL

Two processes of one of Debian's kernels pass a byte back and forth, with everything kept and with
less. A host that cannot run code directly is a SKIP of those runs.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ALIBI, BOOT, LINUXBENCH = (os.path.abspath(path) for path in sys.argv[1:4])
KERNEL = sys.argv[4]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
import packages  # noqa: E402
from fetched import fetched  # noqa: E402
from verdicts import conclude, report  # noqa: E402

PATIENCE = 240  # seconds
UNAVAILABLE = 69
SWITCHES = 4000  # of the row in quick mode (bench/linux/workloads.inc)
WORDS = "/root/linuxbench run quick:only=ctxswitch /tmp /bin/busybox"


def run(engine, hosting, stats):
    """Counters of a run; None: direct execution is not for this host. Wrong ends are reported."""
    name = f"{engine}, {hosting}"
    done = subprocess.run([sys.executable, BOOT, "--kernel", KERNEL, "--engine", engine,
                           "--hosting", hosting, "--stats-json", str(stats),
                           "--add", LINUXBENCH + ":/root/linuxbench", "--exec", WORDS],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=PATIENCE, check=False)
    if engine == "direct" and done.returncode == UNAVAILABLE:
        print(f"SKIP {name}: {done.stderr.decode(errors='replace')}")
        return None
    output = done.stdout.decode(errors="replace")
    good = done.returncode == 0 and '"name":"ctxswitch"' in output.replace(" ", "")
    report(f"{name}: the guest's processes end as they should",
           None if good else f"status {done.returncode}, {output[-1000:]}, {done.stderr[-1000:]}")
    return json.loads(stats.read_text()) if good else {}


def more(name, counters, member, counter, least):
    """At least so many of a counter; runs that were reported already have none."""
    if not counters:
        return
    count = counters[member][counter]
    report(f"{name}: {counter}", None if count >= least else f"{count}, not {least}")


def main():
    os.environ["ALIBI_PROGRAM"] = ALIBI
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    if fetched(folder / "cache", packages.fetch, KERNEL) is None:
        return
    stats = folder / "stats.json"
    kept = run("translate", "all", stats)
    if kept:
        report("all views are kept", None if kept["mmu"]["view_recycles"] == 0 else
               f"{kept['mmu']['view_recycles']} were taken")
    # Kernel and program in one view: each of a switch's system calls takes it from the other.
    one = run("translate", "views=1", stats)
    more("one view", one, "mmu", "view_recycles", 2 * SWITCHES)
    if one:
        report("no second view", None if one["mmu"]["view_creates"] <= 1 else
               f"{one['mmu']['view_creates']}")
    kept = run("direct", "all", stats)
    if kept is None:
        return
    if kept:
        flushes = kept["direct"]["direct_flushes"]
        report("all satellites are kept", None if flushes < SWITCHES / 10 else f"{flushes} lost all")
    # The two processes take it from each other at each switch.
    more("one satellite", run("direct", "satellites=1", stats), "direct", "direct_flushes", SWITCHES)
    again = run("direct", "remap", stats)
    if again:
        # All but those in front of which nothing had been mapped since the last time.
        more("mapped anew", again, "direct", "direct_flushes", 0.9 * again["direct"]["direct_entries"])


if __name__ == "__main__":
    main()
    sys.exit(conclude(KERNEL))
