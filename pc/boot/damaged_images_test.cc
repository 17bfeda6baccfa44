// SPDX-License-Identifier: Apache-2.0
// Damaged kernels: whatever stands in an image, a loader either loads it into the RAM it was told
// of, or says what is wrong in one line and has written nothing. Fixed seeds, so that a failure
// comes again.
#include <elf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "pc/boot/elf.h"
#include "pc/boot/linux.h"
#include "pc/boot/multiboot.h"
#include "pc/boot/pvh.h"
#include "pc/boot/test_images.h"

namespace alibi::loader {
namespace {

constexpr u64 kRam = 48 * kMiB;
constexpr u64 kHighRam = kMiB;
constexpr int kRounds = 20000;

class CheckedRam : public GuestMemory {
 public:
  bool Write(PhysAddr addr, std::span<const u8> bytes) override {
    return Touch(addr.value, bytes.size());
  }
  bool Zero(PhysAddr addr, u64 size) override { return Touch(addr.value, size); }
  bool touched = false, outside = false;

 private:
  bool Touch(u64 address, u64 size) {
    touched = true;
    outside |= address > kRam || size > kRam - address;
    return !outside;
  }
};

// With a 64-bit entry.
std::vector<u8> LongBzImage() {
  std::vector<u8> image = BzImage();
  Put<u16>(image, 0x236, 1);
  return image;
}

// An ELF file that is a PVH kernel and a multiboot kernel at once.
template <class Ehdr, class Phdr>
std::vector<u8> Elf(u8 elf_class, u16 machine) {
  std::vector<u8> image(0x1000 + 5000, 0x90);
  Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = elf_class;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_EXEC;
  header.e_machine = machine;
  header.e_entry = 16 * kMiB + 0x20;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Phdr);
  header.e_phnum = 2;
  Put(image, 0, header);
  Phdr code{};
  code.p_type = PT_LOAD;
  code.p_offset = 0x1000;
  code.p_vaddr = code.p_paddr = 16 * kMiB;
  code.p_filesz = 5000;
  code.p_memsz = 8 * kMiB;
  Put(image, sizeof(header), code);
  Phdr notes{};
  notes.p_type = PT_NOTE;
  notes.p_offset = 0x400;
  notes.p_filesz = 20;
  Put(image, sizeof(header) + sizeof(code), notes);
  const u32 note[] = {4, 4, 18, 0x006e6558, 16 * kMiB + 0x20};
  Put(image, 0x400, note);
  const u32 multiboot[] = {0x1badb002, 3, 0 - (0x1badb002u + 3)};
  Put(image, 0x480, multiboot);
  return image;
}

std::vector<u8> Damage(std::vector<u8> image, std::mt19937& random) {
  static constexpr u64 kInteresting[] = {
      0,          1,          0xff,       0x7fff,     0xffff,         0x7fffffff,   0x80000000,
      0xfffff000, 0xffffffff, 0x00100000, 0xfec00000, u64{1} << 32,   ~u64{0},      ~u64{0} >> 1,
      kRam,       kRam - 1,   0x9fc00,    0xa0000,    ~u64{0} - 4095, 0x1000 + 4999};
  const unsigned changes = 1 + random() % 6;
  for (unsigned i = 0; i < changes && !image.empty(); ++i) {
    // Most damage goes to where headers are.
    const u64 at =
        random() % (random() % 8 == 0 ? image.size() : std::min<u64>(image.size(), 0x4a0));
    switch (random() % 4) {
      case 0:
        image[at] = static_cast<u8>(random());
        break;
      case 1:
        image[at] = static_cast<u8>(image[at] ^ (1u << (random() % 8)));
        break;
      case 2: {
        const u64 value = kInteresting[random() % std::size(kInteresting)];
        const u64 size = std::min<u64>(u64{1} << (random() % 4), image.size() - at);
        std::memcpy(&image[at], &value, size);
        break;
      }
      default:
        if (random() % 4 == 0) image.resize(at);
    }
  }
  return image;
}

struct Loaded {
  bool ok = false;
  std::string message;
};
using Load = std::function<Loaded(std::span<const u8>, GuestMemory&)>;

template <class T>
Loaded Tell(const Result<T>& result) {
  return {result.ok(), result.ok() ? "" : result.error().message};
}

void Torture(const std::vector<u8>& sound, const Load& load, u32 seed) {
  CheckedRam first;
  const Loaded whole = load(sound, first);
  INFO(whole.message);
  REQUIRE(whole.ok);
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<u8> image = Damage(sound, random);
    CheckedRam ram;
    const Loaded loaded = load(image, ram);
    if (!loaded.ok) ++refused;
    if (ram.outside || (!loaded.ok && (ram.touched || loaded.message.empty() ||
                                       loaded.message.find('\n') != std::string::npos))) {
      FAIL("round " << round << ": " << loaded.message);
    }
  }
  CHECK(refused > kRounds / 20);
  CHECK(refused < kRounds);
  // Cut off anywhere.
  for (u64 size = 0; size < sound.size(); size += size < 0x500 ? 1 : 97) {
    CheckedRam ram;
    const Loaded loaded = load(std::span(sound).first(size), ram);
    if (ram.outside || (!loaded.ok && ram.touched)) FAIL("cut off after " << size << " bytes");
  }
}

