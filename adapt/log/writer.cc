// SPDX-License-Identifier: Apache-2.0
#include "adapt/log/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/sandbox/denied_call.h"
#include "base/worker_thread.h"

namespace alibi::adapt::log {
namespace {

using std::chrono::milliseconds;

// 16 MB: a quarter of a second at a million records per second, while the drain thread waits for a
// core.
constexpr u32 kRingLog2 = 18;
constexpr milliseconds kShortestPause{4}, kLongestPause{32};
constexpr u64 kBlockBytes = 16 << 10;
constexpr u64 kEndBytes = 16 << 10;  // kept free for the end; all counters take a tenth of it

}  // namespace

Result<std::unique_ptr<Writer>> Writer::Create(const std::string& path, const Header& header,
                                               u64 most_bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Error{path + ": cannot be written: " + std::strerror(errno)};
  std::unique_ptr<Writer> writer(new Writer(path, fd, header.start_tsc, most_bytes));
  const std::string json = HeaderToJson(header);
  Preamble preamble{};
  std::memcpy(preamble.magic, kMagic, sizeof(kMagic));
  preamble.version = kVersion;
  preamble.header_bytes = static_cast<u32>(json.size());
  preamble.header_checksum = Checksum(json.data(), json.size());
  if (json.size() > kMaxHeaderBytes || json.size() + kEndBytes > most_bytes) {
    return Error{path + ": the command line alone is more than this log may hold"};
  }
  if (!writer->WriteAll(&preamble, sizeof(preamble)) ||
      !writer->WriteAll(json.data(), json.size())) {
    return Error{path + ": cannot be written: " + std::strerror(writer->write_error_)};
  }
  auto thread = StartWorker([writer = writer.get()] { writer->Loop(); });
  if (!thread.ok()) return Error{path + ": no thread to write it: " + thread.error().message};
  writer->thread_ = std::move(*thread);
  return writer;
}

Writer::Writer(std::string path, int fd, u64 start_tsc, u64 most_bytes)
    : path_(std::move(path)),
      fd_(fd),
      most_bytes_(most_bytes),
      ring_(kRingLog2),
      encoder_(start_tsc),
      block_(sizeof(BlockFrame) + kBlockBytes + kMaxRecordBytes) {}

Writer::~Writer() {
  Stop();
  if (fd_ >= 0) close(fd_);
}

void Writer::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Writer::Loop() {
  sandbox::UnblockDeniedCalls();
  milliseconds pause = kShortestPause;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, pause);
    lock.unlock();
    // What it takes when little happens is what a guest that sleeps pays.
    pause = Drain() != 0 ? kShortestPause : std::min(2 * pause, kLongestPause);
    lock.lock();
  }
  lock.unlock();
  Drain();
}

u64 Writer::Drain() {
  u64 count = 0;
  for (;;) {
    const std::span<const Record> records = ring_.Front();
    if (records.empty()) return count;
    u8* const begin = block_.data() + sizeof(BlockFrame);
    u8* at = begin;
    const Encoder before = encoder_;
    u64 taken = 0, losses = 0;
    while (taken < records.size() && at < begin + kBlockBytes) {
      const Record& record = records[taken++];
      if (record.kind == RecordKind::kLost) {
        ++losses;
        lost_ += record.value;
      }
      if (!full_) at = encoder_.Put(record, at);
    }
    const u64 size = static_cast<u64>(at - begin);
    if (!full_ && bytes_ + sizeof(BlockFrame) + size + kEndBytes > most_bytes_) {
      full_ = true;
      encoder_ = before;
    }
    if (full_) {
      left_out_ += taken - losses;
    } else {
      WriteBlock(size);
      written_ += taken;
    }
    ring_.Pop(taken);
    count += taken;
  }
}

void Writer::WriteBlock(u64 size) {
  const BlockFrame frame = {static_cast<u32>(size),
                            Checksum(block_.data() + sizeof(BlockFrame), size)};
  std::memcpy(block_.data(), &frame, sizeof(frame));
  WriteAll(block_.data(), sizeof(frame) + size);
}

bool Writer::WriteAll(const void* data, u64 size) {
  if (write_error_ != 0) return false;
  const auto* at = static_cast<const u8*>(data);
  while (size > 0) {
    const ssize_t done = write(fd_, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      write_error_ = done < 0 ? errno : ENOSPC;
      return false;
    }
    at += done;
    size -= static_cast<u64>(done);
    bytes_ += static_cast<u64>(done);
  }
  return true;
}

Status Writer::Finish(u64 end_tsc, const FinalCounters& counters) {
  Stop();
  lost_ += ring_.lost();
  Record end;
  end.kind = RecordKind::kEnd;
  end.tsc = end_tsc;
  end.value = lost_;
  end.more = left_out_;
  const std::vector<u8> bytes = encoder_.End(end, counters);
  ALIBI_CHECK(sizeof(BlockFrame) + bytes.size() <= kEndBytes, "the end fits what was kept for it");
  std::memcpy(block_.data() + sizeof(BlockFrame), bytes.data(), bytes.size());
  WriteBlock(bytes.size());
  if (close(std::exchange(fd_, -1)) != 0 && write_error_ == 0) write_error_ = errno;
  if (write_error_ != 0) {
    return Error{path_ + ": not written whole: " + std::strerror(write_error_)};
  }
  return Ok{};
}

}  // namespace alibi::adapt::log
