# SPDX-License-Identifier: Apache-2.0
# What the row swap runs: swap.sh STEPS, in a guest only. A group that may have 64 MB of memory uses 128, and a
# file of the guest's disk has the rest.
set -eu
file=/swap
if [ ! -e $file ]; then
  dd if=/dev/zero of=$file bs=1M count=192 status=none
  chmod 600 $file
  mkswap $file >made
fi
swapon $file
trap 'swapoff $file' EXIT
group=/sys/fs/cgroup/alibi-bench
mkdir -p $group
echo 64M >$group/memory.max
sh -c 'echo $$ >"$1/cgroup.procs" && exec ./pressure 128 "$2"' sh $group "$1"
[ "$(sed -n 's/^oom_kill //p' $group/memory.events)" = 0 ]
# Or nothing was measured.
[ "$(sed -n 's/^pswpin //p' /proc/vmstat)" -gt $(($1 / 4)) ]
