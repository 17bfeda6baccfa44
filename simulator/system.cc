// SPDX-License-Identifier: Apache-2.0
// System instructions: registers, descriptor tables, ports, flags, CPUID and time.
#include "simulator/execution.h"
#include "vcpu/control_registers.h"
#include "vcpu/cpuid.h"
#include "vcpu/descriptors.h"
#include "vcpu/interrupt_flag.h"
#include "vcpu/msr.h"
#include "vcpu/port_access.h"
#include "vcpu/segments.h"

namespace alibi::simulator {

using vcpu::kCs, vcpu::kRax, vcpu::kRdx, vcpu::kSs, vcpu::kZf;

namespace {

// The integer register of a MOV to or from a control or debug register: always whole.
unsigned WholeBits(const Execution& e) { return e.instr.code_bits == 64 ? 64 : 32; }

// MOV to or from a segment, control or debug register.
bool ToSystemRegister(const Execution& e) {
  return e.instr.mem.present ? !e.instr.mem.written : !e.instr.gprs[0].written;
}

}  // namespace

Outcome handlers::MovCr(Execution& e) {
  const unsigned reg = e.instr.gprs[0].reg, number = e.instr.system_reg;
  if (ToSystemRegister(e)) {
    return vcpu::WriteControlRegister(e.state, e.memory, e.context.cpuid, e.context.platform,
                                      number, e.Reg(reg, WholeBits(e)));
  }
  u64 value;
  ALIBI_RETURN_IF_FAULT(vcpu::ReadControlRegister(e.state, number, &value));
  e.SetReg(reg, WholeBits(e), value);
  return {};
}

Outcome handlers::MovDr(Execution& e) {
  const unsigned reg = e.instr.gprs[0].reg, number = e.instr.system_reg;
  if (ToSystemRegister(e)) {
    return vcpu::WriteDebugRegister(e.state, number, e.Reg(reg, WholeBits(e)));
  }
  u64 value;
  ALIBI_RETURN_IF_FAULT(vcpu::ReadDebugRegister(e.state, number, &value));
  e.SetReg(reg, WholeBits(e), value);
  return {};
}

namespace {

// Selectors and machine status words: 16 bits to memory, zero-extended into a register.
Outcome StoreWord(Execution& e, u64 value) {
  if (e.instr.mem.present) return e.WriteOperand(2, value & 0xffff);
  e.SetReg(e.instr.gprs[0], value);
  return {};
}

}  // namespace

Outcome handlers::MovSreg(Execution& e) {
  const auto index = static_cast<SegmentIndex>(e.instr.system_reg);
  if (!ToSystemRegister(e)) return StoreWord(e, e.state.segment[index].selector);
  if (index == kCs || index > vcpu::kGs) return vcpu::InvalidOpcode();
  u64 selector;
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, 2, &selector));
  ALIBI_RETURN_IF_FAULT(vcpu::LoadSegment(e.state, e.memory, index, static_cast<u16>(selector)));
  if (index == kSs) e.state.interrupt_shadow = 1;
  return {};
}

namespace {

// LDS, LES, LFS, LGS, LSS: offset, then selector.
Outcome LoadFarPointer(Execution& e, SegmentIndex index) {
  const Instr& instr = e.instr;
  const unsigned size = instr.operand_bits / 8;
  const auto segment = static_cast<SegmentIndex>(instr.mem.segment);
  u64 offset, selector;
  ALIBI_RETURN_IF_FAULT(e.Read(segment, e.Offset(), size, &offset));
  ALIBI_RETURN_IF_FAULT(
      e.Read(segment, LowBits(e.Offset() + size, instr.mem.address_bits), 2, &selector));
  ALIBI_RETURN_IF_FAULT(vcpu::LoadSegment(e.state, e.memory, index, static_cast<u16>(selector)));
  e.SetReg(instr.gprs[0], offset);
  return {};
}

}  // namespace

Outcome handlers::Lds(Execution& e) { return LoadFarPointer(e, vcpu::kDs); }
Outcome handlers::Les(Execution& e) { return LoadFarPointer(e, vcpu::kEs); }
Outcome handlers::Lfs(Execution& e) { return LoadFarPointer(e, vcpu::kFs); }
Outcome handlers::Lgs(Execution& e) { return LoadFarPointer(e, vcpu::kGs); }
Outcome handlers::Lss(Execution& e) { return LoadFarPointer(e, kSs); }

namespace {

// The operand of LGDT and relatives: 16-bit limit, then a base of 4 or 8 bytes.
unsigned TableBaseBytes(const Execution& e) { return e.instr.code_bits == 64 ? 8 : 4; }

}  // namespace

