// SPDX-License-Identifier: Apache-2.0
// What GDB's packets mean, for a stopped machine. A thread is a VCPU: number 0 is thread 1. No
// sockets and no threads: packet in, answer out.
#ifndef ALIBI_INSPECT_GDB_SESSION_H_
#define ALIBI_INSPECT_GDB_SESSION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/gdb/rsp.h"
#include "inspect/gdb/target_xml.h"
#include "runtime/debug_points.h"
#include "vcpu/state.h"

namespace alibi::vmm::gdb {

// The machine as a session needs it, between two instructions of the guest.
class Target {
 public:
  virtual ~Target() = default;
  virtual unsigned vcpus() = 0;
  // The one that all else here is about. The one that has stopped, until another is selected.
  virtual unsigned vcpu() = 0;
  virtual void Select(unsigned vcpu) = 0;
  virtual vcpu::VcpuState& state() = 0;
  virtual vcpu::VcpuState& state(unsigned vcpu) = 0;
  // Registers were written.
  virtual void StateChanged() = 0;
  // Guest-linear, through the page tables as they are, without side effects. How many bytes.
  virtual unsigned ReadMemory(LinearAddr address, u8* out, unsigned size) = 0;
  virtual bool WriteMemory(LinearAddr address, const u8* data, unsigned size) = 0;
  virtual bool SetBreakpoint(LinearAddr pc, bool set) = 0;
  virtual bool SetWatch(const runtime::Watch& watch, bool set) = 0;
  // `monitor COMMAND`: the text to show.
  virtual std::string Monitor(const std::string& command) = 0;
};

// What is to be done after a packet.
struct Action {
  enum class Kind : u8 { kStay, kContinue, kStep, kDetach, kKill };
  Kind kind = Kind::kStay;
  // kStep: the selected VCPU, while the others stand still. Goes on while the PC is in [begin,
  // end). Empty: one instruction.
  LinearAddr range_begin{}, range_end{};
};

struct Reply {
  // Nothing: the answer is the next stop.
  std::optional<std::string> text;
  Action action;
};

class Session {
 public:
  // `target` outlives the session.
  Session(Target& target, Architecture architecture, bool avx)
      : target_(target), registers_(architecture, avx), last_stop_("T05" + Thread(target.vcpu())) {}
  // Takes back every breakpoint and watchpoint.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `payload`: any bytes at all, at most kMaxPacketBytes.
  Reply Handle(std::string_view payload);

  // The packet for a stop; remembered as the answer to `?`. `signal` as on Linux.
  std::string StopReply(unsigned signal, const runtime::DebugStop& stop);

  const RegisterFile& registers() const { return registers_; }

 private:
  struct Point {
    unsigned type;  // of the Z packet
    LinearAddr address;
    u64 kind;
    bool operator==(const Point&) const = default;
  };

  // "thread:02;" of VCPU 1.
  static std::string Thread(unsigned vcpu);
  // The thread that a packet names; nothing: any, or all. False: there is none like that.
  bool TakeThread(Cursor* cursor, std::optional<unsigned>* vcpu) const;
  std::string SelectThread(Cursor cursor);
  std::string AllThreads() const;
  std::string DescribeThread(Cursor cursor) const;
  Reply Query(std::string_view payload);
  Reply VPacket(std::string_view payload);
  Reply Resume(std::string_view actions);
  std::string Features(Cursor cursor) const;
  std::string ReadAll() const;
  std::string WriteAll(std::string_view hex);
  std::string ReadOne(Cursor cursor) const;
  std::string WriteOne(Cursor cursor);
  std::string ReadMemory(Cursor cursor) const;
  std::string WriteMemory(Cursor cursor, bool binary);
  std::string ChangePoint(Cursor cursor, bool set);
  bool Apply(const Point& point, bool set);
  bool JumpTo(Cursor cursor);

  Target& target_;
  RegisterFile registers_;
  std::vector<Point> points_;
  std::string last_stop_;
};

}  // namespace alibi::vmm::gdb

#endif  // ALIBI_INSPECT_GDB_SESSION_H_
