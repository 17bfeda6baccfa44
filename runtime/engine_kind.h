// SPDX-License-Identifier: Apache-2.0
// Which engine runs the VCPU (runtime/engine.h), by name.
#ifndef ALIBI_RUNTIME_ENGINE_KIND_H_
#define ALIBI_RUNTIME_ENGINE_KIND_H_

#include <string>

#include "base/result.h"
#include "base/types.h"

namespace alibi::runtime {

enum class EngineKind : u8 {
#define ALIBI_ENGINE(kind, name, what) kind,
#include "runtime/engine_kind.inc"
#undef ALIBI_ENGINE
};

inline constexpr const char* kEngineNames[] = {
#define ALIBI_ENGINE(kind, name, what) name,
#include "runtime/engine_kind.inc"
#undef ALIBI_ENGINE
};

// Is the guest's kernel translated, at least?
constexpr bool Translates(EngineKind kind) { return kind != EngineKind::kHardware; }
inline const char* NameOf(EngineKind kind) { return kEngineNames[static_cast<unsigned>(kind)]; }
// Fails with the names there are.
Result<EngineKind> ParseEngineKind(const std::string& name);
// Which user code runs directly, by an engine policy: the one that is asked for, or the engine's
// own for "". Fails where it would have nothing to decide. "": none is needed.
Result<std::string> EnginePolicyFor(EngineKind kind, const std::string& asked,
                                    const std::string& by_default);
// What `auto` is with so many VCPUs: several have all code translated. Fails for engines that
// cannot have several.
Result<EngineKind> EngineFor(EngineKind asked, unsigned vcpus);
// A line per engine, "NAME: how it runs the guest", for help texts.
std::string EngineHelp();

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_ENGINE_KIND_H_
