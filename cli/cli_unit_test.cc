// SPDX-License-Identifier: Apache-2.0
// Parsers and checks behind the command line.
#include <catch2/catch.hpp>
#include <string>

#include "cli/cli.h"
#include "cli/terminal.h"
#include "inspect/trace.h"
#include "machine/host_check.h"

namespace alibi::vmm {
namespace {

TEST_CASE("Sizes") {
  struct Case {
    const char* text;
    u64 bytes;
  };
  for (const Case& c : {Case{"0", 0},
                        {"4096", 4096},
                        {"64K", 65536},
                        {"64k", 65536},
                        {"128M", u64{128} << 20},
                        {"2G", u64{2} << 30},
                        {"1T", u64{1} << 40}}) {
    INFO(c.text);
    auto size = ParseSize(c.text);
    REQUIRE(size.ok());
    CHECK(*size == c.bytes);
  }
  for (const char* text : {"", "M", "-1", "+1", "1.5G", "1GB", "1 G", "0x10",
                           "99999999999999999999", "18446744073709551615K"}) {
    INFO(text);
    CHECK_FALSE(ParseSize(text).ok());
  }
  CHECK(FormatSize(0) == "0 bytes");
  CHECK(FormatSize(1000) == "1000 bytes");
  CHECK(FormatSize(u64{128} << 20) == "128 MB");
}

TEST_CASE("Escape keys") {
  EscapeFilter filter;
  CHECK(filter.Filter("plain \x03 text") == "plain \x03 text");
  CHECK(filter.Filter("a\x01") == "a");  // split between two reads
  CHECK(filter.Filter("\x01"
                      "b") ==
        "\x01"
        "b");
  CHECK(filter.Filter("\x01"
                      "cd") ==
        "\x03"
        "d");
  CHECK(filter.Filter("\x01q") == "\x01q");
  CHECK_FALSE(filter.quit());
  CHECK(filter.Filter("\x01x").empty());
  CHECK(filter.quit());
}

TEST_CASE("Trace topics") {
  auto some = Tracer::Parse("irq,adapt");
  REQUIRE(some.ok());
  CHECK((some->on(TraceTopic::kIrq) && some->on(TraceTopic::kAdapt)));
  CHECK_FALSE(some->on(TraceTopic::kIo));
  auto all = Tracer::Parse("all");
  REQUIRE(all.ok());
  CHECK((all->on(TraceTopic::kMmio) && all->observes_translations()));
  for (const char* text : {"", "irq,", "interrupts", "IRQ"}) {
    INFO(text);
    CHECK_FALSE(Tracer::Parse(text).ok());
  }
}

TEST_CASE("A host that lacks something is told what") {
  const HostFeatures good{.bmi2 = true, .lahf = true, .avx = true, .fsgsbase = true};
  CHECK(CheckHost(good).ok());
  auto message = [&](auto change) {
    HostFeatures host = good;
    change(host);
    const Status status = CheckHost(host);
    return status.ok() ? std::string() : status.error().message;
  };
  CHECK(message([](HostFeatures& h) { h.bmi2 = false; }).find("BMI2") != std::string::npos);
  CHECK(message([](HostFeatures& h) { h.lahf = false; }).find("LAHF") != std::string::npos);
  CHECK(message([](HostFeatures& h) { h.avx = false; }).find("AVX") != std::string::npos);
  CHECK(message([](HostFeatures& h) { h.fsgsbase = false; }).find("5.9") != std::string::npos);
  CHECK(message([](HostFeatures& h) { h.address_space_limit = u64{1} << 35; }).find("ulimit -v") !=
        std::string::npos);
}

TEST_CASE("Keys behind Ctrl-A are ours, and asked for once") {
  EscapeFilter escape;
  CHECK(escape.Filter("a\001sb\001?\001h\001\001c") == "ab\001c");
  CHECK(escape.TakeStats());
  CHECK_FALSE(escape.TakeStats());
  CHECK(escape.TakeHelp());
  CHECK_FALSE(escape.TakeHelp());
  CHECK_FALSE(escape.quit());
  CHECK(escape.Filter("\001") == "");
  CHECK(escape.Filter("x") == "");
  CHECK(escape.quit());
}

}  // namespace
}  // namespace alibi::vmm
