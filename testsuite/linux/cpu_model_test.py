#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Boots Debian's kernels on CPU models and checks what they make of the CPU.

    cpu_model_test.py ALIBI BOOT_PY KERNELS MODELS

KERNELS and MODELS are lists with commas. Each kernel must run on each model to its shell, without
complaining of model-specific registers, and find nothing that it must protect itself from in a way
that costs: page-table isolation, retpolines and other thunks, clearing of buffers.

Needs Debian's package servers, or packages fetched before (ALIBI_OFFLINE forbids to get any: then
a kernel that is not there is a SKIP). Each line PASS or FAIL becomes a test case.
"""

import os
import re
import subprocess
import sys
import tempfile

ALIBI, BOOT = (os.path.abspath(path) for path in sys.argv[1:3])
KERNELS, MODELS = (words.split(",") for words in sys.argv[3:5])
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
import packages  # noqa: E402
from fetched import fetched  # noqa: E402
from verdicts import conclude, report  # noqa: E402

PATIENCE = 180  # seconds a boot, on a machine that is far busier than ours
MOST_CACHE_KB = 16384  # kMaxCacheBytes, vcpu/cpuid.h

COMMAND = """cd /sys/devices/system/cpu
for file in vulnerabilities/*; do echo "$file $(cat $file)"; done
for index in cpu0/cache/index*; do echo "$index $(cat $index/size) $(cat $index/shared_cpu_list)"; done
grep -m 1 '^model name' /proc/cpuinfo
dmesg | grep -i -E 'unchecked MSR|isolation: enabled|microcode.*(bug|vulnerab)|BUG:|WARNING: CPU'
[ "$(seq 1000 | sha256sum | cut -c 1-8)" = 67d4ff71 ] && echo computes
"""

# What costs nothing, or next to nothing; of a file that is not listed, "Not affected" alone.
# Filling the return stack buffer is 32 calls per context switch; BHI_DIS_S is a bit, set once
# (32-bit kernels do not set it, nor anything else against BHI). The sequence against PBRSB is for
# exits of virtual machines alone; AMD's family 15, the model base64, is not known to be free of it.
HARMLESS = {
    "gather_data_sampling": r"Unknown: Dependent on hypervisor status",
    "itlb_multihit": r"KVM: Mitigation: VMX unsupported",
    "retbleed": r"Mitigation: Enhanced IBRS",
    "spec_store_bypass": r"Vulnerable",
    "spectre_v1": r"Mitigation: usercopy/swapgs barriers and __user pointer sanitization",
    "spectre_v2": r"Mitigation: Enhanced / Automatic IBRS(; (IBPB: conditional|STIBP: disabled|"
                  r"RSB filling|PBRSB-eIBRS: (Not affected|SW sequence)|BHI: (Not affected|BHI_DIS_S|Vulnerable)))*",
    "srbds": r"Mitigation: TSX disabled|Unknown: Dependent on hypervisor status",
}


def judge(model, lines):
    """What is wrong with a boot, as a list."""
    problems, flaws, levels = [], 0, 0
    for line in lines:
        words = line.split(maxsplit=1)
        if line.startswith("vulnerabilities/"):
            flaws += 1
            name = words[0].split("/")[1]
            if not re.fullmatch(f"Not affected|{HARMLESS.get(name, '')}", words[1]):
                problems.append(f"{name}: {words[1]}")
        elif line.startswith("cpu0/cache/"):
            levels += 1
            size, shared = words[1].split()
            if int(size.rstrip("K")) > MOST_CACHE_KB or shared != "0":
                problems.append(line)
        elif line.startswith("model name"):
            brand = line.split(": ", 1)[1]
            if model != "host" and not re.fullmatch(f"Alibi {model}(-v\\d+)? virtual CPU", brand):
                problems.append(line)
        elif line != "computes":
            problems.append(line)
    if flaws < 10 or levels < 3 or "computes" not in lines:
        problems.append(f"{flaws} flaws and {levels} caches listed: {lines[-5:]}")
    return problems


def boot(kernel, model):
    done = subprocess.run([sys.executable, BOOT, "--kernel", kernel, "--cpu", model, "--exec",
                           COMMAND], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    if done.returncode != 0:
        return [f"status {done.returncode}, {done.stderr.decode(errors='replace')[-2000:]}"]
    return judge(model, done.stdout.decode(errors="replace").splitlines())


def main():
    os.environ["ALIBI_PROGRAM"] = ALIBI
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        for kernel in KERNELS:
            if fetched(folder, packages.fetch, kernel,
                       name=f"{kernel}: Debian's packages") is None:
                continue
            for model in MODELS:
                try:
                    problems = boot(kernel, model)
                except subprocess.SubprocessError as failure:
                    problems = [str(failure)]
                report(f"{kernel} on {model}", "; ".join(problems))


if __name__ == "__main__":
    main()
    sys.exit(conclude("cpu models"))
