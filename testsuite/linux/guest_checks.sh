#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run inside the guest: PASS or FAIL and a name on each line, then a SUMMARY. Plain busybox.
passed=0 failed=0
cd /tmp || exit 1

check() { # check NAME COMMAND...: the command must succeed
  name=$1
  shift
  if output=$("$@" 2>&1); then
    echo "PASS $name"
    passed=$((passed + 1))
  else
    echo "FAIL $name: $(echo "$output" | tail -n 3 | tr '\n' ' ')"
    failed=$((failed + 1))
  fi
}

is() { # is EXPECTED COMMAND...: compares the output
  expected=$1
  shift
  found=$("$@" 2>&1)
  [ "$found" = "$expected" ] || { echo "found '$found', expected '$expected'"; return 1; }
}

status_is() { # status_is EXPECTED COMMAND...
  expected=$1
  shift
  "$@"
  found=$?
  [ "$found" = "$expected" ] || { echo "status $found, expected $expected"; return 1; }
}

one_cpu() { is 1 grep -c ^processor /proc/cpuinfo; }
cpu_flags() {
  for flag in fpu tsc cx8 pge cmov sse2; do
    grep -q "^flags.* $flag\( \|$\)" /proc/cpuinfo || { echo "no $flag"; return 1; }
  done
}
memory_size() {
  kilobytes=$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)
  [ "$kilobytes" -gt 400000 ] && [ "$kilobytes" -le 524288 ] || { echo "$kilobytes"; return 1; }
}
clock() {
  [ "$(date +%Y)" -ge 2024 ] || { date; return 1; }
}
sleeping() {
  before=$(cut -d ' ' -f 1 /proc/uptime)
  sleep 0.5
  after=$(cut -d ' ' -f 1 /proc/uptime)
  awk "BEGIN { slept = $after - $before; exit !(slept >= 0.48 && slept < 5) }" || { echo "$before $after"; return 1; }
}
clock_source() { # the TSC, although there is an HPET
  folder=/sys/devices/system/clocksource/clocksource0
  grep -q '^tsc' $folder/current_clocksource || { cat $folder/current_clocksource; return 1; }
  grep -qw hpet $folder/available_clocksource || { cat $folder/available_clocksource; return 1; }
}
hpet_clock() { # by which time passes as fast as by the RTC
  file=/sys/devices/system/clocksource/clocksource0/current_clocksource
  echo hpet > $file || return 1
  is hpet cat $file || return 1
  cat /sys/class/rtc/rtc0/since_epoch > rtc && before=$(cut -d ' ' -f 1 /proc/uptime)
  sleep 3
  rtc=$(($(cat /sys/class/rtc/rtc0/since_epoch) - $(cat rtc)))
  after=$(cut -d ' ' -f 1 /proc/uptime)
  echo tsc > $file
  awk "BEGIN { passed = $after - $before; exit !(passed > $rtc - 1.2 && passed < $rtc + 1.2) }" ||
    { echo "$before $after, $rtc by the RTC"; return 1; }
}
machine_name() { is Alibi cat /sys/class/dmi/id/sys_vendor; }
timer_interrupts() {
  count() { awk '/^ *(0|LOC):/ { sum += $2 } END { print sum }' /proc/interrupts; }
  before=$(count)
  sleep 0.2
  [ "$(count)" -gt "$before" ]
}
many_forks() {
  i=0
  while [ $i -lt 200 ]; do
    (exit $((i % 7))) ; [ $? = $((i % 7)) ] || return 1
    i=$((i + 1))
  done
}
fork_storm() { # no more at once: the translator recycles views of address spaces
  i=0
  while [ $i -lt 8 ]; do
    (j=0; while [ $j -lt 5 ]; do /bin/busybox true; j=$((j + 1)); done; echo $i > "storm.$i") &
    i=$((i + 1))
  done
  wait
  is 8 sh -c 'cat storm.* | sort -u | wc -l'
}
nested_shells() { is deep sh -c "$(nest 12)"; }
nest() {
  if [ "$1" = 0 ]; then echo 'echo deep'; else echo "sh -c \"\$(cat <<'N$1'
$(nest $(($1 - 1)))
N$1
)\""; fi
}
files() {
  dd if=/dev/urandom of=a bs=64k count=64 2> /dev/null && cp a b && cmp a b &&
    dd if=a of=c bs=1000 2> /dev/null && cmp a c && rm a b c
}
sparse_file() {
  dd if=/dev/zero of=sparse bs=1 count=1 seek=100000000 2> /dev/null
  is 100000001 stat -c %s sparse && rm sparse
}
links() {
  echo text > target && ln -s target soft && ln target hard && is text cat soft && is text cat hard &&
    rm target soft hard
}
mounting() {
  mkdir -p m && mount -t tmpfs none m && touch m/x && umount m && [ ! -e m/x ]
}
hashes() {
  seq 1 50000 > numbers
  is 44969d026ed4164dbe77d48d4d359e98ac4057008cafd61723be72bff83e5fd4 sh -c 'sha256sum < numbers | cut -c 1-64' &&
    is c1d4ba52c72ac7bcc71ff2d6c083e684 sh -c 'md5sum < numbers | cut -c 1-32'
}
compression() { gzip -c numbers > numbers.gz && gunzip -c numbers.gz | cmp - numbers; }
sorting() { sort -rn numbers | head -n 1 | grep -qx 50000 && is 50000 sh -c 'sort -u numbers | wc -l'; }
regular_expressions() { is 4444 sh -c 'grep -Ec "^(1|3)[0-9]*(7|9)$" numbers'; }
floating_point() {
  is 1.2020569 awk 'BEGIN { for (i = 5000; i > 0; i--) s += 1 / (i * i * i); printf "%.7f\n", s }' &&
    is 1.4142135624 awk 'BEGIN { x = 1; for (i = 0; i < 9; i++) x = (x + 2 / x) / 2; printf "%.10f\n", x }' &&
    is 3.14159265358979323846 sh -c 'echo "scale=30; a=4*a(1); scale=20; a/1" | bc -l'
}
long_integers() { is 1267650600228229401496703205376 sh -c 'echo "2^100" | bc'; }
shell_arithmetic() { is -9223372036854775808 sh -c 'echo $((9223372036854775807 + 1))'; }
signals() {
  is caught sh -c 'trap "echo caught" USR1; kill -USR1 $$' && status_is 139 sh -c 'kill -SEGV $$' &&
    status_is 143 timeout 0.2 sleep 5
}
stop_and_continue() {
  sleep 5 &
  kill -STOP $!
  # It stops when it next runs, which may be a moment from now.
  tries=0
  until grep -q '^State:.*T' "/proc/$!/status" || [ $tries = 100 ]; do
    sleep 0.02
    tries=$((tries + 1))
  done
  grep '^State' "/proc/$!/status"
  kill -CONT $!
  kill $!
  wait $! 2> /dev/null
  [ $? = 143 ] && [ $tries -lt 100 ]
}
pipes() { is 8388608 sh -c 'dd if=/dev/zero bs=64k count=128 2> /dev/null | cat | cat | wc -c'; }
randomness() { [ "$(head -c 16 /dev/urandom | md5sum)" != "$(head -c 16 /dev/urandom | md5sum)" ]; }
serial_port() { stty -F /dev/ttyS1 > /dev/null && grep -q '16550A' /proc/tty/driver/serial; }
other_word_size() { # a 32-bit program on a 64-bit kernel
  is 14 /root/busybox32 sh -c 'echo $((2 + 3 * 4))' && is 0 /root/busybox32 sh -c '(exit 3) | true; echo $?'
}
kernel_log() {
  bad=$(dmesg | grep -E 'WARNING|BUG|Oops|Call Trace|soft lockup|hung task|stall|unstable|general protection|segfault')
  [ -z "$bad" ] || { echo "$bad"; return 1; }
}

for name in one_cpu cpu_flags memory_size clock sleeping clock_source hpet_clock machine_name \
  timer_interrupts many_forks fork_storm nested_shells files sparse_file links mounting hashes compression sorting regular_expressions \
  floating_point long_integers shell_arithmetic signals stop_and_continue pipes randomness \
  serial_port; do
  check "$name" $name
done
[ ! -e /root/busybox32 ] || check other_word_size other_word_size
check kernel_log kernel_log  # last: after everything that might upset the kernel
echo "SUMMARY $passed passed, $failed failed"
[ $failed = 0 ]
