// SPDX-License-Identifier: Apache-2.0
// System instructions: registers, descriptor tables, ports, flags, CPUID and time.
#include "runtime/simulator/execution.h"
#include "vcpu/control_registers.h"
#include "vcpu/cpuid.h"
#include "vcpu/descriptors.h"
#include "vcpu/interrupt_flag.h"
#include "vcpu/msr.h"
#include "vcpu/port_access.h"
#include "vcpu/segments.h"

namespace alibi::runtime {
namespace {

using vcpu::kCs, vcpu::kRax, vcpu::kRdx, vcpu::kSs, vcpu::kZf;

// The integer register of a MOV to or from a control or debug register: always whole.
unsigned WholeBits(const Execution& e) { return e.instr.code_bits == 64 ? 64 : 32; }

// 0F 20-23: bit 1 of the opcode is the direction.
bool ToSystemRegister(const Execution& e) { return e.Opcode() & 2; }

Outcome MovCr(Execution& e) {
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

Outcome MovDr(Execution& e) {
  const unsigned reg = e.instr.gprs[0].reg, number = e.instr.system_reg;
  if (ToSystemRegister(e)) {
    return vcpu::WriteDebugRegister(e.state, number, e.Reg(reg, WholeBits(e)));
  }
  u64 value;
  ALIBI_RETURN_IF_FAULT(vcpu::ReadDebugRegister(e.state, number, &value));
  e.SetReg(reg, WholeBits(e), value);
  return {};
}

// Selectors and machine status words: 16 bits to memory, zero-extended into a register.
Outcome StoreWord(Execution& e, u64 value) {
  if (e.instr.mem.present) return e.WriteOperand(2, value & 0xffff);
  e.SetReg(e.instr.gprs[0], value);
  return {};
}

Outcome MovSreg(Execution& e) {
  const auto index = static_cast<SegmentIndex>(e.instr.system_reg);
  if (!ToSystemRegister(e)) return StoreWord(e, e.state.segment[index].selector);
  if (index == kCs || index > vcpu::kGs) return vcpu::InvalidOpcode();
  u64 selector;
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, 2, &selector));
  ALIBI_RETURN_IF_FAULT(vcpu::LoadSegment(e.state, e.memory, index, static_cast<u16>(selector)));
  if (index == kSs) e.state.interrupt_shadow = 1;
  return {};
}

// LDS, LES, LFS, LGS, LSS: offset, then selector.
Outcome LoadFarPointer(Execution& e) {
  struct Row {
    u8 opcode;
    SegmentIndex index;
  };
  constexpr Row kRows[] = {{0xc4, vcpu::kEs},
                           {0xc5, vcpu::kDs},
                           {0xb2, vcpu::kSs},
                           {0xb4, vcpu::kFs},
                           {0xb5, vcpu::kGs}};
  SegmentIndex index = vcpu::kEs;
  for (const Row& row : kRows) {
    if (row.opcode == e.Opcode()) index = row.index;
  }
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

// The operand of LGDT and relatives: 16-bit limit, then a base of 4 or 8 bytes.
unsigned TableBaseBytes(const Execution& e) { return e.instr.code_bits == 64 ? 8 : 4; }

Outcome LoadTable(Execution& e) {
  ALIBI_RETURN_IF_FAULT(vcpu::CheckLoadTable(e.state));
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

Outcome StoreTable(Execution& e) {
  ALIBI_RETURN_IF_FAULT(vcpu::CheckStoreTable(e.state));
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

Outcome LoadSelector(Execution& e) {
  // #UD and the privilege come before the operand.
  if (vcpu::RealOrVirtual8086(e.state)) return vcpu::InvalidOpcode();
  ALIBI_RETURN_IF_FAULT(vcpu::CheckLoadTable(e.state));
  u64 selector;
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, 2, &selector));
  return e.instr.op == Op::kLldt
             ? vcpu::LoadLdtr(e.state, e.memory, static_cast<u16>(selector))
             : vcpu::LoadTaskRegister(e.state, e.memory, static_cast<u16>(selector));
}

Outcome StoreSelector(Execution& e) {
  ALIBI_RETURN_IF_FAULT(vcpu::CheckStoreSelector(e.state));
  const SegmentIndex index = e.instr.op == Op::kSldt ? vcpu::kLdtr : vcpu::kTr;
  return StoreWord(e, e.state.segment[index].selector);
}

Outcome Lmsw(Execution& e) {
  ALIBI_RETURN_IF_FAULT(vcpu::CheckLoadTable(e.state));
  u64 value;
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, 2, &value));
  return vcpu::LoadMachineStatus(e.state, e.memory, static_cast<u16>(value));
}

Outcome Smsw(Execution& e) {
  ALIBI_RETURN_IF_FAULT(vcpu::CheckStoreTable(e.state));
  return StoreWord(e, vcpu::StoreMachineStatus(e.state));
}

