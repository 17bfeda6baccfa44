// SPDX-License-Identifier: Apache-2.0
// alibi net-sink: the far end of a machine's `--net socket`. It takes every frame, answers ARP and
// ping, and says how much came how fast.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/file_descriptor.h"
#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "devices/net/datagram_socket.h"
#include "devices/net/responder.h"
#include "devices/time/clock.h"

namespace alibi::vmm {
namespace {

class Sink {
 public:
  Sink(net::DatagramSocket socket, u64 most_frames)
      : socket_(std::move(socket)), most_frames_(most_frames) {}

  bool done() const { return frames_ >= most_frames_; }
  void Take() {
    sockaddr_un sender;
    while (!done()) {
      const std::span<const u8> frame = socket_.Receive(&buffer_, &sender);
      if (frame.empty()) return;
      Count(frame.size());
      if (sender.sun_family == 0) continue;  // it could not be answered
      if (const auto answer = net::Answer(frame)) socket_.SendTo(sender, *answer);
    }
  }
  std::string Summary() const {
    const double seconds = static_cast<double>(last_ns_ - first_ns_) / 1e9;
    const double rate = seconds > 0 ? static_cast<double>(bytes_) / seconds / 1e6 : 0;
    return fmt::format("{} frames, {} bytes in {:.3f} s: {:.3f} MB/s", frames_, bytes_, seconds,
                       rate);
  }

 private:
  void Count(std::size_t bytes) {
    last_ns_ = devices::MonotonicClock::HostNs();
    if (frames_ == 0) first_ns_ = last_ns_;
    ++frames_;
    bytes_ += bytes;
  }

  net::DatagramSocket socket_;
  const u64 most_frames_;
  u64 frames_ = 0, bytes_ = 0;
  u64 first_ns_ = 0, last_ns_ = 0;
  std::array<u8, net::DatagramSocket::kMaxFrame> buffer_;
};

}  // namespace

int CmdNetSink(int argc, char** argv) {
  std::string path;
  u64 most_frames = ~u64{0};
  double idle_seconds = 0;
  CLI::App app(
      "Takes the frames that a machine sends to a UNIX socket (alibi run --net\n"
      "socket,path=ITS,peer=THIS), answers ARP for every address and ping, and ends with a line\n"
      "that says how much came; also at Ctrl-C or SIGTERM, with status 0.");
  app.add_option("SOCKET", path, "the socket's name; made here, for this user alone")->required();
  app.add_option("--frames", most_frames, "end after so many");
  app.add_option("--idle", idle_seconds, "end when none has come for so many seconds")
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("SECONDS");
  if (const auto status = ParseArguments(app, "net-sink", argc, argv)) return *status;

  auto socket = net::DatagramSocket::Bind(path);
  if (!socket.ok()) return Fail(kCannotCreate, socket.error().message);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const FileDescriptor signals(signalfd(-1, &ends, SFD_CLOEXEC));
  if (signals.get() < 0) {
    return Fail(kHostResources, fmt::format("signals: {}", std::strerror(errno)));
  }
  pollfd fds[] = {{socket->fd(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
  Sink sink(std::move(*socket), most_frames);
  const int timeout_ms = idle_seconds == 0 ? -1 : static_cast<int>(idle_seconds * 1000);
  while (!sink.done() && poll(fds, 2, timeout_ms) > 0 && fds[1].revents == 0) sink.Take();
  unlink(path.c_str());
  fmt::print("{}\n", sink.Summary());
  return kSuccess;
}

}  // namespace alibi::vmm
