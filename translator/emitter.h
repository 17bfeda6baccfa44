// SPDX-License-Identifier: Apache-2.0
// The emitter: TU -> CCF. It writes host code by host_code.h, which hides the assembler library.
//
// IDENT instructions are copied byte for byte; memory operands, stack accesses and control flow are
// rebuilt per abi/contract.h. Nothing here depends on guest state other than what EmitRequest
// says, so the same request gives the same bytes.
#ifndef ALIBI_TRANSLATOR_EMITTER_H_
#define ALIBI_TRANSLATOR_EMITTER_H_

#include <memory>

#include "translator/ccf.h"

namespace alibi::translator {

class Emitter {
 public:
  explicit Emitter(const StubTable& stubs);
  ~Emitter();
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;

  // Emits `request` into its target and fills *ccf (instrs, map, exits, sites, addresses).
  // Nothing is written to the target when it does not fit (result.fits is false).
  EmitResult Emit(const EmitRequest& request, Ccf* ccf);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The most one TU of kMaxTuInstructions can need.
inline constexpr u32 kMaxHotBytes = 4096;
inline constexpr u32 kMaxColdBytes = 4096;
inline constexpr u32 kMaxDataBytes = 8192;

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_EMITTER_H_
