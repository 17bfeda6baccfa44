// SPDX-License-Identifier: Apache-2.0
// A few bytes of guest code in a machine of their own, for dumps: long mode with 4 KB pages, or
// 32-bit protected mode without paging; a stack; and behind the code's RET, HLT.
#ifndef ALIBI_INSPECT_DUMP_PROGRAM_H_
#define ALIBI_INSPECT_DUMP_PROGRAM_H_

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "pc/pc_machine.h"

namespace alibi::vmm {

inline constexpr LinearAddr kProgramAddress{0x100000};

// Makes the machine ready to run `code` at the linear address `at`. `executions` outlives it.
Result<std::unique_ptr<PcMachine>> MakeProgramMachine(const std::vector<u8>& code, LinearAddr at,
                                                      unsigned code_bits, const std::string& policy,
                                                      runtime::ExecutionSink* executions = nullptr);

// 64-bit programs: the physical (and linear) address of the page-table entry that maps the linear
// page `at`, which must be below 2 MB.
u64 ProgramPteAddress(LinearAddr at);

// Runs until the guest halts, or shuts down, or `seconds` are over. Says how it ended.
std::string RunLimited(PcMachine& machine, double seconds);

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_DUMP_PROGRAM_H_
