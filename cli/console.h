// SPDX-License-Identifier: Apache-2.0
// Where a run's screen, keyboard and serial port are: the options --display, --serial and
// --screen-dump.
#ifndef ALIBI_CLI_CONSOLE_H_
#define ALIBI_CLI_CONSOLE_H_

#include <cstdio>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/types.h"
#include "cli/display.h"
#include "cli/exit_codes.h"
#include "pc/pc_machine.h"

namespace CLI {
class App;
}

namespace alibi::vmm {

class Console {
 public:
  Console() = default;
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void AddOptions(CLI::App* app);

  struct Failure {
    ExitCode status = kSuccess;  // kSuccess: there was none
    std::string message;
  };
  // Opens what the options name.
  Failure Open();
  // A serial port's way to an open file, as the options say.
  OutputFile Output(int fd) const;
  // `this` must outlive the machine.
  void Configure(PcMachineConfig* config);

  // What a TerminalGuard writes at the end.
  const char* farewell() const { return draws_ ? Display::RestoreSequence() : ""; }
  // Around the run, inside the terminal guard.
  Status Begin();
  void End();
  // After the guard: the last screen goes where it was asked for.
  Failure Dump(const devices::TextScreen& last);

 private:
  Failure CannotDump() const;

  std::string display_ = "none";
  std::string serial_;
  std::string serial_size_ = "1G";
  u64 most_serial_bytes_ = 0;
  std::string dump_name_;
  std::FILE* dump_file_ = nullptr;
  bool raw_ = false;
  bool draws_ = false;  // the screen is on the terminal
  int serial_fd_ = -1;
  bool owns_serial_ = false;
  std::unique_ptr<Display> screen_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_CONSOLE_H_
