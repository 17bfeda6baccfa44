#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The guest's part of soak.py: rounds of work, every result checked; a line per round.
#   usage: soak_guest.sh SECONDS http://ADDRESS:PORT MODULE...
# The modules lie in /root, in loading order; `loop` is among them.
# Lines on stdout: "warnings TEXT" (what the kernel complained about), "late SECONDS NANOSECONDS" (beside
# the warning that a timer interrupt took so long, when by the kernel's clock: soak.py says what the host
# did then), "round N ok|FAILED ...", and at the end "done N rounds, N failures, N warnings". Exit
# status 0: no failure, and no warning but those of the boot.
seconds=$1 server=$2
shift 2
modules=$*
disk=/disk
cpus=$(nproc)
failures=0 round=0

uptime_now() { cut -d ' ' -f 1 /proc/uptime; }

# The kernel's messages of level "warning" and worse; the number in front is facility * 8 + level. tcc
# marks no stack as not executable, which a 32-bit kernel mentions once; so it does that real-time
# programs had to leave time to others, as stress-ng's with mutexes have to.
warnings() {
  dmesg -r -s 1048576 | awk -F '[<>]' '
    /started with executable stack|sched: RT throttling activated/ { next }
    /^<[0-9]+>/ && $2 % 8 <= 4 { sub(/^<[0-9]+>/, ""); print }'
}

# The kernel says so once.
late() {
  dmesg -s 1048576 | sed -n 's/^\[ *\([0-9.]*\)\] hrtimer: interrupt took \([0-9]*\) ns$/late \1 \2/p'
}

# A program of 200 functions whose result awk computes as well; compiled and linked by tcc against the
# C library, both of them programs on the disk with shared objects.
compile() {
  folder=$disk/tmp/compile
  rm -rf $folder && mkdir -p $folder || return 1
  awk -v seed=$round -v source=$folder/p.c 'BEGIN {
    srand(seed)
    print "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>" > source
    x = 1
    for (i = 0; i < 200; ++i) {
      a = int(rand() * 1000000); b = int(rand() * 1000000)
      printf "static unsigned long long f%d(unsigned long long x) {\n" \
        "  unsigned long long s = 0;\n  for (int i = 0; i < %d; ++i) s += i ^ %d;\n" \
        "  return s == 0 ? 0 : (x * %du + %du) %% 1000003u;\n}\n", i, 20 + i, b, a, b > source
      x = (x * a + b) % 1000003
    }
    print "int main(void) {\n  unsigned long long x = 1;\n  char text[32], *copy;" > source
    for (i = 0; i < 200; ++i) printf "  x = f%d(x);\n", i > source
    print "  snprintf(text, sizeof text, \"%llu\", x);\n  copy = strdup(text);\n" \
      "  printf(\"%s %.3f\\n\", copy, (double)x / 7);\n  free(copy);\n  return 0;\n}" > source
    printf "%d %.3f\n", x, x / 7
  }' > $folder/expected || return 1
  for i in 1 2 3; do
    chroot $disk /usr/bin/tcc -o /tmp/compile/p /tmp/compile/p.c || return 1
    chroot $disk /tmp/compile/p > $folder/found || return 1
    cmp $folder/found $folder/expected || return 1
  done
  # The same at once, twice as many as there are CPUs.
  for i in $(seq $((2 * cpus))); do
    (chroot $disk /usr/bin/tcc -o /tmp/compile/p$i /tmp/compile/p.c &&
      chroot $disk /tmp/compile/p$i > $folder/found$i) &
  done
  wait
  for i in $(seq $((2 * cpus))); do cmp $folder/found$i $folder/expected || return 1; done
}

# Programs of busybox over fresh data, each against another way to the same result.
compute() {
  cd /tmp || return 1
  dd if=/dev/urandom of=noise bs=64k count=32 2> /dev/null
  od -An -v -tx1 noise | head -n 40000 > text
  gzip -c text > text.gz && gunzip -c text.gz | cmp - text || return 1
  bzip2 -c noise | bunzip2 -c | cmp - noise || return 1
  [ "$(sha256sum < text)" = "$(gunzip -c text.gz | sha256sum)" ] || return 1
  sort text > up && sort -r text | awk '{ l[NR] = $0 } END { for (i = NR; i; --i) print l[i] }' | cmp - up || return 1
  [ "$(awk '{ n += NF } END { print n }' text)" = "$(tr -s ' \n' '\n\n' < text | grep -c .)" ] || return 1
  [ "$(awk 'BEGIN { for (i = 20000; i; --i) s += 1 / (i * i); printf "%.6f", s }')" = 1.644884 ] || return 1
  [ "$(echo "3^$((200 + round)) % 1000003" | bc)" = "$(awk -v n=$((200 + round)) 'BEGIN { x = 1; while (n--) x = x * 3 % 1000003; print x }')" ] || return 1
  rm -f noise text text.gz up
}

