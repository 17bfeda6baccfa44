// SPDX-License-Identifier: Apache-2.0
// Disassembly of host code, for dumps: by a library that neither decoder nor emitter use, so that a
// dump also checks what they made.
#ifndef ALIBI_INSPECT_DUMP_HOST_LISTING_H_
#define ALIBI_INSPECT_DUMP_HOST_LISTING_H_

#include <string>
#include <vector>

#include "base/types.h"

namespace alibi::vmm {

struct HostInstr {
  HostAddr address;
  std::vector<u8> bytes;
  std::string mnemonic;
  std::string operands;  // with %gs operands named, see abi/gs_names.h
  bool jump = false;     // direct: `target` is where it leads
  HostAddr target;
  bool has_immediate = false;  // a 64-bit immediate: an address or a guest PC
  u64 immediate = 0;
};

// Bytes that are no instruction become one-byte "(bad)" lines.
std::vector<HostInstr> DisassembleHost(const std::vector<u8>& bytes, HostAddr address);

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_DUMP_HOST_LISTING_H_
