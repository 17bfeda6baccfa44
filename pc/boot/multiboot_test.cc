// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/multiboot.h"

#include <elf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>

#include "pc/boot/elf.h"

namespace alibi::loader {
namespace {

constexpr u64 kMiB = 1 << 20;
constexpr u64 kRam = 16 * kMiB;

// RAM as a flat array; a write outside it is a test failure, not a refusal.
class FakeMemory : public GuestMemory {
 public:
  explicit FakeMemory(u64 size = kRam) : bytes_(size, 0xcc) {}
  bool Write(PhysAddr addr, std::span<const u8> bytes) override {
    if (addr.value > bytes_.size() || bytes.size() > bytes_.size() - addr.value) return Outside();
    std::memcpy(bytes_.data() + addr.value, bytes.data(), bytes.size());
    touched = true;
    return true;
  }
  bool Zero(PhysAddr addr, u64 size) override {
    if (addr.value > bytes_.size() || size > bytes_.size() - addr.value) return Outside();
    std::memset(bytes_.data() + addr.value, 0, size);
    touched = true;
    return true;
  }
  u32 At(u64 addr) const { return Load32(bytes_, addr); }
  u64 At64(u64 addr) const { return Load64(bytes_, addr); }
  u8 ByteAt(u64 addr) const { return bytes_.at(addr); }
  std::string StringAt(u64 addr) const {
    return std::string(reinterpret_cast<const char*>(bytes_.data() + addr));
  }

  bool touched = false;
  bool outside = false;

 private:
  bool Outside() {
    outside = true;
    return false;
  }
  std::vector<u8> bytes_;
};

template <class T>
void Put(std::vector<u8>& bytes, u64 offset, const T& value) {
  if (bytes.size() < offset + sizeof value) bytes.resize(offset + sizeof value);
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

void PutHeader(std::vector<u8>& bytes, u64 offset, u32 flags) {
  Put<u32>(bytes, offset, 0x1badb002);
  Put<u32>(bytes, offset + 4, flags);
  Put<u32>(bytes, offset + 8, 0 - 0x1badb002 - flags);
}

template <class Ehdr, class Phdr>
struct ElfImage {
  static constexpr bool kIs64 = sizeof(Ehdr) == sizeof(Elf64_Ehdr);

  ElfImage() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = kIs64 ? ELFCLASS64 : ELFCLASS32;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_EXEC;
    header.e_machine = kIs64 ? EM_X86_64 : EM_386;
    header.e_entry = 0x100010;
    header.e_phoff = sizeof(Ehdr);
    header.e_phentsize = sizeof(Phdr);
    AddSegment(0x100000, 0x1000, 0x200, 0x800);
  }
  void AddSegment(u64 address, u64 offset, u64 file_size, u64 memory_size) {
    Phdr segment{};
    segment.p_type = PT_LOAD;
    segment.p_offset = static_cast<decltype(segment.p_offset)>(offset);
    segment.p_vaddr = static_cast<decltype(segment.p_vaddr)>(address);
    segment.p_paddr = static_cast<decltype(segment.p_paddr)>(address);
    segment.p_filesz = static_cast<decltype(segment.p_filesz)>(file_size);
    segment.p_memsz = static_cast<decltype(segment.p_memsz)>(memory_size);
    segments.push_back(segment);
  }
  std::vector<u8> Bytes() {
    std::vector<u8> bytes;
    header.e_phnum = static_cast<u16>(segments.size());
    Put(bytes, 0, header);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      Put(bytes, sizeof header + i * sizeof(Phdr), segments[i]);
    }
    bytes.resize(0x2000);
    for (u64 i = 0x1000; i < bytes.size(); ++i) bytes[i] = static_cast<u8>(i);
    PutHeader(bytes, 0x1000, flags);
    return bytes;
  }

  Ehdr header{};
  std::vector<Phdr> segments;
  u32 flags = 0x3;
};
using Elf32 = ElfImage<Elf32_Ehdr, Elf32_Phdr>;
using Elf64 = ElfImage<Elf64_Ehdr, Elf64_Phdr>;

MultibootOptions SomeRam(u64 ram = kRam) {
  MultibootOptions options;
  options.low_ram_bytes = ram;
  return options;
}

// Loads and expects a refusal that leaves memory alone; yields the message.
std::string Refusal(const std::vector<u8>& image, const MultibootOptions& options = SomeRam()) {
  FakeMemory memory;
  const auto loaded = LoadMultiboot(image, "k.elf", options, memory);
  REQUIRE_FALSE(loaded.ok());
  CHECK_FALSE(memory.touched);
  const std::string& message = loaded.error().message;
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.find("k.elf") != std::string::npos);
  return message;
}

