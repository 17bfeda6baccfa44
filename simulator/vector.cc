// SPDX-License-Identifier: Apache-2.0
// Gathers, scatters and masked moves: vector instructions whose accesses depend on vector or mask
// registers, so that no single operand can be bounced.
//
// The guest's vector state is live in the host's registers: see vector_state.h.
#include "isa/vector_fields.h"
#include "simulator/execution.h"
#include "simulator/masked_store.h"
#include "simulator/vector_state.h"
#include "vcpu/cpu_differences.h"

namespace alibi::simulator {

using vcpu::GuestFault;
using vcpu::Privilege;

// A gather or scatter, element by element from the lowest. What is done is done: its mask bit is
// cleared, so after a fault the instruction goes on where it stopped.
Outcome handlers::GatherScatter(Execution& e) {
  const Instr& instr = e.instr;
  const isa::VectorFields f(instr);
  const bool scatter = instr.mem.written;
  const unsigned element = f.wide ? 8 : 4;
  const unsigned index_size = f.wide_index ? 8 : 4;
  const unsigned count = f.bytes / (element > index_size ? element : index_size);
  const unsigned index = instr.mem.index;
  const bool overlap =
      f.evex ? !scatter && f.reg == index : f.reg == index || f.reg == f.vvvv || f.vvvv == index;
  if (overlap || (f.evex && f.mask == 0)) return vcpu::InvalidOpcode();

  u64 base = static_cast<u64>(instr.mem.disp);
  if (instr.mem.base != isa::kNoReg) base += e.state.gpr[instr.mem.base];
  const auto segment = static_cast<SegmentIndex>(instr.mem.segment);
  VectorState v;
  // On Intel's CPUs a fault may show what there was to do before the first element was read.
  const bool early = !scatter && vcpu::HostHasIntelsWay(vcpu::HostDifference::kGatherFault);
  if (early && !f.evex) {
    for (unsigned i = 0; i < f.bytes / element; ++i) {
      const bool active = v.Get(f.vvvv, i * element + element - 1, 1) & 0x80;
      v.Set(f.vvvv, i * element, element, active ? ~u64{0} : 0);
    }
    v.ClearFrom(f.vvvv, f.bytes);
  }
  for (unsigned i = 0; i < count; ++i) {
    const bool active =
        f.evex ? (v.Mask(f.mask) >> i) & 1 : v.Get(f.vvvv, i * element + element - 1, 1) & 0x80;
    if (active) {
      const u64 scaled =
          SignExtend(v.Get(index, i * index_size, index_size), index_size * 8) * instr.mem.scale;
      const u64 offset = LowBits(base + scaled, instr.mem.address_bits);
      if (scatter) {
        ALIBI_RETURN_IF_FAULT(
            e.Write(segment, offset, element, v.Get(f.reg, i * element, element)));
      } else {
        u64 value;
        ALIBI_RETURN_IF_FAULT(e.Read(segment, offset, element, &value));
        v.Set(f.reg, i * element, element, value);
        if (early) v.ClearFrom(f.reg, f.bytes);
      }
    }
    if (f.evex) {
      v.SetMask(f.mask, v.Mask(f.mask) & ~(u64{1} << i));
    } else {
      v.Set(f.vvvv, i * element, element, 0);
    }
  }
  if (f.evex) {
    v.SetMask(f.mask, 0);
  } else {
    v.ClearFrom(f.vvvv, 0);
  }
  if (!scatter) v.ClearFrom(f.reg, count * element);
  return {};
}

namespace {

// VMASKMOVPS/PD, VPMASKMOVD/Q: nothing is changed before every element is known to be accessible.
Outcome MaskedMove(Execution& e, unsigned element) {
  const isa::VectorFields f(e.instr);
  const bool store = e.instr.mem.written;
  const unsigned count = f.bytes / element;
  const auto segment = static_cast<SegmentIndex>(e.instr.mem.segment);
  u64 values[8] = {};
  VectorState v;
  auto active = [&](unsigned i) { return v.Get(f.vvvv, i * element + element - 1, 1) & 0x80; };
  const bool wraps = e.instr.mem.address_bits == 16 &&
                     !vcpu::HostHasIntelsWay(vcpu::HostDifference::kMaskedMoveWrap);
  // May be 4 GB and more: LinearElement() knows what that means.
  auto offset = [&](unsigned i) {
    const u64 at = e.Offset() + i * element;
    return wraps ? LowBits(at, 16) : at;
  };
  if (vcpu::HostHasIntelsWay(vcpu::HostDifference::kMaskedOperandFault)) {
    for (unsigned i = 0; i < count; ++i) {
      LinearAddr unused;
      if (!active(i)) continue;
      ALIBI_RETURN_IF_FAULT(e.LinearElement(segment, offset(i), element, store, &unused));
    }
  }
  for (unsigned i = 0; i < count; ++i) {
    if (!active(i)) continue;
    if (store) {
      LinearAddr linear;
      GuestFault fault;
      ALIBI_RETURN_IF_FAULT(e.LinearElement(segment, offset(i), element, true, &linear));
      if (!e.memory.ProbeWrite(linear, element, Privilege::kCpl, &fault)) {
        u64 mask = 0;
        for (unsigned k = 0; k < count; ++k) mask |= u64{active(k) != 0} << k;
        PlaceMaskedStoreFault(linear - i * element, mask, element, e.instr.code_bits, &fault);
        return fault;
      }
    } else {
      LinearAddr linear;
      ALIBI_RETURN_IF_FAULT(e.LinearElement(segment, offset(i), element, false, &linear));
      ALIBI_RETURN_IF_FAULT(e.Read(segment, offset(i), element, &values[i]));
    }
  }
  for (unsigned i = 0; i < count; ++i) {
    if (!store) {
      v.Set(f.reg, i * element, element, values[i]);
    } else if (active(i)) {
      ALIBI_RETURN_IF_FAULT(
          e.Write(segment, offset(i), element, v.Get(f.reg, i * element, element)));
    }
  }
  if (!store) v.ClearFrom(f.reg, f.bytes);
  return {};
}

// Bytes with a mask to DS:rDI.
Outcome StoreBytes(Execution& e, const u8* data, const u8* mask, unsigned count) {
  auto offset = [&](unsigned i) {
    return LowBits(e.state.gpr[vcpu::kRdi] + i, e.instr.address_bits);
  };
  for (unsigned i = 0; i < count; ++i) {
    if (!(mask[i] & 0x80)) continue;
    LinearAddr linear;
    GuestFault fault;
    ALIBI_RETURN_IF_FAULT(e.Linear(e.SourceSegment(), offset(i), 1, true, &linear));
    if (!e.memory.ProbeWrite(linear, 1, Privilege::kCpl, &fault)) return fault;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (mask[i] & 0x80) ALIBI_RETURN_IF_FAULT(e.Write(e.SourceSegment(), offset(i), 1, data[i]));
  }
  return {};
}

}  // namespace

Outcome handlers::MaskMovDqu(Execution& e) {
  const isa::VectorFields f(e.instr);
  u8 data[16], mask[16];
  VectorState v;
  for (unsigned i = 0; i < 16; ++i) {
    data[i] = static_cast<u8>(v.Get(f.reg, i, 1));
    mask[i] = static_cast<u8>(v.Get(f.rm, i, 1));
  }
  return StoreBytes(e, data, mask, 16);
}

Outcome handlers::MaskMovQ(Execution& e) {
  const isa::VectorFields f(e.instr);
  // MMX registers: the mantissas of the x87 registers. Reading one enters the MMX state as the
  // instruction itself does, or raises #MF for an earlier one (EngineImpl::HandleHostFault).
  u64 registers[8];
  asm volatile(
      "movq %%mm0, %0\n\tmovq %%mm1, %1\n\tmovq %%mm2, %2\n\tmovq %%mm3, %3\n\t"
      "movq %%mm4, %4\n\tmovq %%mm5, %5\n\tmovq %%mm6, %6\n\tmovq %%mm7, %7"
      : "=m"(registers[0]), "=m"(registers[1]), "=m"(registers[2]), "=m"(registers[3]),
        "=m"(registers[4]), "=m"(registers[5]), "=m"(registers[6]), "=m"(registers[7]));
  VectorState keep;  // the memory may be a device whose model uses vector registers
  return StoreBytes(e, reinterpret_cast<const u8*>(&registers[f.reg & 7]),
                    reinterpret_cast<const u8*>(&registers[f.rm & 7]), 8);
}

Outcome handlers::MaskMov32(Execution& e) { return MaskedMove(e, 4); }
Outcome handlers::MaskMov64(Execution& e) { return MaskedMove(e, 8); }

}  // namespace alibi::simulator
