#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Boots one of Debian's kernels through `alibi linux` and checks what a user sees.

    boot_test.py ALIBI BOOT_PY GUEST_CHECKS KERNEL [WORD...]

The guest's own checks, and what becomes of input, output, status, panics and reboots; with the word
`ends`, also the ways in which a start fails; with the word `engines`, nothing but the guest's own checks,
with user code on the CPU itself, now and then and whenever possible. Where QEMU is installed, Alibi's boot must not take
longer than QEMU's on the same kernel and initial RAM disk, measured in turn.

Needs Debian's package servers, or packages fetched before (ALIBI_OFFLINE forbids to get any: then
a kernel that is not there is a SKIP). Each line PASS or FAIL becomes a test case.
"""

import json
import lzma
import os
import pathlib
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ALIBI, BOOT, CHECKS = (os.path.abspath(path) for path in sys.argv[1:4])
KERNEL, WORDS = sys.argv[4], sys.argv[5:]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
import initramfs  # noqa: E402
import packages  # noqa: E402
from fetched import fetched  # noqa: E402
from verdicts import conclude, report, take  # noqa: E402

PATIENCE = 120  # seconds: a machine that is far busier than ours must still pass
ROUNDS = 5  # the first in which Alibi is the faster one is the last


def expect(name, found, wanted):
    report(name, None if found == wanted else f"{found!r}, not {wanted!r}")


def linux(*arguments, stdin=b""):
    """alibi linux: status, stdout, stderr."""
    done = subprocess.run([sys.executable, BOOT, "--kernel", KERNEL, *arguments], input=stdin,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
                          check=False)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def guest_checks(who, *options):
    arguments = ["--add", CHECKS + ":/root/checks", *options]
    busybox32 = packages.cache_folder() / "686" / "bin" / "busybox"
    if "amd64" in KERNEL and busybox32.exists():
        arguments += ["--add", f"{busybox32}:/root/busybox32"]
    status, out, err = linux(*arguments, "--exec", "sh /root/checks")
    lines = out.decode(errors="replace").splitlines()
    for line in lines:
        verdict = re.match(r"(PASS|FAIL) (\w+)(?:: (.*))?", line)
        if verdict:
            report(f"{who}: {verdict[2]}",
                   None if verdict[1] == "PASS" else verdict[3] or "failed")
    summary = lines[-1] if lines else ""
    report(f"{who}: verdict", None if status == 0 and "SUMMARY" in summary else
           f"status {status}, '{summary}', {err[-2000:]}")


def engines():
    """The guest's checks under the engines that run user code directly."""
    unavailable = 69
    status, _, err = linux("--engine", "direct", "--exec", "true")
    if status == unavailable:
        print(f"SKIP {err}")
        return
    for engine in "auto", "direct":
        guest_checks(engine, "--engine", engine)


def kept_translations(folder):
    """The guest's checks with what another run has translated, at other addresses (KASLR)."""
    stats = folder / "stats.json"
    counts = []
    for who in "fills the store", "uses the store":
        guest_checks(who, "--tc-cache", str(folder / "store"), "--stats-json", str(stats))
        counts.append(json.loads(stats.read_text())["runtime"])
    first, second = (count["translations"] for count in counts)
    print(f"{first} translations, then {second} and {counts[1]['loaded_translations']} loaded")
    # 32-bit kernels are not moved: what is found of them depends on where they have put themselves.
    if "amd64" in KERNEL:
        report("a second boot translates less than 5 %",
               None if second * 20 < first else f"{second} of {first}")


def input_and_output():
    data = os.urandom(500_000)
    status, out, _ = linux("--exec", "cat; exit 3", stdin=data)
    expect("the command's status", status, 3)
    report("input and output, byte for byte", None if out == data else
           f"{len(out)} bytes came back of {len(data)}")


def entries():
    """Every way into the kernel that it and this host have."""
    found = ["32"] + (["64"] if "amd64" in KERNEL else [])
    if os.path.exists("/usr/share/seabios/bios-256k.bin"):
        found.append("16")
    else:
        print("SKIP entry 16: no SeaBIOS here (apt-get install seabios)")
    for entry in found:
        status, out, err = linux("--entry", entry, "--exec", "echo $((6 * 7))")
        report(f"entry {entry}", None if (status, out) == (0, b"42\n") else
               f"status {status}, {out}, {err[-2000:]}")


def panic():
    status, out, err = linux("--exec", "echo before; echo c > /proc/sysrq-trigger; sleep 60")
    expect("a panic's status", status, 84)
    expect("a panic's output", out, b"before\n")
    # The driver tells the machine, at once; without it (above) a reboot does.
    status, out, err = linux("--append", "panic=0", "--modules", "pvpanic-mmio", "--exec",
                             "echo c > /proc/sysrq-trigger; sleep 60")
    report("a panic that the pvpanic driver reports", None if status == 84 else
           f"status {status}, {err[-2000:]}")


def panic_log():
    _, _, err = linux("--exec", "echo c > /proc/sysrq-trigger; sleep 60")
    report("a panic's log", None if "panicked: sysrq triggered crash" in err else err[-2000:])


