// SPDX-License-Identifier: Apache-2.0
// Golden files of emitted code, instruction by instruction. Such a file lists its own cases, so a
// new one is added by its first line alone, and accepted (see testsuite/golden.h):
//
//   # A comment.
//   plans: direct checked          how the sites of the following cases are translated
//   flags: dead                    ... and whether the arithmetic flags are live around them
//   64: 48 8b 07: MOV rax, [rdi]   size of the code, bytes; the rest of the entry is made
//
// The size is 64, 32 or 16; "u" behind it is code at CPL 3 instead of 0, "s" (32) code whose
// segments are not flat.
#ifndef ALIBI_TESTSUITE_EMITTED_CODE_CASE_FILE_H_
#define ALIBI_TESTSUITE_EMITTED_CODE_CASE_FILE_H_

#include <functional>
#include <string>

#include "isa/ir.h"

namespace alibi::testsuite {

// `text` with each case's code made anew. `seen` is told of each instruction.
std::string MakeAnew(const std::string& text, const std::function<void(const isa::Instr&)>& seen);

}  // namespace alibi::testsuite

#endif  // ALIBI_TESTSUITE_EMITTED_CODE_CASE_FILE_H_
