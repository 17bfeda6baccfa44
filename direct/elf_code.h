// SPDX-License-Identifier: Apache-2.0
// The code of an ELF file, to judge: for the test and the benchmark.
#ifndef ALIBI_DIRECT_ELF_CODE_H_
#define ALIBI_DIRECT_ELF_CODE_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::direct {

struct ElfPart {
  u64 address = 0;
  std::vector<u8> bytes;
};

struct ElfFunction {
  u64 address, size;
};

struct ElfCode {
  unsigned code_bits = 0;              // 64 or 32
  std::vector<ElfPart> segments;       // executable ones, as far as the file has their bytes
  std::vector<ElfFunction> functions;  // of the symbol table; none if it is stripped
};

Result<ElfCode> ReadElfCode(const std::string& path);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_ELF_CODE_H_
