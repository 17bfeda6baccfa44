// SPDX-License-Identifier: Apache-2.0
// REP MOVS and REP STOS over many pages: the translation runs what lies in one page per pointer,
// and comes here with the rest. Compiled for general registers only, as fast_path.cc.
#include "base/raw_copy.h"
#include "runtime/engine_impl.h"
#include "vcpu/descriptors.h"

namespace alibi::runtime {

using isa::Instr;
using isa::Op;
using translator::SiteDesc;
using vcpu::GuestFault;

namespace {

// The low `size` (1, 2, 4, 8) bytes of `value` again and again. `size` divides `bytes`.
void FillElements(u8* to, u64 value, unsigned size, u64 bytes) {
  u64 count = bytes / size;
  switch (size) {
    case 1:
      asm volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
      return;
    case 2:
      asm volatile("rep stosw" : "+D"(to), "+c"(count) : "a"(value) : "memory");
      return;
    case 4:
      asm volatile("rep stosl" : "+D"(to), "+c"(count) : "a"(value) : "memory");
      return;
    default:
      asm volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(value) : "memory");
  }
}

}  // namespace

// Where the page's bytes from `linear` on lie, for an access that the guest may make without being
// noticed; null: nowhere. Makes the access's mapping known to the shadow, as the access would.
HostAddr EngineImpl::HostOfRun(LinearAddr linear, bool write) {
  if (state_.In64BitCode() && !IsCanonical(linear)) return {};
  const u64 index = mmu::EntryIndex(linear);
  if (mmu::PageOfIndex(index) != linear.PageBase()) return {};
  const auto usable = [&](HostAddr host) {
    return host.value - state_.ram_window[write] < state_.ram_window_size[write];
  };
  HostAddr host = mmu_.current_view().HostOf(linear);
  if (usable(host)) return host;
  GuestFault fault;
  if (mmu_.ResolveAccess(linear, 1, write, &fault) != mmu::Resolution::kFilled) {
    return {};
  }
  host = mmu_.current_view().HostOf(linear);
  return usable(host) ? host : HostAddr();
}

// Goes through the pages as far as it can; registers say how far that was, and the instruction
// restarts there. True: all is done, or something is waiting for the run to be interrupted.
bool EngineImpl::MakeStringRun(const SiteDesc& site) {
  const Instr& instr = InstrOf(site);
  const translator::CodeMode& mode = site.ccf->mode;
  const bool moves = instr.op == Op::kMovs;
  if (!(moves || instr.op == Op::kStos) || !(instr.rep || instr.repne) || state_.df_flag != 0 ||
      mode.single || mode.careful || !mode.flat || instr.address_bits != mode.code_bits ||
      (instr.segment_override != 0xff && instr.segment_override >= vcpu::kFs)) {
    return false;
  }
  const u64 mask = mode.code_bits == 64 ? ~u64{0} : 0xffffffffu;
  const unsigned size = instr.element_bytes;
  u64& count = state_.gpr[vcpu::kRcx];
  u64& from = state_.gpr[vcpu::kRsi];
  u64& to = state_.gpr[vcpu::kRdi];
  const auto in_page = [&](u64 address) { return (kPageSize - (address & kPageMask)) / size; };
  while (count != 0) {
    u64 elements = std::min(count, in_page(to));
    if (moves) elements = std::min(elements, in_page(from));
    if (elements == 0) {
      // The next element crosses into another page. Watched pages do not tell by themselves here.
      if (Watches()) return false;
      u64 element = state_.gpr[vcpu::kRax];
      GuestFault fault;
      if (moves && !ReadOperand(LinearAddr(from), reinterpret_cast<u8*>(&element), size, &fault))
        return false;
      if (!WriteOperand(LinearAddr(to), reinterpret_cast<const u8*>(&element), size, &fault))
        return false;
      elements = 1;
    } else {
      const u64 bytes = elements * size;
      const u64 epoch = mmu_.machine_epoch();
      const HostAddr source = moves ? HostOfRun(LinearAddr(from), false) : HostAddr();
      const HostAddr destination = HostOfRun(LinearAddr(to), true);
      if (!destination || (moves && !source)) return false;
      // Where the source was may be no memory any more.
      if (mmu_.machine_epoch() != epoch) continue;
      if (moves) {
        // One page of memory may be seen through both windows (mmu/guest_memory.h). Where the
        // destination follows closely behind the source, elements just written are read.
        const u64 capacity = state_.ram_window_size[1];
        const u64 ahead = (destination.value - state_.ram_window[1] + capacity -
                           (source.value - state_.ram_window[0]) % capacity) %
                          capacity;
        if (ahead != 0 && ahead < bytes) return false;
        RawCopy(destination.As(), source.As(), bytes);
      } else {
        FillElements(destination.As(), state_.gpr[vcpu::kRax], size, bytes);
      }
    }
    if (moves) from = (from + elements * size) & mask;
    to = (to + elements * size) & mask;
    count = (count - elements) & mask;
    ++counters_.string_pieces;
    if (MustLeave() || !site.ccf->valid) break;
  }
  if (count != 0) {
    state_.system_flags |= static_cast<u32>(vcpu::kRf);  // between two iterations
  } else {
    state_.rip = mode.RipOf(instr.next_pc());
  }
  return true;
}

}  // namespace alibi::runtime
