// SPDX-License-Identifier: Apache-2.0
// What `alibi run` is asked for, as it was written.
#ifndef ALIBI_CLI_RUN_OPTIONS_H_
#define ALIBI_CLI_RUN_OPTIONS_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "cli/drive_options.h"
#include "cli/sandbox.h"
#include "machine/machine.h"
#include "mmu/coherence.h"
#include "runtime/engine_kind.h"

namespace CLI {
class App;
}

namespace alibi::vmm {

struct RunOptions {
  // What is booted.
  std::string image;
  std::string bios;
  std::string append;
  std::string initrd;
  std::string entry;

  // The machine that it finds.
  std::string cpu = "host";
  std::string ram = "128M";
  unsigned smp = 1;
  DriveOptions drives;
  std::string net = "none";
  std::string vmi = "none";
  std::string console = "serial";
  std::string com1;
  std::vector<std::string> debug_ports;
  bool no_reboot = false;

  // How that is run. The library forks no process unless it is asked to: its own default engine is
  // translate.
  std::string engine = runtime::NameOf(runtime::EngineKind::kAuto);
  std::string engine_policy;
  std::string policy = MachineConfig().policy;
  std::string coherence = mmu::NameOf(MachineConfig().coherence);
  std::string vcpu_threads = "auto";
  std::string hosting = "all";
  std::string net_optimize = "all";
  std::string tc_size = "64M";
  std::string tc_cache;
  std::string shadow_size = "512M";
  std::string sandbox = kSandboxByDefault ? "on" : "off";
};

// Of each part.
void AddKernelOptions(CLI::App& app, RunOptions* options);
void AddMachineOptions(CLI::App& app, RunOptions* options);
void AddEngineOptions(CLI::App& app, RunOptions* options);

struct ModuleFile {
  std::vector<u8> bytes;
  std::string command_line;
};
// "FILE arguments,FILE": as QEMU takes multiboot modules; a comma in a name is doubled.
Result<std::vector<ModuleFile>> ReadModuleFiles(const std::string& list);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_RUN_OPTIONS_H_