using Catch::Matchers::Contains;

TEMPLATE_TEST_CASE("multiboot: an ELF kernel is placed, its BSS zeroed", "", Elf32, Elf64) {
  TestType elf;
  FakeMemory memory;
  const auto loaded = LoadMultiboot(elf.Bytes(), "k.elf", SomeRam(), memory);
  REQUIRE(loaded.ok());
  CHECK(loaded.value().eip == 0x100010);
  CHECK(loaded.value().eax == 0x2badb002);
  CHECK(memory.At(0x100000) == 0x1badb002);
  CHECK(memory.ByteAt(0x1001ff) == 0xff);
  CHECK(memory.ByteAt(0x100200) == 0);
  CHECK(memory.ByteAt(0x1007ff) == 0);
  CHECK(memory.ByteAt(0x100800) == 0xcc);
}

TEST_CASE("multiboot: the information structure") {
  Elf64 elf;
  FakeMemory memory(64 * kMiB);
  MultibootOptions options = SomeRam(64 * kMiB);
  options.command_line = "console=ttyS0 quiet";
  options.high_ram_bytes = 2 * kMiB;
  const auto loaded = LoadMultiboot(elf.Bytes(), "k.elf", options, memory);
  REQUIRE(loaded.ok());
  const u64 info = loaded.value().ebx;
  CHECK(info >= 0x1000);
  CHECK(info < 0x9fc00);
  CHECK(memory.At(info) == 0x24f);
  CHECK(memory.At(info + 12) == 0x8000ffff);
  CHECK(memory.At(info + 4) == 640);
  CHECK(memory.At(info + 8) == 63 * 1024);
  CHECK(memory.StringAt(memory.At(info + 16)) == "console=ttyS0 quiet");
  CHECK(memory.StringAt(memory.At(info + 64)) == "alibi");
  struct Entry {
    u64 first, size;
    u32 type;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> map;
  const u64 table = memory.At(info + 48);
  for (u64 at = table; at < table + memory.At(info + 44); at += memory.At(at) + 4) {
    map.push_back({memory.At64(at + 4), memory.At64(at + 12), memory.At(at + 20)});
  }
  CHECK(map == std::vector<Entry>{{0, 0x9fc00, 1},
                                  {0x9fc00, 0x400, 2},
                                  {0xf0000, 0x10000, 2},
                                  {0x100000, 63 * kMiB, 1},
                                  {0xfffc0000, 0x40000, 2},
                                  {u64{1} << 32, 2 * kMiB, 1}});
}

TEST_CASE("multiboot: modules are page-aligned, behind the kernel, and listed") {
  Elf32 elf;
  FakeMemory memory;
  MultibootOptions options = SomeRam();
  const std::vector<u8> first(5000, 0x11);
  const std::vector<u8> second(1, 0x22);
  options.modules = {{first, "init one"}, {second, "two"}, {{}, "empty"}};
  const auto loaded = LoadMultiboot(elf.Bytes(), "k.elf", options, memory);
  REQUIRE(loaded.ok());
  const u64 info = loaded.value().ebx;
  CHECK((memory.At(info) & 8) == 8);
  REQUIRE(memory.At(info + 20) == 3);
  const u64 table = memory.At(info + 24);
  CHECK(memory.At(table) == 0x101000);
  CHECK(memory.At(table + 4) == 0x101000 + 5000);
  CHECK(memory.StringAt(memory.At(table + 8)) == "init one");
  CHECK(memory.At(table + 16) == 0x103000);
  CHECK(memory.At(table + 20) == 0x103001);
  CHECK(memory.At(table + 32) == memory.At(table + 36));
  CHECK(memory.ByteAt(0x101000 + 4999) == 0x11);
  CHECK(memory.ByteAt(0x103000) == 0x22);
}

TEST_CASE("multiboot: the information avoids a kernel in low memory") {
  Elf32 elf;
  elf.segments.clear();
  elf.AddSegment(0x1000, 0x1000, 0x200, 0x8f000);
  elf.header.e_entry = 0x1010;
  FakeMemory memory;
  const auto loaded = LoadMultiboot(elf.Bytes(), "k.elf", SomeRam(), memory);
  REQUIRE(loaded.ok());
  CHECK(loaded.value().ebx >= 0x90000);
  SECTION("and goes above 1 MB if low memory is full") {
    Elf32 full;
    full.segments.clear();
    full.AddSegment(0, 0x1000, 0x200, 0xa0000);
    full.header.e_entry = 0x10;
    const auto again = LoadMultiboot(full.Bytes(), "k.elf", SomeRam(), memory);
    REQUIRE(again.ok());
    CHECK(again.value().ebx >= 0x100000);
  }
}

TEST_CASE("multiboot: a kernel linked high starts at its physical entry") {
  Elf64 elf;
  elf.segments[0].p_vaddr = 0xffffffff80100000;
  elf.header.e_entry = 0xffffffff80100020;
  FakeMemory memory;
  const auto loaded = LoadMultiboot(elf.Bytes(), "k.elf", SomeRam(), memory);
  REQUIRE(loaded.ok());
  CHECK(loaded.value().eip == 0x100020);
}

TEST_CASE("multiboot: addresses in the header instead of ELF") {
  std::vector<u8> image(0x1000, 0x90);
  const auto make = [&](u32 header_address, u32 load, u32 load_end, u32 bss_end, u32 entry) {
    PutHeader(image, 0x40, 0x10003);
    Put<u32>(image, 0x4c, header_address);
    Put<u32>(image, 0x50, load);
    Put<u32>(image, 0x54, load_end);
    Put<u32>(image, 0x58, bss_end);
    Put<u32>(image, 0x5c, entry);
    return image;
  };
  SECTION("all given") {
    FakeMemory memory;
    const auto loaded = LoadMultiboot(make(0x200020, 0x200000, 0x200800, 0x201000, 0x200100),
                                      "k.bin", SomeRam(), memory);
    REQUIRE(loaded.ok());
    CHECK(loaded.value().eip == 0x200100);
    CHECK(memory.At(0x200020) == 0x1badb002);
    CHECK(memory.ByteAt(0x2007ff) == 0x90);
    CHECK(memory.ByteAt(0x200800) == 0);
    CHECK(memory.ByteAt(0x201000) == 0xcc);
  }
  SECTION("no load end, no BSS: the rest of the file") {
    FakeMemory memory;
    REQUIRE(LoadMultiboot(make(0x200040, 0x200000, 0, 0, 0x200000), "k", SomeRam(), memory).ok());
    CHECK(memory.ByteAt(0x200fff) == 0x90);
    CHECK(memory.ByteAt(0x201000) == 0xcc);
  }
  SECTION("nonsense is refused") {
    CHECK_THAT(Refusal(make(0x200000, 0x200001, 0, 0, 0x200001)), Contains("load address"));
    CHECK_THAT(Refusal(make(0x200041, 0x200000, 0, 0, 0x200000)), Contains("file's start"));
    CHECK_THAT(Refusal(make(0x200040, 0x200000, 0x1fffff, 0, 0x200000)), Contains("load end"));
    CHECK_THAT(Refusal(make(0x200040, 0x200000, 0x201001, 0, 0x200000)), Contains("truncated"));
    CHECK_THAT(Refusal(make(0x200040, 0x200000, 0x200800, 0x2007ff, 0x200000)), Contains("BSS"));
    CHECK_THAT(Refusal(make(0x200040, 0x200000, 0, 0, 0x201000)), Contains("entry point"));
    CHECK_THAT(Refusal(make(0x200040, 0x200000, 0, 0xffffffff, 0x200000)), Contains("RAM"));
    CHECK_THAT(Refusal(make(0xffffffff, 0xffffffff, 0, 0, 0xffffffff)), Contains("RAM"));
    CHECK_THAT(Refusal(make(0x200040, 0x200000, 0x200000, 0, 0x200000)), Contains("nothing"));
    image.resize(0x5f);
    PutHeader(image, 0x40, 0x10003);
    image.resize(0x5f);
    CHECK_THAT(Refusal(image), Contains("truncated"));
  }
}

TEST_CASE("multiboot: what is no multiboot image says so") {
  CHECK_THAT(Refusal({}), Contains("empty"));
  CHECK_THAT(Refusal(std::vector<u8>(3)), Contains("not a multiboot image"));
  CHECK_THAT(Refusal(std::vector<u8>(100000)), Contains("not a multiboot image"));
  Elf32 elf;
  std::vector<u8> image = elf.Bytes();
  SECTION("wrong checksum") {
    image[0x1008] ^= 1;
    CHECK_THAT(Refusal(image), Contains("not a multiboot image"));
  }
  SECTION("misaligned header") {
    Put<u32>(image, 0x1000, 0);
    PutHeader(image, 0x1102, 3);
    CHECK_THAT(Refusal(image), Contains("not a multiboot image"));
  }
  SECTION("header across the 8192nd byte") {
    Put<u32>(image, 0x1000, 0);
    PutHeader(image, 8192 - 8, 3);
    CHECK_THAT(Refusal(image), Contains("not a multiboot image"));
    PutHeader(image, 8192 - 12, 3);
    FakeMemory memory;
    CHECK(LoadMultiboot(image, "k.elf", SomeRam(), memory).ok());
  }
  SECTION("neither ELF nor addresses") {
    image[0] = 'X';
    CHECK_THAT(Refusal(image), Contains("neither an ELF file"));
  }
}

TEST_CASE("multiboot: required flags we do not know are refused, optional ones are not") {
  Elf32 elf;
  elf.flags = 0x7;
  CHECK_THAT(Refusal(elf.Bytes()), Contains("video mode"));
  elf.flags = 0x8000;
  CHECK_THAT(Refusal(elf.Bytes()), Contains("0x8000"));
  elf.flags = 0x20003;
  FakeMemory memory;
  CHECK(LoadMultiboot(elf.Bytes(), "k.elf", SomeRam(), memory).ok());
}

TEST_CASE("multiboot: ELF files of the wrong kind") {
  Elf32 elf;
  SECTION("object file") {
    elf.header.e_type = ET_REL;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("not an executable"));
  }
  SECTION("another machine") {
    elf.header.e_machine = EM_ARM;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("not for i386"));
    Elf64 other;
    other.header.e_machine = EM_AARCH64;
    CHECK_THAT(Refusal(other.Bytes()), Contains("not for x86-64"));
  }
  SECTION("class and byte order") {
    elf.header.e_ident[EI_CLASS] = 7;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("class 7"));
    elf.header.e_ident[EI_DATA] = ELFDATA2MSB;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("little-endian"));
  }
  SECTION("no segments") {
    elf.segments.clear();
    CHECK_THAT(Refusal(elf.Bytes()), Contains("no program headers"));
    elf.AddSegment(0x100000, 0, 0, 0);
    CHECK_THAT(Refusal(elf.Bytes()), Contains("nothing to load"));
  }
  SECTION("too many segments") {
    elf.header.e_phoff = 0x2000;
    std::vector<u8> image = elf.Bytes();
    for (u32 i = 0; i < 257; ++i) {
      Elf32_Phdr segment = elf.segments[0];
      segment.p_paddr += i * 0x800;
      Put(image, 0x2000 + i * sizeof segment, segment);
    }
    Put<u16>(image, offsetof(Elf32_Ehdr, e_phnum), 257);
    CHECK_THAT(Refusal(image), Contains("more than 256 segments"));
    Put<u16>(image, offsetof(Elf32_Ehdr, e_phnum), 256);
    FakeMemory memory;
    CHECK(LoadMultiboot(image, "k.elf", SomeRam(), memory).ok());
  }
  SECTION("entry outside") {
    elf.header.e_entry = 0x100800;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("entry point"));
  }
}