def run(initrd, *arguments):
    """alibi run, for what alibi linux does not do: status, stdout, stderr."""
    kernel = packages.fetch(packages.cache_folder(), KERNEL)
    done = subprocess.run([ALIBI, "run", "--kernel", kernel.image, "--initrd", initrd, "--ram",
                           "512M", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode()


def bad_starts(folder, kernel):
    status, out, err = linux("--exec", "true", "--ram", "24M")
    report("too little RAM", None if status == 65 and re.search(r"needs \d+ MB", err) else
           f"status {status}, {err}")
    status, out, err = linux("--exec", "poweroff -f")
    report("an end before the command's", None if status == 85 else f"status {status}, {err}")
    archive = bytearray(initramfs.build(kernel, "true"))
    archive[110:200000] = os.urandom(200000 - 110)
    path = folder / "corrupt"
    path.write_bytes(archive)
    status, out, err = run(path, "--no-reboot", "--append", "console=ttyS0 panic=-1")
    report("a corrupt initial RAM disk", None if status == 80 and "Kernel panic" in out else
           f"status {status}, {out[-2000:]} {err}")


def reboot():
    """An interactive guest that reboots in every way it knows, and then switches itself off."""
    kernel_run = subprocess.Popen([sys.executable, BOOT, "--kernel", KERNEL, "--append", "quiet"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
    seen = b""
    commands = [b"echo %s > /sys/kernel/reboot/type; reboot -f\n" % way
                for way in (b"kbd", b"triple", b"pci", b"acpi")] + [b"poweroff -f\n"]
    ways = len(commands)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not select.select([kernel_run.stdout], [], [], 1)[0]:
            continue
        piece = os.read(kernel_run.stdout.fileno(), 65536)
        if not piece:
            break
        seen += piece
        prompts = seen.count(b"/root # ")
        if commands and prompts == ways + 1 - len(commands):
            kernel_run.stdin.write(commands.pop(0))
            kernel_run.stdin.flush()
    else:
        kernel_run.kill()
    status = kernel_run.wait()
    report("reboots, then off", None if status == 0 and not commands else
           f"status {status}, {seen[-2000:].decode(errors='replace')}")


def pvh(folder, kernel):
    """The ELF file inside the bzImage, by its PVH entry (boot protocol 2.08: payload_offset)."""
    config = (kernel.root / "boot" / f"config-{kernel.release}").read_text()
    if "CONFIG_PVH=y" not in config or "CONFIG_KERNEL_XZ=y" not in config:
        print("SKIP PVH: this kernel has no such entry, or Python cannot unpack it")
        return
    image = kernel.image.read_bytes()
    offset, length = struct.unpack_from("<II", image, 0x248)
    offset += (image[0x1f1] + 1) * 512
    vmlinux, initrd = folder / "vmlinux", folder / "pvh_initrd"
    # What follows the packed file is its size.
    vmlinux.write_bytes(lzma.LZMADecompressor().decompress(image[offset:offset + length]))
    initrd.write_bytes(initramfs.build(kernel, "true"))
    done = subprocess.run([ALIBI, "run", vmlinux, "--initrd", initrd, "--ram", "512M", "--com1",
                           "/dev/null", "--append", "console=ttyS0 quiet"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    report("the PVH entry", None if done.returncode == 0 else
           f"status {done.returncode}, {done.stderr[-500:]}")


def boot_time(folder, kernel):
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        print("SKIP boot time: no QEMU here to compare with")
        return
    initrd = folder / "initrd"
    initrd.write_bytes(initramfs.build(kernel, "true"))
    line = ["-append", "console=ttyS0 quiet"]
    commands = {
        "alibi": [ALIBI, "run", "--kernel", kernel.image, "--initrd", initrd, "--ram", "512M",
                  "--com1", "/dev/null", *line],
        "qemu": [qemu, "-accel", "tcg", "-m", "512", "-display", "none", "-monitor", "none",
                 "-no-reboot", "-nodefaults", "-serial", "null", "-serial", "null",
                 "-kernel", kernel.image, "-initrd", initrd, *line],
    }
    best = {}
    for _ in range(ROUNDS):  # in turn, so that both see the same load; the best of each counts
        for name, command in commands.items():
            begin = time.monotonic()
            # An end of input is the end of the command's.
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
            best[name] = min(best.get(name, 1e9), time.monotonic() - begin)
            if done.returncode != 0:
                report(f"boot time: {name}", f"status {done.returncode}, {done.stderr[-500:]}")
                return
        if best["alibi"] <= best["qemu"]:
            break
    print(f"boot to power-off: Alibi {best['alibi']:.2f} s, QEMU TCG {best['qemu']:.2f} s")
    report("boot time, at most QEMU's", None if best["alibi"] <= best["qemu"] else str(best))


def main():
    os.environ["ALIBI_PROGRAM"] = ALIBI
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    kernel = fetched(folder / "cache", packages.fetch, KERNEL)
    if kernel is None:
        return
    steps = [lambda: guest_checks("guest"), lambda: kept_translations(folder), input_and_output, entries, panic, panic_log, reboot,
             lambda: pvh(folder, kernel), lambda: boot_time(folder, kernel)]
    if "ends" in WORDS:
        steps.append(lambda: bad_starts(folder, kernel))
    if "engines" in WORDS:
        steps = [engines]
    try:
        take(steps, OSError, subprocess.SubprocessError, packages.Failure)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
    sys.exit(conclude(KERNEL))
