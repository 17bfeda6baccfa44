// SPDX-License-Identifier: Apache-2.0
#include "machine/fiber.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#ifdef ALIBI_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace alibi::vmm {
namespace {

constexpr u64 kStackBytes = u64{1} << 20;
constexpr u64 kGuardBytes = kPageSize;

}  // namespace

// void AlibiSwitchStacks(void** save, void* load): pushes what a callee must preserve, swaps stacks
// and pops. No system call, unlike swapcontext(), which saves the signal mask.
extern "C" void AlibiSwitchStacks(void** save, void* load);
asm(R"(
.text
.p2align 4
.globl AlibiSwitchStacks
.type AlibiSwitchStacks, @function
AlibiSwitchStacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size AlibiSwitchStacks, .-AlibiSwitchStacks
# A new fiber's first return address: its argument waits in r12.
.p2align 4
.globl AlibiFiberEntry
.type AlibiFiberEntry, @function
AlibiFiberEntry:
  movq %r12, %rdi
  callq *%r13
  ud2
.size AlibiFiberEntry, .-AlibiFiberEntry
)");
extern "C" void AlibiFiberEntry();

Result<std::unique_ptr<Fiber>> Fiber::Create(std::function<void()> body) {
  std::unique_ptr<Fiber> fiber(new Fiber(std::move(body)));
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    return Error{std::string("VCPU stack: ") + std::strerror(errno) + "; free host memory"};
  }
  fiber->memory_ = static_cast<u8*>(memory);
  // What AlibiSwitchStacks pops: control words, r15, r14, r13, r12, rbx, rbp, return address.
  u64* frame = reinterpret_cast<u64*>(fiber->memory_ + kGuardBytes + kStackBytes) - 8;
  frame[0] = u64{0x37f} << 32 | 0x1f80;
  frame[3] = reinterpret_cast<u64>(&Fiber::Start);
  frame[4] = reinterpret_cast<u64>(fiber.get());
  frame[7] = reinterpret_cast<u64>(&AlibiFiberEntry);
  fiber->own_sp_ = frame;
  return fiber;
}

Fiber::~Fiber() {
  if (memory_ != nullptr) munmap(memory_, kGuardBytes + kStackBytes);
}

void Fiber::Start(Fiber* fiber) {
#ifdef ALIBI_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &fiber->caller_stack_, &fiber->caller_stack_bytes_);
#endif
  fiber->body_();
  std::abort();
}

void Fiber::Switch(void** from, void* to, [[maybe_unused]] const void* stack,
                   [[maybe_unused]] u64 stack_bytes) {
#ifdef ALIBI_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack, stack_bytes);
#endif
  AlibiSwitchStacks(from, to);
#ifdef ALIBI_ASAN
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake, &bottom, &size);
  // Back on the fiber: that was the caller's stack.
  if (stack != memory_ + kGuardBytes) {
    caller_stack_ = bottom;
    caller_stack_bytes_ = size;
  }
#endif
}

void Fiber::Resume() { Switch(&caller_sp_, own_sp_, memory_ + kGuardBytes, kStackBytes); }

void Fiber::Yield() { Switch(&own_sp_, caller_sp_, caller_stack_, caller_stack_bytes_); }

}  // namespace alibi::vmm