TEMPLATE_TEST_CASE("multiboot: hostile program headers", "", Elf32, Elf64) {
  TestType elf;
  auto& segment = elf.segments[0];
  using Offset = decltype(segment.p_offset);
  using Address = decltype(segment.p_paddr);
  SECTION("file range") {
    segment.p_offset = static_cast<Offset>(~u64{0});
    CHECK_THAT(Refusal(elf.Bytes()), Contains("truncated"));
    segment.p_offset = 0x1fff;
    segment.p_filesz = 2;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("truncated"));
  }
  SECTION("file size above memory size") {
    segment.p_filesz = 0x801;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("larger in the file"));
  }
  SECTION("wrapping address") {
    segment.p_paddr = static_cast<Address>(~u64{0xff});
    CHECK_THAT(Refusal(elf.Bytes()), Contains("segment"));
    segment.p_memsz = static_cast<decltype(segment.p_memsz)>(~u64{0});
    CHECK_THAT(Refusal(elf.Bytes()), Contains("segment"));
  }
  SECTION("outside RAM, by one byte") {
    segment.p_paddr = static_cast<Address>(kRam - 0x7ff);
    CHECK_THAT(Refusal(elf.Bytes()), Contains("outside RAM (16 MB)"));
  }
  SECTION("in the hole") {
    segment.p_paddr = 0x9ff00;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("hole"));
    segment.p_paddr = 0xfffff;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("hole"));
  }
  SECTION("overlap") {
    elf.AddSegment(0x1007ff, 0x1000, 1, 1);
    CHECK_THAT(Refusal(elf.Bytes()), Contains("overlapping"));
  }
  SECTION("program header table") {
    elf.header.e_phoff = static_cast<decltype(elf.header.e_phoff)>(~u64{0} - 8);
    CHECK_THAT(Refusal(elf.Bytes()), Contains("truncated"));
    elf.header.e_phoff = 0x1fff;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("truncated"));
    elf.header.e_phoff = 64;
    elf.header.e_phentsize = 8;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("too small"));
  }
}

