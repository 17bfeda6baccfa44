#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`alibi bench debian` from end to end: makes the image if it is not there, and runs each row once, on
Alibi and, but for rows of guests only, natively. Every row has a figure, which it has only if both computed
the same, and the image is afterwards what it was. Then a second, shorter run beside the first one's report.

    bench_debian_test.py ALIBI debian.inc

Needs Debian's package servers the first time, and the packages that its error names. Each line PASS or
FAIL becomes a test case.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from verdicts import conclude, report  # noqa: E402

ALIBI, ROWS = (os.path.abspath(path) for path in sys.argv[1:3])
PATIENCE = 3000  # seconds, on a busy host
BOOT = "login"


def bench(*options):
    done = subprocess.run([ALIBI, "bench", "debian", "--quick", "--no-qemu", "--cpu-time", *options],
                          check=False, timeout=PATIENCE, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    print(done.stdout + done.stderr, flush=True)
    return done


def image():
    """The folder's path, from the script that the program carries along."""
    script = pathlib.Path(ALIBI).parents[1] / "bench/linux/debian_image.py"
    done = subprocess.run([sys.executable, script], check=True, text=True, stdout=subprocess.PIPE)
    return pathlib.Path(done.stdout.splitlines()[-1])


def state(folder):
    """Of all that a run could have changed."""
    with open(folder / "disk", "rb") as disk:
        sums = hashlib.sha256()
        for block in iter(lambda: disk.read(1 << 20), b""):
            sums.update(block)
    tree = sorted((str(path), path.lstat().st_mtime_ns, path.lstat().st_size)
                  for path in (folder / "tree").rglob("*"))
    return sums.hexdigest(), hashlib.sha256(repr(tree).encode()).hexdigest()


def main():
    if os.environ.get("ALIBI_OFFLINE"):
        print("SKIP: ALIBI_OFFLINE forbids to get packages")
        return 0
    text = pathlib.Path(ROWS).read_text(encoding="utf-8")
    rows = dict(re.findall(r'^ALIBI_DEBIAN\("([^"]+)".* (k\w+),$', text, re.M))
    names = list(rows)
    report("rows", None if len(names) > 10 else f"only {names}")
    before = state(image())
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        os.chdir(folder)
        done = bench("--json", "first.json")
        report("exit status", done.returncode and f"{done.returncode}: {done.stderr[-500:]}")
        first = json.loads(pathlib.Path("first.json").read_text(encoding="utf-8"))
        report("failures", "; ".join(failure["what"] for failure in first["failures"]))
        found = {(row["name"], row["system"]) for row in first["benchmarks"]
                 if row["clock_seconds"] > 0 and row["cpu_seconds"] > 0}
        report(BOOT, None if (BOOT, "alibi") in found else "no figure")
        for name in names:
            systems = ("alibi",) if rows[name] == "kGuests" else ("native", "alibi")
            missing = [system for system in systems if (name, system) not in found]
            report(name, f"no figure of {', '.join(missing)}" if missing else None)
        done = bench("--only", "true,login", "--compare", "first.json", "--json", "second.json")
        compared = done.stdout.partition("cost  noise")[2]
        report("beside the first report", done.returncode or
               (None if re.search(r"^true .*%", compared, re.M) and "DIFFERS" not in compared else compared))
    report("the image is as it was", None if state(image()) == before else "it changed")
    return conclude("bench debian")


if __name__ == "__main__":
    sys.exit(main())
