#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where Alibi's time goes in a workload of `alibi bench linux`.

Runs FOLDER/alibi.sh (made by `alibi bench linux --prepare FOLDER --only NAME`) and, from the moment
that the workload begins, `perf record`. Prints the shares of translated code, of the runtime's stubs,
of the VMM's functions and of the host's kernel, and the hottest code in the translation cache, disassembled.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import time

CACHE = "alibi-tc"  # the name of the translation cache's memory file
STUBS = 0x2000  # its first bytes are the runtime's stubs
BLOCK = 256  # bytes of translated code that are shown as one


def cache_of(pid):
    """Where the executable mapping of the translation cache begins and ends."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="ascii").splitlines():
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) r.x.*" + CACHE, line)
        if found:
            return int(found[1], 16), int(found[2], 16)
    sys.exit(f"process {pid} has no translation cache: is it alibi?")


def wait_for_begin(process):
    """Reads the console up to the first workload."""
    for line in process.stdout:
        if b'@@bench {"begin"' in line:
            return
    sys.exit("the guest ended before its workload")


def record(folder, seconds, work):
    """Samples (address, symbol, object), the cache's range, and its memory at the end."""
    command = [str(folder / "alibi.sh")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as machine:
        try:
            wait_for_begin(machine)
            data = work / "perf.data"
            perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-o", str(data), "-p",
                    str(machine.pid)]
            with subprocess.Popen(perf, stderr=subprocess.DEVNULL) as sampler:
                start, end = cache_of(machine.pid)
                memory = b""
                deadline = time.monotonic() + seconds
                # The guest may end any moment: what was read last counts.
                while machine.poll() is None and time.monotonic() < deadline:
                    try:
                        with open(f"/proc/{machine.pid}/mem", "rb", buffering=0) as file:
                            file.seek(start)
                            memory = file.read(min(end - start, 32 << 20)) or memory
                    except OSError:
                        break
                    time.sleep(0.3)
                sampler.send_signal(2)
        finally:
            machine.kill()
    script = subprocess.run(["perf", "script", "-i", str(data), "-F", "ip,sym,dso"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    samples = []
    for line in script.stdout.splitlines():
        found = re.match(r"\s*([0-9a-f]+) (.*?) \(([^()]*)(?: \(deleted\))?\)$", line)
        if found:
            samples.append((int(found[1], 16), found[2], found[3]))
    return samples, start, memory


def disassemble(memory, first, hits, work):
    """The block at offset `first`, with the samples of each instruction."""
    image = work / "block"
    image.write_bytes(memory[first:first + BLOCK + 16])
    listing = subprocess.run(["objdump", "-D", "-b", "binary", "-m", "i386:x86-64",
                              "--no-show-raw-insn", f"--adjust-vma={first:#x}", str(image)],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in listing.splitlines():
        found = re.match(r"\s*([0-9a-f]+):\t(.*)", line)
        if found and int(found[1], 16) < first + BLOCK:
            print(f"  {hits.get(int(found[1], 16), 0) or '':>6} {found[1]:>8}  {found[2].strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path, help="of --prepare")
    parser.add_argument("--seconds", type=float, default=10, help="at most (10)")
    parser.add_argument("--rows", type=int, default=20, help="of the table (20)")
    parser.add_argument("--blocks", type=int, default=2, help="of translated code to show (2)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        samples, start, memory = record(arguments.folder, arguments.seconds, work)
        if not samples:
            sys.exit("perf gave no samples")
        shares, hits = collections.Counter(), collections.Counter()
        for address, symbol, mapped in samples:
            if CACHE in mapped:
                offset = address - start
                hits[offset] += 1
                shares["translated code" if offset >= STUBS else f"stub at {offset & ~0xff:#x}"] += 1
            else:
                shares["host kernel" if mapped.startswith("[kernel") else symbol] += 1
        for what, count in shares.most_common(arguments.rows):
            print(f"{100 * count / len(samples):6.1f} %  {what}")
        blocks = collections.Counter()
        for offset, count in hits.items():
            blocks[offset // BLOCK * BLOCK] += count
        for first, count in blocks.most_common(arguments.blocks):
            print(f"\n{100 * count / len(samples):.1f} % at {first:#x}")
            disassemble(memory, first, hits, work)


if __name__ == "__main__":
    main()
