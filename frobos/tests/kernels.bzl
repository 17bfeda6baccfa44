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