// What `ld -Ttext=0x100000` makes: the headers are part of a segment that begins a page earlier, in
// the ROM's place. Nobody needs them there.
TEMPLATE_TEST_CASE("multiboot: headers in front of the first page", "", Elf32, Elf64) {
  TestType elf;
  auto& segment = elf.segments[0];
  segment.p_paddr = segment.p_vaddr = 0xff000;
  segment.p_offset = 0;
  FakeMemory memory;
  const auto load = [&](const std::vector<u8>& image) {
    return LoadMultiboot(image, "k.elf", SomeRam(), memory).ok();
  };
  SECTION("in the text's segment") {
    segment.p_filesz = 0x1200;
    segment.p_memsz = 0x1800;
    REQUIRE(load(elf.Bytes()));
    const std::vector<u8> image = elf.Bytes();
    for (u64 i = 0; i < 0x200; ++i) {
      REQUIRE(memory.ByteAt(0x100000 + i) == image[0x1000 + i]);
    }
    CHECK(memory.ByteAt(0x100200) == 0);
    CHECK(memory.ByteAt(0x100800) == 0xcc);
    CHECK(memory.ByteAt(0xff000) == 0xcc);
  }
  SECTION("in a segment of their own") {
    segment.p_filesz = segment.p_memsz = sizeof(elf.header) + 2 * sizeof(segment);
    elf.AddSegment(0x100000, 0x1000, 0x200, 0x800);
    REQUIRE(load(elf.Bytes()));
    CHECK(memory.ByteAt(0xff000) == 0xcc);
  }
  SECTION("but not what the kernel may want") {
    segment.p_filesz = 0x1200;
    segment.p_memsz = 0x1800;
    std::vector<u8> image = elf.Bytes();
    image[0xfff] = 0x90;
    CHECK_THAT(Refusal(image), Contains("hole"));
    segment.p_offset = 0x1000;
    segment.p_filesz = 0x200;
    CHECK_THAT(Refusal(elf.Bytes()), Contains("hole"));
    segment.p_offset = 0;
    segment.p_filesz = sizeof(elf.header);  // zeros that the kernel finds behind it
    CHECK_THAT(Refusal(elf.Bytes()), Contains("hole"));
  }
  SECTION("a note among them") {
    segment.p_filesz = 0x1200;
    segment.p_memsz = 0x1800;
    std::vector<u8> image = elf.Bytes();
    image[0x300] = 0x55;
    CHECK_THAT(Refusal(image), Contains("hole"));
    auto note = segment;
    note.p_type = PT_NOTE;
    note.p_offset = 0x2f0;
    note.p_filesz = 0x20;
    elf.segments.push_back(note);
    image = elf.Bytes();
    image[0x300] = 0x55;
    CHECK(load(image));
  }
}

