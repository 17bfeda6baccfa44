// SPDX-License-Identifier: Apache-2.0
// Disassembly of host code, for dumps. The only user of the disassembling library here: a foreign
// one, so that a dump also checks what the emitter's library wrote.
#ifndef ALIBI_VMM_DUMP_HOST_LISTING_H_
#define ALIBI_VMM_DUMP_HOST_LISTING_H_

#include <string>
#include <vector>

#include "base/types.h"

namespace alibi::vmm {

struct HostInstr {
  u64 address = 0;
  std::vector<u8> bytes;
  std::string mnemonic;
  std::string operands;  // with %gs operands named, see NameGsOperand
  bool jump = false;     // direct: `target` is where it leads
  u64 target = 0;
  bool has_immediate = false;  // a 64-bit immediate: an address or a guest PC
  u64 immediate = 0;
};

// Bytes that are no instruction become one-byte "(bad)" lines.
std::vector<HostInstr> DisassembleHost(const std::vector<u8>& bytes, u64 address);

// What lies at a %gs displacement, after abi/contract.h: "vcpu.r10", "load_slot[3].neg_page",
// "jump_table[0x12]". `index` is the operand's index part, such as "r10*8", or "".
std::string NameGsOperand(const std::string& index, i64 displacement);

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_DUMP_HOST_LISTING_H_