const std::vector<u8>& Disk() {
  static const std::vector<u8> disk(100000, 7);
  return disk;
}

TEST_CASE("Damaged bzImages", "[damaged]") {
  for (const auto entry : {LinuxEntryPoint::kBest, LinuxEntryPoint::k32}) {
    Torture(
        LongBzImage(),
        [entry](std::span<const u8> image, GuestMemory& memory) {
          LinuxOptions options;
          options.low_ram_bytes = kRam;
          options.high_ram_bytes = kHighRam;
          options.command_line = "console=ttyS0";
          options.initrd = Disk();
          options.entry = entry;
          return Tell(LoadLinux(image, "vmlinuz", options, memory));
        },
        1);
  }
}

TEST_CASE("Damaged bzImages for the 16-bit entry", "[damaged]") {
  Torture(
      LongBzImage(),
      [](std::span<const u8> image, GuestMemory& memory) {
        LinuxOptions options;
        options.low_ram_bytes = kRam;
        options.initrd = Disk();
        const auto setup = PrepareLinuxSetup(image, "vmlinuz", options);
        if (setup.ok()) {
          memory.Write(PhysAddr(setup.value().kernel_at), setup.value().kernel);
          memory.Write(PhysAddr(setup.value().setup_at), setup.value().setup);
          memory.Write(PhysAddr(setup.value().initrd_at), Disk());
        }
        return Tell(setup);
      },
      4);
}

TEST_CASE("Damaged ELF files", "[damaged]") {
  const std::vector<u8> images[] = {Elf<Elf64_Ehdr, Elf64_Phdr>(ELFCLASS64, EM_X86_64),
                                    Elf<Elf32_Ehdr, Elf32_Phdr>(ELFCLASS32, EM_386)};
  for (const std::vector<u8>& sound : images) {
    Torture(
        sound,
        [](std::span<const u8> image, GuestMemory& memory) {
          (void)IsPvh(image);
          PvhOptions options;
          options.low_ram_bytes = kRam;
          options.high_ram_bytes = kHighRam;
          options.modules = {{Disk(), "disk"}};
          return Tell(LoadPvh(image, "vmlinux", options, memory));
        },
        2);
    Torture(
        sound,
        [](std::span<const u8> image, GuestMemory& memory) {
          MultibootOptions options;
          options.low_ram_bytes = kRam;
          options.high_ram_bytes = kHighRam;
          options.modules = {{Disk(), "disk"}};
          return Tell(LoadMultiboot(image, "kernel", options, memory));
        },
        3);
  }
}

}  // namespace
}  // namespace alibi::loader