# Ten shells at once; each forks, runs programs and builds pipes.
forks() {
  cd /tmp && rm -rf forks && mkdir forks || return 1
  worker=0
  while [ $worker -lt 10 ]; do
    (
      i=0 sum=0
      while [ $i -lt 40 ]; do
        (exit $i); sum=$((sum + $?))
        /bin/busybox true || exit 1
        [ "$(echo $i | cat | tr 0-9 a-j | tr a-j 0-9)" = $i ] || exit 1
        i=$((i + 1))
      done
      echo $sum > forks/$worker
    ) &
    worker=$((worker + 1))
  done
  wait
  [ "$(sort -u forks/*)" = 780 ] && [ "$(ls forks | wc -l)" = 10 ] || return 1
  sleep 30 & sleeper=$!
  kill -STOP $sleeper; kill -CONT $sleeper; kill -TERM $sleeper; wait $sleeper
  [ $? = 143 ] || return 1
  rm -rf forks
}

# files FOLDER: many files and a large one; copied, archived, renamed, compared, removed.
files() {
  folder=$1/files
  rm -rf $folder && mkdir -p $folder/a/b/c || return 1
  i=0
  while [ $i -lt 150 ]; do
    echo "$round $i $seconds" > $folder/a/b/$i
    ln -s ../$i $folder/a/b/c/$i
    i=$((i + 1))
  done
  dd if=/dev/urandom of=$folder/a/large bs=100k count=60 2> /dev/null || return 1
  (cd $folder/a && find . -type f | sort | xargs md5sum) > $folder/sums
  cp -a $folder/a $folder/copy && rm -rf $folder/a || return 1
  (cd $folder && tar cf tree.tar copy && rm -rf copy && tar xf tree.tar && mv copy moved) || return 1
  sync
  echo 3 > /proc/sys/vm/drop_caches
  (cd $folder/moved && md5sum -c ../sums > /dev/null) || return 1
  [ "$(cat $folder/moved/b/c/149)" = "$round 149 $seconds" ] || return 1
  truncate -s 1000000 $folder/moved/large && [ "$(stat -c %s $folder/moved/large)" = 1000000 ] || return 1
  [ "$(find $folder -type f | wc -l)" = 153 ] || return 1
  rm -rf $folder
}

# What the round before left on the disk is there after the caches were dropped, or after a mount.
kept() {
  if [ -e $disk/kept.sum ]; then
    if [ $((round % 5)) = 0 ]; then
      umount $disk && mount -t ext4 /dev/vda $disk || return 1
    fi
    (cd $disk && sha256sum -c kept.sum > /dev/null) || return 1
  fi
  dd if=/dev/urandom of=$disk/kept bs=64k count=64 2> /dev/null
  (cd $disk && sha256sum kept > kept.sum)
  sync
}

# Files from and to a server on the host's loopback, one by one and four at once.
network() {
  cd /tmp && rm -rf net && mkdir net && cd net || return 1
  wget -q -O big $server/big && wget -q -O - $server/big.sha256 > sums && sha256sum -c sums > /dev/null || return 1
  for i in 1 2 3 4; do wget -q -O part.$i "$server/random?$round.$i" & done
  wait
  for i in 1 2 3 4; do
    [ "$(sha256sum < part.$i | cut -c 1-64)" = "$(wget -q -O - "$server/sum?$round.$i")" ] || return 1
  done
  dd if=/dev/urandom bs=1000 count=500 2> /dev/null | od -An -v -tx1 > out  # wget posts text only
  [ "$(wget -q -O - --post-file out $server/post)" = "$(sha256sum < out | cut -c 1-64)" ] || return 1
  cd / && rm -rf /tmp/net
}

# Modules come, work and go. A loop device is a file as the block layer sees it.
modules() {
  cd /root || return 1
  for module in $modules; do insmod $module.ko || return 1; done
  grep -q '^loop ' /proc/modules || return 1
  dd if=/dev/urandom of=/tmp/looped bs=64k count=32 2> /dev/null
  losetup /dev/loop0 /tmp/looped && cmp /tmp/looped /dev/loop0 && losetup -d /dev/loop0 || return 1
  gone=
  for module in $modules; do gone="$module $gone"; done
  for module in $gone; do rmmod $module || return 1; done
  ! grep -q '^loop ' /proc/modules && rm /tmp/looped
}

# Debian's stress-ng, which looks at its own results. Its status 3 says that a part of it got too little
# memory and gave up.
stress() {
  chroot $disk /usr/bin/stress-ng --cpu $cpus --vm $cpus --vm-bytes 16m --fork $cpus --mutex $cpus \
    --verify --timeout 4 --temp-path /tmp
  status=$?
  [ $status = 0 ] || [ $status = 3 ]
}

# --- Several CPUs ---

busy_sum() { awk 'BEGIN { for (i = 1; i <= 300000; ++i) s = (s * 31 + i) % 1000003; print s }'; }

