// SPDX-License-Identifier: Apache-2.0
// Sets of opcodes within one map, written down as ranges that can be held against the manual's
// opcode maps (SDM vol. 2, appendix A).
#ifndef ALIBI_ISA_OPCODE_SET_H_
#define ALIBI_ISA_OPCODE_SET_H_

#include <array>
#include <initializer_list>

#include "base/types.h"

namespace alibi::isa {

struct OpcodeRange {
  unsigned first, last;
  constexpr OpcodeRange(unsigned one) : first(one), last(one) {}
  constexpr OpcodeRange(unsigned from, unsigned to) : first(from), last(to) {}
};

class OpcodeSet {
 public:
  constexpr OpcodeSet(std::initializer_list<OpcodeRange> ranges) {
    for (const OpcodeRange& range : ranges) {
      for (unsigned opcode = range.first; opcode <= range.last; ++opcode) {
        bits_[opcode >> 6] |= u64{1} << (opcode & 63);
      }
    }
  }
  constexpr bool Has(u8 opcode) const { return (bits_[opcode >> 6] >> (opcode & 63)) & 1; }

 private:
  std::array<u64, 4> bits_{};
};

// Without a memory operand they raise no exception (DIV and IDIV aside): moves, integer arithmetic,
// bits.
inline constexpr OpcodeSet kFaultFreeOpcodes = {
    {0x00, 0x05}, {0x08, 0x0d}, {0x10, 0x15}, {0x18, 0x1d},  // ADD, OR, ADC, SBB
    {0x20, 0x25}, {0x28, 0x2d}, {0x30, 0x35}, {0x38, 0x3d},  // AND, SUB, XOR, CMP
    {0x40, 0x4f},                                            // INC, DEC (REX in 64-bit code)
    0x63,         0x69,         0x6b,                        // MOVSXD, IMUL
    {0x80, 0x83},                                            // arithmetic with an immediate
    {0x84, 0x85}, {0x86, 0x87},                              // TEST, XCHG
    {0x88, 0x8b}, 0x8d,                                      // MOV, LEA
    {0x90, 0x97}, {0x98, 0x99},                              // XCHG, CBW, CWD
    {0x9e, 0x9f},                                            // SAHF, LAHF
    {0xa8, 0xa9},                                            // TEST
    {0xb0, 0xbf},                                            // MOV of an immediate
    {0xc0, 0xc1}, {0xd0, 0xd3},                              // shifts
    0xf5,         {0xf8, 0xf9},                              // CMC, CLC, STC
    {0xf6, 0xf7},                                            // TEST, NOT, NEG, MUL, IMUL
    {0xfe, 0xff},                                            // INC, DEC
};
inline constexpr OpcodeSet kFaultFreeOpcodes0F = {
    {0x18, 0x1f},                                  // hints
    {0x40, 0x4f}, {0x90, 0x9f},                    // CMOVcc, SETcc
    0xa3,         0xab,         0xb3, 0xba, 0xbb,  // BT and its kin
    {0xa4, 0xa5}, {0xac, 0xad},                    // SHLD, SHRD
    0xaf,                                          // IMUL
    {0xb0, 0xb1}, {0xc0, 0xc1},                    // CMPXCHG, XADD
    {0xb6, 0xb7}, {0xbe, 0xbf},                    // MOVZX, MOVSX
    0xb8,         {0xbc, 0xbd},                    // POPCNT, BSF, BSR
    {0xc8, 0xcf},                                  // BSWAP
};

// A ModRM byte follows.
inline constexpr OpcodeSet kModRmOpcodes = {
    {0x00, 0x03}, {0x08, 0x0b}, {0x10, 0x13}, {0x18, 0x1b},  // ADD, OR, ADC, SBB
    {0x20, 0x23}, {0x28, 0x2b}, {0x30, 0x33}, {0x38, 0x3b},  // AND, SUB, XOR, CMP
    0x63,         0x69,         0x6b,                        // MOVSXD, IMUL
    {0x80, 0x8f},                                            // up to MOV, LEA, POP
    {0xc0, 0xc1}, {0xd0, 0xd3},                              // shifts
    {0xc6, 0xc7},                                            // MOV of an immediate
    {0xd8, 0xdf},                                            // x87
    {0xf6, 0xf7}, {0xfe, 0xff},                              // groups 3, 4, 5
};
inline constexpr OpcodeSet kModRmOpcodes0F = {
    {0x00, 0x03}, 0x0d,         0x0f,          // groups 6 and 7, LAR, LSL, PREFETCHW, 3DNow!
    {0x10, 0x2f},                              // SSE moves, hints, control registers
    {0x40, 0x4f}, {0x50, 0x76}, {0x78, 0x7f},  // CMOVcc, SSE and MMX (77 is EMMS)
    {0x90, 0x9f},                              // SETcc
    {0xa3, 0xa7}, {0xab, 0xaf},                // bits, double shifts, group 15, IMUL
    {0xb0, 0xc7},                              // CMPXCHG to group 9; BSWAP follows
    {0xd0, 0xff},                              // SSE and MMX
};

// The 66 prefix selects another instruction there, and not the operand size. (In 0F C7 it does with
// a memory operand, in 0F 38 but for MOVBE and CRC32: see the decoder.)
inline constexpr OpcodeSet kPrefix66Opcodes0F = {
    {0x10, 0x17}, {0x28, 0x2f}, {0x50, 0x7f},  // SSE and MMX
    0x1c,                                      // CLDEMOTE
    0xae,                                      // group 15
    {0xc2, 0xc6},                              // CMPPS, MOVNTI, PINSRW, PEXTRW, SHUFPS
    {0xd0, 0xff},                              // SSE and MMX
};
inline constexpr u8 kMovbeFirst0F38 = 0xf0, kMovbeLast0F38 = 0xf1;

}  // namespace alibi::isa

#endif  // ALIBI_ISA_OPCODE_SET_H_
