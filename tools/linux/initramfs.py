# SPDX-License-Identifier: Apache-2.0
"""An initial RAM disk: busybox, an init, and what else is wanted."""

import os
import pathlib

from packages import Failure

# What the guest's init says to us on its console, each a line of its own of at most 13 characters:
# the kernel's messages, which share that port, cut nothing that fits into its FIFO.
MARK_BEGIN = "@@begin"
MARK_MORE = "@@more"  # the next piece of input, please
MARK_END = "@@end "  # and the exit status

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /etc /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TERM=${TERM:-vt100}
cd /root
while read -r module; do
  insmod "$module"
done < /lib/modules/list
[ -e /etc/net ] && . /etc/net
if [ -e /exec ]; then
  . /etc/exec
else
  echo 'Type exit (or Ctrl-D) to power the machine off.'
  setsid -c sh -i < /dev/console > /dev/console 2>&1
fi
sync
poweroff -f
"""

# The command talks through the second serial port; its input comes in pieces, each with its
# length in a line before it, for a serial port has no end of file.
EXEC = """stty -F /dev/ttyS1 115200 raw -echo
exec 3<> /dev/ttyS1
printf '\\n@@begin\\n' > /dev/console
mkfifo /tmp/stdin
(
  while
    printf '\\n@@more\\n' > /dev/console
    read -r count <&3 && [ "$count" -gt 0 ]
  do
    dd bs="$count" count=1 iflag=fullblock <&3 2> /dev/null || break
  done > /tmp/stdin
) &
sh /exec < /tmp/stdin >&3 2>&3 3>&-
status=$?
# Changing its settings waits until everything has been sent.
stty -F /dev/ttyS1 raw
printf '\\n@@end %d\\n' "$status" > /dev/console
"""

NET = """mkdir -p /usr/share/udhcpc
ip link set lo up
interface=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
if [ -n "$interface" ]; then
  ip link set "$interface" up
  udhcpc -q -n -t 5 -T 1 -i "$interface" -s /etc/udhcpc > /dev/null 2>&1 ||
    echo "$interface: no answer to DHCP" > /dev/console
fi
"""

UDHCPC = """#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip addr flush dev "$interface"
ip addr add "$ip/${mask:-24}" dev "$interface"
for gateway in $router; do ip route add default via "$gateway" dev "$interface"; done
for server in $dns; do echo "nameserver $server"; done > /etc/resolv.conf
"""

REGULAR, FOLDER, LINK, CHARACTER = 0o100000, 0o040000, 0o120000, 0o020000


class Cpio:
    """An archive in the "newc" format, which the kernel unpacks (initramfs buffer format)."""

    def __init__(self):
        self._parts = []
        self._names = set()

    def add(self, name, mode, data=b"", device=(0, 0)):
        if name in self._names:
            raise Failure(f"/{name} would be in the initial RAM disk twice")
        parent = str(pathlib.PurePosixPath(name).parent)
        if parent != "." and parent not in self._names:
            self.add(parent, FOLDER | 0o755)
        self._names.add(name)
        fields = [len(self._names), mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
        entry = b"070701" + b"".join(b"%08x" % field for field in fields)
        entry += name.encode() + b"\0"
        self._parts += [entry, b"\0" * (-len(entry) % 4), data, b"\0" * (-len(data) % 4)]

    def add_file(self, name, source):
        """A file, a link or a folder of the host's with all that is in it."""
        if source.is_symlink():
            self.add(name, LINK | 0o777, os.readlink(source).encode())
        elif source.is_dir():
            if name not in self._names:
                self.add(name, FOLDER | 0o755)
            for entry in sorted(source.iterdir()):
                self.add_file(f"{name}/{entry.name}", entry)
        elif source.is_file():
            self.add(name, REGULAR | (0o755 if os.access(source, os.X_OK) else 0o644),
                     source.read_bytes())
        else:
            raise Failure(f"--add: {source} is missing, or it is no file and no folder")

    def finish(self):
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def build(kernel, command=None, modules=(), net=False, files=()):
    """The archive's bytes, not compressed: unpacking would cost the guest more than copying.

    `files` are texts FILE or FILE:PATH; without a PATH they go to /root.
    """
    archive = Cpio()
    for folder in ("dev", "proc", "sys", "root", "tmp"):
        archive.add(folder, FOLDER | 0o755)
    archive.add("dev/console", CHARACTER | 0o600, device=(5, 1))
    archive.add("bin/busybox", REGULAR | 0o755, kernel.busybox.read_bytes())
    archive.add("init", REGULAR | 0o755, INIT.encode())
    closure = kernel.module_closure(modules)
    for path in closure:
        archive.add(f"lib/modules/{path.name}", REGULAR | 0o644, path.read_bytes())
    archive.add("lib/modules/list", REGULAR | 0o644,
                "".join(f"/lib/modules/{path.name}\n" for path in closure).encode())
    if net:
        archive.add("etc/net", REGULAR | 0o644, NET.encode())
        archive.add("etc/udhcpc", REGULAR | 0o755, UDHCPC.encode())
    if command is not None:
        archive.add("etc/exec", REGULAR | 0o644, EXEC.encode())
        archive.add("exec", REGULAR | 0o755, command.encode() + b"\n")
    for text in files:
        source, _, place = text.partition(":")
        path = pathlib.Path(source)
        place = place or f"root/{path.name}"
        if place.endswith("/"):
            place += path.name
        # A link that is named is followed, links inside a folder stay links.
        archive.add_file(str(pathlib.PurePosixPath("/", place))[1:], path.resolve())
    return archive.finish()
