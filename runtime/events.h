// SPDX-License-Identifier: Apache-2.0
// What the engine tells logs and traces, as records. Callers ask Wants() first, where they have to
// gather what a record says; SiteChanged, Occurrence and SystemInstruction look themselves.
//
// Called while guest vector state is live: compiled for general registers only.
#ifndef ALIBI_RUNTIME_EVENTS_H_
#define ALIBI_RUNTIME_EVENTS_H_

#include "adapt/policy.h"
#include "adapt/site_table.h"
#include "base/types.h"
#include "isa/ir.h"
#include "runtime/recorder.h"
#include "translator/ccf.h"
#include "vcpu/fault.h"
#include "vcpu/state.h"

namespace alibi::runtime {

class Events {
 public:
  // `state` says where and when, and is asked to leave translated code when the observer's ring
  // fills; it outlives this.
  explicit Events(vcpu::VcpuState& state) : state_(state) {}

  void Observe(EventObserver* observer, u32 kinds) { recorder_.Observe(observer, kinds); }
  // Null: none. Sites are numbered for one log.
  void set_log(adapt::log::Ring* log);
  void Drain() { recorder_.Drain(); }

  bool Wants(u32 kinds) const { return recorder_.Wants(kinds); }
  bool Wants(RecordKind kind) const { return recorder_.Wants(kind); }

  // Something has happened at a site, and the policy's verdict is this. `entered`: TSC when the
  // callout or the fault handler was entered.
  void Occurrence(const isa::Instr& instr, adapt::SiteRecord& site, adapt::Event event,
                  bool trapped, adapt::Kind verdict, u64 entered);
  // A site's look-up changes: kRelookup, kUngroup.
  void SiteChanged(RecordKind kind, const isa::Instr& instr, adapt::SiteRecord& site);
  // A system instruction has been executed; of MSRs and control registers the values are current.
  void SystemInstruction(const isa::Instr& instr);
  void Fault(LinearAddr pc, const vcpu::GuestFault& fault);
  void Overwritten(const translator::Ccf& ccf, PhysAddr where, u64 bytes);
  void ForgottenPage(PhysPage page);
  void Translation(const translator::Ccf& ccf, adapt::log::Why why, u64 begin_tsc);
  void Flush(bool site_table_too);
  // One of several runs from now on; its state is the current one.
  void Vcpu(u8 number);
  // Of the address space with this root.
  void EngineVerdict(u64 root, const adapt::log::EngineOccurrence& what);

 private:
  Record NewRecord(RecordKind kind, LinearAddr pc) const;
  bool NameSite(const isa::Instr& instr, adapt::SiteRecord& site, Record* record);
  void Push(const Record& record);

  vcpu::VcpuState& state_;
  Recorder recorder_;
  u32 logged_sites_ = 0;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_EVENTS_H_
