// SPDX-License-Identifier: Apache-2.0
#include "direct/satellite_filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstddef>

#include "direct/stub_layout.h"

namespace alibi::direct {
namespace {

constexpr u32 kNumber = offsetof(seccomp_data, nr);
constexpr u32 kArchitecture = offsetof(seccomp_data, arch);
constexpr u32 kPlace = offsetof(seccomp_data, instruction_pointer);
constexpr u32 UpperHalf(unsigned argument) {
  return static_cast<u32>(offsetof(seccomp_data, args) + 8 * argument + 4);
}

// Conditions in a row, then an answer: a condition that does not hold leads behind the answer.
class Program {
 public:
  Program& If(u32 field, u32 value) {
    code_.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, field});
    pending_.push_back(code_.size());
    code_.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 0, value});
    return *this;
  }
  Program& IfNot(u32 field, u32 value) {
    code_.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, field});
    code_.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value});
    pending_.push_back(code_.size());
    code_.push_back({BPF_JMP | BPF_JA, 0, 0, 0});
    return *this;
  }
  Program& At(u64 place) {
    return If(kPlace, static_cast<u32>(place)).If(kPlace + 4, static_cast<u32>(place >> 32));
  }
  void Answer(u32 answer) {
    code_.push_back({BPF_RET | BPF_K, 0, 0, answer});
    for (const std::size_t at : pending_) {
      const u32 distance = static_cast<u32>(code_.size() - at - 1);
      if (code_[at].code == (BPF_JMP | BPF_JA)) {
        code_[at].k = distance;
      } else {
        code_[at].jf = static_cast<u8>(distance);
      }
    }
    pending_.clear();
  }
  std::vector<sock_filter> Take() { return std::move(code_); }

 private:
  std::vector<sock_filter> code_;
  std::vector<std::size_t> pending_;
};

}  // namespace

std::vector<sock_filter> ListenerFilter(const StubCalls& stub) {
  Program program;
  program.At(stub.after_stop).Answer(SECCOMP_RET_USER_NOTIF);
  program.Answer(SECCOMP_RET_ALLOW);
  return program.Take();
}

std::vector<sock_filter> UserFilter(const StubCalls& stub, const CallKey& key) {
  Program program;
  program.IfNot(kArchitecture, AUDIT_ARCH_X86_64).Answer(SECCOMP_RET_TRAP);
  program.If(kNumber, CALL_STOP).At(stub.after_stop).Answer(SECCOMP_RET_ALLOW);
  program.If(kNumber, SYS_rt_sigreturn).At(stub.after_return).Answer(SECCOMP_RET_ALLOW);
  for (const u32 call : {SYS_mmap, SYS_munmap, SYS_sched_setaffinity}) {
    program.If(kNumber, call)
        .At(stub.after_call)
        .If(UpperHalf(3), key.words[0])
        .If(UpperHalf(4), key.words[1])
        .Answer(SECCOMP_RET_ALLOW);
  }
  program.If(kNumber, SYS_exit_group).At(stub.after_exit).Answer(SECCOMP_RET_ALLOW);
  program.Answer(SECCOMP_RET_TRAP);
  return program.Take();
}

}  // namespace alibi::direct
