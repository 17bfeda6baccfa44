"""The kernels in long mode whose only source is NAME.cc; //vmm runs the same ones."""

KERNELS = [
    "access",
    "apic",
    "debug",
    "exceptions",
    "fpu",
    "instr",
    "interrupts",
    "ioapic",
    "mode_switch",
    "msr",
    "nmi",
    "pcid",
    "pic",
    "pit",
    "segments",
    "smap",
    "smc",
    "strings",
    "units",
    "usermode",
    "xsave",
]

# Kernels that find a disk (disk.img, on the interface named here) and a CD-ROM (disc.iso).
DISK_KERNELS = {
    "ata": "ide",
    "virtio_blk": "virtio",
}
