// SPDX-License-Identifier: Apache-2.0
#include "base/sandbox/file_rules.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace alibi::sandbox {
namespace {

// Linux's user interface, include/uapi/linux/landlock.h, as far as it is used here: headers of
// hosts older than their kernels lack half of it.
struct RulesetAttributes {
  u64 files, network, scopes;
};
struct [[gnu::packed]] PathRule {
  u64 access;
  i32 parent;
};
constexpr u32 kVersionFlag = 1;
constexpr int kPathRule = 1;
constexpr u64 kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadFolder = 1 << 3,
              kRemoveFile = 1 << 5, kMakeSocket = 1 << 9, kTruncate = 1 << 14, kIoctl = 1 << 15;
constexpr u64 kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kIoctl;
constexpr u64 kBindAndConnectTcp = 3, kAbstractSockets = 1, kSignals = 2;

// What each version can deny: rights to files from bit 0 on.
constexpr unsigned kFileRights[] = {0, 13, 14, 15, 15, 16};
constexpr int kNetworkSince = 4, kScopesSince = 6;

u64 DeniableRights() {
  constexpr int kKnown = static_cast<int>(std::size(kFileRights)) - 1;
  const int version = LandlockVersion();
  return (u64{1} << kFileRights[version > kKnown ? kKnown : version]) - 1;
}

int MakeRuleset(FileRules::Others denied) {
  const int version = LandlockVersion();
  if (version == 0) return -1;
  RulesetAttributes attributes{DeniableRights(), 0, 0};
  if (version >= kNetworkSince && denied.tcp) attributes.network = kBindAndConnectTcp;
  if (version >= kScopesSince) {
    attributes.scopes = kAbstractSockets | (denied.signals ? kSignals : 0);
  }
  // Old kernels refuse a structure that is longer than theirs, unless the rest is zero.
  return static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0));
}

u64 RightsOf(FileAccess access) {
  switch (access) {
    case FileAccess::kRead:
      return kReadFile | kReadFolder;
    case FileAccess::kWrite:
      return kReadFile | kReadFolder | kWriteFile | kTruncate | kIoctl;
    case FileAccess::kRun:
      return kReadFile | kReadFolder | kExecute;
    case FileAccess::kSocket:
      return kMakeSocket | kRemoveFile;
  }
  return 0;
}

}  // namespace

int LandlockVersion() {
  static const int version = [] {
    const long answer = syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersionFlag);
    return answer < 0 ? 0 : static_cast<int>(answer);
  }();
  return version;
}

FileRules::FileRules(Others denied) : ruleset_(MakeRuleset(denied)) {}

void FileRules::Allow(const std::string& path, FileAccess access) {
  if (!work()) return;
  const FileDescriptor place(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info;
  if (place.get() < 0 || fstat(place.get(), &info) != 0) return;
  u64 rights = RightsOf(access) & DeniableRights();
  if (!S_ISDIR(info.st_mode)) rights &= kOfFiles;
  const PathRule rule{rights, place.get()};
  syscall(SYS_landlock_add_rule, ruleset_.get(), kPathRule, &rule, 0);
}

void FileRules::AllowSystemLibraries() {
  for (const char* folder : {"/lib", "/lib64", "/lib32", "/usr", "/nix/store", "/gnu/store"}) {
    Allow(folder, FileAccess::kRun);
  }
  for (const char* file : {"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime"}) {
    Allow(file, FileAccess::kRead);
  }
}

bool FileRules::Enter() const {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  return !work() || syscall(SYS_landlock_restrict_self, ruleset_.get(), 0) == 0;
}

}  // namespace alibi::sandbox
