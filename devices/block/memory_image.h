// SPDX-License-Identifier: Apache-2.0
// An image in memory that notes what is done to it, fails when told to, and takes its time: for
// tests of the devices above.
#ifndef ALIBI_DEVICES_BLOCK_MEMORY_IMAGE_H_
#define ALIBI_DEVICES_BLOCK_MEMORY_IMAGE_H_

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "devices/block/image.h"

namespace alibi::block {

class MemoryImage final : public BlockImage {
 public:
  explicit MemoryImage(u64 size, bool read_only = false) : bytes(size) {
    size_bytes_ = size;
    read_only_ = read_only;
  }
  IoResult Read(u64 offset, std::span<u8> data) override {
    std::memcpy(data.data(), bytes.data() + offset, data.size());
    return Note('r');
  }
  bool ReadCached(u64 offset, std::span<u8> data) override {
    if (!cached) return false;
    std::memcpy(data.data(), bytes.data() + offset, data.size());
    return Note('c').ok();
  }
  IoResult Write(u64 offset, std::span<const u8> data) override {
    if (error == 0) std::memcpy(bytes.data() + offset, data.data(), data.size());
    return Note('w');
  }
  IoResult Flush() override { return Note('f'); }
  IoResult Discard(u64, u64) override { return Note('d'); }
  IoResult WriteZeroes(u64, u64, bool) override { return Note('z'); }

  // The operations since the last call, a letter each.
  std::string TakeLog() {
    const std::lock_guard lock(mutex_);
    return std::exchange(log_, "");
  }

  std::vector<u8> bytes;
  std::atomic<int> error = 0;  // what every operation ends with
  std::atomic<unsigned> delay_us = 0;
  std::atomic<bool> cached = false;  // it can be read without waiting

 private:
  IoResult Note(char operation) {
    if (delay_us != 0) usleep(delay_us);
    const std::lock_guard lock(mutex_);
    log_ += operation;
    return {error};
  }

  std::mutex mutex_;
  std::string log_;
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_MEMORY_IMAGE_H_
