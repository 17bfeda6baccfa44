// SPDX-License-Identifier: Apache-2.0
// The registers that a vector instruction names, for those few that ask: no Instr carries them.
#ifndef ALIBI_ISA_VECTOR_FIELDS_H_
#define ALIBI_ISA_VECTOR_FIELDS_H_

#include "base/types.h"
#include "isa/ir.h"

namespace alibi::isa {

// Of a VEX or EVEX prefix (SDM vol. 2, 2.3.5 and 2.7.1), or of a legacy one. There is a ModRM byte.
struct VectorFields {
  unsigned reg = 0;  // ModRM.reg with its extensions
  unsigned rm = 0;   // ModRM.rm as a register
  unsigned vvvv = 0;
  unsigned mask = 0;        // EVEX.aaa
  unsigned bytes = 16;      // vector length
  bool wide = false;        // W
  bool wide_index = false;  // gathers and scatters: indices have 64 bits
  bool evex = false;

  explicit VectorFields(const Instr& instr) {
    const u8* bytes_of = instr.bytes.data();
    const u8 modrm = bytes_of[instr.layout.modrm];
    reg = (modrm >> 3) & 7;
    rm = modrm & 7;
    wide_index = bytes_of[instr.layout.opcode] & 1;
    if (instr.encoding == Encoding::kLegacy) {
      const u8 rex = instr.layout.rex == 0xff ? 0 : bytes_of[instr.layout.rex];
      reg |= (rex & 4) << 1;
      rm |= (rex & 1) << 3;
      return;
    }
    const u8* prefix = bytes_of + instr.layout.vector_prefix;
    const bool long_code = instr.code_bits == 64;
    if (prefix[0] == 0xc5) {
      reg |= (~prefix[1] & 0x80) >> 4;
      SetVexTail(prefix[1]);
    } else if (prefix[0] == 0xc4) {
      reg |= (~prefix[1] & 0x80) >> 4;
      rm |= (~prefix[1] & 0x20) >> 2;
      wide = prefix[2] & 0x80;
      SetVexTail(prefix[2]);
    } else {
      evex = true;
      reg |= (~prefix[1] & 0x80) >> 4 | (~prefix[1] & 0x10);
      rm |= (~prefix[1] & 0x20) >> 2;
      wide = prefix[2] & 0x80;
      vvvv = (~prefix[2] >> 3) & 15;
      mask = prefix[3] & 7;
      bytes = 16u << ((prefix[3] >> 5) & 3);
    }
    if (!long_code) {
      reg &= 7;
      rm &= 7;
      vvvv &= 7;
    }
  }

 private:
  void SetVexTail(u8 tail) {
    vvvv = (~tail >> 3) & 15;
    bytes = tail & 4 ? 32 : 16;
  }
};

}  // namespace alibi::isa

#endif  // ALIBI_ISA_VECTOR_FIELDS_H_