Outcome Clts(Execution& e) { return vcpu::ClearTaskSwitched(e.state, e.memory); }

Outcome QuerySelector(Execution& e, u64* selector) {
  if (vcpu::RealOrVirtual8086(e.state)) return vcpu::InvalidOpcode();
  const bool has_destination = e.instr.op == Op::kLar || e.instr.op == Op::kLsl;
  return e.ReadRm(has_destination ? 1 : 0, 2, selector);
}

Outcome LarLsl(Execution& e) {
  u64 selector;
  ALIBI_RETURN_IF_FAULT(QuerySelector(e, &selector));
  vcpu::DescriptorQuery query;
  auto ask = e.instr.op == Op::kLar ? vcpu::LoadAccessRights : vcpu::LoadSegmentLimit;
  ALIBI_RETURN_IF_FAULT(ask(e.state, e.memory, static_cast<u16>(selector), &query));
  if (query.ok) e.SetReg(e.instr.gprs[0], query.value);
  e.SetFlag(kZf, query.ok);
  return {};
}

Outcome Verify(Execution& e) {
  u64 selector;
  ALIBI_RETURN_IF_FAULT(QuerySelector(e, &selector));
  vcpu::DescriptorQuery query;
  ALIBI_RETURN_IF_FAULT(vcpu::VerifyAccess(e.state, e.memory, static_cast<u16>(selector),
                                           e.instr.op == Op::kVerw, &query));
  e.SetFlag(kZf, query.ok);
  return {};
}

Outcome Arpl(Execution& e) {
  if (vcpu::RealOrVirtual8086(e.state)) return vcpu::InvalidOpcode();
  u64 destination;
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, 2, &destination));
  const u16 source = static_cast<u16>(e.Reg(e.instr.gprs[e.instr.mem.present ? 0 : 1]));
  vcpu::DescriptorQuery query;
  ALIBI_RETURN_IF_FAULT(vcpu::AdjustRpl(e.state, static_cast<u16>(destination), source, &query));
  if (query.ok) ALIBI_RETURN_IF_FAULT(e.WriteRm(0, 2, query.value));
  e.SetFlag(kZf, query.ok);
  return {};
}

Outcome Swapgs(Execution& e) { return vcpu::SwapGs(e.state); }

Outcome ReadBase(Execution& e) {
  const GprUse& use = e.instr.gprs[0];
  u64 value;
  ALIBI_RETURN_IF_FAULT(vcpu::ReadSegmentBase(
      e.state, e.instr.op == Op::kRdfsbase ? vcpu::kFs : vcpu::kGs, use.bits, &value));
  e.SetReg(use, value);
  return {};
}

Outcome WriteBase(Execution& e) {
  const GprUse& use = e.instr.gprs[0];
  return vcpu::WriteSegmentBase(e.state, e.instr.op == Op::kWrfsbase ? vcpu::kFs : vcpu::kGs,
                                use.bits, e.Reg(use));
}

Outcome Cli(Execution& e) { return vcpu::ClearInterruptFlag(e.state); }
Outcome Sti(Execution& e) { return vcpu::SetInterruptFlag(e.state); }

Outcome SetAc(Execution& e) {
  if (!(e.context.cpuid.cr4_valid() & vcpu::kCr4Smap) || e.state.cpl != 0) {
    return vcpu::InvalidOpcode();
  }
  const u32 old = e.state.system_flags;
  const u32 ac = static_cast<u32>(vcpu::kAc);
  e.state.system_flags = e.instr.op == Op::kStac ? old | ac : old & ~ac;
  if (e.state.system_flags != old) e.memory.PrivilegeChanged();
  return {};
}

Outcome Cld(Execution& e) {
  e.state.df_flag = 0;
  return {};
}

Outcome Std(Execution& e) {
  e.state.df_flag = 1;
  return {};
}

Outcome Hlt(Execution& e) {
  if (e.state.cpl != 0) return vcpu::GeneralProtection();
  e.state.halted = 1;
  return {};
}

// Ports: opcode bit 0 is the size, bit 3 says that DX names the port.
unsigned PortSize(const Execution& e) {
  return !(e.Opcode() & 1) ? 1 : e.instr.operand_bits == 16 ? 2 : 4;
}
u16 Port(const Execution& e) {
  return e.Opcode() & 8 ? static_cast<u16>(e.state.gpr[kRdx]) : static_cast<u8>(e.instr.immediate);
}

Outcome In(Execution& e) {
  const unsigned size = PortSize(e);
  const u16 port = Port(e);
  ALIBI_RETURN_IF_FAULT(vcpu::CheckPortAccess(e.state, e.memory, port, size));
  e.SetReg(kRax, size * 8, e.context.ports.In(port, size));
  return {};
}

