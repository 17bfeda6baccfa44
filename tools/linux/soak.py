#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps a Debian guest at work for a while, and checks all that it does.

Rounds of compiling, compressing, sorting, forking, files on ext4 (virtio disk) and tmpfs, transfers
from and to a server on this host's loopback, modules that come and go, and stress-ng's cpu, vm, fork
and mutex with --verify; with --smp N also programs pinned to each CPU, and CPUs that are taken away
while the others work; see soak_guest.sh. A line per round says how
long each part took in the guest, how far the guest's clock is from ours, and what memory Alibi
uses. Exit status 0: every result was right, the kernel warned about nothing after its boot, the
clock kept time, memory did not grow, and the disk image is clean.
"""

import argparse
import collections
import fcntl
import hashlib
import http.server
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from packages import KERNELS, Failure, apt, cache_folder, fetch, say

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["tcc", "libc6", "libc6-dev", "linux-libc-dev", "stress-ng"]
# What stress-ng's libraries need of others, but no graphics drivers.
LIBRARIES = ["libapparmor1", "libbsd0", "libcrypt1", "libdrm2", "libegl1", "libexpat1", "libffi8",
             "libgbm1", "libgcc-s1", "libgles2", "libglvnd0", "libjpeg62-turbo", "libjudydebian1",
             "libkmod2", "liblzma5", "libmd0", "libsctp1", "libssl3", "libwayland-server0",
             "libxxhash0", "libzstd1", "zlib1g"]
LIBRARIES_OF = {"amd64": ["libipsec-mb1"], "i386": []}
# What the guest loads and removes; of the kernel's package, and no others need them.
MODULES = ["loop", "xfs"]
DISK_MB = 512
TRIM_ERROR_MB = 60  # less than the file that the guest removes
# How far the clocks may part: Linux measures the TSC at its boot, to about 1 in 1000 at best.
CLOCK_ERROR = 0.02


class Server(http.server.BaseHTTPRequestHandler):
    """Files that the address determines, their sums, and the sums of what comes."""

    protocol_version = "HTTP/1.1"
    big = random.Random(1).randbytes(6_000_000)

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # pylint: disable=invalid-name
        path, _, seed = self.path.partition("?")
        if path == "/big":
            self.answer(self.big)
        elif path == "/big.sha256":
            self.answer(hashlib.sha256(self.big).hexdigest().encode() + b"  big\n")
        elif path in ("/random", "/sum"):
            body = random.Random(seed).randbytes(500_000)
            self.answer(body if path == "/random" else hashlib.sha256(body).hexdigest().encode())
        else:
            self.send_error(404)

    def do_POST(self):  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(hashlib.sha256(body).hexdigest().encode())

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def programs(arch):
    """A folder with tcc, stress-ng and what they need, from Debian's packages."""
    cache = cache_folder()
    root = cache / f"soak-{arch}"
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if root.exists():
            return root
        if os.environ.get("ALIBI_OFFLINE"):
            raise Failure(f"tcc and stress-ng are not in {cache}, and ALIBI_OFFLINE forbids to get it")
        say(f"getting Debian's {', '.join(PACKAGES)} into {cache}")
        try:
            apt(cache, arch, "apt-get", "-q", "update")
        except Failure:  # part of a mirror may do
            pass
        partial = cache / f"soak-{arch}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for package in PACKAGES + LIBRARIES + LIBRARIES_OF[arch]:
            apt(cache, arch, "apt-get", "-q", "download", package, cwd=partial)
        for deb in partial.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(deb), str(partial)], check=True)
            deb.unlink()
        shutil.rmtree(partial / "usr/share")  # manuals
        (partial / "tmp").mkdir()
        partial.rename(root)
    return root


