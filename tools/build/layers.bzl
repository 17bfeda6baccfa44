# SPDX-License-Identifier: Apache-2.0
"""The layers of the source tree: one list, which visibility, tools/layers.py and README follow."""

# Folders, bottom up, with README's words for each. A folder uses itself and those above it in this
# list. To add one: a line here, `visible_above` in its BUILD file, `tools/layers.py --write`.
LAYERS = [
    ("include", "the public API's headers: a machine for C++ and C, policy plug-ins"),
    ("frobos", "the guest OS: test kernels, ROMs and benchmarks"),
    ("base", "types, results, checks; the sandbox (`base/sandbox`)"),
    ("vcpu", "architectural state, modes, segments, exceptions, MSRs, CPUID"),
    ("abi", "the contract of emitted code: registers, the layout around `%gs`, callouts"),
    ("mmu", "guest memory, page walker, shadow views, traces"),
    ("isa", "the instruction set: one table of instructions, decoder, IR, host encodings"),
    ("translator", "translation units, liveness, emitter"),
    ("simulator", "one guest instruction in software"),
    ("adapt", "sites, policies and plug-ins; the event log (`adapt/log`), replay"),
    ("direct", "user code on the CPU itself: satellites, their pages, which code may run there"),
    ("runtime", "translation cache, callouts, host faults, sites"),
    ("hardware", "the VCPU on the host's CPU, through the KVM API"),
    ("devices", "buses, interrupt controllers, timers, PCI, console, disks, virtio, network cards"),
    ("machine", "memory, VCPUs and their run loop, without devices; checks of the host"),
    ("pc", "a PC: board, BIOS ROM, drives, resets; loaders and firmware tables (`pc/boot`)"),
    ("inspect", "gdb, dumps, the execution profile, traces, counters"),
    ("vmm", "the public API's implementation"),
    ("bench", "benchmarks against native and QEMU TCG; the laboratory (`bench/lab`)"),
    ("cli", "the program: subcommands, options, the user's terminal, the sandbox's rules"),
    ("python", "the Python package: results and event logs for pandas"),
    ("examples", "embedding, a policy plug-in"),
    ("testsuite", "native oracle and fuzzer, coverage of the opcode space, tests of the program"),
    ("tools", "scripts (`tools/linux`: Debian's kernels), build rules"),
    ("packaging", "`libalibi.so`, the Debian package, man pages and completion"),
    ("docs", "these pages"),
]

def visible_above(folder):
    """The packages that may use what is in a folder: its own, and those of later layers.

    Args:
      folder: a name in LAYERS.

    Returns:
      A value for `default_visibility`.
    """
    names = [name for name, _ in LAYERS]
    return ["//%s:__subpackages__" % name for name in names[names.index(folder):]]
