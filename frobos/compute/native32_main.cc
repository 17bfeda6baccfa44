// SPDX-License-Identifier: Apache-2.0
// The 32-bit compute programs in a host process: no C library (Debian's 64-bit one has no 32-bit
// sister by default), but two system calls. Output and arguments: run32.h.

#include "frobos/compute/run32.h"

namespace alibi::frobos {
namespace {

constexpr int kSysExit = 1, kSysWrite = 4;

int Syscall(int number, int a, const void* b, size_t c) {
  int result;
  asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
  return result;
}

class Process : public Host32 {
 public:
  void Write(const char* text, size_t length) override { Syscall(kSysWrite, 1, text, length); }
  const char* Run(uint64_t (*program)(unsigned), unsigned scale, uint64_t* checksum) override {
    *checksum = program(scale);
    return nullptr;
  }
};

}  // namespace

// The arguments lie on the stack: argc, then argv.
extern "C" [[gnu::used, noreturn]] void Start(const int* stack) {
  const char* const* argv = reinterpret_cast<const char* const*>(stack + 1);
  char words[512];
  size_t length = 0;
  for (int i = 1; i < stack[0]; i++) {
    for (const char* p = argv[i]; *p != 0 && length < sizeof(words) - 2; p++) words[length++] = *p;
    words[length++] = ' ';
    if (length > sizeof(words) - 2) break;
  }
  words[length] = 0;
  Process process;
  const bool good = RunPrograms32(&process, words);
  for (;;) Syscall(kSysExit, good ? 0 : 1, nullptr, 0);
}

asm(".global _start\n"
    "_start:\n"
    " movl %esp, %eax\n"
    " andl $-16, %esp\n"
    " subl $12, %esp\n"
    " pushl %eax\n"
    " call Start\n");

}  // namespace alibi::frobos
