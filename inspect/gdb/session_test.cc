// SPDX-License-Identifier: Apache-2.0
// Packets and their meaning, with a target made of plain memory; and packets that mean nothing.
#include "inspect/gdb/session.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace alibi::vmm::gdb {
namespace {

class FakeTarget : public Target {
 public:
  unsigned vcpus() override { return static_cast<unsigned>(states_.size()); }
  unsigned vcpu() override { return selected_; }
  void Select(unsigned vcpu) override { selected_ = vcpu; }
  vcpu::VcpuState& state() override { return state(selected_); }
  vcpu::VcpuState& state(unsigned vcpu) override { return *states_[vcpu]; }
  void StateChanged() override { ++changes; }
  unsigned ReadMemory(LinearAddr address, u8* out, unsigned size) override {
    const u64 at = address.value;
    if (at >= memory.size()) return 0;
    const unsigned got = static_cast<unsigned>(std::min<u64>(size, memory.size() - at));
    std::memcpy(out, memory.data() + at, got);
    return got;
  }
  bool WriteMemory(LinearAddr address, const u8* data, unsigned size) override {
    const u64 at = address.value;
    if (at >= memory.size() || size > memory.size() - at) return false;
    std::memcpy(memory.data() + at, data, size);
    return true;
  }
  bool SetBreakpoint(LinearAddr pc, bool set) override {
    return set ? points.AddBreakpoint(pc) : points.RemoveBreakpoint(pc);
  }
  bool SetWatch(const runtime::Watch& watch, bool set) override {
    return set ? points.AddWatch(watch) : points.RemoveWatch(watch);
  }
  std::string Monitor(const std::string& command) override { return "said " + command; }

  std::vector<u8> memory = std::vector<u8>(4096);
  runtime::DebugPoints points;
  int changes = 0;

