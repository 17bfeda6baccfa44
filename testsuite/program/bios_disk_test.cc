// SPDX-License-Identifier: Apache-2.0
// Firmware starts what is on a drive: Debian's SeaBIOS loads a boot sector from an IDE disk, a
// virtio disk and a CD-ROM, and the sector's code reads more through INT 13h.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/types.h"

namespace alibi {
namespace {

constexpr u64 kDataLba = 24;  // in the drive's blocks: what the boot sector looks for
constexpr char kMark[] = "ALIB";

std::string Path(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
}

// Reads one block at kDataLba to 0x8000, compares its first bytes, and ends the machine: status 1
// is success.
std::vector<u8> BootSector() {
  std::vector<u8> code = {
      0x31, 0xc0,        // xor ax, ax
      0x8e, 0xd8,        // mov ds, ax
      0x8e, 0xc0,        // mov es, ax
      0x8e, 0xd0,        // mov ss, ax
      0xbc, 0x00, 0x7c,  // mov sp, 7c00h
      0xbe, 0x40, 0x7c,  // mov si, 7c40h: the packet
      0xb4, 0x42,        // mov ah, 42h: read; DL is the drive that we came from
      0xcd, 0x13,        // int 13h
      0x72, 0x0f,        // jc fail
      0x66, 0x81, 0x3e, 0x00, 0x80, 'A', 'L', 'I', 'B',  // cmp dword [8000h], "ALIB"
      0x75, 0x04,                                        // jne fail
      0xb0, 0x00,                                        // mov al, 0
      0xe6, 0xf4,                                        // out 0f4h, al
      0xb0, 0x01,                                        // fail: mov al, 1
      0xe6, 0xf4,                                        // out 0f4h, al
      0xf4,                                              // hlt
  };
  code.resize(512);
  const u8 packet[] = {16, 0, 1, 0, 0x00, 0x80, 0, 0, kDataLba};
  std::copy(std::begin(packet), std::end(packet), code.begin() + 0x40);
  code[510] = 0x55;
  code[511] = 0xaa;
  return code;
}

void Put(std::vector<u8>& image, u64 at, const std::string& text) {
  std::copy(text.begin(), text.end(), image.begin() + static_cast<std::ptrdiff_t>(at));
}
std::string Save(const std::string& name, const std::vector<u8>& image) {
  const std::string path = Path(name);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(image.data()),
             static_cast<std::streamsize>(image.size()));
  return path;
}

std::string MakeDisk() {
  std::vector<u8> image(1 << 20);
  const std::vector<u8> sector = BootSector();
  std::copy(sector.begin(), sector.end(), image.begin());
  Put(image, kDataLba * 512, kMark);
  return Save("boot.img", image);
}

// A boot record, a catalogue and an image without emulation (El Torito 1.0).
std::string MakeDisc() {
  constexpr u64 kBlock = 2048, kRecord = 17, kCatalogue = 19, kImage = 20;
  std::vector<u8> image(64 * kBlock);
  Put(image, kRecord * kBlock, std::string("\0CD001\1EL TORITO SPECIFICATION", 30));
  image[kRecord * kBlock + 0x47] = kCatalogue;
  const u64 entry = kCatalogue * kBlock;
  image[entry] = 1;
  image[entry + 0x1e] = 0x55;
  image[entry + 0x1f] = 0xaa;
  image[entry + 0x20] = 0x88;  // can be booted
  image[entry + 0x26] = 4;     // sectors of 512 bytes
  image[entry + 0x28] = kImage;
  const std::vector<u8> sector = BootSector();
  std::copy(sector.begin(), sector.end(),
            image.begin() + static_cast<std::ptrdiff_t>(kImage * kBlock));
  Put(image, kDataLba * kBlock, kMark);
  return Save("boot.iso", image);
}

int Boot(const std::string& options) {
  const std::string command =
      std::string("timeout -k 5 60 ") + std::getenv("ALIBI") + " run " + options + " </dev/null";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("SeaBIOS boots disks and discs") {
  if (access("/usr/share/seabios/bios-256k.bin", R_OK) != 0) {
    WARN("SKIP: seabios is not installed");
    return;
  }
  const std::string disk = MakeDisk(), disc = MakeDisc();
  CHECK(Boot("--disk " + disk + ",interface=ide") == 1);
  CHECK(Boot("--disk " + disk + ",interface=virtio") == 1);
  CHECK(Boot("--disk " + disk + ",readonly") == 1);
  CHECK(Boot("-drive file=" + disk + ",if=virtio,format=raw") == 1);
  CHECK(Boot("-hda " + disk) == 1);
  CHECK(Boot("--cdrom " + disc) == 1);
  CHECK(Boot("--cdrom " + disc + " --disk " + disk) == 1);
  CHECK(Boot("--policy never --disk " + disk) == 1);
}

// Looks for the VMI ROM where kernels do, and ends the machine: status 1 if it is there, else 3.
std::vector<u8> VmiSector() {
  std::vector<u8> code = {
      0xb8, 0x00, 0xc0,                                        // mov ax, c000h
      0x8e, 0xc0,                                              // again: mov es, ax
      0x26, 0x66, 0x81, 0x3e, 0x08, 0x00, 'c', 'V', 'm', 'i',  // cmp dword [es:8], "cVmi"
      0x74, 0x0c,                                              // je found
      0x05, 0x80, 0x00,                                        // add ax, 80h
      0x3d, 0x00, 0xe0,                                        // cmp ax, e000h
      0x72, 0xea,                                              // jb again
      0xb0, 0x01,                                              // mov al, 1
      0xeb, 0x02,                                              // jmp end
      0xb0, 0x00,                                              // found: mov al, 0
      0xe6, 0xf4,                                              // end: out 0f4h, al
      0xf4,                                                    // hlt
  };
  code.resize(512);
  code[510] = 0x55;
  code[511] = 0xaa;
  return code;
}

TEST_CASE("SeaBIOS places the VMI ROM") {
  if (access("/usr/share/seabios/bios-256k.bin", R_OK) != 0) {
    WARN("SKIP: seabios is not installed");
    return;
  }
  std::vector<u8> image(1 << 20);
  const std::vector<u8> sector = VmiSector();
  std::copy(sector.begin(), sector.end(), image.begin());
  const std::string disk = Save("vmi.img", image);
  CHECK(Boot("--vmi --disk " + disk) == 1);
  CHECK(Boot("--vmi=transparent --disk " + disk) == 1);
  CHECK(Boot("--disk " + disk) == 3);
}

TEST_CASE("Without a system on any drive the run ends and says so") {
  if (access("/usr/share/seabios/bios-256k.bin", R_OK) != 0) {
    WARN("SKIP: seabios is not installed");
    return;
  }
  const std::string disk = Save("empty.img", std::vector<u8>(1 << 20));
  const std::string disc = Save("empty.iso", std::vector<u8>(1 << 20));
  for (const char* interface : {"ide", "virtio"}) {
    INFO(interface);
    CHECK(Boot("--disk " + disk + ",interface=" + interface) == 86);
  }
  CHECK(Boot("--cdrom " + disc) == 86);
  CHECK(Boot("--cdrom " + disc + " --disk " + disk + " --disk " + MakeDisk() +
             ",interface=virtio") == 86);  // a BIOS starts the first disk alone
}

}  // namespace
}  // namespace alibi
