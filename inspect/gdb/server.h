// SPDX-License-Identifier: Apache-2.0
// The debugger's socket: a thread of its own accepts one client at a time, cuts what it says into
// packets and sends what it is told to. It never touches the machine.
#ifndef ALIBI_INSPECT_GDB_SERVER_H_
#define ALIBI_INSPECT_GDB_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "inspect/gdb/peer.h"
#include "inspect/gdb/rsp.h"

namespace alibi::vmm::gdb {

class Server {
 public:
  struct Event {
    enum class Kind : u8 { kConnected, kPacket, kInterrupt, kLost };
    Kind kind;
    u32 client;  // clients are numbered from 1
    std::string payload;
  };

  // `address`: "[HOST]:PORT" (without a host 127.0.0.1; "[HOST]" in brackets for IPv6; port 0: any
  // free one), or "unix:PATH". `poke` is called on the server's thread when there are events.
  static Result<std::unique_ptr<Server>> Listen(const std::string& address,
                                                std::function<void()> poke);
  // What was sent leaves first, unless the client does not take it.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where it listens, as gdb's `target remote` takes it.
  const std::string& name() const { return name_; }

  // --- From one other thread ---
  bool HasEvents() const { return has_events_.load(std::memory_order_acquire); }
  std::vector<Event> TakeEvents();
  // To that client, if it is still there.
  void Send(u32 client, std::string_view payload) { Queue(client, Frame(payload), false); }
  // The connection ends once this was sent, and there is no kLost for it. (In one step: a client
  // that has its answer may be gone, and the next one here, before another call is made.)
  void SendLast(u32 client, std::string_view payload) { Queue(client, Frame(payload), true); }
  void Close(u32 client) { Queue(client, {}, true); }

 private:
  // A client that asks faster than it is answered waits; one that does not take its answers is
  // gone.
  static constexpr std::size_t kMaxEvents = 64;
  static constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;

  Server() = default;
  void Queue(u32 client, std::string frame, bool last);
  void Serve();
  void Accept();
  bool Receive();        // false: the connection is gone
  bool SendSome();       // false: the connection is gone
  void Drop(bool tell);  // the connection
  void Push(Event::Kind kind, std::string payload = {});

  std::function<void()> poke_;
  std::string name_;
  std::string path_;  // of a unix socket: removed at the end
  int listen_fd_ = -1;
  int wake_fd_ = -1;
  std::atomic<bool> quit_ = false;
  std::atomic<bool> has_events_ = false;

  std::mutex mutex_;  // of the next five
  u32 client_ = 0;
  std::vector<Event> events_;
  std::string out_;
  std::string last_sent_;
  bool closing_ = false;

  // --- The thread's own ---
  const PeerCheck peer_;
  int client_fd_ = -1;
  Deframer deframer_;
  bool acknowledges_ = true;
  std::thread thread_;
};

}  // namespace alibi::vmm::gdb

#endif  // ALIBI_INSPECT_GDB_SERVER_H_