Outcome handlers::LoadTable(Execution& e) {
  const unsigned size = 2 + TableBaseBytes(e);
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(e.OperandAddress(size, false, &linear));
  u8 bytes[10] = {};
  vcpu::GuestFault fault;
  if (!e.memory.Read(linear, bytes, size, vcpu::Privilege::kCpl, &fault)) return fault;
  u16 limit;
  u64 base = 0;
  __builtin_memcpy(&limit, bytes, 2);
  __builtin_memcpy(&base, bytes + 2, size == 10 ? 8 : 4);
  return e.instr.op == Op::kLgdt ? vcpu::LoadGdtr(e.state, limit, base, e.instr.operand_bits)
                                 : vcpu::LoadIdtr(e.state, limit, base, e.instr.operand_bits);
}

Outcome handlers::StoreTable(Execution& e) {
  const vcpu::DescriptorTable& table = e.instr.op == Op::kSgdt ? e.state.gdtr : e.state.idtr;
  const unsigned size = 2 + TableBaseBytes(e);
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(e.OperandAddress(size, true, &linear));
  u8 bytes[10];
  __builtin_memcpy(bytes, &table.limit, 2);
  __builtin_memcpy(bytes + 2, &table.base, 8);
  vcpu::GuestFault fault;
  if (!e.memory.Write(linear, bytes, size, vcpu::Privilege::kCpl, &fault)) return fault;
  return {};
}

Outcome handlers::LoadSelector(Execution& e) {
  u64 selector;
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, 2, &selector));
  return e.instr.op == Op::kLldt
             ? vcpu::LoadLdtr(e.state, e.memory, static_cast<u16>(selector))
             : vcpu::LoadTaskRegister(e.state, e.memory, static_cast<u16>(selector));
}

Outcome handlers::StoreSelector(Execution& e) {
  const SegmentIndex index = e.instr.op == Op::kSldt ? vcpu::kLdtr : vcpu::kTr;
  return StoreWord(e, e.state.segment[index].selector);
}

Outcome handlers::Lmsw(Execution& e) {
  u64 value;
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, 2, &value));
  return vcpu::LoadMachineStatus(e.state, e.memory, static_cast<u16>(value));
}

Outcome handlers::Smsw(Execution& e) { return StoreWord(e, vcpu::StoreMachineStatus(e.state)); }

Outcome handlers::Clts(Execution& e) { return vcpu::ClearTaskSwitched(e.state, e.memory); }

namespace {

Outcome QuerySelector(Execution& e, u64* selector) {
  const bool has_destination = e.instr.op == Op::kLar || e.instr.op == Op::kLsl;
  return e.ReadRm(has_destination ? 1 : 0, 2, selector);
}

}  // namespace

Outcome handlers::LarLsl(Execution& e) {
  u64 selector;
  ALIBI_RETURN_IF_FAULT(QuerySelector(e, &selector));
  vcpu::DescriptorQuery query;
  auto ask = e.instr.op == Op::kLar ? vcpu::LoadAccessRights : vcpu::LoadSegmentLimit;
  ALIBI_RETURN_IF_FAULT(ask(e.state, e.memory, static_cast<u16>(selector), &query));
  if (query.ok) e.SetReg(e.instr.gprs[0], query.value);
  e.SetFlag(kZf, query.ok);
  return {};
}

Outcome handlers::Verify(Execution& e) {
  u64 selector;
  ALIBI_RETURN_IF_FAULT(QuerySelector(e, &selector));
  vcpu::DescriptorQuery query;
  ALIBI_RETURN_IF_FAULT(vcpu::VerifyAccess(e.state, e.memory, static_cast<u16>(selector),
                                           e.instr.op == Op::kVerw, &query));
  e.SetFlag(kZf, query.ok);
  return {};
}

Outcome handlers::Arpl(Execution& e) {
  u64 destination;
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, 2, &destination));
  const u16 source = static_cast<u16>(e.Reg(e.instr.gprs[e.instr.mem.present ? 0 : 1]));
  const vcpu::DescriptorQuery query = vcpu::AdjustRpl(static_cast<u16>(destination), source);
  if (query.ok) ALIBI_RETURN_IF_FAULT(e.WriteRm(0, 2, query.value));
  e.SetFlag(kZf, query.ok);
  return {};
}

Outcome handlers::Swapgs(Execution& e) { return vcpu::SwapGs(e.state); }

Outcome handlers::ReadBase(Execution& e) {
  const GprUse& use = e.instr.gprs[0];
  u64 value;
  ALIBI_RETURN_IF_FAULT(vcpu::ReadSegmentBase(
      e.state, e.instr.op == Op::kRdfsbase ? vcpu::kFs : vcpu::kGs, use.bits, &value));
  e.SetReg(use, value);
  return {};
}

Outcome handlers::WriteBase(Execution& e) {
  const GprUse& use = e.instr.gprs[0];
  return vcpu::WriteSegmentBase(e.state, e.instr.op == Op::kWrfsbase ? vcpu::kFs : vcpu::kGs,
                                use.bits, e.Reg(use));
}

