// SPDX-License-Identifier: Apache-2.0
// The files that a process may open from now on, by Linux's Landlock: whatever it is led to do
// later. Descriptors that are open stay as they are.
//
// A kernel without Landlock (before 5.13, or where it is switched off) confines nothing; the rest
// of what is said here still works. Newer kernels can deny more; what this one cannot is left out.
#ifndef ALIBI_BASE_SANDBOX_FILE_RULES_H_
#define ALIBI_BASE_SANDBOX_FILE_RULES_H_

#include <string>

#include "base/file_descriptor.h"
#include "base/types.h"

namespace alibi::sandbox {

// The version of the kernel's Landlock; 0: it has none.
int LandlockVersion();

enum class FileAccess : u8 {
  kRead,    // a file, or all in a folder
  kWrite,   // and to write: a file or a device
  kRun,     // to read and execute
  kSocket,  // in a folder: to make sockets, and to remove what is there
};

class FileRules {
 public:
  // What else Landlock shall deny: TCP, and signals to processes outside of the rules, even by a
  // pidfd that was opened before.
  struct Others {
    bool tcp = false, signals = false;
  };
  // No file is allowed at first.
  explicit FileRules(Others denied);

  // Paths that do not exist are left out: nothing can be opened there anyway.
  void Allow(const std::string& path, FileAccess access);
  // What a dynamically linked program reads before it begins.
  void AllowSystemLibraries();

  // False: the kernel has no Landlock, and Enter() does nothing.
  bool work() const { return ruleset_.get() >= 0; }
  // For the calling thread, and the threads and processes that it makes. For good; it also gives up
  // all that set-user-ID programs could give (no_new_privs). May be called between fork() and
  // exec(). False: the kernel refuses.
  bool Enter() const;

 private:
  FileDescriptor ruleset_;
};

}  // namespace alibi::sandbox

#endif  // ALIBI_BASE_SANDBOX_FILE_RULES_H_