# A program on each CPU, which stays there, and can be sent to another one.
affinity() {
  rm -f /tmp/sum.*
  cpu=0
  while [ $cpu -lt $cpus ]; do
    (
      taskset -p $(printf %x $((1 << cpu))) $(sh -c 'echo $PPID') || exit 1
      [ "$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)" = $cpu ] || exit 1
      busy_sum > /tmp/sum.$cpu
      [ "$(awk '{ print $39 }' /proc/self/stat)" = $cpu ] || exit 1
      taskset -p $(printf %x $((1 << ((cpu + 1) % cpus)))) $(sh -c 'echo $PPID') || exit 1
      [ "$(awk '{ print $39 }' /proc/self/stat)" = $(((cpu + 1) % cpus)) ] || exit 1
      busy_sum >> /tmp/sum.$cpu
    ) &
    cpu=$((cpu + 1))
  done
  wait
  [ "$(cat /tmp/sum.* | wc -l)" = $((2 * cpus)) ] && [ "$(sort -u /tmp/sum.* | wc -l)" = 1 ]
}

# CPUs are taken away and come back while twice as many programs as there are compute and fork.
hotplug() {
  rm -f /tmp/sum.*
  for i in $(seq $((2 * cpus))); do
    (for j in 1 2 3; do busy_sum | cat >> /tmp/sum.$i; done) &
  done
  for i in 1 2 3; do
    cpu=1
    while [ $cpu -lt $cpus ]; do
      echo 0 > /sys/devices/system/cpu/cpu$cpu/online && [ "$(nproc)" = $((cpus - 1)) ] &&
        ! grep -q "^cpu$cpu " /proc/stat || return 1
      echo 1 > /sys/devices/system/cpu/cpu$cpu/online && [ "$(nproc)" = $cpus ] || return 1
      cpu=$((cpu + 1))
    done
  done
  wait
  [ "$(cat /tmp/sum.* | wc -l)" = $((6 * cpus)) ] && [ "$(sort -u /tmp/sum.* | wc -l)" = 1 ]
}

step() { # step COMMAND...: runs it in a shell of its own, and keeps how long it took
  started=$(uptime_now)
  if (trap - EXIT; "$@") > /tmp/step.log 2>&1; then
    result="$result $(echo "$*" | tr ' ' ':')=$(awk "BEGIN { printf \"%.1f\", $(uptime_now) - $started }")"
  else
    result="$result $(echo "$*" | tr ' ' ':')=FAILED"
    failed=1
    echo "failure of $*: $(tail -n 3 /tmp/step.log | tr '\n' ' ')"
  fi
}

mkdir -p $disk && mount -t ext4 /dev/vda $disk || exit 1
warnings > /tmp/warnings.boot
sed 's/^/warnings of the boot: /' /tmp/warnings.boot
: > /tmp/warnings.new
cp /tmp/warnings.boot /tmp/warnings.seen
late > /tmp/late
begin=$(cut -d . -f 1 /proc/uptime)
echo "clock $(uptime_now)"
# One round at least: the clock may turn to the next second at once.
while [ $round = 0 ] || [ $(($(cut -d . -f 1 /proc/uptime) - begin)) -lt "$seconds" ]; do
  round=$((round + 1)) failed= result=
  step compile
  step compute
  step forks
  step files $disk
  step files /tmp
  step kept
  step network
  step modules
  step stress
  if [ "$cpus" -gt 1 ]; then
    step affinity
    step hotplug
  fi
  failures=$((failures + ${failed:-0}))
  warnings > /tmp/warnings.now
  awk 'FILENAME ~ /seen$/ { seen[$0] = 1; next } !($0 in seen) { print "warnings " $0 }' \
    /tmp/warnings.seen /tmp/warnings.now | tee -a /tmp/warnings.new
  cp /tmp/warnings.now /tmp/warnings.seen
  [ -s /tmp/late ] || late | tee /tmp/late
  if [ -z "$failed" ]; then verdict=ok; else verdict=FAILED; fi
  echo "round $round $verdict$result"
  echo "clock $(uptime_now) available $(awk '/^MemAvailable/ { print $2 }' /proc/meminfo) processes $(ls -d /proc/[0-9]* | wc -l) load $(cut -d ' ' -f 1 /proc/loadavg)"
done
# Clocks are compared over some time at least.
passed=$(($(cut -d . -f 1 /proc/uptime) - begin))
[ $passed -ge 22 ] || sleep $((22 - passed))
echo "clock $(uptime_now)"
# The host gets back what a removed file took.
dd if=/dev/zero of=$disk/filler bs=1M count=100 conv=fsync 2> /dev/null && rm $disk/filler && sync &&
  fstrim $disk || failures=$((failures + 1))
umount $disk || failures=$((failures + 1))
count=$(wc -l < /tmp/warnings.new)
echo "done $round rounds, $failures failures, $count warnings"
[ $failures = 0 ] && [ "$count" = 0 ]
