// SPDX-License-Identifier: Apache-2.0
// The host code of a CCF, decoded: its instructions and where each goes on.
#ifndef ALIBI_TESTSUITE_VERIFIER_HOST_CODE_H_
#define ALIBI_TESTSUITE_VERIFIER_HOST_CODE_H_

#include <Zydis/Zydis.h>

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "translator/ccf.h"

namespace alibi::verifier {

struct HostInstr {
  HostAddr at;
  unsigned instr_index = 0;  // of the guest instruction that it belongs to
  ZydisDecodedInstruction z;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;

  HostAddr next() const { return at + z.length; }
  std::span<const ZydisDecodedOperand> all() const { return {operands.data(), z.operand_count}; }
  // Of a relative branch.
  std::optional<HostAddr> target() const;
  bool falls_through() const {
    return z.mnemonic != ZYDIS_MNEMONIC_JMP && z.mnemonic != ZYDIS_MNEMONIC_RET;
  }
};

// 0-15 for a general register of any width, else -1.
int GprOf(ZydisRegister reg);

class HostCode {
 public:
  // What cannot be decoded, or not in the same way by two decoders, becomes a complaint.
  HostCode(const translator::Ccf& ccf, std::vector<std::string>* complaints);

  const translator::Ccf& ccf() const { return ccf_; }
  const std::map<HostAddr, HostInstr>& instrs() const { return instrs_; }
  const HostInstr* Find(HostAddr at) const {
    const auto it = instrs_.find(at);
    return it == instrs_.end() ? nullptr : &it->second;
  }
  bool Contains(HostAddr host) const {
    return (host >= ccf_.hot_start && host < ccf_.hot_end) ||
           (host >= ccf_.cold_start && host < ccf_.cold_end);
  }
  // What "mov r10, word; jmp stub" gives the stub that the jump at `at` leads to.
  std::optional<u64> WordBefore(HostAddr at) const;
  // "hot+1f" and the bytes, for complaints.
  std::string Where(HostAddr at) const;

 private:
  void Decode(HostAddr start, HostAddr end, std::vector<std::string>* complaints);

  const translator::Ccf& ccf_;
  std::map<HostAddr, HostInstr> instrs_;
};

}  // namespace alibi::verifier

#endif  // ALIBI_TESTSUITE_VERIFIER_HOST_CODE_H_
