// SPDX-License-Identifier: Apache-2.0
// Policy plug-ins: those that are refused, those that misbehave later, and what is kept from them.
#include "adapt/plugin.h"

#include <x86intrin.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "adapt/plugin_file.h"

namespace alibi::adapt {
namespace {

constexpr Prices kPrices{.trap = 6000, .callout = 60, .retranslate = 12000};

std::string File(const std::string& name) { return "adapt/testdata/" + name + ".so"; }

std::unique_ptr<Policy> Load(const std::string& spec) {
  auto policy = MakePolicy(spec);
  INFO((policy.ok() ? "" : policy.error().message));
  REQUIRE(policy.ok());
  (*policy)->Watch(kPrices);
  return std::move(*policy);
}

TEST_CASE("Plug-ins that cannot be used are refused with one line") {
  const std::string text_file = std::string(std::getenv("TEST_TMPDIR")) + "/text.so";
  std::ofstream(text_file) << "not a shared object\n";
  const struct {
    std::string spec;
    std::string message;
  } kCases[] = {
      {"./missing.so", "policy plug-in './missing.so' cannot be read: No such file"},
      {"missing.so", "policy plug-in 'missing.so' cannot be read: No such file"},
      {"adapt/testdata", "policy plug-in 'adapt/testdata' cannot be loaded"},
      {text_file, "cannot be loaded: " + text_file + ": file too short"},
      {File("table_missing"), "has no function alibi_policy(): it is no policy"},
      {File("table_null"), "has no policy for interface version 1"},
      {File("table_version"), "was built for interface version 2, this program has 1: build it"},
      {File("table_incomplete"), "lacks a name, create, destroy or on_event"},
      {File("table_needs"), "asks for needs that this program does not know"},
      {File("throws_at_birth"), "threw an exception when it was made"},
      {File("nonsense") + "(one)", "refuses its parameters 'one': not a number"},
      {"examples/policy/quiet_pages.so(1)", "refuses its parameters '1': give two numbers"},
  };
  for (const auto& c : kCases) {
    INFO(c.spec);
    auto policy = MakePolicy(c.spec);
    REQUIRE_FALSE(policy.ok());
    INFO(policy.error().message);
    CHECK(policy.error().message.find(c.message) != std::string::npos);
    CHECK(policy.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("A plug-in in plain C decides") {
  auto policy = Load(File("table_fine"));
  SiteRecord site;
  CHECK((*policy).OnEvent(site, {Event::kTruePageFault, true}) == Kind::kDirect);
  CHECK(std::string(policy->name()) == "c");
  CHECK(policy->fault() == nullptr);
}

TEST_CASE("A plug-in sees a copy of the site, and keeps its own data there") {
  auto policy = Load(File("good"));
  SiteRecord site;
  site.pc = LinearAddr(0x1234);
  for (u64 i = 1; i < 4; ++i) {
    site.kind = policy->OnEvent(site, {Event::kTruePageFault, true});
    CHECK(site.policy_data[0] == i);
  }
  CHECK(site.kind == Kind::kChecked);
  CHECK(site.pc == LinearAddr(0x1234));
  CHECK(policy->fault() == nullptr);
}

TEST_CASE("The site that stands for all others is never convicted by a plug-in") {
  auto policy = Load(File("nonsense") + "(2)");
  SiteRecord site;
  site.phys = kSharedSite;
  CHECK(policy->OnEvent(site, {Event::kTraceFault, true}) == Kind::kDirect);
}

// The legacy region and AVX's upper halves, in XSAVE's standard format.
struct alignas(64) ExtendedState {
  static constexpr u32 kComponents = 7;
  u8 bytes[576 + 256] = {};
  [[gnu::always_inline]] void Save() {
    asm volatile("xsave64 %0" : "=m"(bytes) : "a"(kComponents), "d"(0) : "memory");
  }
};

TEST_CASE("The guest's extended state and flags survive a plug-in that destroys them") {
  auto policy = Load(File("good"));
  SiteRecord site;
  static ExtendedState before, after;
  const u32 mxcsr = 0x1fa0 & ~0x80u, abi_mxcsr = 0x1f80;
  asm volatile(
      "vpcmpeqd %%xmm7, %%xmm7, %%xmm7; vpsrld $9, %%xmm7, %%xmm7;"
      "vinsertf128 $1, %%xmm7, %%ymm7, %%ymm7; fninit; fld1; fldl2e; ldmxcsr %0"
      :
      : "m"(mxcsr)
      : "xmm7");
  before.Save();
  // A guest may run with both set; compiled code may not, so nothing happens in between.
  const u64 flags = __readeflags();
  const Kind kind = policy->OnEvent(site, {Event::kTruePageFault, true});
  const u64 flags_after = __readeflags();
  after.Save();
  asm volatile("fninit; vzeroupper; ldmxcsr %0" : : "m"(abi_mxcsr));
  CHECK(kind == Kind::kChecked);
  CHECK((flags & 0x40400) == (flags_after & 0x40400));
  CHECK(std::memcmp(before.bytes, after.bytes, sizeof(before.bytes)) == 0);
}

TEST_CASE("A plug-in that throws or talks nonsense hands over to the default policy") {
  const struct {
    std::string spec;
    Event event;
    std::string fault;
  } kCases[] = {
      {File("throws"), Event::kTruePageFault, "threw an exception on true-page-fault"},
      {File("throws_int"), Event::kArithmetic, "threw an exception on arithmetic"},
      {File("nonsense") + "(3)", Event::kTraceFault, "gave 3 as its verdict on trace-fault"},
      {File("nonsense") + "(0xfffffffe)", Event::kTraceFault, "gave 4294967294 as its verdict"},
      {File("nonsense") + "(1)", Event::kPageCrossing, "gave CHECKED as its verdict on page-cro"},
      {File("nonsense") + "(2)", Event::kArithmetic, "gave SIMULATE as its verdict on arith"},
  };
  for (const auto& c : kCases) {
    INFO(c.spec);
    auto policy = Load(c.spec);
    SiteRecord site;
    // The default policy convicts at the second event; the plug-in's first is its only one.
    site.kind = policy->OnEvent(site, {c.event, true});
    CHECK(site.kind == Kind::kDirect);
    REQUIRE(policy->fault() != nullptr);
    const std::string fault = policy->fault();
    INFO(fault);
    CHECK(fault.find("policy plug-in '") == 0);
    CHECK(fault.find(c.fault) != std::string::npos);
    CHECK(fault.find("; hysteresis decides from now on") != std::string::npos);
    CHECK(fault.find('\n') == std::string::npos);
    site.kind = policy->OnEvent(site, {c.event, true});
    CHECK(site.kind != Kind::kDirect);
    CHECK(policy->fault() == fault);  // the first one's
  }
}

TEST_CASE("A clean callout convicts nobody, but may be half an acquittal") {
  SiteRecord site;
  site.kind = Kind::kSimulate;
  CHECK(Load(File("nonsense") + "(1)")->OnEvent(site, {Event::kCleanCallout, false}) ==
        Kind::kChecked);
  site.kind = Kind::kDirect;
  auto policy = Load(File("nonsense") + "(1)");
  CHECK(policy->OnEvent(site, {Event::kCleanCallout, false}) == Kind::kDirect);
  CHECK(policy->fault() != nullptr);
}

TEST_CASE("A plug-in that works for a while is replaced when it throws") {
  auto policy = Load(File("throws") + "(5)");
  SiteRecord site;
  for (int i = 0; i < 5; ++i) {
    CHECK(policy->OnEvent(site, {Event::kTruePageFault, true}) == Kind::kDirect);
  }
  CHECK(policy->fault() == nullptr);
  policy->OnEvent(site, {Event::kTruePageFault, true});
  CHECK(policy->fault() != nullptr);
}

TEST_CASE("A plug-in that throws when a page is forgotten") {
  auto policy = Load(File("throws_at_pages"));
  policy->OnPageForgotten(PhysPage(0x1));
  REQUIRE(policy->fault() != nullptr);
  CHECK(std::string(policy->fault()).find("when a page was forgotten") != std::string::npos);
}

TEST_CASE("Which plug-in runs is known while it does") {
  CHECK(RunningPlugin() == nullptr);
  auto policy = Load(File("throws"));
  SiteRecord site;
  policy->OnEvent(site, {Event::kTruePageFault, true});
  CHECK(RunningPlugin() == nullptr);
}

TEST_CASE("What is a plug-in's file and what a name") {
  CHECK(IsPluginSpec("./a"));
  CHECK(IsPluginSpec("a.so"));
  CHECK(IsPluginSpec("a.so(1,2)"));
  CHECK(IsPluginSpec("/x/y(1)"));
  CHECK_FALSE(IsPluginSpec("hysteresis(1,2)"));
  CHECK_FALSE(IsPluginSpec("a"));
  CHECK_FALSE(IsPluginSpec("threshold(./a.so)"));
}

TEST_CASE("The example's decisions") {
  auto policy = Load("examples/policy/quiet_pages.so(2,3)");
  SiteRecord first, second;
  first.phys = PhysAddr(0x5000), second.phys = PhysAddr(0x5800);
  const auto at = [&](SiteRecord& site, Event event, bool trapped) {
    return site.kind = policy->OnEvent(site, {event, trapped});
  };
  CHECK(at(first, Event::kTraceFault, true) == Kind::kDirect);
  CHECK(at(first, Event::kTraceFault, true) == Kind::kSimulate);
  CHECK(at(second, Event::kTruePageFault, true) == Kind::kDirect);
  CHECK(at(second, Event::kTruePageFault, true) == Kind::kChecked);
  // One page: its sites' clean callouts count together, a guilty event of either begins anew.
  CHECK(at(first, Event::kCleanCallout, false) == Kind::kSimulate);
  CHECK(at(first, Event::kCleanCallout, false) == Kind::kSimulate);
  CHECK(at(second, Event::kTruePageFault, false) == Kind::kChecked);
  CHECK(at(first, Event::kCleanCallout, false) == Kind::kSimulate);
  CHECK(at(first, Event::kCleanCallout, false) == Kind::kSimulate);
  CHECK(at(first, Event::kCleanCallout, false) == Kind::kDirect);
  CHECK(policy->fault() == nullptr);
}

}  // namespace
}  // namespace alibi::adapt
