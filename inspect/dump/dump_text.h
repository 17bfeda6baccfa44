// SPDX-License-Identifier: Apache-2.0
// A run's translations as text, after the example of the paper's section 3.2.
#ifndef ALIBI_INSPECT_DUMP_DUMP_TEXT_H_
#define ALIBI_INSPECT_DUMP_DUMP_TEXT_H_

#include <map>
#include <string>

#include "base/types.h"
#include "inspect/dump/recorder.h"
#include "runtime/translating_engine.h"

namespace alibi::vmm {

class DumpText {
 public:
  // `labels`: names of guest PCs. Both references must outlive this.
  DumpText(const Recorder& recorder, const runtime::TranslatingEngine& engine,
           std::map<u64, std::string> labels);

  // The guest's code, one line per instruction of the translations shown.
  std::string GuestListing() const;
  // One translation: its IR, its CCF as first emitted with continuations in square brackets.
  std::string TranslationText(const Translation& translation) const;
  // The translations' hot code as it is now, in address order: chained, elided, forwarded. An
  // asterisk marks each CCF's first instruction.
  std::string CacheContents() const;
  // Every exit, before and after.
  std::string Exits() const;
  // Translations that replaced others, with the forwarding jump; "" if there are none.
  std::string Adaptations() const;

  // Only translations of this guest PC range [first, last) are shown.
  void Limit(u64 first, u64 last);

 private:
  std::string GuestName(u64 pc) const;
  std::string HostName(u64 host) const;
  std::string DescriptorName(u64 address) const;
  std::string Relative(u64 host) const;
  bool Shown(const Translation& translation) const;
  std::string HotListing(const Translation& translation, const std::vector<u8>& bytes,
                         bool asterisk, u64 only_jump_at = 0) const;
  std::string ColdListing(const Translation& translation) const;
  std::string Operands(const struct HostInstr& instr) const;
  std::string InstrText(const Translation& translation, std::size_t index) const;
  const translator::ExitDesc* ExitOfStub(u64 host) const;

  const Recorder& recorder_;
  const runtime::TranslatingEngine& engine_;
  std::map<u64, std::string> labels_;
  std::map<u64, std::string> hosts_;        // entries of CCFs
  std::map<u64, std::string> descriptors_;  // sites and exits
  std::map<u64, const translator::ExitDesc*> exit_stubs_;
  std::map<const translator::Ccf*, std::string> names_;
  u64 hot_base_ = 0, cold_base_ = 0;
  u64 first_ = 0, last_ = ~u64{0};
};

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_DUMP_DUMP_TEXT_H_
