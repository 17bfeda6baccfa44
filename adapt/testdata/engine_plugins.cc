// Engine policies as plug-ins, one per BUILD target: PLUGIN says which.
#include <cstdlib>
#include <stdexcept>

#include "alibi/engine_policy.h"

namespace {

#define PLUGIN_computes 1  // directly from the N-th sample on; N is its parameter
#define PLUGIN_throws 2    // parameter: after how many events
#define PLUGIN_nonsense 3  // parameter: its verdict on everything
#define PLUGIN_throws_at_birth 4

unsigned NumberOf(const char* parameters) {
  char* end;
  const unsigned long number = std::strtoul(parameters, &end, 0);
  if (*end != '\0') throw std::invalid_argument("not a number");
  return static_cast<unsigned>(number);
}

class Engines final : public alibi::PluginEnginePolicy {
 public:
  explicit Engines(const char* parameters) : number_(NumberOf(parameters)) {
    if (PLUGIN == PLUGIN_throws_at_birth) throw 5;
  }

  std::uint32_t OnEvent(alibi_address_space& space, const alibi_engine_event& what,
                        const alibi_engine_prices& prices) override {
    if (prices.stop == 0 || what.now == 0 || space.number == 0) return 99;
    space.data[7] = ~std::uint64_t{0};  // no successor should see it
    switch (PLUGIN) {
      case PLUGIN_throws:
        if (++events_ > number_) throw std::runtime_error("tired");
        return space.engine;
      case PLUGIN_nonsense:
        return number_;
    }
    if (what.kind == ALIBI_ENGINE_SAMPLE) ++space.data[0];
    return space.data[0] >= number_ ? ALIBI_ENGINE_DIRECT : ALIBI_ENGINE_TRANSLATE;
  }

 private:
  const unsigned number_;
  unsigned events_ = 0;
};

}  // namespace

ALIBI_ENGINE_POLICY_PLUGIN(Engines, "engines")
