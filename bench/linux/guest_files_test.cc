// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/guest_files.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace alibi::bench {
namespace {

std::string Folder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return folder != nullptr ? folder : "/tmp";
}

LinuxFiles Debian() {
  LinuxFiles files;
  files.kernel = "/c/kernel";
  files.initramfs = "/c/initrd";
  files.linuxbench = "/b/linuxbench";
  files.ram_megabytes = kDebianRamMegabytes;
  files.program = "/b/linuxbench32";
  files.disk = "/c/a,b/disk";
  files.tree = "/c/a,b/tree";
  files.program_disk = "/s/linuxbench";
  return files;
}

// The word behind each `option`.
std::vector<std::string> Values(const std::vector<std::string>& command, const char* option) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i + 1 < command.size(); ++i) {
    if (command[i] == option) values.push_back(command[i + 1]);
  }
  return values;
}

TEST_CASE(
    "Both machines boot Debian's disk, which they leave as it is, with linuxbench as another") {
  const auto own = AlibiLinuxCommand(Debian(), "/alibi", "quick:only=true", {});
  CHECK(Values(own, "--disk") == std::vector<std::string>{"/c/a,,b/disk,format=raw,snapshot",
                                                          "/s/linuxbench,format=raw,readonly"});
  const auto peer = QemuLinuxCommand(Debian(), "/qemu", "quick:only=true", {});
  CHECK(Values(peer, "-drive") ==
        std::vector<std::string>{"file=/c/a,,b/disk,format=raw,if=virtio,snapshot=on",
                                 "file=/s/linuxbench,format=raw,if=virtio,readonly=on"});
  CHECK(Values(own, "--append") == Values(peer, "-append"));
  // Beside both, who asks their servers.
  const std::vector<std::string> beside = {"/b/linuxbench", "beside", "127.0.0.1"};
  CHECK(std::equal(beside.begin(), beside.end(), own.begin()));
  CHECK(std::equal(beside.begin(), beside.end(), peer.begin()));
  CHECK(Values(own, "--net") ==
        std::vector<std::string>{"user,loopback=on,hostfwd=tcp:127.0.0.1:%SERVER%-:%SERVER%"});
  CHECK(Values(peer, "-nic") ==
        std::vector<std::string>{"user,model=virtio-net-pci,"
                                 "hostfwd=tcp:127.0.0.1:%SERVER%-:%SERVER%"});
  CHECK_THAT(Values(own, "--append").at(0),
             Catch::EndsWith("quick:only=true:asker=10.0.2.2/%ASKER%/%SERVER%"));
  CHECK(Values(own, "--ram") == std::vector<std::string>{"2048M"});
  CHECK(Values(peer, "-m") == std::vector<std::string>{"2048"});
}

TEST_CASE("Both machines have as many CPUs, and QEMU a thread for each") {
  LinuxGuestOptions guest;
  CHECK(Values(QemuLinuxCommand({}, "/qemu", "", guest), "-accel") ==
        std::vector<std::string>{"tcg"});
  CHECK(Values(QemuLinuxCommand({}, "/qemu", "", guest), "-smp").empty());
  guest.smp = 2;
  const auto peer = QemuLinuxCommand({}, "/qemu", "", guest);
  CHECK(Values(peer, "-accel") == std::vector<std::string>{"tcg,thread=multi"});
  CHECK(Values(peer, "-smp") == std::vector<std::string>{"2"});
  CHECK(Values(AlibiLinuxCommand({}, "/alibi", "", guest), "--smp") ==
        std::vector<std::string>{"2"});
}

TEST_CASE("Both machines of bench disk have the same disks, whose writes stay") {
  LinuxFiles files;
  files.virtio_disk = "/s/a,b/virtio";
  files.ide_disk = "/s/a,b/ide";
  CHECK(Values(AlibiLinuxCommand(files, "/alibi", "", {}), "--disk") ==
        std::vector<std::string>{"/s/a,,b/virtio,format=raw",
                                 "/s/a,,b/ide,format=raw,interface=ide"});
  CHECK(Values(QemuLinuxCommand(files, "/qemu", "", {}), "-drive") ==
        std::vector<std::string>{"file=/s/a,,b/virtio,format=raw,if=virtio",
                                 "file=/s/a,,b/ide,format=raw,if=ide"});
  CHECK(Values(AlibiLinuxCommand({}, "/alibi", "", {}), "--disk").empty());
}

TEST_CASE("A Debian is told to switch itself off even if it runs nothing") {
  CHECK(LinuxCommandLine(Debian(), "", "pti=on") ==
        "root=/dev/vda rw console=ttyS0 quiet panic=-1 pti=on linuxbench=");
  CHECK(LinuxCommandLine({}, "", "") == "console=ttyS0 quiet panic=-1");
  CHECK(LinuxCommandLine({}, "quick:only=x87", "") ==
        "console=ttyS0 quiet panic=-1 linuxbench=quick:only=x87");
}

