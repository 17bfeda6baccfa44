/* An engine policy in plain C, of another version. */
#include "alibi/engine_policy.h"

static void* Create(const char* parameters, char* error, size_t error_size) {
  static int self;
  (void)parameters, (void)error, (void)error_size;
  return &self;
}
static void Destroy(void* self) { (void)self; }
static uint32_t OnEvent(void* self, struct alibi_address_space* space,
                        const struct alibi_engine_event* what,
                        const struct alibi_engine_prices* prices) {
  (void)self, (void)what, (void)prices;
  return space->engine;
}

const struct alibi_engine_policy_table* alibi_engine_policy(uint32_t abi) {
  static const struct alibi_engine_policy_table table = {
      .abi = ALIBI_ENGINE_POLICY_ABI + 1,
      .size = sizeof(struct alibi_engine_policy_table),
      .name = "c",
      .create = Create,
      .destroy = Destroy,
      .on_event = OnEvent,
  };
  (void)abi;
  return &table;
}
