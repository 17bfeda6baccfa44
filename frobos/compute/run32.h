// SPDX-License-Identifier: Apache-2.0
// The 32-bit compute programs' run loop, for the kernel (compute32.cc) and for a Linux process
// (native32_main.cc), neither of which has a C library. Prints what compute.cc does.
#ifndef ALIBI_FROBOS_COMPUTE_RUN32_H_
#define ALIBI_FROBOS_COMPUTE_RUN32_H_

#include <stddef.h>
#include <stdint.h>

#include "frobos/compute/compute.h"

namespace alibi::frobos {

class Host32 {
 public:
  virtual void Write(const char* text, size_t length) = 0;
  // Runs the program once; a text if that went wrong.
  virtual const char* Run(uint64_t (*program)(unsigned), unsigned scale, uint64_t* checksum) = 0;
};

// words: samples=N scale=PERCENT only=a,b,c quick, separated by spaces. True: all went well.
bool RunPrograms32(Host32* host, const char* words);

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMPUTE_RUN32_H_
