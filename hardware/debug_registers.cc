// SPDX-License-Identifier: Apache-2.0
#include "hardware/debug_registers.h"

#include "vcpu/control_registers.h"

namespace alibi::hardware {
namespace {

// DR7.LEN for 1, 2, 4 and 8 bytes.
u64 LengthBits(unsigned size) { return size == 8 ? 2 : size - 1; }

}  // namespace

bool DebugRegisters::Add(const Entry& entry) {
  if (used_ == kCount) return false;
  entries_[used_++] = entry;
  return true;
}

bool DebugRegisters::Arm(const runtime::DebugPoints& points) {
  used_ = 0;
  bool fits = true;
  points.ForEachBreakpoint([&](LinearAddr pc) { fits &= Add({pc, 1, Kind::kExecute}); });
  points.ForEachWatch([&](const runtime::Watch& watch) {
    if (!watch.writes) {
      fits = false;
      return;
    }
    // In naturally aligned pieces.
    LinearAddr at = watch.address;
    for (u64 left = watch.size; left != 0 && fits;) {
      unsigned size = 8;
      while (size > left || (at.value & (size - 1)) != 0) size /= 2;
      fits &= Add({at, static_cast<u8>(size), watch.reads ? Kind::kAccess : Kind::kWrite});
      at = at + size;
      left -= size;
    }
  });
  return fits;
}

u64 DebugRegisters::Control(bool breakpoints) const {
  u64 dr7 = vcpu::kDr7Fixed;
  for (unsigned i = 0; i < used_; ++i) {
    const Entry& entry = entries_[i];
    if (entry.kind == Kind::kExecute && !breakpoints) continue;
    const u64 rules = LengthBits(entry.size) << 2 | static_cast<u64>(entry.kind);
    dr7 |= u64{2} << (2 * i) | rules << (16 + 4 * i);  // Gn, R/Wn and LENn
  }
  return dr7;
}

unsigned DebugRegisters::HitWatch(u64 dr6) const {
  for (unsigned i = 0; i < used_; ++i) {
    if (((dr6 >> i) & 1) && entries_[i].kind != Kind::kExecute) return i;
  }
  return kCount;
}

}  // namespace alibi::hardware
