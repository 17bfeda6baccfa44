#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of Debian's kernels on several CPUs, through `alibi linux --smp N`.

    smp_test.py ALIBI BOOT_PY THREADS KERNEL

The guest counts its CPUs, takes one away and brings it back, pins programs, and works on both; a 64-bit
one runs THREADS, a program whose threads wait for each other in every way. The kernel must not complain. Then
reboots that the second CPU asks for, other strategies of the shadow, CPUs without ACPI, and as many as there
can be. User code runs directly where that pays, and in another run wherever it can, beside the other CPU's; and
in two more each CPU has a thread of the host's.

Needs Debian's package servers, or packages fetched before (ALIBI_OFFLINE forbids to get any: then
a kernel that is not there is a SKIP). Each line PASS or FAIL becomes a test case.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ALIBI, BOOT, THREADS = (os.path.abspath(path) for path in sys.argv[1:4])
KERNEL = sys.argv[4]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
import packages  # noqa: E402
from fetched import fetched  # noqa: E402
from verdicts import conclude, report, take  # noqa: E402

PATIENCE = 120  # seconds: a machine that is far busier than ours must still pass

# Each step is a function, and its verdict a line.
GUEST = """
cpu=/sys/devices/system/cpu
two_cpus() { [ $(nproc) = 2 ] && [ $(cat $cpu/online) = 0-1 ]; }
cores() {
  [ $(cat $cpu/cpu0/topology/core_id) = 0 ] && [ $(cat $cpu/cpu1/topology/core_id) = 1 ] &&
    [ $(cat $cpu/cpu1/topology/core_siblings_list) = 0-1 ]
}
acpi_objects() { [ $(ls /sys/bus/acpi/devices | grep -c LNXCPU) = 2 ]; }
offline() { echo 0 > $cpu/cpu1/online && [ $(nproc) = 1 ] && [ $(cat $cpu/online) = 0 ]; }
online() { echo 1 > $cpu/cpu1/online && two_cpus; }
hotplug() { for i in 1 2 3 4 5; do offline && online || return 1; done; }
pinned() {
  for i in 0 1; do
    [ $(taskset -c $i cut -d ' ' -f 39 /proc/self/stat) = $i ] || return 1
  done
}
# Interrupts of the serial port go where they are sent.
routed() {
  irq=$(grep ttyS1 /proc/interrupts | cut -d : -f 1 | tr -d ' ')
  for i in 0 1; do
    echo $i > /proc/irq/$irq/smp_affinity_list && echo > /dev/ttyS1 &&
      [ $(cat /proc/irq/$irq/effective_affinity_list) = $i ] || return 1
  done
}
works() {
  for i in 0 1; do
    taskset -c $i sh -c 'head -c 3000000 /dev/zero | sha256sum' > /tmp/sum$i &
  done
  wait
  for i in 0 1; do
    grep -q ^$(head -c 3000000 /dev/zero | sha256sum | cut -c 1-64) /tmp/sum$i || return 1
  done
}
processes() {
  for i in 1 2 3 4; do (for k in 1 2 3 4 5 6 7 8 9 10; do /bin/busybox true; done; touch /tmp/done$i) & done
  wait
  [ $(ls /tmp/done* | wc -l) = 4 ]
}
threads() { [ ! -e /root/threads ] || /root/threads; }
no_warnings() { ! dmesg -r | grep '^<[0-3]>'; }
tsc_is_good() { ! dmesg | grep -i -E 'unstable|TSC warp|skewed'; }
for step in two_cpus cores acpi_objects hotplug pinned routed works processes threads tsc_is_good no_warnings; do
  if $step > /tmp/log 2>&1; then echo "PASS $step"; else
    echo "FAIL $step: $(tail -n 3 /tmp/log | tr '\\n' ' ')"
  fi
done
echo finished
"""


