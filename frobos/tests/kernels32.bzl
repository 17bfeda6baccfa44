# SPDX-License-Identifier: Apache-2.0
"""The kernels of 32-bit code, the legacy half of the machine; //testsuite/program runs the same."""

KERNELS32 = [
    "access32",
    "gates",
    "leafcalls",
    "paging32",
    "processes",
    "segmentation",
    "tasks",
    "v86",
]
