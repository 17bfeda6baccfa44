// SPDX-License-Identifier: Apache-2.0
// A back end for tests of network devices.
#ifndef ALIBI_DEVICES_NET_TEST_WIRE_H_
#define ALIBI_DEVICES_NET_TEST_WIRE_H_

#include <chrono>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "devices/net/backend.h"

namespace alibi::net {

// A wire whose far end is the test.
class TestWire final : public Backend {
 public:
  ~TestWire() override { Stop(); }
  bool large_segments() const override { return true; }
  void SetLargeReceive(bool large) override { large_receive = large; }
  bool sums_large_segments() const override { return sums_large; }
  void Put(Frame frame, bool sums_hold = true) { ToGuest(std::move(frame), sums_hold); }
  std::vector<Frame> Taken(std::size_t count) {
    for (int i = 0; i < 2000; ++i) {
      {
        std::lock_guard lock(mutex_);
        if (taken_.size() >= count) return taken_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return {};
  }
  bool large_receive = false, sums_large = false;

 private:
  void Fill(std::vector<pollfd>*, int*) override {}
  void Served(std::span<const pollfd>) override {}
  void FromGuest(Frame& frame) override {
    std::lock_guard lock(mutex_);
    taken_.push_back(frame);
  }
  std::mutex mutex_;
  std::vector<Frame> taken_;
};

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_TEST_WIRE_H_
