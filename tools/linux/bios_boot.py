#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Boots Debian's kernel as a PC does: firmware, a boot loader from a disk or a disc, the kernel.

Makes the images (GRUB on a partitioned disk and on an ISO, ISOLINUX on an ISO), starts each in Alibi
and, if it is there, in QEMU TCG, and prints how long it took until the guest had run a command and
was off again, and the CPU time, which a busy host disturbs less. Exit status 1 if a guest did not get that far.

    ALIBI_PROGRAM=.../alibi python3 tools/linux/bios_boot.py
"""

import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import initramfs
import packages

NEEDS = {
    "grub-mkimage": "grub-common",
    "grub-mkrescue": "grub-common",
    "xorriso": "xorriso",
    "mformat": "mtools",
    "mkfs.ext4": "e2fsprogs",
    "/usr/lib/grub/i386-pc/boot.img": "grub-pc-bin",
    "/usr/lib/ISOLINUX/isolinux.bin": "isolinux",
    "/usr/lib/syslinux/modules/bios/ldlinux.c32": "syslinux-common",
    "/usr/share/seabios/bios-256k.bin": "seabios",
}
GRUB = pathlib.Path("/usr/lib/grub/i386-pc")
SECTOR = 512
FIRST_SECTOR = 2048  # of the partition
SIGN = b"guest says: alive"
APPEND = "console=ttyS0 quiet"

GRUB_CONFIG = f"""serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
set timeout=0
menuentry debian {{
  linux /boot/vmlinuz {APPEND}
  initrd /boot/initrd
}}
"""
ISOLINUX_CONFIG = f"""SERIAL 0 115200
DEFAULT debian
LABEL debian
  KERNEL /boot/vmlinuz
  INITRD /boot/initrd
  APPEND {APPEND}
"""
INIT = """#!/bin/busybox sh
/bin/busybox echo 'guest says: alive'
/bin/busybox poweroff -f
"""


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def make_tree(folder, kernel):
    """What both loaders load: /boot/vmlinuz and /boot/initrd."""
    boot = folder / "boot"
    boot.mkdir(parents=True)
    shutil.copy(kernel.image, boot / "vmlinuz")
    archive = initramfs.Cpio()
    archive.add("dev/console", initramfs.CHARACTER | 0o600, device=(5, 1))
    archive.add("bin/busybox", initramfs.REGULAR | 0o755, kernel.busybox.read_bytes())
    archive.add("init", initramfs.REGULAR | 0o755, INIT.encode())
    (boot / "initrd").write_bytes(archive.finish())
    return folder


def make_grub_disk(work, kernel):
    """A disk with GRUB between its partition table and its only partition, without being root."""
    tree = make_tree(work / "disk", kernel)
    (tree / "boot" / "grub").mkdir()
    (tree / "boot" / "grub" / "grub.cfg").write_text(GRUB_CONFIG)
    core = work / "core.img"
    run("grub-mkimage", "-O", "i386-pc", "-o", core, "-p", "(hd0,msdos1)/boot/grub", "biosdisk",
        "part_msdos", "ext2", "normal", "linux", "serial", "terminal")
    image = work / "disk.img"
    sectors = 128 * 1024 * 1024 // SECTOR
    with open(image, "wb") as file:
        file.truncate(sectors * SECTOR)
    run("mkfs.ext4", "-q", "-d", tree, "-E", f"offset={FIRST_SECTOR * SECTOR}", image,
        f"{(sectors - FIRST_SECTOR) * SECTOR // 1024}k")
    loader = bytearray(core.read_bytes())
    # The loader's first sector reads the rest: from sector 2 on (GRUB's boot/i386/pc/diskboot.S).
    struct.pack_into("<Q", loader, 0x1f4, 2)
    assert len(loader) <= (FIRST_SECTOR - 1) * SECTOR
    with open(image, "r+b") as file:
        file.write((GRUB / "boot.img").read_bytes()[:440])
        file.seek(446)
        file.write(struct.pack("<8B2I", 0x80, 0, 2, 0, 0x83, 0xfe, 0xff, 0xff, FIRST_SECTOR,
                               sectors - FIRST_SECTOR))
        file.seek(510)
        file.write(b"\x55\xaa")
        file.write(loader)
    return image


def make_grub_iso(work, kernel):
    tree = make_tree(work / "grub", kernel)
    (tree / "boot" / "grub").mkdir()
    (tree / "boot" / "grub" / "grub.cfg").write_text(GRUB_CONFIG)
    image = work / "grub.iso"
    run("grub-mkrescue", "-d", GRUB, "-o", image, tree)
    return image


def make_isolinux_iso(work, kernel):
    tree = make_tree(work / "isolinux", kernel)
    folder = tree / "isolinux"
    folder.mkdir()
    shutil.copy("/usr/lib/ISOLINUX/isolinux.bin", folder)
    shutil.copy("/usr/lib/syslinux/modules/bios/ldlinux.c32", folder)
    (folder / "isolinux.cfg").write_text(ISOLINUX_CONFIG)
    image = work / "isolinux.iso"
    run("xorriso", "-as", "mkisofs", "-quiet", "-o", image, "-b", "isolinux/isolinux.bin", "-c",
        "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", tree)
    return image


def boot(command):
    """Seconds until the machine was off, and of CPU time; None if the guest did not speak."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return None
    if SIGN not in result.stdout:
        sys.stderr.write(result.stdout.decode(errors="replace")[-2000:] + "\n")
        return None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begin, work


def main():
    missing = sorted({package for need, package in NEEDS.items()
                      if not (pathlib.Path(need).exists() if need[0] == "/" else
                              shutil.which(need, path=os.environ["PATH"] + ":/usr/sbin:/sbin"))})
    if missing:
        print(f"SKIP: missing packages; run: apt-get install {' '.join(missing)}")
        return 0
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    alibi = os.environ["ALIBI_PROGRAM"]
    qemu = shutil.which("qemu-system-x86_64")
    kernel = packages.fetch(packages.cache_folder(), "cloud-amd64")
    failed = False
    print(f"{'seconds (of CPU time)':24}{'Alibi':>18}{'QEMU':>18}")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        disk, grub, isolinux = (make(work, kernel) for make in
                                (make_grub_disk, make_grub_iso, make_isolinux_iso))
        rows = [
            ("GRUB, IDE disk", ["--disk", f"{disk},interface=ide"],
             ["-drive", f"file={disk},format=raw,if=ide"]),
            ("GRUB, virtio disk", ["--disk", f"{disk},interface=virtio"],
             ["-drive", f"file={disk},format=raw,if=virtio"]),
            ("GRUB, CD-ROM", ["--cdrom", str(grub)], ["-cdrom", str(grub)]),
            ("ISOLINUX, CD-ROM", ["--cdrom", str(isolinux)], ["-cdrom", str(isolinux)]),
        ]
        for name, ours, theirs in rows:
            times = [boot([alibi, "run", "--ram", "512M", *ours])]
            failed |= times[0] is None
            if qemu is not None:
                times.append(boot([qemu, "-accel", "tcg", "-M", "pc", "-cpu", "max", "-m", "512",
                                   "-display", "none", "-serial", "stdio", "-no-reboot", *theirs]))
            cells = "".join(f"{'failed':>18}" if t is None else f"{t[0]:9.2f} ({t[1]:6.2f})"
                            for t in times)
            print(f"{name:24}{cells}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except packages.Failure as failure:
        packages.say(str(failure))
        sys.exit(1)