TEST_CASE("Without a Debian there are no disks") {
  LinuxFiles files;
  files.kernel = "/c/kernel";
  const auto own = AlibiLinuxCommand(files, "/alibi", "", {});
  CHECK(Values(own, "--disk").empty());
  CHECK(Values(own, "--net").empty());
  CHECK(own.front() == "/alibi");
  CHECK(Values(own, "--tc-cache") == std::vector<std::string>{"none"});
  CHECK(Values(own, "--ram") == std::vector<std::string>{"512M"});
  CHECK(Values(QemuLinuxCommand(files, "/qemu", "", {}), "-drive").empty());
  CHECK(Values(own, "--engine") == std::vector<std::string>{"translate"});
  LinuxGuestOptions directly;
  directly.engine = "direct";
  CHECK(Values(AlibiLinuxCommand(files, "/alibi", "", directly), "--engine") ==
        std::vector<std::string>{"direct"});
  CHECK(NativeLinuxCommand(files, "quick").front() == files.linuxbench);
}

TEST_CASE("User-Mode Linux has its own kernel, and the guests' initial RAM disk") {
  LinuxFiles files;
  files.kernel = "/c/kernel";
  files.initramfs = "/c/initramfs";
  const UserModeLinux uml = {"/uml", "/x.so", "/u"};
  const auto command = UmlLinuxCommand(files, uml, "quick:only=getppid");
  CHECK(command[0] == "env");
  CHECK(Values(command, "LD_PRELOAD=/x.so") == std::vector<std::string>{"/uml"});
  CHECK(command.back() == "linuxbench=quick:only=getppid");
  const auto has = [&](const char* word) {
    return std::find(command.begin(), command.end(), word) != command.end();
  };
  CHECK(has("initrd=/c/initramfs"));
  CHECK(has("mem=512M"));
  // It needs no home, and no particular environment.
  CHECK(has("uml_dir=/u"));
  CHECK(has("TMPDIR"));
  CHECK_FALSE(has("/c/kernel"));
  CHECK(UmlLinuxCommand(files, uml, "").back() == "con0=fd:0,fd:1");
}

TEST_CASE("User-Mode Linux has Debian's disks too, and a network of its own") {
  LinuxFiles files = Debian();
  files.folder = "/s";
  const auto command = UmlLinuxCommand(files, {"/uml", "/x.so", "/u"}, "quick:only=web-small");
  CHECK(command[0] == "unshare");
  CHECK(command[1] == "--net");
  const auto has = [&](const char* word) {
    return std::find(command.begin(), command.end(), word) != command.end();
  };
  CHECK(Values(command, "/b/linuxbench") == std::vector<std::string>{"beside"});
  CHECK(Values(command, "beside") == std::vector<std::string>{kGuestsHost});
  CHECK(has("ubd0=/s/uml-disk,/c/a,b/disk"));
  CHECK(has("ubd1r=/s/linuxbench"));
  CHECK(has(kUmlCard));
  CHECK(command.back() == "linuxbench=quick:only=web-small:asker=10.0.2.2/%ASKER%/%SERVER%");
  CHECK(UmlLinuxCommand(files, {"/uml", "/x.so", "/u"}, "").back() == "linuxbench=");
}

TEST_CASE("Natively Debian is a chroot of the same files") {
  const auto command = NativeLinuxCommand(Debian(), "quick:only=true");
  const std::vector<std::string> first(command.begin(), command.begin() + 4);
  CHECK(first == std::vector<std::string>{"/b/linuxbench", "beside", "127.0.0.1", "unshare"});
  const std::vector<std::string> last(command.end() - 3, command.end());
  CHECK(last == std::vector<std::string>{"/c/a,b/tree", "/b/linuxbench32",
                                         "quick:only=true:asker=127.0.0.1/%ASKER%/%SERVER%"});
}

TEST_CASE("The program's disk is the program, and whole sectors") {
  LinuxFiles files = Debian();
  files.program = Folder() + "/program";
  std::ofstream(files.program) << std::string(5000, 'x');
  const ScratchFolder scratch;
  REQUIRE(WriteProgramDisk(scratch.path(), &files).ok());
  CHECK(std::filesystem::file_size(files.program_disk) == 8192);
  std::ifstream disk(files.program_disk);
  const std::string text(std::istreambuf_iterator<char>(disk), {});
  CHECK(text == std::string(5000, 'x') + std::string(3192, '\0'));

  files.program = Folder() + "/none";
  CHECK_FALSE(WriteProgramDisk(scratch.path(), &files).ok());
}

TEST_CASE("Scratch folders go away with what runs leave there") {
  std::string path;
  {
    const ScratchFolder scratch;
    path = scratch.path();
    LinuxFiles files = Debian();
    files.program = Folder() + "/program";
    std::ofstream(files.program) << "x";
    REQUIRE(WriteProgramDisk(path, &files).ok());
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace alibi::bench