def filesystem_tool(tool, *arguments):
    path = shutil.which(tool, path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    if path is None:
        raise Failure(f"{tool} is missing (apt-get install e2fsprogs)")
    done = subprocess.run([path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def descendants(pid):
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [child for top in children for child in [top, *descendants(top)]]


def machine_of(pid):
    """The folder in /proc of the machine that the process `pid` started; None: there is none now."""
    for child in descendants(pid):
        folder = pathlib.Path(f"/proc/{child}")
        try:
            if b"\0run\0" in (folder / "cmdline").read_bytes():
                return folder
        except OSError:
            pass
    return None


def resident_mb(pid):
    """The memory of the machine that the process `pid` started, in MB."""
    machine = machine_of(pid)
    try:
        found = machine and re.search(r"VmRSS:\s+(\d+)", (machine / "status").read_text())
    except OSError:
        return 0
    return int(found.group(1)) // 1024 if found else 0


class Waits(threading.Thread):
    """For how long the machine's threads have waited for one of the host's CPUs, looked at again and
    again."""

    PERIOD = 0.05  # seconds
    KEPT = 6000

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.seen = collections.deque(maxlen=self.KEPT)  # time, nanoseconds of all threads up to then

    @staticmethod
    def of_thread(task):
        """By the kernel's sched-stats.rst: CPU time, time in the run queue, turns."""
        try:
            return int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            return 0

    def run(self):
        known = {}  # by thread; those that have ended keep theirs
        machine = None
        while True:
            time.sleep(self.PERIOD)
            machine = machine or machine_of(self.pid)
            try:
                tasks = list((machine / "task").iterdir()) if machine else []
            except OSError:
                return
            known.update({task.name: self.of_thread(task) for task in tasks})
            self.seen.append((time.monotonic(), sum(known.values())))

    def between(self, begin, end):
        """In nanoseconds."""
        seen = list(self.seen)
        before = [waited for at, waited in seen if at <= begin]
        after = [waited for at, waited in seen if at <= end]
        return after[-1] - before[-1] if before else 0


class Watch:
    """What the guest's lines say, beside the host's view of it."""

    # What the clock of the kernel's messages may be off from that of its programs, and our looks late.
    LATE_ERROR = 0.2

    def __init__(self, pid):
        self.pid = pid
        self.waits = Waits(pid)
        self.waits.start()
        self.late = []  # when by the guest's clock, and nanoseconds
        self.problems = []
        self.done = False
        self.memory = []
        self.first_clock = None
        self.clock_error = 0.0
        self.round = "start"

    def line(self, text):
        if text.startswith("round "):
            self.round = text
            if " ok" not in text:
                self.problems.append(text)
        elif text.startswith("clock "):
            self.tick(text)
        elif text.startswith("late "):
            self.late.append((float(text.split()[1]), int(text.split()[2])))
        else:
            print(text, flush=True)
            self.done = self.done or text.startswith("done ")

    def tick(self, text):
        guest, host = float(text.split()[1]), time.monotonic()
        self.memory.append(resident_mb(self.pid))
        if self.first_clock is None:
            self.first_clock = (guest, host)
        passed = host - self.first_clock[1]
        self.clock_error = guest - self.first_clock[0] - passed
        print(f"{self.round}; {passed:.0f} s, guest's clock {self.clock_error:+.2f} s, "
              f"alibi {self.memory[-1]} MB, {' '.join(text.split()[2:])}", flush=True)
        self.round = "end"  # unless there is another one
        if abs(self.clock_error) > 1 + CLOCK_ERROR * passed:
            self.problems.append(f"the guest's clock is off by {self.clock_error:.2f} s")
        # The guest counts it as a warning; here is what the host did meanwhile.
        for at, took in self.late:
            end = host - guest + at
            waited = self.waits.between(end - took / 1e9 - self.LATE_ERROR, end + self.LATE_ERROR)
            print(f"a timer interrupt took {took / 1e6:.1f} ms; the machine's threads waited for "
                  f"{waited / 1e6:.1f} ms", flush=True)
        self.late = []

    def judge_memory(self):
        """Caches fill up for a while; then use must stay where it is."""
        third = len(self.memory) // 3
        if third == 0:
            return
        middle, last = max(self.memory[third:2 * third]), max(self.memory[2 * third:])
        print(f"alibi's memory: at most {max(self.memory[:third])} MB in the first third of the "
              f"rounds, {middle} MB in the second, {last} MB in the third")
        if last > middle * 1.1 + 16:
            self.problems.append("memory grew")


def soak(arguments, rest, folder):
    kernel = fetch(cache_folder(), arguments.kernel)
    disk = folder / "disk.img"
    with open(disk, "wb") as image:
        image.truncate(DISK_MB << 20)
    status, text = filesystem_tool("mke2fs", "-q", "-F", "-t", "ext4", "-d",
                                   str(programs(KERNELS[arguments.kernel][0])), str(disk))
    if status != 0:
        raise Failure(f"mke2fs failed: {text}")
    allocated = disk.stat().st_blocks * 512
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"kernel {kernel.release}, {arguments.minutes} minutes, server on port "
          f"{server.server_port}", flush=True)

    modules = kernel.module_closure(MODULES)
    command = f"sh /root/soak_guest.sh {max(1, int(arguments.minutes * 60))} " \
              f"http://10.0.2.2:{server.server_port} {' '.join(path.stem for path in modules)}"
    files = [option for path in modules for option in ("--add", str(path))]
    machine = subprocess.Popen(
        [sys.executable, str(HERE / "boot.py"), "--kernel", arguments.kernel, "--disk", str(disk),
         "--net", "user,loopback=on", "--add", str(HERE / "soak_guest.sh"), *files, *rest,
         "--exec", command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
    watch = Watch(machine.pid)
    try:
        for line in machine.stdout:
            watch.line(line.rstrip())
        status = machine.wait()
    finally:
        machine.terminate()
        machine.wait()
    if status != 0:
        watch.problems.append(f"alibi linux ended with status {status}")
    if not watch.done:
        watch.problems.append("the guest did not come to its end")
    watch.judge_memory()
    # The guest has trimmed: what is new is the file system's own, and one small file.
    grown = (disk.stat().st_blocks * 512 - allocated) >> 20
    if grown > TRIM_ERROR_MB:
        watch.problems.append(f"the image keeps {grown} MB more of the host's space")
    status, text = filesystem_tool("e2fsck", "-fn", str(disk))
    if status != 0:
        watch.problems.append(f"e2fsck: {text}")
    for problem in watch.problems:
        print(f"FAIL {problem}")
    print("FAIL" if watch.problems else "PASS")
    return 1 if watch.problems else 0


def main():
    parser = argparse.ArgumentParser(prog="alibi soak", allow_abbrev=False,
                                     description=__doc__.split("\n\n", maxsplit=1)[0],
                                     epilog="Every other option goes to `alibi run`.")
    parser.add_argument("--kernel", choices=sorted(KERNELS), default="cloud-amd64",
                        help="which of Debian's kernels (cloud-amd64)")
    parser.add_argument("--minutes", type=float, default=30, help="of the guest's time (30)")
    arguments, rest = parser.parse_known_args()
    if "ALIBI_PROGRAM" not in os.environ:
        say("start it as ./alibi soak")
        return 69
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        return soak(arguments, rest, folder)
    except (Failure, OSError, subprocess.CalledProcessError) as failure:
        say(str(failure))
        return 69
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
