// SPDX-License-Identifier: Apache-2.0
// Engine policies: which engine runs the user code of an address space. One pure interface as of
// site policies (adapt/policy.h): an event in, a verdict out, all state in the record.
//
// Sources: Adams & Agesen 2006, sections 3.2 (user code runs directly) and 7.3 (choosing the
// technique that suits the guest's phase).
#ifndef ALIBI_ADAPT_ENGINE_POLICY_H_
#define ALIBI_ADAPT_ENGINE_POLICY_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "base/types.h"

namespace alibi::adapt {

enum class UserEngine : u8 {
  kTranslate,  // entering the kernel costs next to nothing; user code some times what it does
               // natively
  kDirect      // the other way round
};

// What happened in an address space.
struct EngineEvent {
  enum class Kind : u8 {
    kFirst,         // its user code is about to run for the first time
    kSample,        // translated user code was interrupted, by a timer mostly
    kKernelSample,  // its kernel was, or the machine was idle
    kRan,           // user code has run directly, up to now
    kRefused,       // it should have, but it was about to run code that must be translated
    kUnfit,         // it cannot run directly in its present state
    kEmptied        // what it had mapped has gone: its program has ended, another one may come
  };
  Kind kind = Kind::kSample;
  u64 now = 0;  // TSC
  // kSample, kKernelSample: TSC cycles since the last one. kRefused: those it took to find out.
  // kRan: those since it began, hand-overs and mapping calls included; how often it stopped,
  // how often of these for want of a mapping; and how many mapping calls were made.
  u64 cycles = 0;
  u32 stops = 0, faults = 0, calls = 0;
};

// What things cost on this host, in TSC cycles, measured.
struct EnginePrices {
  u64 stop = 0;  // of user code that runs directly, and the way back
  u64 call = 0;  // that changes a mapping of one page
};

// Of an address space; zero for a new one.
struct EngineRecord {
  UserEngine engine = UserEngine::kTranslate;
  bool seen = false;
  // The policy's own.
  u64 data[8] = {};
};

class EnginePolicy {
 public:
  virtual ~EnginePolicy() = default;
  virtual const char* name() const = 0;
  // The engine that it should have from now on.
  virtual UserEngine OnEvent(EngineRecord& record, const EngineEvent& what,
                             const EnginePrices& prices) const = 0;
};

// never, always, or cost-model. Errors list the names.
Result<std::unique_ptr<EnginePolicy>> MakeEnginePolicy(const std::string& name);

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_ENGINE_POLICY_H_
