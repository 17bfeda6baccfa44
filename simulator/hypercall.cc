// SPDX-License-Identifier: Apache-2.0
// VMCALL: how the guest asks its platform for what vcpu/hypercalls.inc lists; and the faults of
// returns that a paravirtual kernel makes by a call.
#include "vcpu/hypercall.h"

#include <cstring>
#include <iterator>

#include "simulator/execution.h"
#include "vcpu/descriptors.h"

namespace alibi::simulator {

using vcpu::Hypercall, vcpu::kRax, vcpu::kRcx, vcpu::kRdx, vcpu::kSs;

namespace {

enum Width : u8 { kWord, kWide };
constexpr Width kWidths[] = {
#define ALIBI_HYPERCALL(name, number, width, what) width,
#include "vcpu/hypercalls.inc"
};
// A row's place is its number.
constexpr u32 kNumbers[] = {
#define ALIBI_HYPERCALL(name, number, width, what) number,
#include "vcpu/hypercalls.inc"
};
constexpr bool NumbersFollow() {
  for (u32 i = 0; i < std::size(kNumbers); ++i) {
    if (kNumbers[i] != i) return false;
  }
  return true;
}
static_assert(NumbersFollow());

constexpr unsigned kWordBytes = 4;
constexpr u32 kCallBytes = 5;  // E8h and a displacement

bool OfProtectedMode32(const Execution& e) {
  return e.instr.code_bits == 32 && !vcpu::RealOrVirtual8086(e.state) && !e.state.LongModeActive();
}

bool Callable(const Execution& e) {
  return e.context.platform.OffersHypercalls() && e.state.cpl == 0 &&
         (e.state.In64BitCode() || OfProtectedMode32(e));
}

// What the functions begin with that a site calls instead of executing IRET, or STI and SYSEXIT: ds
// lea esp, [esp + 4]. Without a meaning of its own, the prefix marks them.
constexpr u8 kDropReturnAddress[] = {0x3e, 0x8d, 0x64, 0x24, 0x04};
constexpr u8 kSti = 0xfb, kCallRelative = 0xe8;

// What the guest itself could read there.
template <unsigned kSize>
bool ReadBytes(Execution& e, SegmentIndex segment, u64 offset, u8 (&bytes)[kSize]) {
  for (unsigned i = 0; i < kSize; ++i) {
    u64 value;
    if (e.Read(segment, LowBits(offset + i, 32), 1, &value).faulted()) return false;
    bytes[i] = static_cast<u8>(value);
  }
  return true;
}

u32 Word(const u8* bytes) {
  u32 word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

}  // namespace

void BlameCallSite(Execution& e) {
  // The ROM has such functions for 32-bit kernels alone.
  if (!Callable(e) || !OfProtectedMode32(e)) return;
  const u64 here = LowBits(e.next_rip - e.instr.length, 32);
  // A task switch has another EIP, and nothing of this is about it.
  if (e.state.rip != here || e.StackBits() != 32) return;
  u64 function = here - sizeof(kDropReturnAddress);
  if (e.instr.op == Op::kSysexit) {
    u8 sti[1];
    if (!ReadBytes(e, vcpu::kCs, here - 1, sti) || sti[0] != kSti) return;
    --function;
  }
  u8 begin[sizeof(kDropReturnAddress)], address[kWordBytes], call[kCallBytes];
  if (!ReadBytes(e, vcpu::kCs, function, begin) ||
      std::memcmp(begin, kDropReturnAddress, sizeof(begin)) != 0 ||
      !ReadBytes(e, kSs, e.StackPointer() - kWordBytes, address)) {
    return;
  }
  const u64 behind = Word(address);
  if (ReadBytes(e, vcpu::kCs, behind - kCallBytes, call) && call[0] == kCallRelative &&
      LowBits(behind + Word(call + 1), 32) == LowBits(function, 32)) {
    e.state.rip = LowBits(behind - kCallBytes, 32);
  }
}

namespace {

Outcome ReadArguments(Execution& e, u64 return_address, vcpu::HypercallArguments* arguments) {
  const unsigned bits = e.state.In64BitCode() ? 64 : 32;
  arguments->rax = e.Reg(kRax, bits);
  arguments->rdx = e.Reg(kRdx, bits);
  arguments->rcx = e.Reg(kRcx, bits);
  if (bits == 64 || kWidths[static_cast<u32>(arguments->number)] != kWide) return {};
  arguments->rdx |= arguments->rcx << 32;
  u64 pointer = LowBits(return_address + kWordBytes, e.StackBits()), low, high;
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, kWordBytes, &low));
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, kWordBytes, &high));
  arguments->rcx = high << 32 | low;
  return {};
}

}  // namespace

Outcome handlers::Hypercall(Execution& e) {
  if (!Callable(e)) return vcpu::InvalidOpcode();
  const bool is_64 = e.state.In64BitCode();
  u64 pointer = e.StackPointer(), number;
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, is_64 ? 8 : kWordBytes, &number));
  if (number >= std::size(kWidths)) return vcpu::InvalidOpcode();
  vcpu::HypercallArguments arguments = {static_cast<vcpu::Hypercall>(number), 0, 0, 0};
  ALIBI_RETURN_IF_FAULT(ReadArguments(e, pointer, &arguments));
  u64 result = 0;
  e.context.platform.Hypercall(arguments, &result);
  e.SetReg(kRax, is_64 ? 64 : 32, result);
  if (!is_64) e.SetReg(kRdx, 32, result >> 32);
  e.CommitStackPointer(pointer);
  return {};
}

}  // namespace alibi::simulator
