// SPDX-License-Identifier: Apache-2.0
#include "cli/sandbox.h"

#include <asm/termbits.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/sandbox/call_filter.h"
#include "base/sandbox/denied_call.h"
#include "base/sandbox/file_rules.h"
#include "hardware/kvm_api.h"

#ifndef PR_SET_VMA  // Linux 5.17
#define PR_SET_VMA 0x53564d41
#endif

namespace alibi::vmm {
namespace {

void DropCapabilities() {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  syscall(SYS_capset, &header, none);
}

}  // namespace

std::vector<sock_filter> SandboxFilter(bool kvm) {
  using sandbox::CallRule, sandbox::kAllow;
  std::vector<CallRule> rules = {
#define ALIBI_SANDBOX_CALL(room, call) {SYS_##call, kAllow},
#define ALIBI_SANDBOX_CALL_IF(room, call, argument, mask, value) \
  {SYS_##call, kAllow, argument, mask, value},
#define ALIBI_SANDBOX_REFUSED(room, call) {SYS_##call, sandbox::FailWith(EACCES)},
#include "cli/sandbox_calls.inc"
#undef ALIBI_SANDBOX_CALL
#undef ALIBI_SANDBOX_CALL_IF
#undef ALIBI_SANDBOX_REFUSED
  };
  if (kvm) {
    constexpr int kRequest = 1;
#define ALIBI_KVM_REQUEST(request) \
  rules.push_back({SYS_ioctl, kAllow, kRequest, ~u32{0}, static_cast<u32>(request)});
#include "hardware/kvm_requests.inc"
#undef ALIBI_KVM_REQUEST
  }
  rules.push_back({SYS_tgkill, kAllow, 0, ~u32{0}, static_cast<u32>(getpid())});
  return sandbox::CompileFilter(rules, sandbox::kTrap);
}

Status EnterSandbox(const std::string& socket_folder, bool kvm) {
  sandbox::NameDeniedCalls("alibi");
  DropCapabilities();
  // Which processes it may signal the filter says: those whose pidfds it has, satellites among
  // them.
  sandbox::FileRules files({.tcp = true, .signals = false});
  if (!socket_folder.empty()) files.Allow(socket_folder, sandbox::FileAccess::kSocket);
  if (!files.Enter()) {
    return Error{std::string("the kernel refuses its Landlock rules: ") + std::strerror(errno)};
  }
  if (const int error = sandbox::EnterFilter(SandboxFilter(kvm), /*all_threads=*/true);
      error != 0) {
    return Error{std::string("the kernel takes no filter of system calls: ") +
                 std::strerror(error)};
  }
  return Ok{};
}

}  // namespace alibi::vmm
