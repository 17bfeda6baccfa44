/* SPDX-License-Identifier: Apache-2.0 */
/* A policy as a plug-in: a shared object that `alibi run --policy=./mine.so` loads, or
 * `--policy="./mine.so(PARAMETERS)"`. docs/policies.md is the tutorial.
 *
 * The contract is in plain C, so that any compiler, C++ library and language will do: one exported
 * function, alibi_policy(), gives a table of functions. C++ authors derive from alibi::PluginPolicy
 * (below) and write ALIBI_POLICY_PLUGIN(Class, "name") once. This file needs no other one of ours.
 *
 * A plug-in is called on the VCPU's thread, in the middle of the guest's instruction. It may use
 * floating point and vectors, allocate, and call the C library: the guest's registers have been put
 * away, and MXCSR, the direction flag and EFLAGS.AC are as the ABI wants them. Whatever time it
 * takes is the guest's. It must not block, start a signal handler, fork, or keep pointers that it
 * was given but for the prices. VCPUs that have a thread each have a policy each, which are called
 * at the same time: what they share, static data, is the plug-in's to protect.
 *
 * Contained: exceptions, verdicts that make no sense. After the first one the default policy
 * decides, and the program says so. Not contained: crashes, endless loops, damaged memory.
 */
#ifndef ALIBI_INCLUDE_ALIBI_POLICY_H_
#define ALIBI_INCLUDE_ALIBI_POLICY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this file. A plug-in is refused by a program that has another one. */
#define ALIBI_POLICY_ABI 1u

/* Translation kinds: verdicts. */
#define ALIBI_DIRECT 0u   /* only the look-up; what it must not touch costs a host trap */
#define ALIBI_CHECKED 1u  /* the same, but what it must not touch, or a zero divisor: a callout */
#define ALIBI_SIMULATE 2u /* every access costs a callout */

/* Events, and which verdicts they allow beside the site's present kind and ALIBI_DIRECT. */
#define ALIBI_TRUE_PAGE_FAULT 0u /* the guest's own fault: CHECKED, SIMULATE */
#define ALIBI_TRACE_FAULT 1u     /* a traced page or a device: CHECKED, SIMULATE */
#define ALIBI_DEVICE_ACCESS 2u   /* reserved; CHECKED, SIMULATE */
#define ALIBI_PAGE_CROSSING 3u   /* the access reached into the next page: SIMULATE */
#define ALIBI_ARITHMETIC 4u      /* divide error: CHECKED */
#define ALIBI_CLEAN_CALLOUT 5u   /* a SIMULATE access was innocent: CHECKED */
#define ALIBI_EVENT_COUNT 6u

/* What a site's instruction does. */
#define ALIBI_OTHER 0u
#define ALIBI_LOAD 1u
#define ALIBI_STORE 2u
#define ALIBI_MODIFY 3u
#define ALIBI_PUSH 4u
#define ALIBI_POP 5u
#define ALIBI_DIVIDE 6u

/* A guest instruction that has misbehaved. A copy: changes have no effect but those of `data`. */
struct alibi_site {
  uint64_t pc;   /* guest-linear */
  uint64_t phys; /* guest-physical */
  uint8_t kind;
  uint8_t access;
  uint8_t reserved[2];
  uint32_t traps;    /* so far, this event included */
  uint32_t callouts; /* the same */
  uint32_t events[ALIBI_EVENT_COUNT];
  uint32_t adaptations; /* convictions and acquittals so far */
  uint32_t reversions;
  uint64_t data[2]; /* the policy's own; 0 in a new site, and when its code was replaced */
};

struct alibi_occurrence {
  uint32_t event;
  uint32_t trapped; /* it cost a host trap, else a callout */
  uint32_t cycles;  /* TSC cycles since the runtime was entered for it; ALIBI_NEEDS_CLOCK */
  uint32_t reserved;
  uint64_t now; /* the host's TSC; ALIBI_NEEDS_CLOCK */
};

/* TSC cycles on this host, measured. */
struct alibi_prices {
  uint32_t trap;
  uint32_t callout;
  uint32_t retranslate; /* mean so far: it changes */
};

#define ALIBI_NEEDS_CLOCK 1u
/* Without it a guilty event at a SIMULATE site is told only behind a clean one, which saves most of
 * the calls. */
#define ALIBI_NEEDS_EVERY_EVENT 2u

struct alibi_policy_table {
  uint32_t abi;  /* ALIBI_POLICY_ABI */
  uint32_t size; /* sizeof(struct alibi_policy_table) */
  const char* name;
  uint32_t needs;
  /* `parameters`: what stood in parentheses, or "". Null: refused, with one line in `error`. Called
   * before the guest runs; perhaps more than once, and once only for checking. */
  void* (*create)(const char* parameters, char* error, size_t error_size);
  void (*destroy)(void* self);
  /* Returns the kind that the site should have from now on. */
  uint32_t (*on_event)(void* self, struct alibi_site* site, const struct alibi_occurrence* what);
  /* May be null: the code in this guest-physical page was replaced, its sites are innocent. */
  void (*on_page_forgotten)(void* self, uint64_t phys_page);
  /* May be null: called before the first event; the prices are kept up to date. */
  void (*watch)(void* self, const struct alibi_prices* prices);
};

/* The one exported function. `abi` is the program's; null: nothing here for that one. */
__attribute__((visibility("default"))) const struct alibi_policy_table* alibi_policy(uint32_t abi);

#ifdef __cplusplus
} /* extern "C" */

#include <cstdint>
#include <cstdio>
#include <exception>

namespace alibi {

// For plug-ins in C++. The class lives in the shared object alone.
class PluginPolicy {
 public:
  virtual ~PluginPolicy() = default;
  virtual std::uint32_t OnEvent(alibi_site& site, const alibi_occurrence& what) = 0;
  virtual void OnPageForgotten(std::uint64_t /*phys_page*/) {}
  virtual void Watch(const alibi_prices& /*prices*/) {}
};

}  // namespace alibi

// Class has a constructor that takes the parameters, `const char*`, and throws a std::exception if
// it cannot use them. `needs` are ALIBI_NEEDS_ bits.
#define ALIBI_POLICY_PLUGIN(Class, policy_name, policy_needs)                    \
  extern "C" const alibi_policy_table* alibi_policy(uint32_t) {                  \
    static const alibi_policy_table table = {                                    \
        ALIBI_POLICY_ABI,                                                        \
        sizeof(alibi_policy_table),                                              \
        policy_name,                                                             \
        policy_needs,                                                            \
        [](const char* parameters, char* error, size_t error_size) -> void* {    \
          try {                                                                  \
            return static_cast<alibi::PluginPolicy*>(new Class(parameters));     \
          } catch (const std::exception& e) {                                    \
            std::snprintf(error, error_size, "%s", e.what());                    \
            return nullptr;                                                      \
          }                                                                      \
        },                                                                       \
        [](void* self) { delete static_cast<alibi::PluginPolicy*>(self); },      \
        [](void* self, alibi_site* site, const alibi_occurrence* what) {         \
          return static_cast<alibi::PluginPolicy*>(self)->OnEvent(*site, *what); \
        },                                                                       \
        [](void* self, uint64_t page) {                                          \
          static_cast<alibi::PluginPolicy*>(self)->OnPageForgotten(page);        \
        },                                                                       \
        [](void* self, const alibi_prices* prices) {                             \
          static_cast<alibi::PluginPolicy*>(self)->Watch(*prices);               \
        }};                                                                      \
    return &table;                                                               \
  }
#endif

#endif /* ALIBI_INCLUDE_ALIBI_POLICY_H_ */