TEST_CASE("multiboot: a truncated image never loads, at any length") {
  Elf64 elf;
  elf.segments[0].p_filesz = 0x1000;
  elf.segments[0].p_memsz = 0x1000;
  const std::vector<u8> whole = elf.Bytes();
  for (u64 length = 0; length < whole.size(); length += length < 0x200 ? 1 : 61) {
    FakeMemory memory;
    const std::span<const u8> part(whole.data(), length);
    CHECK_FALSE(LoadMultiboot(part, "k.elf", SomeRam(), memory).ok());
    CHECK_FALSE(memory.touched);
  }
}

TEST_CASE("multiboot: impossible machines and too much to load") {
  Elf32 elf;
  CHECK_THAT(Refusal(elf.Bytes(), SomeRam(0)), Contains("0 KB of RAM"));
  CHECK_THAT(Refusal(elf.Bytes(), SomeRam(kMiB - 1)), Contains("RAM"));
  CHECK_THAT(Refusal(elf.Bytes(), SomeRam(kMiB)), Contains("outside RAM"));
  CHECK_THAT(Refusal(elf.Bytes(), SomeRam(u64{1} << 32)), Contains("4 GB"));
  MultibootOptions options = SomeRam();
  options.high_ram_bytes = ~u64{0};
  CHECK_THAT(Refusal(elf.Bytes(), options), Contains("64 TB"));
  options = SomeRam();
  const std::vector<u8> large(kRam, 0);
  options.modules = {{large, "initrd"}};
  CHECK_THAT(Refusal(elf.Bytes(), options), Contains("'initrd' does not fit"));
  options = SomeRam();
  options.command_line = std::string(kRam, 'x');
  CHECK_THAT(Refusal(elf.Bytes(), options), Contains("no room"));
}