def linux(*arguments):
    done = subprocess.run([sys.executable, BOOT, "--kernel", KERNEL, *arguments],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=PATIENCE, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def guest(name, *options):
    programs = ["--add", THREADS + ":/root/threads"] if "amd64" in KERNEL else []
    status, out, err = linux("--smp", "2", *options, *programs, "--exec", GUEST)
    for line in out.splitlines():
        verdict = re.match(r"(PASS|FAIL) (\w+)(?:: (.*))?", line)
        if verdict:
            report(name + verdict[2], None if verdict[1] == "PASS" else verdict[3] or "failed")
    report(name + "the guest's end", None if status == 0 and out.splitlines()[-1:] == ["finished"] else
           f"status {status}, {err[-2000:]}")
    return err


def directly():
    """No CPU waits for the other's user code."""
    err = guest("directly: ", "--vcpu-threads", "one", "--engine", "direct", "--stats")
    beside = re.search(r"(\d+)  times that user code was left running beside", err)
    report("directly: beside each other", None if beside and int(beside[1]) > 0 else "never")
    lost = re.search(r"(\d+)  satellites lost", err)
    report("directly: no satellite is lost", lost and lost[0])


def beside():
    """Each CPU has a thread of the host's."""
    err = guest("threads: ", "--vcpu-threads", "each", "--stats")
    stops = re.search(r"(\d+)  page-table stores of other VCPUs that were heard of", err)
    report("threads: page tables of both", None if stops and int(stops[1]) > 0 else "none")
    guest("threads, directly: ", "--vcpu-threads", "each", "--engine", "direct")


def counts(name, wanted, *options):
    """How many CPUs the guest finds."""
    status, out, err = linux(*options, "--exec", "nproc")
    report(name, None if (status, out) == (0, f"{wanted}\n") else
           f"status {status}, {out}, {err[-2000:]}")


def reboot(way, command, *options):
    """The second CPU ends the machine; --no-reboot shows that it did."""
    status, _, err = linux("--smp", "2", *options, "--exec", f"{command}; sleep 60")
    # `alibi linux` reports an end that was not the command's.
    report(f"the second CPU reboots: {' '.join([way, *options])}", None if status == 85 else f"status {status}, {err[-500:]}")


def without_acpi(kernel):
    config = (kernel.root / "boot" / f"config-{kernel.release}").read_text()
    if "CONFIG_X86_MPPARSE=y" not in config:
        print("SKIP the MP table: this kernel reads none")
        return
    status, out, err = linux("--smp", "2", "--append", "acpi=off", "--exec",
                             "nproc; reboot -f")
    report("the MP table", None if out == "2\n" else f"status {status}, {out}, {err[-1000:]}")


def main():
    os.environ["ALIBI_PROGRAM"] = ALIBI
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    kernel = fetched(folder / "cache", packages.fetch, KERNEL)
    if kernel is None:
        return
    steps = [lambda: guest("", "--vcpu-threads", "one"),
             directly,
             beside,
             lambda: counts("deferred", 2, "--smp", "2", "--coherence", "deferred"),
             lambda: counts("dropped", 2, "--smp", "2", "--coherence", "dropped"),
             lambda: counts("most", 16, "--smp", "16"),
             lambda: counts("not all of them", 2, "--smp", "3", "--append", "maxcpus=2"),
             *[lambda threads=threads: reboot(
                 "sysrq", "taskset -c 1 sh -c 'echo b > /proc/sysrq-trigger'",
                 "--vcpu-threads", threads) for threads in ("one", "each")],
             lambda: reboot("triple fault", "echo triple > /sys/kernel/reboot/type; "
                            "echo 1 > /sys/kernel/reboot/cpu; reboot -f"),
             lambda: without_acpi(kernel)]
    if os.path.exists("/usr/share/seabios/bios-256k.bin"):
        steps.append(lambda: counts("SeaBIOS", 4, "--smp", "4", "--entry", "16"))
    try:
        take(steps, OSError, subprocess.SubprocessError, packages.Failure)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
    sys.exit(conclude(KERNEL))
