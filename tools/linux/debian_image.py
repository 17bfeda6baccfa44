#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian that `alibi bench debian` measures: made once by mmdebstrap, kept in the cache folder.

    debian_image.py [amd64 | i386]

Prints a line for what it does, if that takes a while; the last line of its output is a folder with

  disk       the system as a file system without a partition table
  tree       the same files, for runs on this host
  kernel, initrd        out of it
  packages              what is installed, with versions
  packages.sha256       the beginning of that list's checksum: what two reports need to have in common

The folder's name depends on the recipe: the constants here and the files in debian/, not on what
Debian's mirrors hold that day. What lies there is whole, and never changes.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

from packages import Failure, cache_folder

HERE = pathlib.Path(__file__).resolve().parent
SUITE = "bookworm"
# By Debian's architecture: its kernel.
KERNELS = {"amd64": "linux-image-cloud-amd64", "i386": "linux-image-686"}
# By architecture, where mmdebstrap's own choice will not do: mirrors' lists of i386's security updates
# have been out of step with their checksums for a day and more.
SOURCES = {"i386": [f"deb http://deb.debian.org/debian {SUITE} main"]}
PACKAGES = [
    # A system that boots to a login.
    "systemd-sysv", "udev", "dbus", "procps",
    # What is measured.
    "python3", "libpython3.11-testsuite", "gcc", "g++", "libc6-dev", "gdb", "git", "openssl",
    "gzip", "xz-utils", "zstd", "bzip2", "perl", "minisat", "openjdk-17-jdk-headless", "nginx", "iproute2",
    "povray",
    # What the sources are made ready with.
    "make", "tcl",
]
TOOLS = {"mmdebstrap": "mmdebstrap", "genext2fs": "genext2fs", "newuidmap": "uidmap"}
# What the file system is larger than its files: a guest writes little to its disk.
SPARE = 512 << 20
BLOCK = 4096
# Raised when make() makes something else of the same.
LAYOUT = 1


def recipe():
    return sorted((HERE / "debian").iterdir())


def hooks():
    """mmdebstrap's options that make Debian this one; names of files are those in recipe()'s folder."""
    inside = "/opt/alibi-recipe"
    source = f"deb-src http://deb.debian.org/debian {SUITE} main"
    lines = [
        'echo debian >"$1/etc/hostname"',
        # An ordinary boot, not the first one after installation.
        'echo 0123456789abcdef0123456789abcdef >"$1/etc/machine-id"',
        f'mkdir -p "$1{inside}"',
        *(f"upload {path.name} {inside}/{path.name}" for path in recipe()),
        f'chroot "$1" sh {inside}/prepare.sh',
        f'rm -rf "$1{inside}"',
    ]
    return [f'--setup-hook=echo "{source}" >"$1/etc/apt/sources.list.d/source.list"',
            *(f"--customize-hook={line}" for line in lines)]


def packages(architecture):
    return [KERNELS[architecture], *PACKAGES]


def key(architecture):
    """Of all that determines what make() makes, but for the mirrors."""
    sums = hashlib.sha256(
        repr((LAYOUT, SUITE, packages(architecture), SPARE, BLOCK, hooks())).encode())
    for path in recipe():
        sums.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return sums.hexdigest()[:12]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **options)
    if done.returncode == 0:
        return
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()] or ["no reason given"]
    # The first is the cause, as a rule.
    errors = [line.removeprefix("E: ") for line in lines if line.startswith("E: ")]
    raise Failure(f"{command[0]} failed: {errors[0] if errors else lines[-1]}")


def newest(paths):
    paths = sorted(paths)
    if not paths:
        raise Failure("mmdebstrap made a system without a kernel")
    return paths[-1]


def make(folder, architecture):
    """All files of the module's list in `folder`, which is empty."""
    archive, tree = folder / "archive.tar", folder / "tree"
    print(f"making a Debian in {folder.parent}: once, some minutes, and 4 GB", flush=True)
    run("mmdebstrap", "--variant=minbase", f"--architectures={architecture}",
        f"--include={','.join(packages(architecture))}", *hooks(), "--format=tar", SUITE, archive,
        *SOURCES.get(architecture, []), cwd=HERE / "debian")
    print("making its disk", flush=True)
    tree.mkdir()
    # Devices are the host's: nobody but root could make them.
    run("tar", "-xf", archive, "-C", tree, "--exclude=./dev/*")
    inodes = 2 * sum(1 for _ in tree.rglob("*"))
    blocks = (archive.stat().st_size * 11 // 10 + SPARE) // BLOCK
    run("genext2fs", "--block-size", BLOCK, "--size-in-blocks", blocks, "--number-of-inodes", inodes,
        "--allow-holes", "--tarball", archive, folder / "disk")
    archive.unlink()
    for name, pattern in (("kernel", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        shutil.copy(newest((tree / "boot").glob(pattern)), folder / name)
    installed = (tree / "opt/alibi-packages").read_bytes()
    (folder / "packages").write_bytes(installed)
    (folder / "packages.sha256").write_text(hashlib.sha256(installed).hexdigest()[:12], encoding="ascii")


def image(cache, architecture):
    """The folder, made if it is not there. Any number of processes may call it."""
    place = cache / f"debian-{key(architecture)}"
    if place.exists():
        return place
    if os.environ.get("ALIBI_OFFLINE"):
        raise Failure(f"{place} is missing, and ALIBI_OFFLINE forbids to get its packages")
    # mmdebstrap asks it whether programs of another architecture run here.
    tools = TOOLS if architecture == "amd64" else {**TOOLS, "arch-test": "arch-test"}
    missing = [package for tool, package in tools.items() if shutil.which(tool) is None]
    if missing:
        raise Failure(f"to make it, first: sudo apt-get install {' '.join(missing)}")
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "debian.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():  # somebody else was faster
            return place
        # What lies in its place is whole, whenever we are killed.
        partial = place.with_name(place.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        make(partial, architecture)
        partial.rename(place)
    return place


def main():
    architecture = sys.argv[1] if len(sys.argv) > 1 else "amd64"
    if len(sys.argv) > 2 or architecture not in KERNELS:
        print(f"usage: debian_image.py [{' | '.join(KERNELS)}]", file=sys.stderr)
        return 64
    try:
        print(image(cache_folder(), architecture))
    except (Failure, OSError) as failure:
        print(failure, file=sys.stderr)
        return 69
    return 0


if __name__ == "__main__":
    sys.exit(main())
