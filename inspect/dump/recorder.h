// SPDX-License-Identifier: Apache-2.0
// Every translation of a run, as it was emitted, for dumps.
#ifndef ALIBI_INSPECT_DUMP_RECORDER_H_
#define ALIBI_INSPECT_DUMP_RECORDER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "mmu/mmu.h"
#include "runtime/translating_engine.h"
#include "translator/ccf.h"
#include "translator/translation_unit.h"

namespace alibi::vmm {

struct Translation {
  const translator::Ccf* ccf = nullptr;  // alive until the TC is flushed
  LinearAddr pc;
  std::unique_ptr<translator::TranslationUnit> tu;  // with flag liveness; null if unreadable
  std::vector<u8> hot, cold;                        // as emitted
  HostAddr hot_start, cold_start;
  std::vector<translator::ExitDesc> exits;  // as emitted
  const translator::Ccf* replaced = nullptr;
};

class Recorder : public runtime::TranslationObserver {
 public:
  Recorder(mmu::Mmu& mmu, runtime::TranslatingEngine& engine) : mmu_(mmu), engine_(engine) {}

  void OnTranslation(const translator::Ccf& ccf) override;
  void OnAdaptation(const translator::Ccf& from, const translator::Ccf& to) override;

  // In the order in which they were made. Stops being recorded at a flush of the TC.
  const std::vector<Translation>& translations() const { return translations_; }
  bool flushed() const { return flushed_; }

 private:
  mmu::Mmu& mmu_;
  runtime::TranslatingEngine& engine_;
  std::vector<Translation> translations_;
  std::map<const translator::Ccf*, const translator::Ccf*> replaced_;  // new -> old
  bool flushed_ = false;
};

// The bytes of a part of the TC.
std::vector<u8> HostBytes(HostAddr begin, HostAddr end);

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_DUMP_RECORDER_H_