Outcome Out(Execution& e) {
  const unsigned size = PortSize(e);
  const u16 port = Port(e);
  ALIBI_RETURN_IF_FAULT(vcpu::CheckPortAccess(e.state, e.memory, port, size));
  e.context.ports.Out(port, size, static_cast<u32>(e.Reg(kRax, size * 8)));
  return {};
}

Outcome Cpuid(Execution& e) {
  vcpu::ExecuteCpuid(e.state, e.context.cpuid);
  return {};
}
Outcome Rdtsc(Execution& e) { return vcpu::ExecuteRdtsc(e.state, e.context.platform); }
Outcome Rdtscp(Execution& e) { return vcpu::ExecuteRdtscp(e.state, e.context.platform); }
Outcome Rdpid(Execution& e) {
  e.SetReg(e.instr.gprs[0], e.state.tsc_aux);
  return {};
}
// There are no performance counters, so every index is wrong.
Outcome Rdpmc(Execution&) { return vcpu::GeneralProtection(); }
Outcome Rdmsr(Execution& e) {
  return vcpu::ExecuteRdmsr(e.state, e.context.cpuid, e.context.platform);
}
Outcome Wrmsr(Execution& e) {
  return vcpu::ExecuteWrmsr(e.state, e.memory, e.context.cpuid, e.context.platform);
}
Outcome Xgetbv(Execution& e) { return vcpu::ExecuteXgetbv(e.state, e.context.cpuid); }
Outcome Xsetbv(Execution& e) { return vcpu::ExecuteXsetbv(e.state, e.context.cpuid); }

Outcome Invlpg(Execution& e) {
  const auto segment = static_cast<SegmentIndex>(e.instr.mem.segment);
  LinearAddr linear;
  if (e.state.In64BitCode()) {
    // Takes any address; a non-canonical one has no translation.
    const u64 base = segment >= vcpu::kFs ? e.state.segment[segment].base : 0;
    linear = LinearAddr(base + e.Offset());
  } else {
    linear = LinearAddr(static_cast<u32>(e.state.segment[segment].base + e.Offset()));
  }
  return vcpu::InvalidatePageInstruction(e.state, e.memory, linear);
}

Outcome Invpcid(Execution& e) {
  ALIBI_RETURN_IF_FAULT(vcpu::CheckLoadTable(e.state));
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
Outcome FlushCaches(Execution& e) {
  return e.state.cpl != 0 ? vcpu::GeneralProtection() : Outcome();
}

// What CPUID never shows.
Outcome Undefined(Execution&) { return vcpu::InvalidOpcode(); }

constexpr HandlerRow kRows[] = {
    {Op::kMovSreg, MovSreg},
    {Op::kMovCr, MovCr},
    {Op::kMovDr, MovDr},
    {Op::kLds, LoadFarPointer},
    {Op::kLgdt, LoadTable},
    {Op::kLidt, LoadTable},
    {Op::kSgdt, StoreTable},
    {Op::kSidt, StoreTable},
    {Op::kLldt, LoadSelector},
    {Op::kLtr, LoadSelector},
    {Op::kSldt, StoreSelector},
    {Op::kStr, StoreSelector},
    {Op::kLmsw, Lmsw},
    {Op::kSmsw, Smsw},
    {Op::kClts, Clts},
    {Op::kLar, LarLsl},
    {Op::kLsl, LarLsl},
    {Op::kVerr, Verify},
    {Op::kVerw, Verify},
    {Op::kArpl, Arpl},
    {Op::kSwapgs, Swapgs},
    {Op::kRdfsbase, ReadBase},
    {Op::kRdgsbase, ReadBase},
    {Op::kWrfsbase, WriteBase},
    {Op::kWrgsbase, WriteBase},
    {Op::kCli, Cli},
    {Op::kSti, Sti},
    {Op::kClac, SetAc},
    {Op::kStac, SetAc},
    {Op::kCld, Cld},
    {Op::kStd, Std},
    {Op::kHlt, Hlt},
    {Op::kIn, In},
    {Op::kOut, Out},
    {Op::kRdtsc, Rdtsc},
    {Op::kRdtscp, Rdtscp},
    {Op::kRdpmc, Rdpmc},
    {Op::kRdpid, Rdpid},
    {Op::kCpuid, Cpuid},
    {Op::kRdmsr, Rdmsr},
    {Op::kWrmsr, Wrmsr},
    {Op::kXgetbv, Xgetbv},
    {Op::kXsetbv, Xsetbv},
    {Op::kInvlpg, Invlpg},
    {Op::kInvd, FlushCaches},
    {Op::kWbinvd, FlushCaches},
    {Op::kInvpcid, Invpcid},
    {Op::kMonitor, Undefined},
    {Op::kMwait, Undefined},
    {Op::kUd, Undefined},
};

}  // namespace

Handler SystemHandler(Op op) { return FindHandler(kRows, op); }

}  // namespace alibi::runtime
