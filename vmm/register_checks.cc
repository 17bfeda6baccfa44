// SPDX-License-Identifier: Apache-2.0
#include "vmm/register_checks.h"

#include <fmt/format.h>

#include <span>

#include "vcpu/control_registers.h"
#include "vcpu/descriptors.h"

namespace alibi::vmm {
namespace {

struct Row {
  bool wrong;
  const char* message;
};

Status CheckRows(const char* what, std::span<const Row> rows) {
  for (const Row& row : rows) {
    if (row.wrong) return Error{fmt::format("special registers: {}{}", what, row.message)};
  }
  return Ok{};
}

constexpr unsigned kAccessed = 1, kReadableOrWritable = 2, kConforming = 4, kCode = 8;
constexpr unsigned kExpandDown = 4;  // of data
constexpr unsigned kWritableData = kAccessed | kReadableOrWritable;

// A limit of 4 KB units ends with twelve ones, one of bytes is below 1 MB.
bool LimitFitsGranularity(const SegmentRegister& s) {
  return s.g ? (s.limit & 0xfff) == 0xfff : s.limit >> 20 == 0;
}

// What all usable segments have in common (SDM vol. 3, 26.3.1.2).
Status CheckUsable(const char* name, const SegmentRegister& s, unsigned code_or_data) {
  const Row rows[] = {
      {s.present != 1, ": usable, but not present; set present, or unusable"},
      {s.s != code_or_data, code_or_data ? ": a system segment; set s" : ": s must be 0"},
      {s.type > 15 || s.dpl > 3 || s.db > 1 || s.l > 1 || s.g > 1, ": a field has too many bits"},
      {!LimitFitsGranularity(s),
       ": g does not fit the limit (set: its low 12 bits are ones; clear: it is below 1 MB)"},
  };
  return CheckRows(name, rows);
}

Status CheckCode(const SpecialRegisters& r) {
  if (Status status = CheckUsable("CS", r.cs, 1); !status.ok()) return status;
  const bool data = r.cs.type == kWritableData;  // as real mode may leave it
  const bool code = (r.cs.type & kCode) && (r.cs.type & kAccessed);
  const bool conforming = r.cs.type & kConforming;
  const Row rows[] = {
      {r.cs.unusable != 0, ": unusable; it never is"},
      {!data && !code, ": its type is not that of accessed code; give 9, 11, 13 or 15"},
      {data && r.cs.dpl != 0,
       ": type 3 (data) has DPL 0 (virtual-8086 mode: set RFLAGS.VM before)"},
      {data && r.ss.dpl != 0, ": type 3 (data) goes with an SS of DPL 0"},
      {code && !conforming && r.cs.dpl != r.ss.dpl, ": its DPL is not SS's, which is the CPL"},
      {code && conforming && r.cs.dpl > r.ss.dpl, ": its DPL is above SS's, which is the CPL"},
      {r.cs.base >> 32 != 0, ": its base has bits above 31; clear them"},
      {(r.efer & vcpu::kEferLma) && r.cs.l && r.cs.db, ": 64-bit code has no D/B; clear db"},
  };
  return CheckRows("CS", rows);
}

Status CheckData(const char* name, const SegmentRegister& s, bool wide_base, bool stack) {
  if (s.unusable) return Ok{};
  if (Status status = CheckUsable(name, s, 1); !status.ok()) return status;
  const Row rows[] = {
      {!(s.type & kAccessed), ": its type lacks the accessed bit (1); set it"},
      {stack && (s.type & ~kExpandDown) != kWritableData,
       ": its type is not that of a stack; give 3 or 7"},
      {!stack && (s.type & kCode) && !(s.type & kReadableOrWritable),
       ": its type is that of code that cannot be read"},
      {!wide_base && s.base >> 32 != 0, ": its base has bits above 31; clear them"},
  };
  return CheckRows(name, rows);
}

Status CheckSystem(const char* name, const SegmentRegister& s, const Row& type) {
  if (Status status = CheckUsable(name, s, 0); !status.ok()) return status;
  const Row rows[] = {type, {(s.selector & 4) != 0, ": its selector is one of the LDT (bit 2)"}};
  return CheckRows(name, rows);
}

// SDM vol. 3, 20.1.1 and 26.3.1.2.
Status CheckVirtual8086(const char* name, const SegmentRegister& s) {
  const Row rows[] = {
      {s.base != u64{s.selector} << 4, ": in virtual-8086 mode its base is 16 times its selector"},
      {s.limit != 0xffff, ": in virtual-8086 mode its limit is 0xffff"},
      {s.type != kWritableData || s.s != 1 || s.dpl != 3 || s.present != 1 || s.db || s.g ||
           s.unusable,
       ": in virtual-8086 mode it is writable data of DPL 3 (clear RFLAGS.VM before?)"},
  };
  return CheckRows(name, rows);
}

Status CheckSegments(const SpecialRegisters& r, bool virtual8086) {
  struct Named {
    const char* name;
    const SegmentRegister& segment;
    bool wide_base;
  };
  const Named data[] = {{"SS", r.ss, false},
                        {"DS", r.ds, false},
                        {"ES", r.es, false},
                        {"FS", r.fs, true},
                        {"GS", r.gs, true}};
  if (virtual8086) {
    if (Status status = CheckVirtual8086("CS", r.cs); !status.ok()) return status;
    for (const Named& s : data) {
      if (Status status = CheckVirtual8086(s.name, s.segment); !status.ok()) return status;
    }
  } else {
    if (Status status = CheckCode(r); !status.ok()) return status;
    for (const Named& s : data) {
      const bool stack = &s.segment == &r.ss;
      if (Status status = CheckData(s.name, s.segment, s.wide_base, stack); !status.ok()) {
        return status;
      }
    }
    const Row real_stack = {!(r.cr0 & vcpu::kCr0Pe) && r.ss.dpl != 0,
                            ": its DPL is 0 in real mode"};
    if (Status status = CheckRows("SS", {&real_stack, 1}); !status.ok()) return status;
  }
  const bool long_mode = r.efer & vcpu::kEferLma;
  const Row task = {r.tr.unusable || (r.tr.type != vcpu::kTypeTssBusy &&
                                      (long_mode || r.tr.type != vcpu::kTypeTss16Busy)),
                    ": give the type of a busy TSS, 11 (or 3: 16-bit, outside long mode)"};
  if (Status status = CheckSystem("TR", r.tr, task); !status.ok()) return status;
  if (r.ldt.unusable) return Ok{};
  return CheckSystem("LDT", r.ldt, {r.ldt.type != vcpu::kTypeLdt, ": its type is not 2"});
}

}  // namespace

Status CheckSpecialRegisters(const SpecialRegisters& r, const vcpu::CpuidPolicy& cpu,
                             bool virtual8086) {
  const bool paging = r.cr0 & vcpu::kCr0Pg;
  const bool lma = r.efer & vcpu::kEferLma, lme = r.efer & vcpu::kEferLme;
  const Row rows[] = {
      {paging && !(r.cr0 & vcpu::kCr0Pe), "CR0.PG without CR0.PE; set both or neither"},
      {r.cr0 >> 32 != 0, "CR0 has bits above 31; clear them"},
      {(r.cr4 & ~cpu.cr4_valid()) != 0, "CR4 has bits that this CPU does not; see `alibi cpu`"},
      {(r.efer & ~(cpu.efer_valid() | vcpu::kEferLma)) != 0,
       "EFER has bits that this CPU does not; see `alibi cpu`"},
      {lma != (lme && paging), "EFER.LMA must be EFER.LME with CR0.PG"},
      {lma && !(r.cr4 & vcpu::kCr4Pae), "long mode without CR4.PAE; set it"},
      {r.cr8 > 15, "CR8 is above 15; it has four bits"},
      {!IsCanonical(r.gdt.base) || !IsCanonical(r.idt.base) || !IsCanonical(r.fs.base) ||
           !IsCanonical(r.gs.base) || !IsCanonical(r.tr.base) || !IsCanonical(r.ldt.base),
       "a base address is not canonical"},
  };
  if (Status status = CheckRows("", rows); !status.ok()) return status;
  return CheckSegments(r, virtual8086);
}

}  // namespace alibi::vmm
