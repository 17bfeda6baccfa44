// SPDX-License-Identifier: Apache-2.0
// Host code as two decoder libraries read it, set up alike for all of the test suite.
#ifndef ALIBI_TESTSUITE_HOST_DISASSEMBLER_H_
#define ALIBI_TESTSUITE_HOST_DISASSEMBLER_H_

#include <Zydis/Zydis.h>
#include <capstone/capstone.h>

#include <string>

#include "base/types.h"

namespace alibi::testsuite {

// The second opinion on where instructions end.
class Capstone {
 public:
  Capstone();
  ~Capstone();
  Capstone(const Capstone&) = delete;
  Capstone& operator=(const Capstone&) = delete;
  // The length of the instruction at `bytes`; 0: not understood.
  unsigned Decode(const u8* bytes, std::size_t size, u64 pc);
  // Of what was decoded last.
  std::string Text() const;

 private:
  csh handle_ = 0;
  cs_insn* insn_ = nullptr;
};

const ZydisDecoder& HostDecoder();

}  // namespace alibi::testsuite

#endif  // ALIBI_TESTSUITE_HOST_DISASSEMBLER_H_
