// SPDX-License-Identifier: Apache-2.0
// What policy plug-ins of every kind have in common: a shared object with a table of functions in
// C, calls that let no exception out, and the line that says what a plug-in has done wrong.
#ifndef ALIBI_ADAPT_PLUGIN_FILE_H_
#define ALIBI_ADAPT_PLUGIN_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/types.h"

namespace alibi::adapt {

// "./mine.so", "mine.so(3,5)": it has a '/' or ends in ".so" in front of the parameters.
bool IsPluginSpec(const std::string& spec);

// The plug-in that runs on this thread now (as for dlopen), or null: for crash reports.
const char* RunningPlugin();
// Returns the one so far.
const char* SetRunningPlugin(const char* path);

// Of one kind of plug-ins.
struct PluginContract {
  const char* kind;    // "policy plug-in", as lines for people begin
  const char* policy;  // "policy", as what it must have is called
  const char* entry;   // the function that the file exports
  const char* header;  // that declares it
  u32 abi;             // its version
  u32 table_size;
  u32 known_needs;  // bits
};

// The front of every kind's table.
struct PluginTableHead {
  u32 abi;
  u32 size;
  const char* name;
  u32 needs;
  void* (*create)(const char* parameters, char* error, std::size_t error_size);
  void (*destroy)(void* self);
  void (*on_event)();  // its type is the kind's
};

class PluginFile {
 public:
  // A call that threw.
  static constexpr u32 kThrew = ~u32{0};

  // Loads the file, checks its table, and makes the policy. Errors are one line that begins with
  // the kind and the file.
  static Result<std::unique_ptr<PluginFile>> Load(const PluginContract& contract,
                                                  const std::string& spec);
  ~PluginFile();
  PluginFile(const PluginFile&) = delete;
  PluginFile& operator=(const PluginFile&) = delete;

  const std::string& name() const { return name_; }
  const void* table() const { return table_; }
  void* self() const { return self_; }

  // Runs `call`, which calls the plug-in: kThrew, or what it returns.
  template <class Call>
  u32 Contained(Call&& call) const {
    const char* const before = SetRunningPlugin(path_.c_str());
    u32 result = kThrew;
    try {
      result = call();
    } catch (...) {
    }
    SetRunningPlugin(before);
    return result;
  }

  // Of the first time only: "KIND 'FILE' WHAT; SUCCESSOR decides from now on".
  void Blame(const char* what, const char* successor);
  // Null: it has done nothing wrong.
  const char* fault() const { return fault_[0] != '\0' ? fault_ : nullptr; }

 private:
  PluginFile(const PluginContract& contract, std::string path, void* library)
      : contract_(contract), path_(std::move(path)), library_(library) {}
  Status TakeTable();
  std::string WrongTable() const;  // empty: it is sound
  Status Create(const std::string& parameters);

  const PluginContract& contract_;
  std::string path_;
  void* library_;
  const void* table_ = nullptr;
  PluginTableHead head_{};
  std::string name_;
  void* self_ = nullptr;
  char fault_[256] = "";
};

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_PLUGIN_FILE_H_
