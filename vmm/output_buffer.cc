// SPDX-License-Identifier: Apache-2.0
#include "vmm/output_buffer.h"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace alibi::vmm {
namespace {

// What poll() promises to have room for in a pipe: a write of no more does not block, so that a
// signal can always end the run.
constexpr std::size_t kPiece = PIPE_BUF;
constexpr int kPatienceMs = 100;

}  // namespace

OutputBuffer::OutputBuffer(int fd, const std::atomic<bool>& stopping, bool raw, u64 most_bytes)
    : fd_(fd),
      stopping_(stopping),
      bound_(fd, most_bytes,
             fmt::format("a serial port's file has had {} bytes of this run; the rest is left out: "
                         "see --serial-size",
                         most_bytes)) {
  if (!raw && fd >= 0 && isatty(fd)) filter_.emplace();
}

bool OutputBuffer::Put(u8 byte) {
  if (fd_ < 0) return false;
  bytes_.push_back(static_cast<char>(byte));
  return byte == '\n' || bytes_.size() >= kPiece;
}

bool OutputBuffer::Flush() {
  std::string bytes = std::exchange(bytes_, {});
  if (filter_.has_value()) bytes = filter_->Filter(bytes);
  const char* at = bytes.data();
  std::size_t left = bound_.Take(bytes.size());
  while (left != 0) {
    pollfd fd{fd_, POLLOUT, 0};
    if (poll(&fd, 1, kPatienceMs) <= 0) {
      if (stopping_.load(std::memory_order_relaxed)) return true;
      continue;
    }
    const ssize_t written = write(fd_, at, std::min(left, kPiece));
    if (written >= 0) {
      at += written;
      left -= static_cast<std::size_t>(written);
    } else if (errno != EINTR && errno != EAGAIN) {
      return false;
    }
  }
  return true;
}

}  // namespace alibi::vmm
