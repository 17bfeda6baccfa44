/* SPDX-License-Identifier: Apache-2.0 */
// So many steps of an interpreter, then a system call that does nothing, again and again: user code
// that computes, at any rate of kernel entries. See entries.inc.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

// An accumulator, a memory and an index into it: loads, stores, arithmetic, and a computed jump at
// each step, which the CPU learns to predict, for the program is a short loop.
enum Operation { kAdd, kXor, kLoad, kStore, kMultiply, kRotate, kMove, kShift, kOperations };
enum { kProgram = 64, kMemory = 4096 };

static unsigned char program[kProgram];
static uint64_t memory[kMemory];

static uint64_t Interpret(unsigned steps, uint64_t value) {
  unsigned at = (unsigned)value % kProgram, index = 0;
  for (unsigned i = 0; i < steps; ++i) {
    switch ((enum Operation)program[at]) {
      case kAdd:
        value += memory[index];
        break;
      case kXor:
        value ^= memory[(index + 1) % kMemory];
        break;
      case kLoad:
        value = memory[(value >> 7) % kMemory] + 1;
        break;
      case kStore:
        memory[index] = value;
        break;
      case kMultiply:
        value *= 0x9e3779b97f4a7c15u;
        break;
      case kRotate:
        value = value << 13 | value >> 51;
        break;
      case kMove:
        index = (unsigned)(value >> 17) % kMemory;
        break;
      case kShift:
      case kOperations:
        value ^= value >> 29;
        break;
    }
    at = (at + 1) % kProgram;
  }
  return value;
}

uint64_t RunEntries(const struct Run* run) {
  uint64_t state = 13, value = 17;
  for (unsigned i = 0; i < kProgram; ++i)
    program[i] = (unsigned char)(NextRandom(&state) % kOperations);
  for (unsigned i = 0; i < kMemory; ++i) memory[i] = NextRandom(&state);
  const long parent = syscall(SYS_getppid);
  StartClock();
  for (unsigned i = 0; i < run->count; ++i) {
    value = Interpret(run->size, value);
    value += syscall(SYS_getppid) != parent;
  }
  StopClock();
  return value;
}
