# SPDX-License-Identifier: Apache-2.0
"""The kernels in long mode whose only source is NAME.cc; //testsuite/program runs the same ones."""

KERNELS = [
    "access",
    "apic",
    "breakpoints",
    "debug",
    "exceptions",
    "fpu",
    "i8042",
    "instr",
    "interrupts",
    "ioapic",
    "leafcalls64",
    "mode_switch",
    "moved_code",
    "msr",
    "nmi",
    "pcid",
    "pic",
    "pit",
    "reset",
    "rtc",
    "segments",
    "smap",
    "smc",
    "strings",
    "units",
    "user_pages",
    "usermode",
    "vga",
    "xsave",
]

# Kernels for several processors: with four.
SMP_KERNELS = [
    "smp_fuzz",
    "smp_litmus",
    "smp_memory",
    "smp_start",
    "smp_user",
]

# Kernels that find a disk (disk.img, on the interface named here) and a CD-ROM (disc.iso).
DISK_KERNELS = {
    "ata": "ide",
    "virtio_blk": "virtio",
}