Outcome handlers::Cli(Execution& e) { return vcpu::ClearInterruptFlag(e.state); }
Outcome handlers::Sti(Execution& e) { return vcpu::SetInterruptFlag(e.state); }

Outcome handlers::SetAc(Execution& e) {
  if (!(e.context.cpuid.cr4_valid() & vcpu::kCr4Smap) || e.state.cpl != 0) {
    return vcpu::InvalidOpcode();
  }
  const u32 old = e.state.system_flags;
  const u32 ac = static_cast<u32>(vcpu::kAc);
  e.state.system_flags = e.instr.op == Op::kStac ? old | ac : old & ~ac;
  if (e.state.system_flags != old) e.memory.PrivilegeChanged();
  return {};
}

Outcome handlers::Cld(Execution& e) {
  e.state.df_flag = 0;
  return {};
}

Outcome handlers::Std(Execution& e) {
  e.state.df_flag = 1;
  return {};
}

Outcome handlers::Hlt(Execution& e) {
  e.state.halted = 1;
  return {};
}

namespace {

// Named by the instruction, or by DX.
u16 Port(const Execution& e) {
  return e.instr.HasImmediate() ? static_cast<u8>(e.instr.immediate)
                                : static_cast<u16>(e.state.gpr[kRdx]);
}

}  // namespace

Outcome handlers::In(Execution& e) {
  const unsigned size = e.instr.element_bytes;
  const u16 port = Port(e);
  ALIBI_RETURN_IF_FAULT(vcpu::CheckPortAccess(e.state, e.memory, port, size));
  e.SetReg(kRax, size * 8, e.context.ports.In(port, size));
  return {};
}

Outcome handlers::Out(Execution& e) {
  const unsigned size = e.instr.element_bytes;
  const u16 port = Port(e);
  ALIBI_RETURN_IF_FAULT(vcpu::CheckPortAccess(e.state, e.memory, port, size));
  e.context.ports.Out(port, size, static_cast<u32>(e.Reg(kRax, size * 8)));
  return {};
}

Outcome handlers::Cpuid(Execution& e) {
  vcpu::ExecuteCpuid(e.state, e.context.cpuid);
  return {};
}
Outcome handlers::Rdtsc(Execution& e) { return vcpu::ExecuteRdtsc(e.state, e.context.platform); }
Outcome handlers::Rdtscp(Execution& e) { return vcpu::ExecuteRdtscp(e.state, e.context.platform); }
Outcome handlers::Rdpid(Execution& e) {
  e.SetReg(e.instr.gprs[0], e.state.tsc_aux);
  return {};
}
// There are no performance counters, so every index is wrong.
Outcome handlers::Rdpmc(Execution&) { return vcpu::GeneralProtection(); }
Outcome handlers::Rdmsr(Execution& e) {
  return vcpu::ExecuteRdmsr(e.state, e.context.cpuid, e.context.platform);
}
Outcome handlers::Wrmsr(Execution& e) {
  return vcpu::ExecuteWrmsr(e.state, e.memory, e.context.cpuid, e.context.platform);
}
Outcome handlers::Xgetbv(Execution& e) { return vcpu::ExecuteXgetbv(e.state, e.context.cpuid); }
Outcome handlers::Xsetbv(Execution& e) { return vcpu::ExecuteXsetbv(e.state, e.context.cpuid); }

Outcome handlers::Invlpg(Execution& e) {
  const auto segment = static_cast<SegmentIndex>(e.instr.mem.segment);
  LinearAddr linear;
  if (e.state.In64BitCode()) {
    const u64 base = segment >= vcpu::kFs ? e.state.segment[segment].base : 0;
    linear = LinearAddr(base + e.Offset());
  } else {
    linear = LinearAddr(static_cast<u32>(e.state.segment[segment].base + e.Offset()));
  }
  // It takes any address; one that is not canonical has no translation to drop.
  if (IsCanonical(linear)) e.memory.InvalidatePage(linear);
  return {};
}

Outcome handlers::Invpcid(Execution& e) {
  const auto segment = static_cast<SegmentIndex>(e.instr.mem.segment);
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(e.Linear(segment, e.Offset(), 16, false, &linear));
  u64 words[2];
  vcpu::GuestFault fault;
  if (!e.memory.Read(linear, words, 16, vcpu::Privilege::kCpl, &fault)) return fault;
  return vcpu::InvalidateContext(e.state, e.memory, e.Reg(e.instr.gprs[0].reg, WholeBits(e)),
                                 words[0], LinearAddr(words[1]));
}

// INVD, WBINVD: the host keeps its caches coherent.
Outcome handlers::FlushCaches(Execution&) { return {}; }

// What CPUID never shows.
Outcome handlers::Undefined(Execution&) { return vcpu::InvalidOpcode(); }

}  // namespace alibi::simulator
