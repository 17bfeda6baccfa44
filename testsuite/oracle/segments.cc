// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/segments.h"

#include <asm/ldt.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "testsuite/oracle/test_case.h"

namespace alibi::oracle {

namespace {

// Attribute words as vcpu::Segment has them: present, DPL 3, accessed.
constexpr u16 kReadOnly = 0xf1, kReadWrite = 0xf3, kDownReadOnly = 0xf5, kDownReadWrite = 0xf7,
              kExecuteOnly = 0xf9, kCode = 0xfb, kConforming = 0xff;
constexpr u16 kBig = vcpu::kAttrBig, kPages = vcpu::kAttrGranular, kAvailable = 0x1000,
              kNotPresent = 0x80;  // to be taken away

struct Row {
  u64 base;
  u32 limit;  // 20 bits, as it stands in the descriptor
  u16 attributes;
};

constexpr u64 kStack16 = kStackBase + 2 * kPageSize;  // offsets wrap from kFarStackPage to it

constexpr Row kRows[] = {
    // 16-bit code: aligned, odd, high offsets, up to the end of 64 KB, limits amid the pages.
    {kCodeBase, 0xffff, kCode},
    {kCodeBase - 0x1230, 0xffff, kCode},
    {kCodeBase - 0xd001, 0xffff, kCode},
    {kCodeBase - 0xe000, 0xffff, kCode},
    {kCodeBase, 0x1fff, kExecuteOnly},
    {kCodeBase, 0x13ff, kCode},
    {kCodeBase - 0x800, 2, kCode | kPages},
    {kCodeBase - 0x40, 0xf, kExecuteOnly | kPages | kAvailable},
    // 32-bit code, one of which reaches its pages around the end of 4 GB.
    {0, 0xfffff, kCode | kBig | kPages},
    {kCodeBase, 0xffff, kCode | kBig},
    {kCodeBase - 0x345, 3, kCode | kBig | kPages},
    {0x90000000, 0xfffff, kCode | kBig | kPages},
    {kCodeBase, 0x17ff, kExecuteOnly | kBig},
    {kCodeBase - 0x10, 0x1c0f, kCode | kBig},
    // Code that is not there.
    {kCodeBase, 0xffff, kCode & ~kNotPresent},
    {kCodeBase, 0xffff, kConforming & ~kNotPresent},
    {},
    // Data.
    {0, 0xfffff, kReadWrite | kBig | kPages},
    {0, 0xfffff, kReadOnly | kBig | kPages},
    {0, 0xfffff, kReadWrite | kPages},
    {kDataBase, 0xffff, kReadWrite},
    {kDataBase, 0x1fff, kReadWrite},
    {kDataBase + 0x123, 0xfff, kReadWrite | kAvailable},
    {kDataBase, 6, kReadWrite | kPages | kBig},
    {kDataBase - 0x2000, 0x3ffe, kReadWrite | kBig},
    {kDataBase + 0x800, 0x7ff, kReadOnly},
    {kDataBase, 0x2fff, kReadOnly | kBig},
    {kDataBase + 0x10, 0, kReadWrite},
    {0xf0000000, 0xfffff, kReadWrite | kBig | kPages},
    {kDataBase, 0xffff, kReadWrite & ~kNotPresent},
    {kStack16, 0xffff, kReadOnly},
    // Expand-down data: from the limit to 64 KB or 4 GB.
    {kDataBase, 0x7ff, kDownReadWrite},
    {kDataBase - 0x8000, 0x8fff, kDownReadOnly},
    {0, 0x20000, kDownReadWrite | kBig | kPages},
    {kDataBase - 0x3000, 3, kDownReadWrite | kPages},
    {kDataBase, 0xffff, kDownReadWrite},
    {kDataBase, 0x7ff, kDownReadWrite & ~kNotPresent},
    {},
    // Stacks of 16 and 32 bits.
    {kStackBase, 0xffff, kReadWrite},
    {kStack16, 0xffff, kReadWrite},
    {kStackBase, 0x2fff, kReadWrite},
    {kStackBase + 0x8, 0x27fe, kReadWrite | kAvailable},
    {kStackBase, 0x17ff, kDownReadWrite},
    {kStackBase, 0x2fff, kReadWrite | kBig},
    {kStackBase - 0x100, 0xfffff, kReadWrite | kBig | kPages},
    {kStackBase, 1, kDownReadWrite | kBig | kPages},
    {kStackBase, 0xffff, kReadWrite & ~kNotPresent},
};

constexpr u64 Raw(const Row& row) {
  return u64{row.limit & 0xffff} | (row.base & 0xffffff) << 16 | u64{row.attributes & 0xffu} << 40 |
         u64{row.limit >> 16} << 48 | u64{static_cast<u16>(row.attributes >> 12)} << 52 |
         (row.base >> 24 & 0xff) << 56;
}

}  // namespace

std::span<const u64> LocalDescriptors() {
  static constexpr auto kTable = [] {
    std::array<u64, std::size(kRows)> table{};
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = Raw(kRows[i]);
    return table;
  }();
  return kTable;
}

bool InstallLocalDescriptors() {
  const auto table = LocalDescriptors();
  // The last one first: the table has its final size at once.
  for (std::size_t i = table.size(); i-- > 0;) {
    const u64 raw = table[i];
    if (raw == 0) continue;
    user_desc entry{};
    entry.entry_number = static_cast<unsigned>(i);
    entry.base_addr = vcpu::Descriptor{raw}.Base();
    entry.limit = static_cast<unsigned>((raw & 0xffff) | (raw >> 32 & 0xf0000));
    entry.contents = raw >> 42 & 3;
    entry.read_exec_only = !(raw >> 41 & 1);
    entry.seg_not_present = !(raw >> 47 & 1);
    entry.useable = raw >> 52 & 1;
    entry.seg_32bit = raw >> 54 & 1;
    entry.limit_in_pages = raw >> 55 & 1;
    constexpr int kWrite = 0x11;
    if (syscall(SYS_modify_ldt, kWrite, &entry, sizeof(entry)) != 0) return false;
  }
  return true;
}

bool HostAllowsSegments() {
  static const bool allowed = [] {
    const pid_t child = fork();
    if (child == 0) _exit(InstallLocalDescriptors() ? 0 : 1);
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
  }();
  return allowed;
}

std::span<const u64> GlobalDescriptors() {
  static constexpr std::array<u64, (kGdtLimit + 1) / 8> kTable = {
      0,
      0x00cf9b000000ffff,  // 08: the kernel's code and data
      0x00af9b000000ffff,
      0x00cf93000000ffff,
      0x00cffb000000ffff,  // 20: the user's
      0x00cff3000000ffff,
      0x00affb000000ffff,
      0,
      0x00008b0000000067,  // 40: TSS, LDT; their bases are the guest's own
      0,
      0x0000820000000000,
      0,
      0,
      0,
      0,
      0x0040f50000000000,  // 78: the number of the CPU as a limit
  };
  return kTable;
}

vcpu::Segment SegmentOf(u16 selector) {
  vcpu::Segment none{.base = 0, .limit = 0, .selector = selector, .attributes = 0};
  if (vcpu::NullSelector(selector)) return none;
  const auto table = selector & 4 ? LocalDescriptors() : GlobalDescriptors();
  if (selector >> 3 >= table.size()) return none;
  const vcpu::Segment segment = vcpu::Descriptor{table[selector >> 3]}.ToSegment(selector);
  return segment.Present() && segment.CodeOrData() && segment.Dpl() == 3 ? segment : none;
}

unsigned CodeBitsOf(u16 cs) {
  const vcpu::Segment segment = SegmentOf(cs);
  return segment.Long() ? 64 : segment.Big() ? 32 : 16;
}

u64 LinearOf(u16 cs, u64 offset) {
  return CodeBitsOf(cs) == 64 ? offset : static_cast<u32>(SegmentOf(cs).base + offset);
}

u64 OffsetOf(u16 cs, u64 linear) {
  return CodeBitsOf(cs) == 64 ? linear : static_cast<u32>(linear - SegmentOf(cs).base);
}

bool LoadsAsData(u16 selector) {
  const vcpu::Segment segment = SegmentOf(selector);
  return segment.Present() && ((segment.Type() & 8) == 0 || (segment.Type() & 2) != 0);
}

bool LoadsAsStack(u16 selector) {
  const vcpu::Segment segment = SegmentOf(selector);
  return segment.Present() && (segment.Type() & 0xa) == 2 && (selector & 3) == 3;
}

bool LoadsAsCode(u16 selector) {
  const vcpu::Segment segment = SegmentOf(selector);
  return segment.Present() && (segment.Type() & 8) != 0;
}

}  // namespace alibi::oracle
