// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine_kind.h"

#include <iterator>

namespace alibi::runtime {

Result<EngineKind> ParseEngineKind(const std::string& name) {
  std::string names;
  for (unsigned i = 0; i < std::size(kEngineNames); ++i) {
    if (name == kEngineNames[i]) return static_cast<EngineKind>(i);
    names += (i == 0 ? "" : ", ") + std::string(kEngineNames[i]);
  }
  return Error{"there is no engine '" + name + "'; there are " + names};
}

Result<std::string> EnginePolicyFor(EngineKind kind, const std::string& asked,
                                    const std::string& by_default) {
  if (kind == EngineKind::kAuto) return asked.empty() ? by_default : asked;
  const std::string own = kind == EngineKind::kDirect ? "always" : "";
  if (asked.empty() || asked == own) return own;
  return Error{"an engine policy decides under engine auto only; " +
               (own.empty() ? std::string("there is none under ") + NameOf(kind)
                            : NameOf(kind) + std::string("'s is ") + own)};
}

Result<EngineKind> EngineFor(EngineKind asked, unsigned vcpus) {
  if (vcpus == 1 || asked != EngineKind::kHardware) return asked;
  return Error{"the hardware engine runs one CPU: several need another --engine"};
}

std::string EngineHelp() {
  std::string text;
#define ALIBI_ENGINE(kind, name, what) \
  text += (text.empty() ? "" : "\n") + std::string(name ": " what);
#include "runtime/engine_kind.inc"
#undef ALIBI_ENGINE
  return text;
}

}  // namespace alibi::runtime
