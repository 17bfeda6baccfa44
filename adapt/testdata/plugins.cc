// Plug-ins that misbehave, one per BUILD target: PLUGIN says which.
#include <immintrin.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "alibi/policy.h"

namespace {

#define PLUGIN_good 1        // as "always" for page faults; destroys what it may destroy
#define PLUGIN_throws 2      // parameter: after how many events
#define PLUGIN_throws_int 3  // not a std::exception
#define PLUGIN_nonsense 4    // parameter: its verdict on everything
#define PLUGIN_throws_at_birth 5
#define PLUGIN_throws_at_pages 6
#define PLUGIN_crashes 7

unsigned NumberOf(const char* parameters) {
  char* end;
  const unsigned long number = std::strtoul(parameters, &end, 0);
  if (*end != '\0') throw std::invalid_argument("not a number");
  return static_cast<unsigned>(number);
}

class Bad final : public alibi::PluginPolicy {
 public:
  explicit Bad(const char* parameters) : number_(NumberOf(parameters)) {
    if (PLUGIN == PLUGIN_throws_at_birth) throw 5;
  }

  void Watch(const alibi_prices& prices) override { prices_ = &prices; }

  std::uint32_t OnEvent(alibi_site& site, const alibi_occurrence& what) override {
    ++site.data[0];
    site.pc = ~site.pc;  // a copy
    switch (PLUGIN) {
      case PLUGIN_good:
        Spoil();
        if (prices_ == nullptr || prices_->trap == 0) return 99;
        return what.event == ALIBI_TRUE_PAGE_FAULT ? ALIBI_CHECKED : site.kind;
      case PLUGIN_throws:
        if (++events_ > number_) throw std::runtime_error("tired");
        return site.kind;
      case PLUGIN_throws_int:
        throw 5;
      case PLUGIN_nonsense:
        return number_;
      case PLUGIN_crashes:
        *static_cast<volatile int*>(nullptr) = 1;
    }
    return site.kind;
  }

  void OnPageForgotten(std::uint64_t) override {
    if (PLUGIN == PLUGIN_throws_at_pages) throw std::string("pages");
  }

 private:
  // Registers that hold the guest's values when a policy runs.
  static void Spoil() {
    // The ABI's own conditions first.
    if ((__readeflags() & (1u << 10 | 1u << 18)) != 0 || _mm_getcsr() != 0x1f80) std::abort();
    asm volatile(
        "vpcmpeqd %%xmm0, %%xmm0, %%xmm0; vinsertf128 $1, %%xmm0, %%ymm0, %%ymm0;"
        "vmovaps %%ymm0, %%ymm7; vmovaps %%ymm0, %%ymm15; fldpi"
        :
        :
        : "xmm0", "xmm7", "xmm15");
    _mm_setcsr(0x9fc0);
  }

  const unsigned number_;
  unsigned events_ = 0;
  const alibi_prices* prices_ = nullptr;
};

}  // namespace

ALIBI_POLICY_PLUGIN(Bad, "test", ALIBI_NEEDS_EVERY_EVENT)
