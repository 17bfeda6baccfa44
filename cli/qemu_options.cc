// SPDX-License-Identifier: Apache-2.0
#include "cli/qemu_options.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace alibi::vmm {
namespace {

struct Row {
  std::string_view name, instead;
};
constexpr Row kRows[] = {
    {"m", "give --ram SIZE, such as --ram 512M"},
    {"smp", "give --smp N"},
    {"cpu", "give --cpu MODEL (alibi cpu shows what guests see)"},
    {"machine", "there is one machine, like QEMU's -M pc; leave it out"},
    {"M", "there is one machine, like QEMU's -M pc; leave it out"},
    {"enable-kvm", "translation needs no KVM; leave it out"},
    {"accel", "translation needs no accelerator; leave it out"},
    {"nographic", "the terminal is the serial port anyway; leave it out"},
    {"curses", "give --display=text"},
    {"vnc", "there is no remote display; --display=text shows the text screen on the terminal"},
    {"spice", "there is no remote display; --display=text shows the text screen on the terminal"},
    {"vga", "there is one VGA, for text; leave it out, and give --display=text to see it"},
    {"sdl", "there are no windows; --display=text shows the text screen on the terminal"},
    {"gtk", "there are no windows; --display=text shows the text screen on the terminal"},
    {"full-screen", "there are no windows; --display=text shows the text screen on the terminal"},
    {"nic", "give --net user or --net tap,ifname=NAME, with lance, before it for QEMU's pcnet"},
    {"netdev", "give --net user or --net tap,ifname=NAME, with lance, before it for QEMU's pcnet"},
    {"device", "devices have options of their own: --disk, --cdrom, --net, --console virtio"},
    {"object", "there are no objects: the entropy device is always there; leave it out"},
    {"blockdev", "give --disk FILE,format=F,interface=virtio|ide"},
    {"fda", "there are no floppy drives; give --disk or --cdrom"},
    {"fdb", "there are no floppy drives; give --disk or --cdrom"},
    {"sd", "there are no SD cards; give --disk"},
    {"pflash", "give the ROM as --bios ROM"},
    {"boot", "disks are tried before discs, in the command line's order; leave it out"},
    {"dtb", "a PC has no device tree; leave it out"},
    {"chardev", "the terminal is COM1 (or --console virtio), and --com1 FILE makes it COM2"},
    {"parallel", "what the guest prints goes to the terminal; leave it out"},
    {"monitor", "there is no monitor; Ctrl-A H shows what keys do, --gdb lets a debugger in"},
    {"qmp", "there is no monitor; --gdb lets a debugger in"},
    {"gdb", "give --gdb [HOST]:PORT"},
    {"d", "give --trace=TOPICS and --trace-file FILE"},
    {"D", "give --trace-file FILE"},
    {"debugcon", "text written to the ports 0xe9 and 0x402 is shown anyway; --debug-port adds one"},
    {"no-shutdown", "a guest that switches itself off ends the run; leave it out"},
    {"daemonize", "let the shell start it in the background"},
    {"pidfile", "let the shell start it in the background"},
    {"rtc", "the clock is the host's, in UTC; leave it out"},
    {"usb", "there is no USB; keyboard and mouse are on PS/2"},
    {"usbdevice", "there is no USB; keyboard and mouse are on PS/2"},
    {"audio", "there is no sound; leave it out"},
    {"audiodev", "there is no sound; leave it out"},
    {"soundhw", "there is no sound; leave it out"},
    {"virtfs", "there are no shared folders; use --net user, or a disc image by --cdrom"},
    {"fsdev", "there are no shared folders; use --net user, or a disc image by --cdrom"},
    {"icount", "time is the host's; leave it out"},
    {"smbios", "the tables say what the machine is; leave it out"},
    {"uuid", "machines have none; leave it out"},
    {"name", "runs have no names; leave it out"},
    {"no-acpi", "add acpi=off to --append"},
    {"no-hpet", "add hpet=disable to --append"},
    {"nodefaults", "only what is asked for is there, beside a PC's own; leave it out"},
    {"no-user-config", "there are no files of options; leave it out"},
    {"loadvm", "the state of a running machine cannot be saved"},
    {"incoming", "the state of a running machine cannot be moved"},
    {"L", "give the ROM as --bios ROM"},
};

}  // namespace

std::vector<char*> WithOwnSpelling(int argc, char** argv) {
  struct Spelling {
    const char* theirs;
    const char* ours;  // empty: left out, what follows is the image
  };
  static constexpr Spelling kSpellings[] = {
      {"-kernel", ""},           {"-append", "--append"},     {"-initrd", "--initrd"},
      {"-bios", "--bios"},       {"-hda", "--hda"},           {"-hdb", "--hdb"},
      {"-hdc", "--hdc"},         {"-hdd", "--hdd"},           {"-drive", "--drive"},
      {"-cdrom", "--cdrom"},     {"-snapshot", "--snapshot"}, {"-net", "--net"},
      {"-serial", "--serial"},   {"-display", "--display"},   {"-no-reboot", "--no-reboot"},
      {"-version", "--version"}, {"-help", "--help"},         {"--vmi", "--vmi=full"}};
  std::vector<char*> arguments;
  for (int i = 0; i < argc; ++i) {
    const char* argument = argv[i];
    for (const Spelling& spelling : kSpellings) {
      if (std::strcmp(argv[i], spelling.theirs) == 0) argument = spelling.ours;
    }
    if (*argument != '\0' || argument == argv[i]) arguments.push_back(const_cast<char*>(argument));
  }
  arguments.push_back(nullptr);
  return arguments;
}

std::string_view InsteadOfQemuOption(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [name](const Row& candidate) { return candidate.name == name; });
  return row == std::end(kRows) ? "" : row->instead;
}

}  // namespace alibi::vmm
