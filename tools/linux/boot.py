#!/usr/bin/env python3
"""Boots a Debian kernel, as Debian ships it, to a busybox shell in Alibi.

Gets the packages through apt into a cache folder (nothing is installed on the host, and no root is
needed), makes an initial RAM disk of busybox, and runs `alibi run`. The terminal is the guest's
console. With --exec the command's output and exit status become this program's.
"""

import argparse
import gzip
import os
import pathlib
import re
import subprocess
import sys

KERNELS = {
    "cloud-amd64": ("amd64", "linux-image-cloud-amd64"),
    "amd64": ("amd64", "linux-image-amd64"),
    "686": ("i386", "linux-image-686"),
    "686-pae": ("i386", "linux-image-686-pae"),
}
MARK = "@@alibi-"  # in front of what the guest's init says to us

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /etc /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TERM=${TERM:-vt100}
cd /root
if [ -e /exec ]; then
  stty -opost < /dev/console 2>/dev/null
  echo @@alibi-begin
  setsid -c sh /exec < /dev/console 2>&1
  echo "@@alibi-end $?"
else
  echo 'Type exit (or Ctrl-D) to power the machine off.'
  setsid -c sh -i < /dev/console > /dev/console 2>&1
fi
sync
poweroff -f
"""


class Failure(Exception):
    pass


def apt(cache, arch, tool, *arguments, **options):
    """Runs an apt tool with lists of its own, for `arch`."""
    state = cache / "apt" / arch
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::Status": state / "status",
        "Dir::Cache": state,
        "Dir::Cache::Archives": state / "archives",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    command = [tool]
    for key, value in settings.items():
        command += ["-o", f"{key}={value}"]
    try:
        result = subprocess.run(command + list(arguments), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, check=False, **options)
    except FileNotFoundError:
        raise Failure(f"{tool} is missing: packages come through Debian's apt") from None
    if result.returncode != 0:
        raise Failure(f"{tool} {' '.join(arguments)} failed: {result.stderr.strip()}")
    return result.stdout


def say(text):
    print(f"alibi linux: {text}", file=sys.stderr)


def fetch(cache, kernel):
    """The paths of the kernel and of busybox, downloaded if they are not there."""
    arch, package = KERNELS[kernel]
    root = cache / kernel
    done = root / "done"
    if not done.exists():
        say(f"getting Debian's {package} and busybox-static into {cache}")
        root.mkdir(parents=True, exist_ok=True)
        try:
            apt(cache, arch, "apt-get", "-q", "update")
        except Failure as failure:  # part of a mirror may do
            say(str(failure).splitlines()[0])
        depends = apt(cache, arch, "apt-cache", "depends", package)
        image = re.search(r"Depends: (linux-image-\S+?)(:\w+)?$", depends, re.MULTILINE)
        if image is None:
            raise Failure(f"apt knows no kernel behind {package}")
        for name in (image.group(1), "busybox-static"):
            apt(cache, arch, "apt-get", "-q", "download", name, cwd=root)
        for deb in root.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(deb), str(root)], check=True)
            deb.unlink()
        done.touch()
    kernels = sorted(root.glob("boot/vmlinuz-*"))
    if not kernels:
        raise Failure(f"there is no kernel in {root}; remove that folder and try again")
    return kernels[-1], root / "bin" / "busybox"


class Cpio:
    """An archive in the "newc" format, which the kernel unpacks (initramfs buffer format)."""

    def __init__(self):
        self._parts = []
        self._inode = 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self._inode += 1
        fields = [self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
        entry = b"070701" + b"".join(b"%08x" % field for field in fields)
        entry += name.encode() + b"\0"
        entry += b"\0" * (-len(entry) % 4) + data
        self._parts.append(entry + b"\0" * (-len(entry) % 4))

    def finish(self):
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def make_initrd(busybox, command):
    archive = Cpio()
    for folder in ("bin", "dev", "proc", "sys"):
        archive.add(folder, 0o040755)
    archive.add("dev/console", 0o020600, device=(5, 1))
    archive.add("bin/busybox", 0o100755, busybox.read_bytes())
    archive.add("init", 0o100755, INIT.encode())
    if command is not None:
        archive.add("exec", 0o100755, command.encode() + b"\n")
    return gzip.compress(archive.finish(), 1)


def run_exec(command):
    """Runs the machine; what lies between the marks goes to stdout. The guest's exit status."""
    status = None
    inside = False
    log = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as machine:
        for line in machine.stdout:
            text = line.decode(errors="replace").rstrip("\r\n")
            end = re.search(re.escape(MARK) + r"end (\d+)$", text)
            if end is not None:
                if end.start() != 0 and inside:
                    sys.stdout.write(text[: end.start()])
                status, inside = int(end.group(1)), False
            elif text == MARK + "begin":
                inside = True
            elif inside:
                sys.stdout.buffer.write(line.replace(b"\r\n", b"\n"))
                sys.stdout.flush()
            else:
                log.append(text)
    if status is None:
        sys.stderr.write("\n".join(log[-25:]) + "\n")
        say(f"the guest ended without finishing the command (alibi run: {machine.returncode})")
        return 1
    return status


def main():
    parser = argparse.ArgumentParser(prog="alibi linux", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernel", choices=sorted(KERNELS), default="cloud-amd64",
                        help="which of Debian's kernels (cloud-amd64)")
    parser.add_argument("--exec", metavar="COMMAND", dest="command",
                        help="run a shell command in the guest, print what it prints, power off")
    parser.add_argument("--append", default="", help="more for the kernel's command line")
    parser.add_argument("--ram", default="512M", help="guest memory (512M)")
    parser.add_argument("--fetch-only", action="store_true", help="get the packages, and no more")
    arguments, rest = parser.parse_known_args()

    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    cache = cache / "alibi" / "linux"
    try:
        if "ALIBI_PROGRAM" not in os.environ:
            raise Failure("start it as ./alibi linux")
        kernel, busybox = fetch(cache, arguments.kernel)
        if arguments.fetch_only:
            print(kernel)
            return 0
        initrd = cache / f"initrd-{os.getpid()}.gz"
        initrd.write_bytes(make_initrd(busybox, arguments.command))
        try:
            line = "console=ttyS0 " + ("quiet " if arguments.command is not None else "")
            command = [os.environ["ALIBI_PROGRAM"], "run", "--kernel", str(kernel), "--initrd",
                       str(initrd), "--ram", arguments.ram, "--append", line + arguments.append,
                       *rest]
            if arguments.command is not None:
                return run_exec(command)
            return subprocess.run(command, check=False).returncode
        finally:
            initrd.unlink()
    except (Failure, OSError, subprocess.CalledProcessError) as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
