#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guest's program cannot tell whether it runs translated or on the bare CPU.

    probe_test.py ALIBI BOOT_PY PROBE KERNEL

Runs guest/probe.c in one of Debian's kernels under both engines: the output must be the same, byte
for byte. Each part of it becomes a test case. A host that cannot run code directly is a SKIP.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ALIBI, BOOT, PROBE = (os.path.abspath(path) for path in sys.argv[1:4])
KERNEL = sys.argv[4]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
import packages  # noqa: E402
from fetched import fetched  # noqa: E402
from verdicts import conclude, report  # noqa: E402

PATIENCE = 240  # seconds
LEAST_ENTRIES = 1000
STOPS_PER_EVENT = 8  # at least: direct/direct_execution.h
UNAVAILABLE = 69


def probe(engine, stats, log):
    """The output under the engine: status, lines, standard error."""
    # At the same addresses: SGDT shows the kernel's where the CPU has no UMIP.
    done = subprocess.run([sys.executable, BOOT, "--kernel", KERNEL, "--engine", engine,
                           "--stats-json", str(stats), "--log", str(log), "--append", "nokaslr",
                           "--add", PROBE + ":/root/probe", "--exec", "/root/probe"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=PATIENCE, check=False)
    return (done.returncode, done.stdout.decode(errors="replace").splitlines(),
            done.stderr.decode(errors="replace"))


def part(line):
    """What a line is about: its first word."""
    return re.match(r"[^:\s]*", line)[0]


def compare(translated, direct):
    report("as many lines", None if len(translated) == len(direct) else
           f"{len(translated)} translated, {len(direct)} directly")
    differ = {part(line): None for line in translated}
    for one, other in zip(translated, direct):
        if one != other and differ.get(part(one)) is None:
            differ[part(one)] = f"translated '{one}', directly '{other}'"
    for name, problem in differ.items():
        report(name, problem)


def check_log(log, counters, folder):
    """The engine policy's events are those that the counters count, and replay as they were."""
    shown = subprocess.run([ALIBI, "log", "--json", "--kind", "engine", str(log)],
                           stdout=subprocess.PIPE, check=True).stdout
    events = [json.loads(line) for line in shown.splitlines()]
    runs = [event for event in events if event["event"] == "ran"]
    few = [event["stops"] for event in runs if event["stops"] < STOPS_PER_EVENT]
    report("an event is of several stops", f"of {few}" if few else None)
    # A space's last ones may not have been told.
    stops = sum(event["stops"] for event in runs)
    most = stops + (STOPS_PER_EVENT - 1) * len({event["space"] for event in events})
    report("the log has each stop", None if stops <= counters["direct_stops"] <= most else
           f"{stops} up to {most}, not {counters['direct_stops']}")
    figures = folder / "replay.json"
    subprocess.run([ALIBI, "lab", "replay", str(log), "--engine-policy", "always",
                    "--engine-policy", "never", "--json", str(figures)],
                   stdout=subprocess.DEVNULL, check=True)
    recorded, always, never = json.loads(figures.read_text())["rows"]
    report("the recorded policy is predicted", None if all(
        recorded[name] == always[name] for name in recorded if name != "what") else
        f"{recorded} as {always}")
    report("never is estimated", None if never["runs"] == 0 and never["estimated_cycles"] > 0 else
           f"{never}")


def main():
    os.environ["ALIBI_PROGRAM"] = ALIBI
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    if fetched(folder / "cache", packages.fetch, KERNEL) is None:
        return
    stats, log = folder / "stats.json", folder / "run.log"
    results = {}
    for engine in "translate", "direct":
        status, lines, err = probe(engine, stats, log)
        if engine == "direct" and status == UNAVAILABLE:
            print(f"SKIP {err}")
            return
        report(f"{engine}: it ends", None if status == 0 and lines and lines[-1] == "end" else
               f"status {status}, {lines[-1:]}, {err[-2000:]}")
        results[engine] = lines
    compare(results["translate"], results["direct"])
    counters = json.loads(stats.read_text())["direct"]
    entries = counters["direct_entries"]
    report("it ran directly", None if entries > LEAST_ENTRIES else f"{entries} entries")
    check_log(log, counters, folder)


if __name__ == "__main__":
    main()
    sys.exit(conclude(KERNEL))
