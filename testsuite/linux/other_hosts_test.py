#!/usr/bin/env python3
"""Runs Alibi on other kinds of host, inside QEMU TCG: Debian's kernel, and Alibi in its RAM disk.

    other_hosts_test.py ALIBI BOOT_PY HELLO KERNEL TESTS...

What it finds on each host's CPU, whether it runs a guest there, and whether TESTS pass: such as
read no files and do not take the host's CPU for an oracle, for TCG is none. Slow (a minute for
each), and no word about speed. Without QEMU it says so and checks nothing. Each line PASS or FAIL
becomes a test case.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ALIBI, BOOT, HELLO = (os.path.abspath(path) for path in sys.argv[1:4])
KERNEL, TESTS = sys.argv[4], [os.path.abspath(path) for path in sys.argv[5:]]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
import initramfs  # noqa: E402
import packages  # noqa: E402
from verdicts import conclude, report  # noqa: E402

PATIENCE = 600  # seconds a host

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
poweroff -f
"""

# Instructions of the models intel and amd that QEMU 7.2's TCG has on no CPU.
TCG_LACKS = {"rdseed", "xsavec", "3dnowprefetch"}

# QEMU's model: the vendor, features that guests must and must not see, and what the models intel
# and amd lack there beside TCG_LACKS. None: Alibi cannot run there, and says why.
CASES = [
    ("Haswell", ("GenuineIntel", {"avx2", "bmi2", "arch_capabilities"}, {"adx", "avx512f"},
                 {"adx", "clflushopt", "xgetbv1"})),
    ("Skylake-Server", ("GenuineIntel", {"avx2", "adx"}, {"sha_ni"}, set())),
    ("EPYC", ("AuthenticAMD", {"avx2", "adx"}, {"avx512f", "arch_capabilities"}, set())),
    ("EPYC,-avx2", ("AuthenticAMD", {"avx", "adx"}, {"avx2"}, {"avx2"})),
    ("Westmere", None),
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


def judge(console, expected):
    ran = commands(console)
    if len(ran) != 4 + len(TESTS):
        return [f"{len(ran)} of {4 + len(TESTS)} commands ended: ...{console[-1500:]}"]
    ((_, cpu, cpu_status), (_, hello, status), (_, intel, intel_status),
     (_, amd, amd_status)) = ran[:4]
    problems = [] if cpu_status == 0 else [f"alibi cpu: {cpu_status}"]
    if expected is None:
        if status != 69 or "use " not in hello or "use " not in cpu:
            problems.append(f"alibi run: {status}, {hello}")
        return problems
    problems += [f"{name}: {text[-1500:]}" for name, text, failed in ran[4:] if failed]
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
        for model, expected in CASES:
            command = [qemu, "-accel", "tcg", "-cpu", model, "-m", "2G", "-display", "none",
                       "-monitor", "none", "-no-reboot", "-nodefaults", "-serial", "stdio",
                       "-kernel", kernel.image, "-initrd", initrd,
                       "-append", "console=ttyS0 quiet panic=-1"]
            try:
                console = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, timeout=PATIENCE,
                                         check=False).stdout
                problems = judge(console.decode(errors="replace").replace("\r", ""), expected)
            except subprocess.SubprocessError as failure:
                problems = [str(failure)]
            report(f"on {model}", "; ".join(problems))
    return conclude("other hosts")


if __name__ == "__main__":
    sys.exit(main())