 private:
  std::vector<std::unique_ptr<vcpu::VcpuState>> states_ = [] {
    std::vector<std::unique_ptr<vcpu::VcpuState>> states;
    for (unsigned i = 0; i < 3; ++i) states.push_back(std::make_unique<vcpu::VcpuState>());
    return states;
  }();
  unsigned selected_ = 0;
};

std::string Answer(Session& session, std::string_view packet) {
  const Reply reply = session.Handle(packet);
  return reply.text ? *reply.text : "(none)";
}

TEST_CASE("registers are read and written one by one and all at once") {
  FakeTarget target;
  Session session(target, Architecture::kAmd64, false);
  target.state().gpr[vcpu::kRbx] = 0x1122334455667788;
  CHECK(Answer(session, "p1") == "8877665544332211");
  CHECK(Answer(session, "P1=0100000000000000") == "OK");
  CHECK(target.state().gpr[vcpu::kRbx] == 1);
  CHECK(target.changes == 1);
  const std::string all = Answer(session, "g");
  unsigned bytes = 0;
  for (unsigned i = 0; i < session.registers().count(); ++i) {
    bytes += session.registers().at(i).bits / 8;
  }
  CHECK(all.size() == 2 * bytes);
  CHECK(Answer(session, "G" + all) == "OK");
  CHECK(Answer(session, "G" + all.substr(0, 32)) == "OK");
  CHECK(Answer(session, "G" + all.substr(1)) == "E16");
  CHECK(Answer(session, "p999") == "E16");
  CHECK(Answer(session, "P1=01") == "E01");
}

TEST_CASE("each VCPU is a thread") {
  FakeTarget target;
  Session session(target, Architecture::kAmd64, false);
  for (unsigned i = 0; i < 3; ++i) target.state(i).gpr[vcpu::kRbx] = 0x10 + i;
  target.state(1).halted = 1;
  target.state(2).waits_for_startup = 1;
  CHECK(Answer(session, "qfThreadInfo") == "m01,02,03");
  CHECK(Answer(session, "qsThreadInfo") == "l");
  CHECK(Answer(session, "qC") == "QC01");
  CHECK(Answer(session, "Hg3") == "OK");
  CHECK(Answer(session, "p1") == "1200000000000000");
  CHECK(Answer(session, "P1=0200000000000000") == "OK");
  CHECK(target.state(2).gpr[vcpu::kRbx] == 2);
  CHECK(Answer(session, "Hg0") == "OK");  // any
  CHECK(Answer(session, "Hc-1") == "OK");
  CHECK(target.vcpu() == 2);
  CHECK(session.StopReply(5, {}) == "T05thread:03;");
  CHECK(FromHex(Answer(session, "qThreadExtraInfo,01")) == "VCPU 0, running");
  CHECK(FromHex(Answer(session, "qThreadExtraInfo,2")) == "VCPU 1, halted");
  CHECK(FromHex(Answer(session, "qThreadExtraInfo,3")) == "VCPU 2, waits to be started");
  CHECK(session.Handle("vCont;s:2;c").action.kind == Action::Kind::kStep);
  CHECK(target.vcpu() == 1);
  CHECK(session.Handle("vCont;c").action.kind == Action::Kind::kContinue);
  CHECK(session.Handle("vCont;r10,20:1;c:-1").action.range_end == LinearAddr(0x20));
  CHECK(target.vcpu() == 0);
  CHECK(Answer(session, "T3") == "OK");
  // There is no such thread, and nothing has changed.
  for (const char* packet : {"Hg4", "Hgffffffffffffffff", "Hx1", "H", "Hg", "Hg1x", "T4", "T0", "T",
                             "vCont;s:4", "qThreadExtraInfo,4", "qThreadExtraInfo,"}) {
    INFO(packet);
    CHECK(Answer(session, packet) == "E16");
  }
  CHECK(target.vcpu() == 0);
}

TEST_CASE("what a debugger may not change it cannot") {
  FakeTarget target;
  Session session(target, Architecture::kAmd64, false);
  target.state().cr0 = vcpu::kCr0Pe;
  for (unsigned i = 0; i < session.registers().count(); ++i) {
    const Register& r = session.registers().at(i);
    if (r.name == "cr0" || r.name == "efer") {
      CHECK(Answer(session, "P" + fmt::format("{:x}", i) + "=ffffffffffffffff") == "E01");
    } else if (r.name == "cs") {
      CHECK(Answer(session, "P" + fmt::format("{:x}", i) + "=ffffffff") == "E01");
    } else if (r.name == "mxcsr") {
      // XRSTOR would fault.
      CHECK(Answer(session, "P" + fmt::format("{:x}", i) + "=ffffffff") == "E01");
    } else if (r.name == "k_gs_base") {
      CHECK(Answer(session, "P" + fmt::format("{:x}", i) + "=0000000000000080") == "E01");
      CHECK(Answer(session, "P" + fmt::format("{:x}", i) + "=00000000008000ff") == "E01");
    } else if (r.name == "eflags") {
      CHECK(Answer(session, "P" + fmt::format("{:x}", i) + "=ffffffff") == "OK");
    }
  }
  CHECK(target.state().cr0 == vcpu::kCr0Pe);
  CHECK((target.state().Rflags() & vcpu::kVm) == 0);
  CHECK(target.state().Rflags() & vcpu::kIf);
}

TEST_CASE("extended state in its initial configuration reads as such") {
  FakeTarget target;
  std::memset(target.state().xsave_area, 0xaa, vcpu::kXsaveAreaSize);
  std::memset(target.state().xsave_area + 512, 0, 64);
  Session session(target, Architecture::kAmd64, true);
  for (unsigned i = 0; i < session.registers().count(); ++i) {
    const Register& r = session.registers().at(i);
    if (r.name == "fctrl") CHECK(session.registers().Read(target.state(), i)[0] == 0x7f);
    if (r.name == "ymm3h") {
      CHECK(session.registers().Read(target.state(), i) == std::string(16, '\0'));
      CHECK(session.registers().Write(target.state(), i, std::string(16, '\1')));
      CHECK(session.registers().Read(target.state(), i) == std::string(16, '\1'));
    }
    if (r.name == "ymm4h" || r.name == "xmm0" || r.name == "st0") {
      CHECK(session.registers().Read(target.state(), i) == std::string(r.bits / 8, '\0'));
    }
  }
  u64 components;
  std::memcpy(&components, target.state().xsave_area + 512, 8);
  CHECK(components == 4);
}

TEST_CASE("the description names the architecture and every register once") {
  const RegisterFile amd64(Architecture::kAmd64, true), i386(Architecture::kI386, false);
  CHECK(amd64.xml().find("<architecture>i386:x86-64</architecture>") != std::string::npos);
  CHECK(i386.xml().find("<architecture>i386</architecture>") != std::string::npos);
  for (const RegisterFile* file : {&amd64, &i386}) {
    for (unsigned i = 0; i < file->count(); ++i) {
      const std::string needle = "\"" + file->at(i).name + "\" bitsize";
      const std::size_t first = file->xml().find(needle);
      REQUIRE(first != std::string::npos);
      CHECK(file->xml().find(needle, first + 1) == std::string::npos);
    }
  }
  CHECK(amd64.at(16).name == "rip");
  CHECK(i386.at(8).name == "eip");
}

TEST_CASE("the description comes in pieces that make the whole") {
  FakeTarget target;
  Session session(target, Architecture::kAmd64, true);
  std::string whole;
  for (;;) {
    const std::string piece =
        Answer(session, fmt::format("qXfer:features:read:target.xml:{:x},300", whole.size()));
    REQUIRE(!piece.empty());
    whole += *Unescape(piece.substr(1));
    if (piece[0] == 'l') break;
    REQUIRE(piece[0] == 'm');
  }
  CHECK(whole == session.registers().xml());
  CHECK(Answer(session, "qXfer:features:read:target.xml:ffffffff,10") == "E16");
  CHECK(Answer(session, "qXfer:features:read:other.xml:0,10").empty());
}

TEST_CASE("memory is read as far as it goes, and written whole or not") {
  FakeTarget target;
  Session session(target, Architecture::kAmd64, false);
  CHECK(Answer(session, "M10,3:616263") == "OK");
  CHECK(Answer(session, "m10,3") == "616263");
  CHECK(Answer(session, std::string("X20,2:") + "}\x03x") == "OK");
  CHECK(target.memory[0x20] == '#');
  CHECK(target.memory[0x21] == 'x');
  CHECK(Answer(session, "mffe,10").size() == 4);
  CHECK(Answer(session, "m1000,1") == "E0e");
  CHECK(Answer(session, "mffffffffffffffff,ffffffffffffffff") == "E0e");
  CHECK(Answer(session, "Mfff,2:0000") == "E0e");
  CHECK(Answer(session, "M0,3:0000") == "E16");
  CHECK(Answer(session, "X0,1:}") == "E16");
  CHECK(Answer(session, "m0,0").empty());
}

TEST_CASE("breakpoints and watchpoints") {
  FakeTarget target;
  {
    Session session(target, Architecture::kAmd64, false);
    CHECK(Answer(session, "Z0,1000,1") == "OK");
    CHECK(Answer(session, "Z1,1000,1") == "OK");
    CHECK(Answer(session, "Z1,1000,1") == "OK");
    CHECK(target.points.IsBreakpoint(LinearAddr(0x1000)));
    CHECK(session.StopReply(5, {runtime::DebugCause::kBreakpoint, LinearAddr(0x1000), {}}) ==
          "T05hwbreak:;thread:01;");
    CHECK(Answer(session, "z1,1000,1") == "OK");
    CHECK(target.points.IsBreakpoint(LinearAddr(0x1000)));
    CHECK(session.StopReply(5, {runtime::DebugCause::kBreakpoint, LinearAddr(0x1000), {}}) ==
          "T05swbreak:;thread:01;");
    CHECK(Answer(session, "?") == "T05swbreak:;thread:01;");
    CHECK(Answer(session, "z0,1000,1") == "OK");
    CHECK_FALSE(target.points.IsBreakpoint(LinearAddr(0x1000)));
    CHECK(Answer(session, "z0,1000,1") == "OK");

    CHECK(Answer(session, "Z2,2000,8") == "OK");
    CHECK(Answer(session, "Z3,3000,1") == "OK");
    CHECK(Answer(session, "Z4,4000,4") == "OK");
    CHECK(Answer(session, "Z5,4000,4").empty());
    CHECK(Answer(session, "Z2,4000,0") == "E16");
    target.points.NoteAccess(LinearAddr(0x1ffc), 8, /*read=*/true, /*written=*/false);
    CHECK_FALSE(target.points.stopped());
    target.points.NoteAccess(LinearAddr(0x1ffc), 8, /*read=*/false, /*written=*/true);
    REQUIRE(target.points.stopped());
    CHECK(session.StopReply(5, target.points.stop()) == "T05watch:2000;thread:01;");
    target.points.Forget();
    target.points.NoteAccess(LinearAddr(0x4002), 1, /*read=*/true, /*written=*/false);
    CHECK(session.StopReply(5, target.points.stop()) == "T05awatch:4002;thread:01;");
    CHECK(Answer(session, "Z0,5000,1") == "OK");
  }
  CHECK_FALSE(target.points.any_breakpoint());
  CHECK_FALSE(target.points.any_watch());
}

TEST_CASE("more breakpoints than there is room for are refused") {
  FakeTarget target;
  Session session(target, Architecture::kAmd64, false);
  for (unsigned i = 0; i < runtime::DebugPoints::kMaxBreakpoints; ++i) {
    REQUIRE(Answer(session, fmt::format("Z0,{:x},1", i)) == "OK");
  }
  CHECK(Answer(session, "Z0,ffff,1") == "E1c");
  CHECK(Answer(session, "z0,0,1") == "OK");
  CHECK(Answer(session, "Z0,ffff,1") == "OK");
}

TEST_CASE("ways to go on") {
  FakeTarget target;
  Session session(target, Architecture::kAmd64, false);
  using Kind = Action::Kind;
  CHECK(session.Handle("c").action.kind == Kind::kContinue);
  CHECK(session.Handle("s").action.kind == Kind::kStep);
  CHECK(session.Handle("c1234").action.kind == Kind::kContinue);
  CHECK(target.state().rip == 0x1234);
  CHECK(session.Handle("c12z").action.kind == Kind::kStay);
  CHECK(session.Handle("vCont;s:1;c").action.kind == Kind::kStep);
  CHECK(session.Handle("vCont;c").action.kind == Kind::kContinue);
  const Reply range = session.Handle("vCont;r10,20:1;c");
  CHECK(range.action.kind == Kind::kStep);
  CHECK(range.action.range_begin == LinearAddr(0x10));
  CHECK(range.action.range_end == LinearAddr(0x20));
  CHECK(session.Handle("vCont;r10").action.kind == Kind::kStay);
  CHECK(session.Handle("vCont;").action.kind == Kind::kStay);
  CHECK(session.Handle("vCont").action.kind == Kind::kStay);
  CHECK(session.Handle("D").action.kind == Kind::kDetach);
  CHECK(session.Handle("k").action.kind == Kind::kKill);
  CHECK(Answer(session, "qRcmd," + ToHex("hi")) == ToHex("said hi"));
  CHECK(Answer(session, "vMustReplyEmpty").empty());
}

TEST_CASE("any packet at all has an answer") {
  FakeTarget target;
  std::mt19937 random(1);
  Session session(target, Architecture::kAmd64, true);
  static constexpr const char* kSeeds[] = {
      "g",          "G00",          "p1",     "P1=00",
      "m0,10",      "M0,1:00",      "X0,1:a", "Z0,1,1",
      "z2,10,8",    "vCont;s:1",    "qC",     "qRcmd,61",
      "qSupported", "vCont;r1,2:1", "c1",     "qXfer:features:read:target.xml:0,ff"};
  for (int i = 0; i < 200'000; ++i) {
    std::string packet = kSeeds[random() % std::size(kSeeds)];
    for (unsigned edits = random() % 4; edits-- > 0;) {
      const std::size_t at = random() % (packet.size() + 1);
      if (random() % 2 != 0) {
        packet.insert(at, 1, static_cast<char>(random()));
      } else if (at < packet.size()) {
        packet[at] = static_cast<char>(random());
      }
    }
    const Reply reply = session.Handle(packet);
    if (reply.text) REQUIRE(reply.text->size() <= kMaxPacketBytes);
  }
}

}  // namespace
}  // namespace alibi::vmm::gdb
