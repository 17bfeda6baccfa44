// SPDX-License-Identifier: Apache-2.0
#include "base/sandbox/call_filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace alibi::sandbox {
namespace {

constexpr u32 kX32Bit = 0x40000000;

sock_filter Load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<u32>(offset));
}
sock_filter Return(u32 answer) { return BPF_STMT(BPF_RET | BPF_K, answer); }
// Skips `skipped` instructions unless the accumulator is `value`.
sock_filter UnlessEqual(u32 value, u8 skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}

}  // namespace

const u32 kAllow = SECCOMP_RET_ALLOW;
const u32 kTrap = SECCOMP_RET_TRAP;
u32 FailWith(int error) { return SECCOMP_RET_ERRNO | static_cast<u32>(error); }

std::vector<sock_filter> CompileFilter(std::span<const CallRule> rules, u32 otherwise) {
  std::vector<sock_filter> program = {
      Load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      Return(SECCOMP_RET_KILL_PROCESS),
      Load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1),
      Return(SECCOMP_RET_KILL_PROCESS),
  };
  for (const CallRule& rule : rules) {
    const u32 call = static_cast<u32>(rule.call);
    if (rule.argument < 0) {
      program.push_back(UnlessEqual(call, 1));
      program.push_back(Return(rule.answer));
      continue;
    }
    program.push_back(UnlessEqual(call, 5));
    program.push_back(
        Load(offsetof(seccomp_data, args) + sizeof(u64) * static_cast<std::size_t>(rule.argument)));
    program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, rule.mask));
    program.push_back(UnlessEqual(rule.value, 1));
    program.push_back(Return(rule.answer));
    program.push_back(Load(offsetof(seccomp_data, nr)));
  }
  program.push_back(Return(otherwise));
  return program;
}

int EnterFilter(std::span<const sock_filter> filter, bool all_threads) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  const sock_fprog program = {static_cast<unsigned short>(filter.size()),
                              const_cast<sock_filter*>(filter.data())};
  const unsigned flags = all_threads ? SECCOMP_FILTER_FLAG_TSYNC : 0;
  const long answer = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  if (answer > 0) return EBUSY;  // a thread with a filter of its own
  return answer == 0 ? 0 : errno;
}

}  // namespace alibi::sandbox
