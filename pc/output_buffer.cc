// SPDX-License-Identifier: Apache-2.0
#include "pc/output_buffer.h"

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

OutputBuffer::OutputBuffer(OutputFile file, const std::atomic<bool>& stopping)
    : file_(std::move(file)),
      stopping_(stopping),
      bound_(file_.fd, file_.most_bytes,
             fmt::format("a serial port's file has had {} bytes of this run; the rest is left out: "
                         "see --serial-size",
                         file_.most_bytes)) {}

bool OutputBuffer::Put(u8 byte) {
  if (file_.fd < 0) return false;
  bytes_.push_back(static_cast<char>(byte));
  return byte == '\n' || bytes_.size() >= kPiece;
}

bool OutputBuffer::Flush() {
  std::string bytes = std::exchange(bytes_, {});
  if (file_.filter) bytes = file_.filter(bytes);
  const char* at = bytes.data();
  std::size_t left = bound_.Take(bytes.size());
  while (left != 0) {
    pollfd fd{file_.fd, POLLOUT, 0};
    if (poll(&fd, 1, kPatienceMs) <= 0) {
      if (stopping_.load(std::memory_order_relaxed)) return true;
      continue;
    }
    const ssize_t written = write(file_.fd, at, std::min(left, kPiece));
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
