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
           std::map<LinearAddr, std::string> labels);

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
  void Limit(LinearAddr first, LinearAddr last);

 private:
  std::string GuestName(LinearAddr pc) const;
  std::string HostName(HostAddr host) const;
  std::string DescriptorName(HostAddr address) const;
  std::string Relative(HostAddr host) const;
  bool Shown(const Translation& translation) const;
  std::string HotListing(const Translation& translation, const std::vector<u8>& bytes,
                         bool asterisk, HostAddr only_jump_at = {}) const;
  std::string ColdListing(const Translation& translation) const;
  std::string Operands(const struct HostInstr& instr) const;
  std::string InstrText(const Translation& translation, std::size_t index) const;
  const translator::ExitDesc* ExitOfStub(HostAddr host) const;

  const Recorder& recorder_;
  const runtime::TranslatingEngine& engine_;
  std::map<LinearAddr, std::string> labels_;
  std::map<HostAddr, std::string> hosts_;        // entries of CCFs
  std::map<HostAddr, std::string> descriptors_;  // sites and exits
  std::map<HostAddr, const translator::ExitDesc*> exit_stubs_;
  std::map<const translator::Ccf*, std::string> names_;
  HostAddr hot_base_, cold_base_;
  LinearAddr first_, last_{~u64{0}};
};

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_DUMP_DUMP_TEXT_H_
