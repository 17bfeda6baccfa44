// SPDX-License-Identifier: Apache-2.0
// What `alibi run` shows of the machine while it runs and when it has ended: the options for it,
// and their life around a run.
#ifndef ALIBI_CLI_OBSERVE_H_
#define ALIBI_CLI_OBSERVE_H_

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/types.h"
#include "inspect/gdb/stub.h"
#include "inspect/profile/profile.h"
#include "inspect/run_log.h"
#include "inspect/trace.h"
#include "pc/pc_machine.h"
#include "runtime/engine_kind.h"

namespace alibi::vmm {

class Observation {
 public:
  Observation() = default;
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  void AddOptions(CLI::App& app);
  // The steps of a run return an exit status when something is wrong, which they have
  // reported. First what needs no machine:
  std::optional<int> Check();
  // What asks what only translating knows; behind Check().
  std::optional<int> CheckEngine(runtime::EngineKind engine) const;
  // The option that shows in which order the guest's CPUs do something; null: none is given.
  const char* OrderShown() const;
  // What the machine must be made with.
  void Configure(MachineConfig* config);
  // `image` is the kernel's, or empty. The machine is loaded.
  std::optional<int> Attach(PcMachine& machine, std::span<const u8> image,
                            const RunDescription& description);
  // The run has ended with `status`; it took `wall_ns`.
  std::optional<int> Finish(int status, u64 wall_ns);

  // Lets go of the machine, which must still be there.
  void Leave();
  struct LeaveCall {
    void operator()(Observation* observation) const { observation->Leave(); }
  };
  using Leaver = std::unique_ptr<Observation, LeaveCall>;

  // Every counter, now, on stderr. On the VCPU's thread.
  void ShowStats();

  // Where the debugger's socket is a file: its folder; else "".
  std::string socket_folder() const;

  // The debugger has ended the run.
  bool killed() const { return stub_ != nullptr && stub_->killed(); }  // before Finish()

 private:
  std::optional<int> OpenFiles(const RunDescription& description);

  std::string trace_;
  std::string trace_file_name_;
  std::string trace_size_ = "1G";
  u64 most_trace_bytes_ = 0;
  std::string log_name_;
  std::string log_size_ = "256M";
  u64 most_log_bytes_ = 0;
  std::string stats_json_;
  std::string gdb_;
  std::string gdb_arch_ = "auto";
  bool gdb_default_ = false;
  bool gdb_wait_ = false;
  bool stats_ = false;

  PcMachine* machine_ = nullptr;
  u64 begin_ns_ = 0;
  Tracer tracer_;
  std::FILE* trace_file_ = nullptr;
  std::unique_ptr<RunLog> log_;
  std::unique_ptr<gdb::Stub> stub_;
  std::FILE* stats_file_ = nullptr;
  std::string profile_name_;
  std::unique_ptr<ExecutionProfile> profile_;
  std::FILE* profile_file_ = nullptr;
};

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_OBSERVE_H_
