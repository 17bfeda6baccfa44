"""The kernels in long mode whose only source is NAME.cc; //vmm runs the same ones."""

KERNELS = [
    "access",
    "debug",
    "exceptions",
    "fpu",
    "instr",
    "interrupts",
    "msr",
    "segments",
    "smc",
    "units",
    "usermode",
]
