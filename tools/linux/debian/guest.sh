#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the guest, once it has booted: runs linuxbench, which is the second disk, with the words of
# the kernel's command line, and switches the machine off. User-Mode Linux has other disks, and does
# not count what it has sent.
set -u

# The prompt hangs the console up before it appears, which would take our lines with it: no word
# before agetty is there and the console has been silent for two seconds.
sent() { sed -n 's/^0:.* tx:\([0-9]*\).*/\1/p' /proc/tty/driver/serial; }
systemctl is-system-running --wait >/dev/null
before=none
while now=$(sent) && { ! pidof agetty >/dev/null || [ "$now" != "$before" ]; }; do
  before=$now
  sleep 2
done

mount -t tmpfs -o size=75% bench /mnt
disk=/dev/vdb
[ -b "$disk" ] || disk=/dev/ubdb
cat "$disk" >/mnt/linuxbench
chmod +x /mnt/linuxbench
words=$(sed -n 's/.*\<linuxbench=\([^ ]*\).*/\1/p' /proc/cmdline)
[ -z "$words" ] || /mnt/linuxbench run "$words" /mnt "" >/dev/ttyS0
sleep 1 # for the serial port
systemctl poweroff -ff
