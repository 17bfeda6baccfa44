// SPDX-License-Identifier: Apache-2.0
#include "pc/host_events.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace alibi::vmm {
namespace {

u64 NowNs() {
  return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::steady_clock::now().time_since_epoch())
                              .count());
}

// Without input.
std::unique_ptr<HostEvents> Quiet() {
  auto events = HostEvents::Create(-1, [] {});
  REQUIRE(events.ok());
  return std::move(*events);
}

TEST_CASE("HostEvents: a deadline ends a sleep") {
  const std::unique_ptr<HostEvents> events = Quiet();
  const u64 begin = NowNs();
  events->Sleep(begin + 5'000'000);
  CHECK(NowNs() - begin >= 5'000'000);
  events->Sleep(begin);  // in the past
}

TEST_CASE("HostEvents: whoever is woken before the sleep does not sleep") {
  for (const bool always : {false, true}) {
    const std::unique_ptr<HostEvents> events = Quiet();
    if (always) events->SignalAlways();
    events->Wake();
    events->Wake();
    events->Sleep(HostEvents::kNever);
    const u64 begin = NowNs();
    events->Sleep(begin + 2'000'000);
    CHECK(NowNs() - begin >= 2'000'000);
  }
}

TEST_CASE("HostEvents: who wakes is told whether somebody slept") {
  const std::unique_ptr<HostEvents> events = Quiet();
  CHECK_FALSE(events->Wake());
  events->Sleep(HostEvents::kNever);  // ends at once
  std::atomic<bool> done = false;
  std::thread sleeper([&] {
    while (!done.load()) events->Sleep(HostEvents::kNever);
  });
  // It sleeps again and again; most of the time.
  bool slept = false;
  for (unsigned ms = 0; ms < 20'000 && !slept; ++ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    slept = events->Wake();
  }
  CHECK(slept);
  done.store(true);
  events->Wake();
  sleeper.join();
  const std::unique_ptr<HostEvents> always = Quiet();
  always->SignalAlways();
  CHECK_FALSE(always->Wake());
}

// As the VCPU's thread does it: look for work, and sleep if there is none. A wake that were lost
// would end the test by its time limit.
TEST_CASE("HostEvents: no wake is lost") {
  constexpr u32 kItems = 50'000;
  for (const bool always : {false, true}) {
    const std::unique_ptr<HostEvents> events = Quiet();
    if (always) events->SignalAlways();
    std::atomic<u32> posted = 0, seen = 0;
    std::thread poster([&] {
      for (u32 i = 1; i <= kItems; ++i) {
        posted.store(i);
        events->Wake();
        // Now and then everything is done before there is more.
        if (i % 16 == 0) {
          while (seen.load() != i) std::this_thread::yield();
        }
      }
    });
    while (seen.load() != kItems) {
      seen.store(posted.load());
      if (seen.load() != kItems) events->Sleep(HostEvents::kNever);
    }
    poster.join();
    CHECK(seen.load() == kItems);
  }
}

}  // namespace
}  // namespace alibi::vmm
