// SPDX-License-Identifier: Apache-2.0
#include "inspect/dump/recorder.h"

#include <algorithm>

namespace alibi::vmm {

using translator::Ccf;
using translator::ExitDesc;

std::vector<u8> HostBytes(HostAddr begin, HostAddr end) {
  const u8* at = begin.As();
  return std::vector<u8>(at, at + (end - begin));
}

void Recorder::OnTranslation(const Ccf& ccf) {
  // A flush frees what was recorded: what came before it is complete, and all there will be.
  if (engine_.counters().tc_flushes != 0) flushed_ = true;
  if (flushed_) return;
  Translation translation;
  translation.ccf = &ccf;
  translation.pc = ccf.pc;
  translation.hot = HostBytes(ccf.hot_start, ccf.hot_end);
  translation.cold = HostBytes(ccf.cold_start, ccf.cold_end);
  translation.hot_start = ccf.hot_start;
  translation.cold_start = ccf.cold_start;
  for (const ExitDesc* exit : ccf.exits()) translation.exits.push_back(*exit);

  // The CCF does not keep its TU's flag liveness: it is found again from the same bytes.
  u8 page[kPageSize + 16];
  const u64 offset = ccf.pc.PageOffset();
  const LinearAddr base = ccf.pc.PageBase();
  const unsigned in_page = mmu_.DebugRead(base, page, kPageSize);
  if (in_page == kPageSize) {
    const unsigned next = mmu_.DebugRead(base + kPageSize, page + kPageSize, 16);
    auto tu = std::make_unique<translator::TranslationUnit>();
    const translator::CodeRequest code{
        .pc = ccf.pc,
        .code_bits = ccf.mode.code_bits,
        .bytes = page + offset,
        .available = static_cast<unsigned>(kPageSize - offset),
        .next_page = next != 0 ? page + kPageSize : nullptr,
        .next_available = next,
        .page_before = static_cast<unsigned>(offset),
        .code_base = ccf.mode.code_base,
        .max_instructions = static_cast<unsigned>(ccf.instrs().size()),
        .shown = ccf.shown};
    if (BuildTranslationUnit(code, tu.get()) == isa::DecodeStatus::kOk &&
        tu->count == ccf.instrs().size()) {
      translation.tu = std::move(tu);
    }
  }
  const auto replaced = replaced_.find(&ccf);
  if (replaced != replaced_.end()) translation.replaced = replaced->second;
  translations_.push_back(std::move(translation));
}

void Recorder::OnAdaptation(const Ccf& from, const Ccf& to) {
  // Told before the translation itself; the latest predecessor of several is the interesting one.
  replaced_[&to] = &from;
}

}  // namespace alibi::vmm
