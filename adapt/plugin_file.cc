// SPDX-License-Identifier: Apache-2.0
#include "adapt/plugin_file.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace alibi::adapt {
namespace {

thread_local const char* running_plugin = nullptr;

}  // namespace

const char* RunningPlugin() { return running_plugin; }
const char* SetRunningPlugin(const char* path) { return std::exchange(running_plugin, path); }

bool IsPluginSpec(const std::string& spec) {
  const std::string path = spec.substr(0, spec.find('('));
  return path.find('/') != std::string::npos || path.ends_with(".so");
}

Result<std::unique_ptr<PluginFile>> PluginFile::Load(const PluginContract& contract,
                                                     const std::string& spec) {
  const std::size_t open = spec.back() == ')' ? spec.rfind('(') : std::string::npos;
  const std::string path = spec.substr(0, open);
  const std::string parameters =
      open == std::string::npos ? "" : spec.substr(open + 1, spec.size() - open - 2);
  const auto wrong = [&](const std::string& what) {
    return Error{std::string(contract.kind) + " '" + path + "' " + what};
  };
  if (access(path.c_str(), R_OK) != 0) {
    return wrong(std::string("cannot be read: ") + std::strerror(errno));
  }
  // A bare name would be looked for where libraries are.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return wrong(std::string("cannot be loaded: ") + (why != nullptr ? why : "unknown reason"));
  }
  std::unique_ptr<PluginFile> plugin(new PluginFile(contract, path, library));
  if (Status taken = plugin->TakeTable(); !taken.ok()) return wrong(taken.error().message);
  if (Status made = plugin->Create(parameters); !made.ok()) return wrong(made.error().message);
  return plugin;
}

PluginFile::~PluginFile() {
  if (self_ != nullptr) Contained([&] { return head_.destroy(self_), 0u; });
  dlclose(library_);
}

Status PluginFile::TakeTable() {
  auto* entry = reinterpret_cast<const void* (*)(u32)>(dlsym(library_, contract_.entry));
  if (entry == nullptr) {
    return Error{std::string("has no function ") + contract_.entry + "(): it is no " +
                 contract_.policy + " (docs/policies.md)"};
  }
  if (Contained([&] { return table_ = entry(contract_.abi), 0u; }) == kThrew) {
    return Error{"threw an exception when it was asked for its table"};
  }
  // Another version's may be shorter.
  if (table_ != nullptr) std::memcpy(&head_, table_, offsetof(PluginTableHead, name));
  if (head_.abi == contract_.abi && head_.size == contract_.table_size) {
    std::memcpy(&head_, table_, sizeof(head_));
  }
  if (const std::string what = WrongTable(); !what.empty()) return Error{what};
  name_ = head_.name;
  return Ok{};
}

std::string PluginFile::WrongTable() const {
  const std::string program = std::to_string(contract_.abi);
  if (table_ == nullptr) {
    return std::string("has no ") + contract_.policy + " for interface version " + program;
  }
  if (head_.abi != contract_.abi || head_.size != contract_.table_size) {
    return "was built for interface version " + std::to_string(head_.abi) + ", this program has " +
           program + ": build it again with this one's " + contract_.header;
  }
  if (head_.name == nullptr || head_.create == nullptr || head_.destroy == nullptr ||
      head_.on_event == nullptr) {
    return "lacks a name, create, destroy or on_event in its table";
  }
  if ((head_.needs & ~contract_.known_needs) != 0) {
    return "asks for needs that this program does not know";
  }
  return "";
}

Status PluginFile::Create(const std::string& parameters) {
  char error[256] = "no reason given";
  const u32 result = Contained([&] {
    self_ = head_.create(parameters.c_str(), error, sizeof(error));
    return 0u;
  });
  if (result == kThrew) return Error{"threw an exception when it was made"};
  error[sizeof(error) - 1] = '\0';
  if (self_ == nullptr) return Error{"refuses its parameters '" + parameters + "': " + error};
  return Ok{};
}

void PluginFile::Blame(const char* what, const char* successor) {
  if (fault() != nullptr) return;
  std::snprintf(fault_, sizeof(fault_), "%s '%s' %s; %s decides from now on", contract_.kind,
                path_.c_str(), what, successor);
}

}  // namespace alibi::adapt
