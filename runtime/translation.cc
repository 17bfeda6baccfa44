// SPDX-License-Identifier: Apache-2.0
// Translation: from the guest's bytes to a CCF that its predecessors lead to.
#include <x86intrin.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "isa/decode_templates.h"
#include "runtime/engine_impl.h"
#include "runtime/guest_code.h"
#include "translator/leaf_call.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/descriptors.h"
#include "vcpu/exceptions.h"

namespace alibi::runtime {

using adapt::log::Why;
using isa::DecodeStatus;
using translator::Ccf;
using translator::CodeMode;
using translator::ExitDesc;
using translator::kNoPage;
using vcpu::GuestFault;

namespace {

Why WhyOf(const CodeMode& mode, Fragments::Replaced replaced) {
  if (mode.single) return Why::kSingle;
  if (mode.simulate) return Why::kSimulate;
  switch (replaced) {
    case Fragments::Replaced::kRetired:
      return Why::kVerdict;
    case Fragments::Replaced::kOverwritten:
      return Why::kOverwritten;
    case Fragments::Replaced::kNothing:
      break;
  }
  return Why::kFirst;
}

// Where each instruction is entered and left by the VMM: what a fault shows there was exact in
// front of it, be it in a satellite (direct/) or under a debugger.
class EverySite final : public translator::ExactFlagSites {
 public:
  bool KeepsExactFlags(LinearAddr) const override { return true; }
};
const EverySite kEverySite;

}  // namespace

HostAddr EngineImpl::PrepareEntry() {
  Pending how = std::exchange(pending_, {});
  CodeMode mode = CurrentMode();
  mode.single = in_single_;
  mode.simulate = how.simulate;
  NoticeMode(mode);
  const LinearAddr pc = LinearPc();
  PhysAddr phys;
  GuestFault fault;
  bool faulted = false;
  const u64 epoch = mmu_.machine_epoch();
  // While the machine was waited for, another VCPU may have changed the code, or where it lies.
  const auto again = [&] {
    how.ForgetLinks();
    pending_ = how;
    return HostAddr();
  };
  Ccf* ccf = Lookup(pc, mode, &phys, &fault, &faulted);
  if (faulted) {
    Deliver(fault);
    return {};
  }
  if (ccf == nullptr && !mmu_.IsTraced(phys)) mmu_.TakeMachine();
  if (mmu_.machine_epoch() != epoch) return again();
  if (ccf == nullptr && MoveCodeTo(pc, phys, mode)) {
    ccf = Lookup(pc, mode, &phys, &fault, &faulted);
    if (faulted) {
      Deliver(fault);
      return {};
    }
  }
  if (ccf == nullptr) ccf = Translate(pc, phys, mode, &how);
  if (ccf == nullptr) return {};
  if (mmu_.machine_epoch() != epoch) return again();
  if (!mode.simulate && !mode.single) {
    if (how.by_table && mode.UsesJumpTable()) LinkJumpTable(ccf, how.jump_kinds);
    if (how.exit != nullptr) fragments_->Chain(how.exit, ccf);
  }
  return ccf->entry;
}

// Executions are counted, and breakpoints and tests' plans given, by PC.
bool EngineImpl::MoveCodeTo(LinearAddr pc, PhysAddr phys, const CodeMode& mode) {
  if (mode.code_bits != 64 || options_.executions != nullptr || points_.any_breakpoint() ||
      options_.plan_override != nullptr) {
    return false;
  }
  const u64 begin = __rdtsc();
  const LinearAddr linear_page = pc.PageBase();
  const bool moved = fragments_->Move(phys.InPage(), linear_page, [&](LinearAddr old_page) {
    return !mmu_.MayExecuteAt(phys, old_page);
  });
  if (moved) PageExecuted(linear_page, phys.PageBase());
  counters_.moving_cycles += __rdtsc() - begin;
  return moved;
}

void EngineImpl::FetchCode(GuestCode* code) {
  // Code outside RAM is rare: it is copied, and cannot be traced.
  code->bytes = memory_.HostRw(code->phys);
  code->available = static_cast<unsigned>(kPageSize - code->phys.PageOffset());
  code->in_ram = code->bytes != nullptr;
  if (code->in_ram) {
    // Before it is read: detached user code may store to it up to then.
    mmu_.TraceCode(code->phys);
  } else {
    code->available = std::min<unsigned>(code->available, sizeof(code->copy));
    memory_.ReadPhys(code->phys, code->copy, code->available);
    code->bytes = code->copy;
  }
  // An instruction behind CS's limit faults when it is reached.
  const CodeMode& mode = code->mode;
  code->in_segment =
      mode.code_bits == 64 ? ~u64{0} : mode.code_limit - mode.RipOf(code->pc) + u64{1};
  code->available = static_cast<unsigned>(std::min<u64>(code->available, code->in_segment));
  const unsigned most = options_.plan_override == nullptr
                            ? translator::kMaxTuInstructions
                            : options_.plan_override->MaxInstructions();
  code->max_instructions = mode.single || mode.simulate || !code->in_ram ? 1 : most;
}

// Decodes what lies there into tu_; or the fault of its first instruction.
vcpu::Outcome EngineImpl::DecodeUnit(GuestCode* code) {
  u8 next_bytes[16];
  translator::CodeRequest request{
      .pc = code->pc,
      .code_bits = code->mode.code_bits,
      .bytes = code->bytes,
      .available = code->available,
      .page_before = code->in_ram ? static_cast<unsigned>(code->phys.PageOffset()) : 0,
      .code_base = code->mode.code_base,
      .max_instructions = code->max_instructions,
      // A #DB shows all flags.
      .look_ahead = !code->mode.single && !points_.any_breakpoint(),
      .past_leaf = bool{code->leaf.entry},
      .shown = &shown_features_,
      .exact_sites = code->mode.single ? static_cast<const translator::ExactFlagSites*>(&kEverySite)
                     : code->sites.any() ? &code->sites
                                         : nullptr};
  DecodeStatus status = BuildTranslationUnit(request, tu_.get());
  if (status == DecodeStatus::kNeedMoreBytes && code->in_segment > code->available) {
    PhysAddr next;
    GuestFault fault;
    LinearAddr next_pc = code->pc.PageBase() + kPageSize;
    if (code->mode.code_bits != 64) next_pc = LinearAddr(static_cast<u32>(next_pc.value));
    if (code->mode.code_bits == 64 && !IsCanonical(next_pc)) return vcpu::GeneralProtection();
    // Meanwhile the first page may have become no memory.
    if (mmu_.TakeMachine()) {
      FetchCode(code);
      return DecodeUnit(code);
    }
    if (!mmu_.Fetch(next_pc, &next, &fault)) return fault;
    mmu_.TraceCode(next);
    memory_.ReadPhys(next, next_bytes, sizeof(next_bytes));
    request.next_page = next_bytes;
    request.next_available = static_cast<unsigned>(
        std::min<u64>(sizeof(next_bytes), code->in_segment - code->available));
    request.page_before = 0;
    request.max_instructions = 1;
    status = BuildTranslationUnit(request, tu_.get());
    code->second_page = next.InPage();
  }
  // A breakpoint begins a translation, which is then not made.
  for (unsigned i = 1; i < tu_->count; ++i) {
    if (!points_.IsBreakpoint(tu_->instrs[i].pc)) continue;
    request.max_instructions = i;
    status = BuildTranslationUnit(request, tu_.get());
    break;
  }
  if (status == DecodeStatus::kTooLong || status == DecodeStatus::kNeedMoreBytes) {
    return vcpu::GeneralProtection();
  }
  return status == DecodeStatus::kOk ? vcpu::Outcome::Done() : vcpu::InvalidOpcode();
}

// How each instruction of tu_ is to be translated.
void EngineImpl::PlanSites(const GuestCode& code, translator::EmitRequest* request) {
  for (unsigned i = 0; i < tu_->count; ++i) {
    translator::SitePlan& plan = request->plans[i];
    plan = code.PlanOf(tu_->instrs[i].pc);
    if (options_.plan_override != nullptr && !code.SimulatesAll()) {
      options_.plan_override->Override(tu_->instrs[i], &plan);
    }
    if (InfoOf(tu_->instrs[i].op).Has(isa::kLogsControl) && events_.Wants(RecordKind::kControl)) {
      plan.kind = translator::SiteKind::kSimulate;
    }
  }
}

// What is the same for all TUs.
translator::EmitRequest EngineImpl::CommonRequest() const {
  translator::EmitRequest request;
  request.shown = &shown_features_;
  request.count = options_.executions != nullptr;
  request.ports = options_.ports;
  request.one_vcpu = options_.vcpus == 1 && options_.gate == nullptr;
  request.sysret_loads_ss =
      vcpu::HasIntelsWay(vcpu::GuestDifference::kSysretStackSegment, options_.cpuid->vendor());
  request.pushes_half_selectors = vcpu::HostHasIntelsWay(vcpu::HostDifference::kPushOfSelector);
  for (const bool repe_cmpsb : {false, true}) {
    request.cmps_destination_first[repe_cmpsb] = vcpu::HostComparesDestinationFirst(repe_cmpsb);
  }
  return request;
}

// The other page's function that a CALL at the TU's end calls, if that may be a leaf; and if the
// jump table knows it as one, code->leaf.
LinearAddr EngineImpl::FindLeaf(GuestCode* code, const isa::Instr& last) {
  if (last.op != isa::Op::kCall || !translator::InlinesLeaves(code->mode) ||
      options_.executions != nullptr || last.branch_target.InPage() == code->pc.InPage()) {
    return {};
  }
  const LinearAddr target = last.branch_target;
  const mmu::View& view = mmu_.current_view();
  const PhysPage page = view.ExecutedAs(mmu::EntryIndex(target));
  if (page == mmu::View::kNoPage) return target;
  const Ccf* ccf = fragments_->Find(target, page, code->mode);
  if (ccf != nullptr && ccf->leaf && ccf->indirect_entry &&
      view.Jump(target, JumpKind::kCrossPage) == ccf->indirect_entry) {
    code->leaf = translator::LeafOf(*ccf, ccf->indirect_entry);
  }
  return target;
}

// What is stored calls, where what would be translated now inlines.
bool EngineImpl::CallsLeaf(GuestCode* code, const translator::PackedCcf& stored) {
  if (!translator::InlinesLeaves(code->mode)) return false;
  const auto count = stored.plans().size();
  const unsigned at = stored.offsets()[count - 1], end = stored.offsets()[count];
  // Most TUs end otherwise, and decoding costs as much as all the rest of loading one: a CALL that
  // names its target is an opcode and two or four bytes.
  constexpr u8 kCall = 0xe8;
  const auto is_call = [&](unsigned bytes) {
    return end - at > bytes && code->bytes[end - bytes - 1] == kCall;
  };
  if (!is_call(4) && !is_call(2)) return false;
  isa::Instr last;
  if (isa::DecodeTemplates::OfThread().Decode(code->bytes + at, code->available - at, code->pc + at,
                                              code->mode.code_bits, &last) != DecodeStatus::kOk) {
    return false;
  }
  FindLeaf(code, last);
  return bool{code->leaf.entry};
}

// Puts what `stored` or, without it, tu_ says into the TC, where the exit through which the guest
// comes may fall into it.
Ccf* EngineImpl::EmitUnit(const GuestCode& code, const translator::PackedCcf* stored,
                          Pending* how) {
  Ccf* const ccf = tc().NewCcf();
  ccf->phys_page = code.phys.InPage();
  ccf->phys_page2 = code.second_page;
  const bool indirect_entry =
      how->by_table && !code.mode.simulate && !code.mode.single && code.mode.UsesJumpTable();

  // Fall-through elision: if the predecessor's last jump ends where this CCF would begin, the CCF
  // takes the jump's place.
  ExitDesc* elided = nullptr;
  if (how->exit != nullptr && !code.mode.single && !code.mode.simulate &&
      code.second_page == kNoPage && fragments_->DropJump(how->exit, code.pc, ccf->phys_page)) {
    elided = std::exchange(how->exit, nullptr);
  }
  translator::EmitResult emitted;
  if (stored != nullptr) {
    emitted = stored->Unpack({.pc = code.pc,
                              .mode = code.mode,
                              .indirect_entry = indirect_entry,
                              .shown = &shown_features_,
                              .stubs = &stubs_,
                              .page = code.page(),
                              .target = tc().Target()},
                             unpacking_.get(), ccf);
  } else {
    translator::EmitRequest request = CommonRequest();
    request.tu = tu_.get();
    request.mode = code.mode;
    request.indirect_entry = indirect_entry;
    request.slot_seed = slot_seed_;
    request.leaf = code.leaf;
    request.target = tc().Target();
    PlanSites(code, &request);
    emitted = emitter_->Emit(request, ccf);
    ccf->examined_begin = tu_->examined_begin;
    ccf->examined_end = tu_->examined_end;
    if (emitted.fits && UsesStore(code)) Store(code, request, emitted, *ccf);
  }
  ALIBI_CHECK(emitted.fits, "a CCF fits the room that HasRoom() promised");
  slot_seed_ += emitted.slots_used;
  counters_.emitted_bytes += emitted.hot_size + emitted.cold_size;
  tc().Commit(ccf, emitted);
  if (elided != nullptr) fragments_->Elide(elided, ccf);
  return ccf;
}

Ccf* EngineImpl::Translate(LinearAddr pc, PhysAddr phys, const CodeMode& mode, Pending* how) {
  const u64 begin = __rdtsc();
  if (!tc().HasRoom() || sites_->table().overflowed()) FlushTc(how);
  GuestCode code(pc, phys, mode, sites_->table());
  FetchCode(&code);
  if (code.in_ram && code.max_instructions != 1) {
    if (Ccf* old = fragments_->Revive(pc, phys.InPage(), mode, code.page(), points_)) {
      if (events_.Wants(RecordKind::kTranslation)) events_.Translation(*old, Why::kRevived, begin);
      return old;
    }
  }
  if (Ccf* const loaded = LoadStored(&code, Among::kAll, how)) {
    LoadSuccessors(*loaded);
    counters_.loading_cycles += __rdtsc() - begin;
    return loaded;
  }
  const vcpu::Outcome decoded = DecodeUnit(&code);
  if (decoded.faulted()) {
    Deliver(decoded.fault());
    return nullptr;
  }
  const LinearAddr called = FindLeaf(&code, tu_->instrs[tu_->count - 1]);
  if (code.leaf.entry) {
    (void)DecodeUnit(&code);  // once more: what lies behind the CALL matters now
    ++counters_.inlined_calls;
  }
  Ccf* const ccf = EmitUnit(code, nullptr, how);
  const Fragments::Replaced replaced = Register(ccf, code);
  if (called != LinearAddr() && !code.leaf.entry) leaf_caller_ = {ccf, called};
  ++counters_.translations;
  counters_.translated_instructions += tu_->count;
  counters_.translated_guest_bytes += tu_->byte_length;
  counters_.translation_cycles += __rdtsc() - begin;
  sites_->prices().retranslate =
      static_cast<u32>(counters_.translation_cycles / counters_.translations);
  if (events_.Wants(RecordKind::kTranslation)) {
    events_.Translation(*ccf, WhyOf(mode, replaced), begin);
  }
  if (observer_ != nullptr) observer_->OnTranslation(*ccf);
  return ccf;
}

// A CCF has been committed.
Fragments::Replaced EngineImpl::Register(Ccf* ccf, const GuestCode& code) {
  if (code.in_ram) ccf->content_hash = Fragments::ContentHash(*ccf, code.page());
  ccf->leaf = translator::IsLeaf(*ccf);
  return fragments_->Add(ccf);
}

void EngineImpl::FlushTc(Pending* how) {
  how->exit = nullptr;
  leaf_caller_ = {};
  // Traces of code pages stay: the next translation of a page finds its trace set, and a store to a
  // page without translations only costs its own callout.
  for (const Ccf* ccf : tc().all()) mmu_.UntraceCode(ccf->phys_page.Base());
  CollectExecutions();
  fragments_->Flush();
  for (MissedSite& missed : missed_sites_) missed = {};
  mmu_.ResetAllJumpTables();
  if (events_.Wants(RecordKind::kFlush)) events_.Flush(sites_->table().overflowed());
  if (sites_->table().overflowed()) {
    sites_->table().Clear();
    ++counters_.site_table_flushes;
  }
}

}  // namespace alibi::runtime
