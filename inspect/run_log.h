// SPDX-License-Identifier: Apache-2.0
// --log: the event log of a run (docs/event_log.md). From here on the engine's events go into it,
// until the run has ended or this object goes.
#ifndef ALIBI_INSPECT_RUN_LOG_H_
#define ALIBI_INSPECT_RUN_LOG_H_

#include <memory>
#include <string>

#include "adapt/log/writer.h"
#include "base/result.h"
#include "base/types.h"
#include "pc/pc_machine.h"

namespace alibi::vmm {

// What runs, for the log's header.
struct RunDescription {
  std::string policy;         // as --policy takes it
  std::string engine_policy;  // as --engine-policy takes it; "": the engine has none
  std::string image;
  std::string command_line;
};

class RunLog {
 public:
  // The machine outlives the log.
  static Result<std::unique_ptr<RunLog>> Create(const std::string& path, u64 most_bytes,
                                                PcMachine& machine,
                                                const RunDescription& description);
  // An ordered end in any case; errors are lost.
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // What was recorded is in the file, with the counters as they are now.
  Status Finish();
  // After it: one line on what is missing; "": nothing.
  std::string Missing() const;

 private:
  explicit RunLog(PcMachine& machine) : machine_(machine) {}

  PcMachine& machine_;
  std::string path_;
  std::unique_ptr<adapt::log::Writer> writer_;
  bool finished_ = false;
};

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_RUN_LOG_H_
