// SPDX-License-Identifier: Apache-2.0
#include "runtime/stubs.h"

#include <asmjit/x86.h>

#include <bit>

#include "abi/contract.h"
#include "base/check.h"
#include "translator/host_code.h"
#include "vcpu/state.h"

namespace alibi::runtime {
namespace {

namespace x86 = asmjit::x86;
using asmjit::imm;
using vcpu::VcpuState;

x86::Mem State(std::size_t offset, unsigned size = 8) {
  const i64 displacement = kVcpuOffset + static_cast<i64>(offset);
  x86::Mem m = x86::ptr_abs(static_cast<u64>(displacement), size);
  m.setSegment(x86::gs);
  return m;
}

constexpr std::size_t kSavedR11 = offsetof(VcpuState, scratch.r11);

void SaveGuest(x86::Assembler& a) {
  for (unsigned reg = 0; reg < 16; ++reg) {
    if (reg == vcpu::kR10 || reg == vcpu::kR11) continue;
    a.mov(State(8 * reg), x86::gpq(reg));
  }
  a.mov(State(kSavedR11), x86::r11);
  a.mov(State(offsetof(VcpuState, callout_argument)), x86::r10);
  // Not PUSHF: there is no stack yet.
  translator::TakeFlagsToRax(a);
  a.movzx(x86::ecx, x86::ah);
  a.movzx(x86::eax, x86::al);
  a.shl(x86::eax, 11);
  a.and_(x86::ecx, 0xd5);
  a.or_(x86::eax, x86::ecx);
  a.mov(State(offsetof(VcpuState, arithmetic_flags)), x86::rax);
}

void LoadGuestAndGo(x86::Assembler& a) {
  a.mov(x86::eax, State(offsetof(VcpuState, arithmetic_flags), 4));
  a.mov(x86::ecx, x86::eax);
  a.shr(x86::ecx, 11);
  a.and_(x86::ecx, 1);
  a.mov(x86::ah, x86::al);
  a.mov(x86::al, x86::cl);
  translator::LoadFlagsFromRax(a);
  for (unsigned reg = 0; reg < 16; ++reg) {
    if (reg == vcpu::kR10 || reg == vcpu::kR11) continue;
    a.mov(x86::gpq(reg), State(8 * reg));
  }
  a.mov(x86::r10, State(offsetof(VcpuState, callout_argument)));
  a.mov(x86::r11, State(kSavedR11));
  a.jmp(State(offsetof(VcpuState, resume_host_pc)));
}

x86::Mem Gs(i64 displacement, const x86::Gp& index, unsigned shift, unsigned size) {
  x86::Mem m = x86::ptr_abs(static_cast<u64>(displacement), index, shift, size);
  m.setSegment(x86::gs);
  return m;
}

// A slot does not hold the page: take the entry from the shadow table and cache it. Everything
// unusual (crossing, poison, read-only, time to judge the slot) is the callout's.
void EmitMissStub(x86::Assembler& a, HostAddr host, Stubs* stubs) {
  const asmjit::Label slow = a.newLabel(), done = a.newLabel(), begin = a.newLabel();
  const x86::Mem save_rax = State(offsetof(VcpuState, scratch.rax)),
                 save_rcx = State(offsetof(VcpuState, scratch.rcx)),
                 save_rdx = State(offsetof(VcpuState, scratch.rdx)),
                 save_flags = State(offsetof(VcpuState, scratch.flags));
  auto restore = [&] {
    a.mov(x86::rax, save_flags);
    translator::LoadFlagsFromRax(a);
    a.mov(x86::rax, save_rax);
    a.mov(x86::rcx, save_rcx);
    a.mov(x86::rdx, save_rdx);
  };
  auto field = [&](const x86::Gp& to, unsigned shift, unsigned bits) {
    a.rorx(to.r64(), x86::r10, shift);
    a.and_(to.r32(), static_cast<i32>((u64{1} << bits) - 1));
  };
  a.align(asmjit::AlignMode::kCode, 64);
  stubs->miss = host + a.offset();
  a.bind(begin);
  a.mov(save_rax, x86::rax);
  a.mov(save_rcx, x86::rcx);
  a.mov(save_rdx, x86::rdx);
  translator::TakeFlagsToRax(a);
  a.mov(save_flags, x86::rax);
  a.mov(x86::eax, x86::r11d);
  a.and_(x86::eax, static_cast<i32>(kPageMask));
  field(x86::rdx, MissWord::kSpanShift, MissWord::kSpanBits);
  a.add(x86::eax, x86::edx);
  a.cmp(x86::eax, static_cast<i32>(kPageMask));
  a.ja(slow);
  a.pext(x86::rax, x86::r11, State(offsetof(VcpuState, page_index_mask)));
  stubs->miss_load = host + a.offset();
  a.mov(x86::rdx, Gs(0, x86::rax, 3, 8));
  a.lea(x86::rcx, x86::ptr(x86::rdx, x86::r11));
  field(x86::rax, MissWord::kWindowShift, 1);
  a.sub(x86::rcx,
        Gs(kVcpuOffset + static_cast<i64>(offsetof(VcpuState, ram_window)), x86::rax, 3, 8));
  a.cmp(x86::rcx,
        Gs(kVcpuOffset + static_cast<i64>(offsetof(VcpuState, ram_window_size)), x86::rax, 3, 8));
  a.jae(slow);
  field(x86::rcx, MissWord::kSlotShift, MissWord::kSlotBits);
  a.jz(done);
  a.shl(x86::ecx, static_cast<i32>(std::countr_zero(sizeof(InlineTlbEntry))));
  auto slot = [&](std::size_t offset, unsigned size) {
    return Gs(kSlotsOffset - static_cast<i64>(sizeof(InlineTlbEntry)) + static_cast<i64>(offset),
              x86::rcx, 0, size);
  };
  a.mov(x86::eax, slot(offsetof(InlineTlbEntry, misses), 4));
  a.inc(x86::eax);
  a.mov(slot(offsetof(InlineTlbEntry, misses), 4), x86::eax);
  a.test(x86::eax, static_cast<i32>(kMissWindow - 1));
  a.jz(slow);
  a.mov(x86::rax, x86::r11);
  a.and_(x86::rax, -static_cast<i32>(kPageSize));
  a.neg(x86::rax);
  a.mov(slot(offsetof(InlineTlbEntry, neg_page), 8), x86::rax);
  a.mov(slot(offsetof(InlineTlbEntry, displacement), 8), x86::rdx);
  a.sub(x86::rdx, x86::rax);
  a.mov(slot(offsetof(InlineTlbEntry, host_page), 8), x86::rdx);
  a.add(x86::rdx, x86::rax);
  a.shr(x86::ecx, static_cast<i32>(std::countr_zero(sizeof(InlineTlbEntry))));
  a.mov(x86::rax, x86::r11);
  a.shr(x86::rax, 12);
  a.or_(x86::al, SlotDirectory::kFilled);
  a.mov(
      Gs(kSlotDirectoryOffset + static_cast<i64>(offsetof(SlotDirectory, tag)) - 1, x86::rcx, 0, 1),
      x86::al);
  // Who else holds such a page? (The holder's number has 1 added, as in the word.)
  a.mov(x86::rax, x86::r11);
  a.shr(x86::rax, 12);
  a.and_(x86::eax, SlotDirectory::kResidues - 1);
  const x86::Mem holder =
      Gs(kSlotDirectoryOffset + static_cast<i64>(offsetof(SlotDirectory, holder)), x86::rax, 1, 2);
  const asmjit::Label first = a.newLabel();
  a.cmp(holder, 0);
  a.je(first);
  a.cmp(holder, x86::cx);
  a.je(done);
  a.mov(x86::ecx, SlotDirectory::kSeveral);
  a.bind(first);
  a.mov(holder, x86::cx);
  a.bind(done);
  field(x86::rax, 0, MissWord::kResumeBits);
  a.lea(x86::rcx, x86::ptr(begin));
  a.add(x86::rax, x86::rcx);
  a.mov(State(offsetof(VcpuState, resume_host_pc)), x86::rax);
  a.mov(x86::r10, x86::rdx);
  restore();
  a.jmp(State(offsetof(VcpuState, resume_host_pc)));

  a.bind(slow);
  stubs->miss_slow = host + a.offset();
  restore();
  a.jmp(asmjit::imm(stubs->at(Callout::kMiss).value));
  stubs->miss_end = host + a.offset();
}

// A failed entry check: another target has the place in the jump table, and the one in r11 may be
// in the conflict table. Keeps the flags and all but r10 and r11.
void EmitConflictStub(x86::Assembler& a, HostAddr host, Stubs* stubs) {
  const asmjit::Label hit = a.newLabel(), go = a.newLabel(), miss = a.newLabel();
  const x86::Mem save_rcx = State(offsetof(VcpuState, scratch.rcx));
  auto entry = [](std::size_t member) {
    return Gs(kConflictTableOffset + static_cast<i64>(member), x86::r10, 3, 8);
  };
  a.align(asmjit::AlignMode::kCode, 64);
  stubs->conflict = host + a.offset();
  a.mov(save_rcx, x86::rcx);
  stubs->conflict_saved = host + a.offset();
  a.pext(x86::r10, x86::r11, State(offsetof(VcpuState, conflict_index_mask)));
  static_assert(sizeof(ConflictEntry) == 16);
  a.lea(x86::r10, x86::ptr(x86::r10, x86::r10));
  a.mov(x86::rcx, entry(offsetof(ConflictEntry, negated)));
  a.lea(x86::rcx, x86::ptr(x86::rcx, x86::r11));
  a.jecxz(x86::rcx, hit);
  a.bind(miss);
  a.mov(x86::rcx, save_rcx);
  a.jmp(imm(stubs->at(Callout::kLookup).value));
  a.bind(hit);
  // The translation whose check failed may have been asked to stop, and its exits tell nobody.
  a.mov(x86::ecx, State(offsetof(VcpuState, stop_requested), 4));
  a.jecxz(x86::rcx, go);
  a.jmp(miss);
  a.bind(go);
  a.mov(x86::rcx, save_rcx);
  a.jmp(entry(offsetof(ConflictEntry, entry)));
  stubs->conflict_end = host + a.offset();
}

// The callee-saved registers of the System V ABI, as the entry pushes them.
constexpr x86::Gp kCalleeSaved[] = {x86::rbx, x86::rbp, x86::r12, x86::r13, x86::r14, x86::r15};

}  // namespace

Stubs EmitStubs(const StubRequest& request, std::vector<u8>* bytes) {
  asmjit::CodeHolder code;
  code.init(asmjit::Environment::host(), request.host.value);
  x86::Assembler a(&code);
  Stubs stubs;
  asmjit::Label tail = a.newLabel(), go = a.newLabel(), full_exit = a.newLabel(),
                stop = a.newLabel();
  auto here = [&] { return request.host + a.offset(); };
  auto call = [&](CalloutFunction fn) {
    a.mov(x86::rax, imm(reinterpret_cast<u64>(fn)));
    a.call(x86::rax);
  };
  const u32 mask_low = static_cast<u32>(request.xstate_mask);
  const u32 mask_high = static_cast<u32>(request.xstate_mask >> 32);

  // rax: host PC to go on at, or 0.
  a.bind(tail);
  a.mov(State(offsetof(VcpuState, resume_host_pc)), x86::rax);
  a.test(x86::rax, x86::rax);
  a.jz(full_exit);
  a.cmp(State(offsetof(VcpuState, stop_requested), 4), 0);
  a.jne(stop);
  a.bind(go);
  LoadGuestAndGo(a);

  a.bind(stop);
  a.mov(x86::rdi, imm(reinterpret_cast<u64>(request.engine)));
  a.mov(x86::rsi, x86::rax);
  call(request.stop_soon);
  a.jmp(go);

  a.bind(full_exit);
  a.mov(x86::eax, mask_low);
  a.mov(x86::edx, mask_high);
  a.xsave64(State(offsetof(VcpuState, xsave_area), 0));
  a.fninit();
  a.vzeroupper();
  a.mov(x86::dword_ptr(x86::rsp, -4), 0x1f80);
  a.ldmxcsr(x86::dword_ptr(x86::rsp, -4));
  a.add(x86::rsp, 8);
  for (int i = 5; i >= 0; --i) a.pop(kCalleeSaved[i]);
  a.ret();

  a.align(asmjit::AlignMode::kCode, 64);
  stubs.enter = here();
  for (const x86::Gp& reg : kCalleeSaved) a.push(reg);
  a.sub(x86::rsp, 8);  // callouts are called with an aligned stack
  a.mov(State(offsetof(VcpuState, host_rsp)), x86::rsp);
  a.mov(State(offsetof(VcpuState, resume_host_pc)), x86::rdi);
  a.mov(x86::eax, mask_low);
  a.mov(x86::edx, mask_high);
  a.xrstor64(State(offsetof(VcpuState, xsave_area), 0));
  a.jmp(go);

  a.align(asmjit::AlignMode::kCode, 64);
  stubs.dispatch = here();
  a.mov(x86::rsp, State(offsetof(VcpuState, host_rsp)));
  a.mov(x86::rdi, imm(reinterpret_cast<u64>(request.engine)));
  call(request.dispatch);
  a.jmp(tail);

  for (unsigned i = 0; i < kCalloutCount; ++i) {
    a.align(asmjit::AlignMode::kCode, 64);
    stubs.callout[i] = here();
    SaveGuest(a);
    a.mov(x86::rsp, State(offsetof(VcpuState, host_rsp)));
    a.mov(x86::rdi, imm(reinterpret_cast<u64>(request.engine)));
    a.mov(x86::rsi, x86::r10);
    a.mov(x86::rdx, x86::r11);
    call(request.callouts[i]);
    a.jmp(tail);
  }

  a.align(asmjit::AlignMode::kCode, 64);
  stubs.jump = here();
  a.pext(x86::r10, x86::r11, State(offsetof(VcpuState, jump_index_mask)));
  x86::Mem target = Gs(kJumpTableOffset, x86::r10, 3, 8);
  a.jmp(target);
  stubs.jump_end = here();

  EmitConflictStub(a, request.host, &stubs);
  stubs.entry_miss.lookup = stubs.conflict;
  stubs.entry_miss.restore_swapped = here();
  a.rorx(x86::r11, x86::r11, 32);
  stubs.entry_miss.restore = here();
  translator::LoadFlagsFromRax(a);
  a.mov(x86::rax, x86::r10);
  a.jmp(imm(stubs.conflict.value));

  a.align(asmjit::AlignMode::kCode, 64);
  stubs.probe = here();
  const asmjit::Label probe = a.newLabel(), back = a.newLabel();
  a.bind(probe);
  a.lea(x86::r10, x86::ptr(back));
  a.jmp(imm(stubs.at(Callout::kProbe).value));
  a.bind(back);
  a.dec(x86::ecx);
  a.jnz(probe);
  a.mov(x86::rsp, State(offsetof(VcpuState, host_rsp)));
  a.xor_(x86::eax, x86::eax);
  a.jmp(tail);

  EmitMissStub(a, request.host, &stubs);
  stubs.size = a.offset();
  ALIBI_CHECK(stubs.size <= kStubBytes, "the stubs fit their part of the TC");
  code.resolveUnresolvedLinks();
  code.relocateToBase(request.host.value);
  const u8* const begin = code.sectionById(0)->buffer().data();
  bytes->assign(begin, begin + stubs.size);
  return stubs;
}

}  // namespace alibi::runtime
