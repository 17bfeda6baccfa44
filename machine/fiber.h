// SPDX-License-Identifier: Apache-2.0
// A second stack for one thread: lets the embedding API leave the engine in the middle of an
// instruction and come back with the data.
#ifndef ALIBI_MACHINE_FIBER_H_
#define ALIBI_MACHINE_FIBER_H_

#include <functional>
#include <memory>

#include "base/result.h"
#include "base/types.h"

namespace alibi::vmm {

class Fiber {
 public:
  // `body` never returns.
  static Result<std::unique_ptr<Fiber>> Create(std::function<void()> body);
  // What stands on a suspended fiber's stack is not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it yields.
  void Resume();
  // From inside the body: Resume() returns.
  void Yield();

 private:
  explicit Fiber(std::function<void()> body) : body_(std::move(body)) {}
  [[noreturn]] static void Start(Fiber* fiber);
  void Switch(void** from, void* to, const void* stack, u64 stack_bytes);

  std::function<void()> body_;
  u8* memory_ = nullptr;
  void* own_sp_ = nullptr;     // while suspended
  void* caller_sp_ = nullptr;  // while running
  const void* caller_stack_ = nullptr;
  u64 caller_stack_bytes_ = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_FIBER_H_
