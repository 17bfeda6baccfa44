/* SPDX-License-Identifier: Apache-2.0 */
/* An engine policy as a plug-in: a shared object that `alibi run --engine auto
 * --engine-policy=./mine.so` loads, or `--engine-policy="./mine.so(PARAMETERS)"`. It decides which
 * user code runs on the CPU itself. docs/policies.md is the tutorial.
 *
 * The contract is in plain C as that of site policies (alibi/policy.h): one exported function,
 * alibi_engine_policy(), gives a table of functions. C++ authors derive from
 * alibi::PluginEnginePolicy (below) and write ALIBI_ENGINE_POLICY_PLUGIN(Class, "name") once. This
 * file needs no other one of ours.
 *
 * A plug-in is called on the VCPU's thread, between the guest's instructions, as ordinary code.
 * Whatever time it takes is the guest's. It must not block, start a signal handler, fork, or keep
 * pointers that it was given. VCPUs that have a thread each have a policy each, which are called at
 * the same time: what they share, static data, is the plug-in's to protect.
 *
 * Contained: exceptions, verdicts that make no sense. After the first one cost-model decides, and
 * the program says so. Not contained: crashes, endless loops, damaged memory.
 */
#ifndef ALIBI_INCLUDE_ALIBI_ENGINE_POLICY_H_
#define ALIBI_INCLUDE_ALIBI_ENGINE_POLICY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this file. A plug-in is refused by a program that has another one. */
#define ALIBI_ENGINE_POLICY_ABI 1u

/* Engines: verdicts. */
#define ALIBI_ENGINE_TRANSLATE 0u /* its user code is translated */
#define ALIBI_ENGINE_DIRECT 1u    /* its user code runs on the CPU itself, where it can */

/* Events. */
#define ALIBI_ENGINE_FIRST 0u         /* its user code is about to run for the first time */
#define ALIBI_ENGINE_SAMPLE 1u        /* its translated user code was interrupted */
#define ALIBI_ENGINE_KERNEL_SAMPLE 2u /* its kernel was, or the machine was idle */
#define ALIBI_ENGINE_RAN 3u           /* its user code has run directly, up to now */
#define ALIBI_ENGINE_REFUSED 4u       /* it was about to run code that must be translated */
#define ALIBI_ENGINE_UNFIT 5u         /* it cannot run directly in its present state */
#define ALIBI_ENGINE_EMPTIED 6u       /* what it had mapped has gone: a program has ended */
#define ALIBI_ENGINE_EVENT_COUNT 7u

/* A copy: changes have no effect but those of `data`. */
struct alibi_address_space {
  uint32_t number;  /* from 1 on, in the order of their first user code; never used again */
  uint32_t engine;  /* that it has now */
  uint64_t data[8]; /* the policy's own; 0 in a new address space */
};

struct alibi_engine_event {
  uint32_t kind;
  /* Of ALIBI_ENGINE_RAN: how often it stopped, how often of these for want of a mapping, and how
   * many calls changed mappings. 0 of others. */
  uint32_t stops, faults, calls;
  uint64_t now; /* the host's TSC */
  /* TSC cycles: of samples since the last one; of ALIBI_ENGINE_RAN user code's CPU time, with
   * stops and calls at their prices, less what the VMM did between its stops; of
   * ALIBI_ENGINE_REFUSED those it took to find out. 0 of others. */
  uint64_t cycles;
};

/* TSC cycles on this host, measured. */
struct alibi_engine_prices {
  uint64_t stop; /* of user code that runs directly, and the way back */
  uint64_t call; /* that changes the mapping of one page */
};

struct alibi_engine_policy_table {
  uint32_t abi;  /* ALIBI_ENGINE_POLICY_ABI */
  uint32_t size; /* sizeof(struct alibi_engine_policy_table) */
  const char* name;
  uint32_t needs; /* 0 */
  /* `parameters`: what stood in parentheses, or "". Null: refused, with one line in `error`. Called
   * before the guest runs; perhaps more than once, and once only for checking. */
  void* (*create)(const char* parameters, char* error, size_t error_size);
  void (*destroy)(void* self);
  /* Returns the engine that the address space should have from now on. */
  uint32_t (*on_event)(void* self, struct alibi_address_space* space,
                       const struct alibi_engine_event* what,
                       const struct alibi_engine_prices* prices);
};

/* The one exported function. `abi` is the program's; null: nothing here for that one. */
__attribute__((visibility("default"))) const struct alibi_engine_policy_table* alibi_engine_policy(
    uint32_t abi);

#ifdef __cplusplus
} /* extern "C" */

#include <cstdint>
#include <cstdio>
#include <exception>

namespace alibi {

// For plug-ins in C++. The class lives in the shared object alone.
class PluginEnginePolicy {
 public:
  virtual ~PluginEnginePolicy() = default;
  virtual std::uint32_t OnEvent(alibi_address_space& space, const alibi_engine_event& what,
                                const alibi_engine_prices& prices) = 0;
};

}  // namespace alibi

// Class has a constructor that takes the parameters, `const char*`, and throws a std::exception if
// it cannot use them.
#define ALIBI_ENGINE_POLICY_PLUGIN(Class, policy_name)                                           \
  extern "C" const alibi_engine_policy_table* alibi_engine_policy(uint32_t) {                    \
    static const alibi_engine_policy_table table = {                                             \
        ALIBI_ENGINE_POLICY_ABI,                                                                 \
        sizeof(alibi_engine_policy_table),                                                       \
        policy_name,                                                                             \
        0,                                                                                       \
        [](const char* parameters, char* error, size_t error_size) -> void* {                    \
          try {                                                                                  \
            return static_cast<alibi::PluginEnginePolicy*>(new Class(parameters));               \
          } catch (const std::exception& e) {                                                    \
            std::snprintf(error, error_size, "%s", e.what());                                    \
            return nullptr;                                                                      \
          }                                                                                      \
        },                                                                                       \
        [](void* self) { delete static_cast<alibi::PluginEnginePolicy*>(self); },                \
        [](void* self, alibi_address_space* space, const alibi_engine_event* what,               \
           const alibi_engine_prices* prices) {                                                  \
          return static_cast<alibi::PluginEnginePolicy*>(self)->OnEvent(*space, *what, *prices); \
        }};                                                                                      \
    return &table;                                                                               \
  }
#endif

#endif /* ALIBI_INCLUDE_ALIBI_ENGINE_POLICY_H_ */
