// SPDX-License-Identifier: Apache-2.0
#include "runtime/events.h"

#include <x86intrin.h>

#include "base/check.h"
#include "base/raw_copy.h"
#include "runtime/code_index.h"

namespace alibi::runtime {

using isa::Instr;
using isa::Op;
using translator::Ccf;

void Events::set_log(adapt::log::Ring* log) {
  ALIBI_CHECK(log == nullptr || logged_sites_ == 0,
              "an engine has one log: sites are numbered for it");
  recorder_.set_log(log);
}

Record Events::NewRecord(RecordKind kind, LinearAddr pc) const {
  Record record;
  record.kind = kind;
  record.tsc = __rdtsc();
  record.pc = pc;
  record.cr3 = state_.cr3;
  return record;
}

void Events::Push(const Record& record) {
  recorder_.Push(record);
  // The run loop drains it.
  if (recorder_.Filling()) __atomic_store_n(&state_.stop_requested, 1, __ATOMIC_SEQ_CST);
}

// The log knows sites by number, once they were defined. False: there was no room for that.
bool Events::NameSite(const Instr& instr, adapt::SiteRecord& site, Record* record) {
  record->physical = site.phys;
  if (!recorder_.has_log()) return true;
  if (site.log_number == 0) {
    adapt::log::Site definition;
    definition.pc = site.pc;
    definition.physical = site.phys;
    definition.kind = record->before;
    definition.access = site.access;
    definition.code_bits = instr.code_bits;
    if (site.phys != adapt::kSharedSite) {
      definition.length = instr.length;
      RawCopy(definition.bytes, instr.bytes.data(), instr.length);
    }
    Record defined = adapt::log::RecordOf(definition);
    defined.tsc = record->tsc;
    defined.cr3 = record->cr3;
    if (!recorder_.PushToLog(defined)) return false;
    site.log_number = ++logged_sites_;
  }
  record->site = site.log_number - 1;
  return true;
}

void Events::SiteChanged(RecordKind kind, const Instr& instr, adapt::SiteRecord& site) {
  if (!recorder_.Wants(kind)) return;
  Record record = NewRecord(kind, instr.pc);
  record.before = site.kind;
  if (!NameSite(instr, site, &record)) return;
  record.before = adapt::Kind::kDirect;
  Push(record);
}

void Events::Occurrence(const Instr& instr, adapt::SiteRecord& site, adapt::Event event,
                        bool trapped, adapt::Kind verdict, u64 entered) {
  const RecordKind kind = verdict == site.kind ? RecordKind::kOccurrence : RecordKind::kVerdict;
  if (!recorder_.Wants(kind)) return;
  Record record = NewRecord(kind, instr.pc);
  record.before = site.kind;
  record.after = verdict;
  record.event = event;
  record.flag = trapped;
  record.cycles = static_cast<u32>(record.tsc - entered);
  record.value = site.traps;
  record.more = site.callouts;
  if (NameSite(instr, site, &record)) Push(record);
}

void Events::Fault(LinearAddr pc, const vcpu::GuestFault& fault) {
  Record record = NewRecord(RecordKind::kFault, pc);
  record.number = fault.vector;
  record.flag = fault.has_error_code;
  record.more = fault.error_code;
  record.value = fault.cr2;
  Push(record);
}

void Events::SystemInstruction(const Instr& instr) {
  const isa::OpInfo& op = InfoOf(instr.op);
  const bool msr = op.Has(isa::kLogsMsr);
  const RecordKind kind = msr ? RecordKind::kMsr : RecordKind::kControl;
  if (!op.Has(isa::kLogsMsr | isa::kLogsControl) || !Wants(kind)) return;
  Record record = NewRecord(kind, instr.pc);
  if (msr) {
    record.more = static_cast<u32>(state_.gpr[vcpu::kRcx]);
    record.value = static_cast<u32>(state_.gpr[vcpu::kRax]) | state_.gpr[vcpu::kRdx] << 32;
    record.flag = instr.op == Op::kWrmsr;
  } else {
    record.number = instr.system_reg == isa::kNoReg ? 0 : instr.system_reg;
    record.value = record.number == 0   ? state_.cr0
                   : record.number == 2 ? state_.cr2
                   : record.number == 3 ? state_.cr3
                   : record.number == 4 ? state_.cr4
                                        : state_.cr8;
  }
  Push(record);
}

void Events::Overwritten(const Ccf& ccf, PhysAddr where, u64 bytes) {
  Record record = NewRecord(RecordKind::kOverwritten, ccf.pc);
  record.physical = PhysOf(ccf, ccf.pc);
  record.value = where.value;
  record.more = bytes;
  Push(record);
}

void Events::ForgottenPage(PhysPage page) {
  Record record = NewRecord(RecordKind::kForgottenPage, {});
  record.physical = page.Base();
  Push(record);
}

void Events::Translation(const Ccf& ccf, adapt::log::Why why, u64 begin_tsc) {
  Record record = NewRecord(RecordKind::kTranslation, ccf.pc);
  record.physical = PhysOf(ccf, ccf.pc);
  record.number = static_cast<u8>(ccf.instrs().size());
  record.value = ccf.guest_bytes;
  record.more = ccf.hot_end - ccf.hot_start + (ccf.cold_end - ccf.cold_start);
  record.cycles = static_cast<u32>(record.tsc - begin_tsc);
  record.why = why;
  record.flag = ccf.mode.user;
  record.extra = ccf.mode.code_bits;
  Push(record);
}

void Events::Flush(bool site_table_too) {
  Record record = NewRecord(RecordKind::kFlush, {});
  record.flag = site_table_too;
  Push(record);
}

void Events::Vcpu(u8 number) {
  if (!Wants(RecordKind::kVcpu)) return;
  Record record = NewRecord(RecordKind::kVcpu, LinearAddr(0));
  record.number = number;
  Push(record);
}

void Events::EngineVerdict(u64 root, const adapt::log::EngineOccurrence& what) {
  Record record = RecordOf(what);
  record.cr3 = root;
  Push(record);
}

}  // namespace alibi::runtime
