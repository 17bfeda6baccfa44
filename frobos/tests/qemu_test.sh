#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one FrobOS kernel on QEMU: the same image must give the same verdicts there as on our VMM.
#
#   qemu_test.sh IMAGE [WORD...]      the words go on the kernel's command line
#   qemu_test.sh --shutdown IMAGE     the kernel must end by a triple fault
#   qemu_test.sh --device WHAT IMAGE  with QEMU's -device WHAT
#   qemu_test.sh --nic WHAT IMAGE     with QEMU's -nic WHAT
#   qemu_test.sh --smp N IMAGE        with N processors
#   qemu_test.sh --disk FILE ide|virtio --cdrom FILE IMAGE
#                                     with drives; what is written is forgotten
#
# An IMAGE called *.rom is a BIOS. Exit status 0: all checks passed, or QEMU is not installed (a SKIP line says so). Each PASS or FAIL
# line becomes a test case in $XML_OUTPUT_FILE if Bazel set it.
set -euo pipefail

wanted=1
if [[ $1 == --shutdown ]]; then
  wanted=0  # QEMU's status when -no-reboot ends it
  shift
fi
devices=()
while [[ $1 == --* ]]; do
  case $1 in
    --disk)
      devices+=(-drive "file=$2,format=raw,snapshot=on,if=none,id=disk")
      if [[ $3 == virtio ]]; then
        devices+=(-device virtio-blk-pci,drive=disk,disable-legacy=on)
      else
        devices+=(-device ide-hd,drive=disk,bus=ide.0)
      fi
      shift 3
      ;;
    --cdrom)
      devices+=(-drive "file=$2,format=raw,readonly=on,if=none,id=disc" -device ide-cd,drive=disc,bus=ide.1)
      shift 2
      ;;
    --device)
      devices+=(-device "$2")
      shift 2
      ;;
    --smp)
      devices+=(-smp "$2")
      shift 2
      ;;
    --nic)
      devices+=(-nic "$2")
      shift 2
      ;;
    *)
      echo "$1: no such option" >&2
      exit 2
      ;;
  esac
done
image=$1
shift
start=(-kernel "$image" -append "host=qemu $*")
[[ $image == *.rom ]] && start=(-bios "$image")
# Those two need what the others must not have.
[[ $image == */vga.elf ]] && devices+=(-vga std)
reboot=(-no-reboot)
[[ $image == */reset.elf ]] && reboot=()
qemu=$(command -v qemu-system-x86_64 || true)
if [[ -z $qemu ]]; then
  echo "SKIP: qemu-system-x86_64 is not installed (apt-get install qemu-system-x86)"
  exit 0
fi

log=$(mktemp "${TEST_TMPDIR:-/tmp}/frobos.XXXXXX")
trap 'rm -f "$log"' EXIT
status=0
export TMPDIR=${TEST_TMPDIR:-/tmp}  # for what is written to drives
timeout 120 "$qemu" "${start[@]}" "${devices[@]}" "${reboot[@]}" -cpu max -m 128 -display none \
  -nographic -serial stdio -monitor none -nodefaults \
  -device isa-debug-exit,iobase=0xf4,iosize=0x04 </dev/null >"$log" || status=$?
# What the firmware printed before the kernel is not ours.
tr -d '\r' <"$log" | grep -aE '^(PASS|FAIL|SKIP|SUMMARY|PANIC|  |\{|hello|Booting.*hello)' || true

if [[ -n ${XML_OUTPUT_FILE:-} ]]; then
  name=$(basename "$image" .elf)
  {
    echo "<testsuites><testsuite name=\"$name\">"
    tr -d '\r' <"$log" | awk -v class="$name" '
      function quoted(s) {
        gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); gsub(/"/, "\\&quot;", s)
        return s
      }
      /^PASS / { printf "<testcase classname=\"%s\" name=\"%s\"/>\n", class, quoted(substr($0, 6)) }
      /^FAIL / { printf "<testcase classname=\"%s\" name=\"%s\"><failure/></testcase>\n", class,
                        quoted(substr($0, 6)) }'
    # The exit itself, so that a kernel without checks counts as well.
    echo "<testcase classname=\"$name\" name=\"exits with success\">"
    ((status == wanted)) || echo "<failure message=\"QEMU's status $status\"/>"
    echo "</testcase></testsuite></testsuites>"
  } >"$XML_OUTPUT_FILE"
fi

# QEMU's own failures have the status of a kernel's success.
if [[ ! -s $log ]]; then
  echo "QEMU did not start the kernel: it printed nothing"
  exit 1
fi
if ((status != wanted)); then
  echo "the kernel did not exit with success: QEMU's status is $status, wanted $wanted"
  exit 1
fi
