#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Alibi on other kinds of host, inside QEMU TCG: Debian's kernel, and Alibi in its RAM disk.

    other_hosts_test.py ALIBI BOOT_PY HELLO KERNEL PROGRAMS...

What it finds on each host's CPU; whether it runs guests there: of PROGRAMS those that end in .elf,
with the host's CPU model, and on one host of each vendor with the other vendor's; and whether the
others pass, which are tests: such as read no files and do not take the host's CPU for an oracle,
for TCG is none. Slow (some minutes for each), and no word about speed.
Without QEMU it says so and checks nothing. Each line PASS or FAIL becomes a test case.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ALIBI, BOOT, HELLO = (os.path.abspath(path) for path in sys.argv[1:4])
KERNEL = sys.argv[4]
PROGRAMS = [os.path.abspath(path) for path in sys.argv[5:]]
TESTS = sorted(path for path in PROGRAMS if not path.endswith(".elf"))
GUESTS = sorted(path for path in PROGRAMS if path.endswith(".elf"))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
import initramfs  # noqa: E402
import packages  # noqa: E402
from verdicts import conclude, report  # noqa: E402

PATIENCE = 900  # seconds a host

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /dev/shm
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
run() {
  echo "@@ $*"
  "$@" < /dev/null
  echo "@@status $?"
}
run /alibi cpu
run /alibi run --ram 16M /hello.elf
run /alibi run --ram 16M --cpu intel /hello.elf
run /alibi run --ram 16M --cpu amd,enforce /hello.elf
for test in /tests/*; do
  run "$test"
done
for model in $models; do  # of the kernel's command line
  for guest in /guests/*; do
    run /alibi run --ram 64M --cpu "$model" "$guest"
  done
done
poweroff -f
"""

# Instructions of the models intel and amd that QEMU 7.2's TCG has on no CPU.
TCG_LACKS = {"rdseed", "xsavec", "3dnowprefetch"}

# What TCG does wrong as a host, and which checks of the guests it fails (docs/qemu_differences.md):
# no SSE exceptions, no reserved bits of MXCSR, no CLFLUSH fault, no x87 stack underflow, pending
# x87 exceptions at FWAIT only. A guest without a line here must pass altogether.
TCG_FAILS = {
    "exceptions": {"#XM unmasked SSE exception": 1, "#GP ldmxcsr reserved bit": 1},
    "fpu": {"stack underflow sets IE and SF": 1},
    "instr": {"#PF clflush of an absent page": 1},
    "xsave": {
        "#GP LDMXCSR of each reserved bit": 1,
        "#XM invalid": 1,
        "#XM denormal": 1,
        "... its flag": 1,
        "#XM divide by zero": 1,
        "#XM overflow": 1,
        "#XM underflow": 1,
        "#XM precision": 1,
        "#UD unmasked without CR4.OSXMMEXCPT": 1,
        "#MF at the next waiting instruction": 1,
        "... ignored behind port 0xf0": 4,
        "... is IRQ 13": 4,
        "... in front of the instruction": 4,
    },
}

# QEMU's model: the CPU models that guests run with; the vendor, features that guests must and must
# not see, and what the models intel and amd lack there beside TCG_LACKS. None: Alibi cannot run
# there, and says why.
CASES = [
    ("Haswell", ["host", "amd"],
     ("GenuineIntel", {"avx2", "bmi2", "arch_capabilities"}, {"adx", "avx512f"},
      {"adx", "clflushopt", "xgetbv1"})),
    ("Skylake-Server", ["host"], ("GenuineIntel", {"avx2", "adx"}, {"sha_ni"}, set())),
    ("EPYC", ["host", "intel"],
     ("AuthenticAMD", {"avx2", "adx"}, {"avx512f", "arch_capabilities"}, set())),
    ("EPYC,-avx2", ["host"], ("AuthenticAMD", {"avx", "adx"}, {"avx2"}, {"avx2"})),
    ("Westmere", [], None),
]


def ram_disk(kernel):
    archive = initramfs.Cpio()
    archive.add("bin/busybox", initramfs.REGULAR | 0o755, kernel.busybox.read_bytes())
    archive.add("dev/console", initramfs.CHARACTER | 0o600, device=(5, 1))
    for folder in ("proc", "sys", "tmp"):
        archive.add(folder, initramfs.FOLDER | 0o755)
    archive.add("init", initramfs.REGULAR | 0o755, INIT.encode())
    archive.add("hello.elf", initramfs.REGULAR | 0o644, pathlib.Path(HELLO).read_bytes())
    archive.add("alibi", initramfs.REGULAR | 0o755, pathlib.Path(ALIBI).read_bytes())
    for test in TESTS:
        archive.add(f"tests/{pathlib.Path(test).name}", initramfs.REGULAR | 0o755,
                    pathlib.Path(test).read_bytes())
    for guest in GUESTS:
        archive.add(f"guests/{pathlib.Path(guest).name}", initramfs.REGULAR | 0o644,
                    pathlib.Path(guest).read_bytes())
    # Programs that are linked dynamically, and what they are linked to.
    libraries = subprocess.run(["ldd", ALIBI, *TESTS], stdout=subprocess.PIPE, text=True,
                               check=True).stdout
    for path in sorted(set(re.findall(r"(/\S+) \(0x", libraries))):
        archive.add(path[1:], initramfs.REGULAR | 0o755, pathlib.Path(path).resolve().read_bytes())
    return archive.finish()


def commands(console):
    """What each `run` of INIT ran and printed, and its status."""
    return [(name, part, int(status)) for name, part, status in
            re.findall(r"@@ ([^\n]*)\n(.*?)@@status (\d+)", console, re.DOTALL)]


def judge_guest(name, text, status):
    """A FrobOS kernel's run: it fails what TCG makes it fail, no more and no less."""
    expected = TCG_FAILS.get(pathlib.Path(name.split()[-1]).stem, {})
    failed = collections.Counter(re.findall(r"^FAIL (.*?)(?::.*)?$", text, re.MULTILINE))
    if failed == expected and status == (3 if expected else 1) and "SUMMARY" in text:
        return []
    return [f"{name}: {status}, {dict(failed)}, {text[-100:]}"]


def judge(console, expected, models):
    ran = commands(console)
    guests = len(models) * len(GUESTS)
    if len(ran) != 4 + len(TESTS) + guests:
        return [f"{len(ran)} of {4 + len(TESTS) + guests} commands ended: ...{console[-1500:]}"]
    ((_, cpu, cpu_status), (_, hello, status), (_, intel, intel_status),
     (_, amd, amd_status)) = ran[:4]
    problems = [] if cpu_status == 0 else [f"alibi cpu: {cpu_status}"]
    if expected is None:
        if status != 69 or "use " not in hello or "use " not in cpu:
            problems.append(f"alibi run: {status}, {hello}")
        return problems
    problems += [f"{name}: {text[-1500:]}" for name, text, failed in ran[4:4 + len(TESTS)]
                 if failed]
    for guest in ran[4 + len(TESTS):]:
        problems += judge_guest(*guest)
    vendor, shown, hidden, wanted = expected
    if f"vendor     {vendor}\n" not in cpu or "can run guests" not in cpu:
        problems.append(cpu[:500])
    features = set(cpu.partition("features")[2].partition("\n\n")[0].split())
    problems += [f"{name} is missing" for name in sorted(shown - features)]
    problems += [f"{name} is shown" for name in sorted(hidden & features)]
    for name, text, found in (("host", hello, status), ("intel", intel, intel_status)):
        if found != 1 or "hello\n" not in text:
            problems.append(f"hello with --cpu {name}: {found}, {text}")
    for name, text in (("intel", intel), ("amd", amd)):
        found = re.search(f"lacks (.*) of the model '{name}'", text)
        lacking = set(found[1].split(", ")) if found else set()
        if lacking - TCG_LACKS != wanted:
            problems.append(f"--cpu {name} lacks {sorted(lacking)}")
    if amd_status != (69 if "lacks" in amd else 1):
        problems.append(f"--cpu amd,enforce: {amd_status}, {amd}")
    return problems


def main():
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        print("SKIP other hosts: no qemu-system-x86_64 here")
        return 0
    try:
        kernel = packages.fetch(packages.cache_folder(), KERNEL)
    except packages.Failure as failure:
        print(f"SKIP {failure}" if os.environ.get("ALIBI_OFFLINE") else f"FAIL {failure}")
        return 0 if os.environ.get("ALIBI_OFFLINE") else 1
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        initrd = pathlib.Path(folder) / "initrd"
        initrd.write_bytes(ram_disk(kernel))
        for model, models, expected in CASES:
            command = [qemu, "-accel", "tcg", "-cpu", model, "-m", "2G", "-display", "none",
                       "-monitor", "none", "-no-reboot", "-nodefaults", "-serial", "stdio",
                       "-kernel", kernel.image, "-initrd", initrd,
                       "-append", f'console=ttyS0 quiet panic=-1 models="{" ".join(models)}"']
            try:
                console = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, timeout=PATIENCE,
                                         check=False).stdout
                console = console.decode(errors="replace").replace("\r", "")
                problems = judge(console, expected, models)
            except subprocess.SubprocessError as failure:
                problems = [str(failure)]
            report(f"on {model}", "; ".join(problems))
    return conclude("other hosts")


if __name__ == "__main__":
    sys.exit(main())
