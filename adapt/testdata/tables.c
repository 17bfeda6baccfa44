/* Plug-ins in plain C, whose tables are wrong: TABLE says how. */
#include "alibi/policy.h"

static void* Create(const char* parameters, char* error, size_t error_size) {
  static int self;
  (void)parameters, (void)error, (void)error_size;
  return &self;
}
static void Destroy(void* self) { (void)self; }
__attribute__((unused)) static uint32_t OnEvent(void* self, struct alibi_site* site,
                                                const struct alibi_occurrence* what) {
  (void)self, (void)what;
  return site->kind;
}

#ifndef TABLE_missing
const struct alibi_policy_table* alibi_policy(uint32_t abi) {
  static const struct alibi_policy_table table = {
      .abi = ALIBI_POLICY_ABI
#ifdef TABLE_version
             + 1
#endif
      ,
      .size = sizeof(struct alibi_policy_table),
#ifdef TABLE_needs
      .needs = 1u << 20,
#endif
      .name = "c",
      .create = Create,
      .destroy = Destroy,
#ifndef TABLE_incomplete
      .on_event = OnEvent,
#endif
  };
#ifdef TABLE_null
  return abi == 0 ? &table : 0;
#else
  (void)abi;
  return &table;
#endif
}
#else
const void* NotAPolicy(void) { return (const void*)Create == (const void*)Destroy ? 0 : OnEvent; }
#endif
