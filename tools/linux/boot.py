#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Boots a Debian kernel, as Debian ships it, to a busybox shell in Alibi.

Gets the packages through apt into a cache folder (nothing is installed on the host, and no root is
needed), makes an initial RAM disk of busybox, and runs `alibi run`. The terminal is the guest's
console. With --exec the command's output and exit status become this program's, and its input is
ours.
"""

import argparse
import os
import pathlib
import subprocess
import sys

import initramfs
import session
from packages import KERNELS, Failure, cache_folder, fetch, say

UNAVAILABLE = 69

# The drivers of devices that options of `alibi run` add, by option. ext4 asks for its checksums by
# the name of an algorithm, which no list of dependencies shows.
EXT4 = ["crc32c_generic", "ext4"]
DRIVERS = {
    "--disk": ["virtio_pci", "virtio_blk", *EXT4],
    "--drive": ["virtio_pci", "virtio_blk", *EXT4],
    "--ide": ["ata_piix", "sd_mod", *EXT4],
    "--cdrom": ["ata_piix", "sr_mod", "isofs"],
    "--net": ["virtio_pci", "virtio_net"],
    "--net lance": ["pcnet32"],
}


def drivers_for(options):
    """The modules for the devices that these options of `alibi run` add."""
    wanted = []
    for at, text in enumerate(options):
        option, _, value = text.partition("=")
        value = value or " ".join(options[at + 1:at + 2])
        # A network card may be named before its network.
        drivers = DRIVERS.get(f"{option} {value.split(',')[0]}", DRIVERS.get(option, []))
        for module in drivers:
            if module not in wanted:
                wanted.append(module)
    return wanted


def memory_file(contents):
    """A file without a name: nothing is left behind, however we end."""
    fd = os.memfd_create("initrd")
    with open(fd, "wb", closefd=False) as file:
        file.write(contents)
    return fd


def main():
    parser = argparse.ArgumentParser(
        prog="alibi linux", description=__doc__.split("\n\n", maxsplit=1)[0], allow_abbrev=False,
        epilog="Every other option goes to `alibi run`: --disk, --net, --entry, --stats, ...")
    parser.add_argument("--kernel", choices=sorted(KERNELS), default="cloud-amd64",
                        help="which of Debian's kernels (cloud-amd64)")
    parser.add_argument("--exec", metavar="COMMAND", dest="command",
                        help="run a shell command in the guest, print what it prints, power off; "
                        "it reads our standard input")
    parser.add_argument("--add", metavar="FILE[:PATH]", action="append", default=[],
                        help="put a file or a folder into the guest, in /root or at PATH")
    parser.add_argument("--modules", metavar="NAMES", default="",
                        help="load these kernel modules as well, separated by commas")
    parser.add_argument("--append", default="", help="more for the kernel's command line")
    parser.add_argument("--ram", default="512M", help="guest memory (512M)")
    parser.add_argument("--fetch-only", action="store_true", help="get the packages, and no more")
    parser.add_argument("--write-initrd", metavar="FILE",
                        help="write the initial RAM disk there, print the kernel's path, and no "
                        "more")
    arguments, rest = parser.parse_known_args()

    try:
        if "ALIBI_PROGRAM" not in os.environ:
            raise Failure("start it as ./alibi linux")
        kernel = fetch(cache_folder(), arguments.kernel)
        if arguments.fetch_only:
            print(kernel.image)
            return 0
        modules = drivers_for(rest) + [name for name in arguments.modules.split(",") if name]
        if arguments.write_initrd:
            pathlib.Path(arguments.write_initrd).write_bytes(
                initramfs.build(kernel, arguments.command, modules, False, arguments.add))
            print(kernel.image)
            return 0
        initrd = memory_file(initramfs.build(kernel, arguments.command, modules,
                                             any(option.split("=")[0] == "--net" for option in rest), arguments.add))
        command = [os.environ["ALIBI_PROGRAM"], "run", "--kernel", str(kernel.image),
                   "--initrd", f"/dev/fd/{initrd}", "--ram", arguments.ram, *rest, "--append"]
        if arguments.command is None:
            os.set_inheritable(initrd, True)
            os.execv(command[0], command + ["console=ttyS0 " + arguments.append])
        # A panic ends the machine instead of stopping for ever.
        command.append("console=ttyS0 quiet panic=-1 " + arguments.append)
        return session.run(command, initrd)
    except (Failure, OSError, subprocess.CalledProcessError) as failure:
        say(str(failure))
        return UNAVAILABLE
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
