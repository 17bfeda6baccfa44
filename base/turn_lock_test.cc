// SPDX-License-Identifier: Apache-2.0
#include "base/turn_lock.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace alibi {
namespace {

constexpr unsigned kThreads = 4;

template <class Work>
void RunThreads(Work work) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("One thread at a time has the lock") {
  TurnLock lock;
  u64 count = 0;  // no atomic one: that is the lock's business
  RunThreads([&] {
    for (unsigned i = 0; i < 20'000; ++i) {
      lock.Lock();
      ++count;
      lock.Unlock();
    }
  });
  CHECK(count == kThreads * 20'000);
}

TEST_CASE("Whoever has fallen asleep over it is woken") {
  TurnLock lock;
  u64 count = 0;
  RunThreads([&] {
    for (unsigned i = 0; i < 20; ++i) {
      lock.Lock();
      usleep(500);  // longer than anybody spins
      ++count;
      lock.Unlock();
    }
  });
  CHECK(count == kThreads * 20);
}

TEST_CASE("It is tried without waiting") {
  TurnLock lock;
  REQUIRE(lock.TryLock());
  std::thread([&] { CHECK_FALSE(lock.TryLock()); }).join();
  lock.Unlock();
  CHECK(lock.TryLock());
}

TEST_CASE("A word's waiters sleep while it keeps its value") {
  std::atomic<u32> word = 0;
  FutexWait(word, 1);  // it has another one
  std::thread waiter([&] {
    while (word.load(std::memory_order_acquire) == 0) FutexWait(word, 0);
  });
  usleep(1000);
  word.store(1, std::memory_order_release);
  FutexWake(word);
  waiter.join();
}

}  // namespace
}  // namespace alibi
