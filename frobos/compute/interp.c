/* SPDX-License-Identifier: Apache-2.0 */
/* A bytecode interpreter: dispatch by indirect jump, an operand stack in memory. The program it
   runs is a sieve. */
#include "frobos/compute/compute.h"

enum Op {
  kPush,
  kLoad,
  kStore,
  kLoadIndexed,
  kStoreIndexed,
  kAdd,
  kSub,
  kMul,
  kLess,
  kJump,
  kJumpIfZero,
  kHalt
};

enum { kSieveSize = 512, kI = 0, kJ = 1, kCount = 2, kLimit = 3 };

static const int32_t program[] = {
    kPush,       0,      kStore,       kCount,                /*  0: count = 0 */
    kPush,       2,      kStore,       kI,                    /*  4: i = 2 */
    kLoad,       kI,     kLoad,        kLimit, kLess,         /*  8: while (i < limit) */
    kJumpIfZero, 59,                                          /* 13 */
    kLoad,       kI,     kLoadIndexed,                        /* 15: if (sieve[i] == 0) */
    kJumpIfZero, 22,                                          /* 18 */
    kJump,       50,                                          /* 20 */
    kLoad,       kCount, kPush,        1,      kAdd,          /* 22: count += 1 */
    kStore,      kCount,                                      /* 27 */
    kLoad,       kI,     kLoad,        kI,     kMul,          /* 29: j = i * i */
    kStore,      kJ,                                          /* 34 */
    kLoad,       kJ,     kLoad,        kLimit, kLess,         /* 36: while (j < limit) */
    kJumpIfZero, 50,                                          /* 41 */
    kPush,       1,      kLoad,        kJ,     kStoreIndexed, /* 43: sieve[j] = 1 */
    kJump,       60,                                          /* 48 */
    kLoad,       kI,     kPush,        1,      kAdd,          /* 50: i += 1 */
    kStore,      kI,     kJump,        8,                     /* 55 */
    kHalt,                                                    /* 59 */
    kLoad,       kJ,     kLoad,        kI,     kAdd,          /* 60: j += i */
    kStore,      kJ,     kJump,        36,                    /* 65 */
};

static int64_t variables[8];
static int64_t sieve[kSieveSize];

static __attribute__((noinline)) void interpret(const int32_t* code) {
  int64_t stack[32];
  int64_t* top = stack;
  const int32_t* pc = code;
  for (;;) {
    switch ((enum Op) * pc++) {
      case kPush:
        *top++ = *pc++;
        break;
      case kLoad:
        *top++ = variables[*pc++];
        break;
      case kStore:
        variables[*pc++] = *--top;
        break;
      case kLoadIndexed:
        top[-1] = sieve[top[-1]];
        break;
      case kStoreIndexed:
        top -= 2;
        sieve[top[1]] = top[0];
        break;
      case kAdd:
        top--;
        top[-1] += top[0];
        break;
      case kSub:
        top--;
        top[-1] -= top[0];
        break;
      case kMul:
        top--;
        top[-1] *= top[0];
        break;
      case kLess:
        top--;
        top[-1] = top[-1] < top[0];
        break;
      case kJump:
        pc = code + *pc;
        break;
      case kJumpIfZero:
        pc = *--top == 0 ? code + *pc : pc + 1;
        break;
      case kHalt:
        return;
    }
  }
}

uint64_t run_interp(unsigned scale) {
  uint64_t checksum = 0;
  for (unsigned i = 0; i < scale; i++) {
    for (unsigned j = 0; j < kSieveSize; j++) sieve[j] = 0;
    variables[kLimit] = kSieveSize;
    interpret(program);
    checksum = compute_mix(checksum, (uint64_t)variables[kCount]);
  }
  return checksum;
}