TEST_CASE("multiboot: memory that is smaller than promised is an error, not a crash") {
  Elf32 elf;
  FakeMemory memory(kMiB);
  const auto loaded = LoadMultiboot(elf.Bytes(), "k.elf", SomeRam(), memory);
  REQUIRE_FALSE(loaded.ok());
  CHECK_THAT(loaded.error().message, Contains("does not cover"));
}

// Whatever the bytes: no crash, no access outside the image (the vector is exactly as long) or RAM.
TEST_CASE("multiboot: random damage to sound images") {
  std::mt19937_64 random(1);
  int loaded_count = 0;
  FakeMemory memory;
  for (int round = 0; round < 20'000; ++round) {
    Elf32 elf32;
    Elf64 elf64;
    const bool wide = random() & 1;
    if (random() % 4 == 0) (wide ? elf64.flags : elf32.flags) |= 0x10000;
    std::vector<u8> image = wide ? elf64.Bytes() : elf32.Bytes();
    const u64 damages = random() % 6;
    for (u64 i = 0; i < damages; ++i) {
      // Mostly the headers; values near the edges as often as random ones.
      const u64 at = random() % 3 == 0 ? 0x1000 + random() % 0x30 : random() % 0x80;
      static constexpr u64 kEdges[] = {0,          1,       0x7fffffff, 0x80000000,
                                       0xffffffff, ~u64{0}, 0x100000,   0xfff};
      const u64 value = random() & 1 ? kEdges[random() % std::size(kEdges)] : random();
      std::memcpy(image.data() + at, &value, u64{1} << random() % 4);
    }
    if (random() % 4 == 0) image.resize(random() % (image.size() + 1));
    image.shrink_to_fit();
    MultibootOptions options = SomeRam();
    options.modules.resize(random() % 2);
    const auto result = LoadMultiboot(image, "fuzz", options, memory);
    REQUIRE_FALSE(memory.outside);
    if (result.ok()) {
      ++loaded_count;
      REQUIRE(result.value().eip < kRam);
      REQUIRE(result.value().ebx < kRam);
    } else {
      REQUIRE_FALSE(result.error().message.empty());
    }
  }
  CHECK(loaded_count > 1000);
  CHECK(loaded_count < 19'000);
}

}  // namespace
}  // namespace alibi::loader
