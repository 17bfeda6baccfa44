// SPDX-License-Identifier: Apache-2.0
#include "inspect/gdb/session.h"

#include <fmt/format.h>

#include <algorithm>

namespace alibi::vmm::gdb {
namespace {

const char kOk[] = "OK";
const char kBadPacket[] = "E16";   // EINVAL
const char kBadAddress[] = "E0e";  // EFAULT
const char kNoRoom[] = "E1c";      // ENOSPC
const char kReadOnly[] = "E01";    // EPERM

constexpr std::size_t kMaxMemoryBytes = (kMaxPacketBytes - 64) / 2;

Reply Say(std::string text) { return {std::move(text), {}}; }

}  // namespace

Session::~Session() {
  for (const Point& point : points_) Apply(point, false);
}

std::string Session::StopReply(unsigned signal, const runtime::DebugStop& stop) {
  std::string reply = fmt::format("T{:02x}", signal);
  if (stop.cause == runtime::DebugCause::kBreakpoint) {
    // The kind that is set there; where both are, gdb checks its own list.
    const bool hardware = std::any_of(points_.begin(), points_.end(), [&](const Point& point) {
      return point.type == 1 && point.address == stop.address;
    });
    reply += hardware ? "hwbreak:;" : "swbreak:;";
  } else if (stop.cause == runtime::DebugCause::kWatch) {
    const runtime::Watch& watch = stop.watch;
    const char* name = watch.reads && watch.writes ? "awatch" : watch.reads ? "rwatch" : "watch";
    reply += fmt::format("{}:{:x};", name, stop.address.value);
  }
  reply += Thread(target_.vcpu());
  last_stop_ = reply;
  return reply;
}

Reply Session::Handle(std::string_view payload) {
  if (payload.empty()) return Say("");
  Cursor cursor(payload.substr(1));
  switch (payload[0]) {
    case '?':
      return Say(last_stop_);
    case 'g':
      return Say(ReadAll());
    case 'G':
      return Say(WriteAll(cursor.rest()));
    case 'p':
      return Say(ReadOne(cursor));
    case 'P':
      return Say(WriteOne(cursor));
    case 'm':
      return Say(ReadMemory(cursor));
    case 'M':
      return Say(WriteMemory(cursor, false));
    case 'X':
      return Say(WriteMemory(cursor, true));
    case 'Z':
      return Say(ChangePoint(cursor, true));
    case 'z':
      return Say(ChangePoint(cursor, false));
    case 'c':
      if (!JumpTo(cursor)) return Say(kBadPacket);
      return {std::nullopt, {Action::Kind::kContinue}};
    case 'C':  // the guest has no signals: continues without
      return {std::nullopt, {Action::Kind::kContinue}};
    case 's':
      if (!JumpTo(cursor)) return Say(kBadPacket);
      return {std::nullopt, {Action::Kind::kStep}};
    case 'S':
      return {std::nullopt, {Action::Kind::kStep}};
    case 'D':
      return {kOk, {Action::Kind::kDetach}};
    case 'k':
      return {std::nullopt, {Action::Kind::kKill}};
    case 'H':
      return Say(SelectThread(cursor));
    case 'T': {
      std::optional<unsigned> vcpu;
      return Say(TakeThread(&cursor, &vcpu) && vcpu ? kOk : kBadPacket);
    }
    case 'q':
    case 'Q':
      return Query(payload);
    case 'v':
      return VPacket(payload);
    default:
      return Say("");
  }
}

std::string Session::Thread(unsigned vcpu) { return fmt::format("thread:{:02x};", vcpu + 1); }

bool Session::TakeThread(Cursor* cursor, std::optional<unsigned>* vcpu) const {
  u64 number;
  if (cursor->Skip("-1")) return cursor->end();
  if (!cursor->Hex(&number) || !cursor->end() || number > target_.vcpus()) return false;
  if (number != 0) *vcpu = static_cast<unsigned>(number - 1);
  return true;
}

// "c" or "g" in front: what goes on next, or what is read and written next. Here they are one.
std::string Session::SelectThread(Cursor cursor) {
  std::optional<unsigned> vcpu;
  if (!cursor.Skip("c") && !cursor.Skip("g")) return kBadPacket;
  if (!TakeThread(&cursor, &vcpu)) return kBadPacket;
  if (vcpu) target_.Select(*vcpu);
  return kOk;
}

std::string Session::AllThreads() const {
  std::string text;
  for (unsigned vcpu = 0; vcpu < target_.vcpus(); ++vcpu) {
    text += fmt::format("{}{:02x}", vcpu == 0 ? "" : ",", vcpu + 1);
  }
  return text;
}

// What `info threads` shows.
std::string Session::DescribeThread(Cursor cursor) const {
  std::optional<unsigned> vcpu;
  if (!TakeThread(&cursor, &vcpu) || !vcpu) return kBadPacket;
  const vcpu::VcpuState& state = target_.state(*vcpu);
  const char* what = state.waits_for_startup ? "waits to be started"
                     : state.shutdown        ? "shut down"
                     : state.halted          ? "halted"
                                             : "running";
  return ToHex(fmt::format("VCPU {}, {}", *vcpu, what));
}

Reply Session::Query(std::string_view payload) {
  Cursor cursor(payload);
  if (cursor.Skip("qSupported")) {
    return Say(
        fmt::format("PacketSize={:x};QStartNoAckMode+;qXfer:features:read+;swbreak+;"
                    "hwbreak+;vContSupported+",
                    kMaxPacketBytes));
  }
  if (cursor.Skip("qXfer:features:read:target.xml:")) return Say(Features(cursor));
  if (cursor.Skip("qRcmd,")) {
    const auto command = FromHex(cursor.rest());
    if (!command) return Say(kBadPacket);
    std::string text = target_.Monitor(*command);
    if (text.empty()) return Say(kOk);
    if (text.size() > kMaxMemoryBytes) text.resize(kMaxMemoryBytes);
    return Say(ToHex(text));
  }
  if (cursor.Skip("qThreadExtraInfo,")) return Say(DescribeThread(cursor));
  if (payload == "qfThreadInfo") return Say("m" + AllThreads());
  if (payload == "qC") return Say(fmt::format("QC{:02x}", target_.vcpu() + 1));
  struct Fixed {
    const char* query;
    const char* answer;
  };
  static constexpr Fixed kFixed[] = {
      {"qsThreadInfo", "l"},
      {"qAttached", "1"},
      {"qSymbol::", "OK"},
      {"QStartNoAckMode", "OK"},
  };
  for (const Fixed& row : kFixed) {
    if (payload == row.query) return Say(row.answer);
  }
  return Say("");
}

Reply Session::VPacket(std::string_view payload) {
  Cursor cursor(payload);
  if (payload == "vCont?") return Say("vCont;c;C;s;S;r");
  if (cursor.Skip("vCont")) return Resume(cursor.rest());
  if (cursor.Skip("vKill")) return {kOk, {Action::Kind::kKill}};
  return Say("");
}

// ";action[:thread]"...: the first one is ours. gdb steps one thread at most and names it first.
Reply Session::Resume(std::string_view actions) {
  Cursor cursor(actions);
  if (!cursor.Skip(";")) return Say(kBadPacket);
  Cursor action(cursor.Until(';'));
  const std::string_view what = action.Until(':');
  if (what.empty()) return Say(kBadPacket);
  std::optional<unsigned> vcpu;
  if (!action.end() && !TakeThread(&action, &vcpu)) return Say(kBadPacket);
  if (vcpu) target_.Select(*vcpu);
  switch (what[0]) {
    case 'c':
    case 'C':
      return {std::nullopt, {Action::Kind::kContinue}};
    case 's':
    case 'S':
      return {std::nullopt, {Action::Kind::kStep}};
    case 'r': {
      Cursor range(what.substr(1));
      u64 begin, end;
      if (!range.Hex(&begin) || !range.Skip(",") || !range.Hex(&end)) return Say(kBadPacket);
      return {std::nullopt, {Action::Kind::kStep, LinearAddr(begin), LinearAddr(end)}};
    }
    default:
      return Say(kBadPacket);
  }
}

std::string Session::Features(Cursor cursor) const {
  u64 offset, length;
  if (!cursor.Hex(&offset) || !cursor.Skip(",") || !cursor.Hex(&length)) return kBadPacket;
  const std::string& xml = registers_.xml();
  if (offset > xml.size()) return kBadPacket;
  // Room for every byte to be escaped.
  const std::size_t most = std::min<u64>(length, kMaxMemoryBytes);
  const bool last = xml.size() - offset <= most;
  return (last ? "l" : "m") + Escape(std::string_view(xml).substr(offset, most));
}

std::string Session::ReadAll() const {
  std::string text;
  for (unsigned i = 0; i < registers_.count(); ++i) {
    text += ToHex(registers_.Read(target_.state(), i));
  }
  return text;
}

std::string Session::WriteAll(std::string_view hex) {
  const auto bytes = FromHex(hex);
  if (!bytes) return kBadPacket;
  std::size_t at = 0;
  bool all = true;
  for (unsigned i = 0; i < registers_.count() && at < bytes->size(); ++i) {
    const std::size_t size = registers_.at(i).bits / 8;
    all = registers_.Write(target_.state(), i, bytes->substr(at, size)) && all;
    at += size;
  }
  target_.StateChanged();
  return all ? kOk : kReadOnly;
}

std::string Session::ReadOne(Cursor cursor) const {
  u64 number;
  if (!cursor.Hex(&number) || number >= registers_.count()) return kBadPacket;
  return ToHex(registers_.Read(target_.state(), static_cast<unsigned>(number)));
}

std::string Session::WriteOne(Cursor cursor) {
  u64 number;
  if (!cursor.Hex(&number) || !cursor.Skip("=") || number >= registers_.count()) return kBadPacket;
  const auto bytes = FromHex(cursor.rest());
  if (!bytes) return kBadPacket;
  if (!registers_.Write(target_.state(), static_cast<unsigned>(number), *bytes)) return kReadOnly;
  target_.StateChanged();
  return kOk;
}

std::string Session::ReadMemory(Cursor cursor) const {
  u64 address, size;
  if (!cursor.Hex(&address) || !cursor.Skip(",") || !cursor.Hex(&size)) return kBadPacket;
  std::string bytes(std::min<u64>(size, kMaxMemoryBytes), '\0');
  const unsigned got = target_.ReadMemory(LinearAddr(address), reinterpret_cast<u8*>(bytes.data()),
                                          static_cast<unsigned>(bytes.size()));
  if (got == 0 && !bytes.empty()) return kBadAddress;
  return ToHex(bytes.data(), got);
}

std::string Session::WriteMemory(Cursor cursor, bool binary) {
  u64 address, size;
  if (!cursor.Hex(&address) || !cursor.Skip(",") || !cursor.Hex(&size) || !cursor.Skip(":")) {
    return kBadPacket;
  }
  const auto bytes = binary ? Unescape(cursor.rest()) : FromHex(cursor.rest());
  if (!bytes || bytes->size() != size) return kBadPacket;
  if (size == 0) return kOk;  // gdb asks so whether there is an X packet
  return target_.WriteMemory(LinearAddr(address), reinterpret_cast<const u8*>(bytes->data()),
                             static_cast<unsigned>(size))
             ? kOk
             : kBadAddress;
}

std::string Session::ChangePoint(Cursor cursor, bool set) {
  u64 type, address, kind;
  if (!cursor.Hex(&type) || !cursor.Skip(",") || !cursor.Hex(&address) || !cursor.Skip(",") ||
      !cursor.Hex(&kind)) {
    return kBadPacket;
  }
  if (type > 4) return "";
  if (type >= 2 && (kind == 0 || kind > kMaxPacketBytes)) return kBadPacket;
  const Point point{static_cast<unsigned>(type), LinearAddr(address), kind};
  const auto known = std::find(points_.begin(), points_.end(), point);
  // Both may be said twice: gdb does so when an answer was lost.
  if ((known != points_.end()) == set) return kOk;
  if (!set) {
    points_.erase(known);
    // A software and a hardware breakpoint at one place are one to the engine.
    const bool shared = std::any_of(points_.begin(), points_.end(), [&](const Point& other) {
      return type <= 1 && other.type <= 1 && other.address == point.address;
    });
    if (!shared) Apply(point, false);
    return kOk;
  }
  if (!Apply(point, true)) return kNoRoom;
  points_.push_back(point);
  return kOk;
}

bool Session::Apply(const Point& point, bool set) {
  if (point.type <= 1) return target_.SetBreakpoint(point.address, set);
  runtime::Watch watch;
  watch.address = point.address;
  watch.size = point.kind;
  watch.writes = point.type != 3;
  watch.reads = point.type != 2;
  return target_.SetWatch(watch, set);
}

// The optional address of c and s.
bool Session::JumpTo(Cursor cursor) {
  if (cursor.end()) return true;
  u64 address;
  if (!cursor.Hex(&address) || !cursor.end()) return false;
  target_.state().rip = address;
  target_.StateChanged();
  return true;
}

}  // namespace alibi::vmm::gdb
