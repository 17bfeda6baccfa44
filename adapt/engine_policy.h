// SPDX-License-Identifier: Apache-2.0
// Engine policies: which engine runs the user code of an address space. One pure interface as of
// site policies (adapt/policy.h): an event in, a verdict out, what is known of the address space in
// its record. A plug-in (a shared object) sees the same through the C table of
// include/alibi/engine_policy.h.
//
// Sources: Adams & Agesen 2006, sections 3.2 (user code runs directly) and 7.3 (choosing the
// technique that suits the guest's phase).
#ifndef ALIBI_ADAPT_ENGINE_POLICY_H_
#define ALIBI_ADAPT_ENGINE_POLICY_H_

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::adapt {

enum class UserEngine : u8 {
  kTranslate,  // entering the kernel costs next to nothing; user code some times what it does
               // natively
  kDirect      // the other way round
};

inline constexpr unsigned kEngineEventCount = 7;
// What happened in an address space.
struct EngineEvent {
  enum class Kind : u8 {
    kFirst,         // its user code is about to run for the first time
    kSample,        // translated user code was interrupted, by a timer mostly
    kKernelSample,  // its kernel was, or the machine was idle
    kRan,           // user code has run directly, and has stopped some times by now
    kRefused,       // it should have, but it was about to run code that must be translated
    kUnfit,         // it cannot run directly in its present state
    kEmptied        // what it had mapped has gone: its program has ended, another one may come;
                    // in either engine
  };
  Kind kind = Kind::kSample;
  u64 now = 0;  // TSC
  // kSample, kKernelSample: TSC cycles since the last one. kRefused: those it took to find out.
  // kRan: the CPU time of user code, with stops and mapping calls at their prices, less the VMM's
  // between them; how often it stopped, how often of these for want of a mapping; and how many
  // mapping calls were made; all since the last event of this kind.
  u64 cycles = 0;
  u32 stops = 0, faults = 0, calls = 0;
};

// What things cost on this host, in TSC cycles, measured.
struct EnginePrices {
  u64 stop = 0;  // of user code that runs directly, and the way back
  u64 call = 0;  // that changes a mapping of one page
};

const char* UserEngineName(UserEngine engine);
const char* EngineEventName(EngineEvent::Kind kind);

// Of an address space; zero for a new one.
struct EngineRecord {
  UserEngine engine = UserEngine::kTranslate;
  bool seen = false;
  bool handed_over = false;  // by a plug-in that has misbehaved
  u32 number = 0;            // from 1 on, in the order of their first event; never used again
  // The policy's own.
  u64 data[8] = {};
};

class EnginePolicy {
 public:
  virtual ~EnginePolicy() = default;
  virtual const char* name() const = 0;
  // The engine that it should have from now on. May change the record's data only. Called between
  // the guest's instructions, as any C++ code.
  virtual UserEngine OnEvent(EngineRecord& record, const EngineEvent& what,
                             const EnginePrices& prices) = 0;
  // Why a plug-in no longer decides, as one line; null as long as it does.
  virtual const char* fault() const { return nullptr; }
};

// A built-in policy by name, or a plug-in by its file, as MakePolicy() takes them. Errors list the
// known names.
Result<std::unique_ptr<EnginePolicy>> MakeEnginePolicy(const std::string& spec);
inline constexpr const char* kDefaultEnginePolicy = "cost-model";
std::vector<std::string> EnginePolicyNames();

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_ENGINE_POLICY_H_
