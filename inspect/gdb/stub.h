// SPDX-License-Identifier: Apache-2.0
// `alibi run --gdb`: stock gdb debugs the guest, which does not notice (docs/observability.md).
//
// The server's thread only moves bytes. Packets are obeyed on the VCPU's thread, in Turn(), where
// registers, memory and translations may be touched.
#ifndef ALIBI_INSPECT_GDB_STUB_H_
#define ALIBI_INSPECT_GDB_STUB_H_

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "inspect/gdb/server.h"
#include "inspect/gdb/session.h"
#include "machine/debugger.h"
#include "pc/pc_machine.h"

namespace alibi::vmm::gdb {

struct StubOptions {
  std::string address;  // see Server::Listen
  bool wait = true;     // the guest's first instruction waits for a debugger
  // How gdb sees the CPU. Nothing: as the mode is when a debugger comes.
  std::optional<Architecture> architecture;
};

class Stub final : public Debugger, public Target {
 public:
  // Attaches itself to the machine, which outlives it.
  static Result<std::unique_ptr<Stub>> Create(const StubOptions& options, PcMachine& machine);
  ~Stub() override;

  const std::string& name() const { return server_->name(); }
  // The run is over: the debugger is told the exit status.
  void Ended(int status);
  // The debugger said `kill`.
  bool killed() const { return killed_; }

  // --- Debugger ---
  void Turn() override;
  bool Met(DebugEvent event) override;

 private:
  Stub(const StubOptions& options, PcMachine& machine) : options_(options), machine_(machine) {}

  // --- Target ---
  unsigned vcpus() override { return machine_.machine().vcpus(); }
  unsigned vcpu() override { return machine_.machine().running(); }
  void Select(unsigned vcpu) override { machine_.machine().Select(vcpu); }
  vcpu::VcpuState& state() override { return machine_.machine().state(); }
  vcpu::VcpuState& state(unsigned vcpu) override { return machine_.machine().state(vcpu); }
  void StateChanged() override { machine_.machine().StateChanged(); }
  unsigned ReadMemory(LinearAddr address, u8* out, unsigned size) override;
  bool WriteMemory(LinearAddr address, const u8* data, unsigned size) override;
  bool SetBreakpoint(LinearAddr pc, bool set) override;
  bool SetWatch(const runtime::Watch& watch, bool set) override;
  std::string Monitor(const std::string& command) override;

  runtime::Engine& engine() { return machine_.machine().engine(); }
  void Obey(const Server::Event& event);
  void Do(const Action& action);
  void Stop(unsigned signal, const runtime::DebugStop& stop);
  void Go();
  void Leave();

  StubOptions options_;
  PcMachine& machine_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Session> session_;  // while a debugger is there
  u32 client_ = 0;
  bool still_ = false;  // the guest does not run
  bool began_ = false;  // ... and ever did
  bool killed_ = false;
  LinearAddr range_begin_, range_end_;
};

}  // namespace alibi::vmm::gdb

#endif  // ALIBI_INSPECT_GDB_STUB_H_
