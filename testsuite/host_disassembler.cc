// SPDX-License-Identifier: Apache-2.0
#include "testsuite/host_disassembler.h"

#include <fmt/format.h>

#include "base/check.h"

namespace alibi::testsuite {

Capstone::Capstone() {
  ALIBI_CHECK(cs_open(CS_ARCH_X86, CS_MODE_64, &handle_) == CS_ERR_OK, "Capstone works");
  insn_ = cs_malloc(handle_);
}

Capstone::~Capstone() {
  cs_free(insn_, 1);
  cs_close(&handle_);
}

unsigned Capstone::Decode(const u8* bytes, std::size_t size, u64 pc) {
  return cs_disasm_iter(handle_, &bytes, &size, &pc, insn_) ? insn_->size : 0;
}

std::string Capstone::Text() const { return fmt::format("{} {}", insn_->mnemonic, insn_->op_str); }

const ZydisDecoder& HostDecoder() {
  static const ZydisDecoder decoder = [] {
    ZydisDecoder d;
    ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ZydisDecoderEnableMode(&d, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);  // NOPs, as in our decoder
    return d;
  }();
  return decoder;
}

}  // namespace alibi::testsuite
