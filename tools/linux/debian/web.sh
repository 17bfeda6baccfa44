# SPDX-License-Identifier: Apache-2.0
# What the rows web-small and web-large run: web.sh PAGE COUNT. nginx serves, and whoever listens at $ASKER
# (linuxbench, beside the machine: bench/linux/guest/asker.c) is asked to ask it for the page so many times.
# Prints what came there.
set -eu
host=${ASKER%%/*} ports=${ASKER#*/}
if [ "$host" != 127.0.0.1 ]; then
  card=$(ls /sys/class/net | grep -vx lo)
  ip address replace 10.0.2.15/24 dev "$card"
  ip link set "$card" up
fi
sed "s/PORT/${ports#*/}/" nginx.conf >own.conf
# No daemon: its CPU time is this process group's. It has its port when it writes its number.
nginx -p "$PWD" -e error.log -c own.conf -g 'daemon off;' &
trap 'kill $!; wait' EXIT
until [ -s nginx.pid ]; do sleep 0.02; done
exec 3<>"/dev/tcp/$host/${ports%/*}"
echo "/$1 $2" >&3
read -r answer <&3
echo "$answer"
[ "${answer#failed}" = "$answer" ]
