// SPDX-License-Identifier: Apache-2.0
#include "devices/net/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace alibi::net {
namespace {

// draft-ietf-opsawg-pcap, sections 4 and 5.
struct FileHeader {
  u32 magic = 0xa1b23c4d;  // times in nanoseconds
  u16 major = 2, minor = 4;
  u32 reserved[2] = {};
  u32 most_bytes = 262144;
  u32 link = 1;  // Ethernet
};
static_assert(sizeof(FileHeader) == 24);

struct FrameHeader {
  u32 seconds, nanoseconds;
  u32 captured, length;
};

}  // namespace

Result<std::unique_ptr<Capture>> Capture::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const FileHeader header;
  if (fd < 0 || write(fd, &header, sizeof(header)) != sizeof(header)) {
    const Error error{fmt::format("capture: cannot write '{}': {}", path, std::strerror(errno))};
    if (fd >= 0) close(fd);
    return error;
  }
  return std::unique_ptr<Capture>(new Capture(fd, path));
}

Capture::Capture(int fd, std::string path)
    : fd_(fd),
      path_(std::move(path)),
      bound_(fd, kMaxFileBytes - sizeof(FileHeader),
             fmt::format("'{}' has its {} GB of frames; the rest is left out", path_,
                         kMaxFileBytes >> 30)) {}

Capture::~Capture() { close(fd_); }

void Capture::Add(std::span<const u8> frame) {
  if (failed_) return;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  FrameHeader header = {static_cast<u32>(now.tv_sec), static_cast<u32>(now.tv_nsec),
                        static_cast<u32>(frame.size()), static_cast<u32>(frame.size())};
  const std::size_t size = sizeof(header) + frame.size();
  if (bound_.Take(size) != size) {
    failed_ = true;  // a shorter one behind it would leave a gap
    return;
  }
  iovec parts[] = {{&header, sizeof(header)}, {const_cast<u8*>(frame.data()), frame.size()}};
  if (writev(fd_, parts, 2) == static_cast<ssize_t>(size)) return;
  failed_ = true;
  fmt::print(stderr, "alibi: cannot write '{}': {}; frames are captured no more\n", path_,
             std::strerror(errno));
}

}  // namespace alibi::net
