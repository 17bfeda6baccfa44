# SPDX-License-Identifier: Apache-2.0
# What the init of tools/linux/initramfs.py does in a machine that measures a network: the driver
# that found a card has made eth0; both router and far end answer in 10.0.2.0/24.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ -e /sys/class/net/eth0 ] && break
  sleep 0.1
done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
/root/nettest boot
poweroff -f
