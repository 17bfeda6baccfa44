// SPDX-License-Identifier: Apache-2.0
// Ports that are latches, in translated code: which accesses do not come to the machine any more,
// and which must.
#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "machine/machine.h"
#include "machine/observer.h"
#include "vcpu/reset.h"

namespace alibi::vmm {
namespace {

constexpr u64 kCode = 0x1000, kHandler = 0x2000, kIdt = 0x3000, kGdt = 0x4000, kTss = 0x5000,
              kStack = 0x9000;

// A latch at `port`, and another thing at port 0x99 that moves it.
class Ports final : public IoSpace, public Interrupts, public RunHooks {
 public:
  u32 PortRead(u16 from, unsigned size) override {
    log.push_back("r" + std::to_string(size) + "@" + std::to_string(from));
    return from == port && size == width ? cell & kept : 0x77777777;
  }
  void PortWrite(u16 to, unsigned size, u32 value) override {
    log.push_back("w" + std::to_string(size) + "@" + std::to_string(to) + "=" +
                  std::to_string(value));
    if (to == port && size == width) cell = value & kept;
    if (to == 0x99) port = static_cast<u16>(value);
  }
  PortLatch Latch(u16 of, unsigned size) override {
    if (of != port || size != width) return {};
    return {.cell = reinterpret_cast<u8*>(&cell), .kept = kept, .fixed = fixed};
  }
  u64 MmioRead(PhysAddr, unsigned) override { return ~u64{0}; }
  void MmioWrite(PhysAddr, unsigned, u64) override {}
  bool InterruptPending(u8) override { return false; }
  u8 Acknowledge() override { return 0; }
  bool HeldByPriority(u8) override { return false; }
  bool Idle() override { return false; }

  u16 port = 0x1234;
  unsigned width = 2;
  u32 cell = 0, kept = 0x7f;
  bool fixed = false;
  std::vector<std::string> log;
};

using Log = std::vector<std::string>;

class Code {
 public:
  Code& Raw(std::initializer_list<u8> bytes) {
    bytes_.insert(bytes_.end(), bytes);
    return *this;
  }
  Code& Word(u8 opcode, u32 value) {
    Raw({opcode});
    for (unsigned i = 0; i < 4; ++i) bytes_.push_back(static_cast<u8>(value >> 8 * i));
    return *this;
  }
  Code& Dx(u16 port) { return Word(0xba, port); }
  Code& Eax(u32 value) { return Word(0xb8, value); }
  Code& Out(unsigned size) {
    if (size == 2) Raw({0x66});
    return Raw({static_cast<u8>(size == 1 ? 0xee : 0xef)});
  }
  Code& In(unsigned size) {
    if (size == 2) Raw({0x66});
    return Raw({static_cast<u8>(size == 1 ? 0xec : 0xed)});
  }
  Code& Halt() { return Raw({0xf4}); }
  const std::vector<u8>& bytes() const { return bytes_; }

 private:
  std::vector<u8> bytes_;
};

// Flat 32-bit code at CPL 0; a fault halts in the handler.
struct Fixture {
  Ports ports;
  std::unique_ptr<Machine> machine;

  Fixture() {
    MachineConfig config;
    config.arena_bytes = u64{64} << 20;
    auto made = Machine::Create(config, {ports, ports, ports});
    if (!made.ok()) FAIL(made.error().message);
    machine = std::move(*made);
    REQUIRE(machine->memory().AddSlot(PhysAddr(0), 0x10000).ok());
    vcpu::ResetToMultiboot(machine->state(), machine->cpuid(), kCode, 0, 0);
    machine->state().gpr[vcpu::kRsp] = kStack;
    machine->StateChanged();
  }
  template <class T>
  void Put(u64 at, const std::vector<T>& values) {
    REQUIRE(machine->memory().LoadPhys(PhysAddr(at), values.data(), values.size() * sizeof(T)));
  }
  void Load(const Code& code) { Put(kCode, code.bytes()); }
  // Runs `code` until it halts.
  void Run(const Code& code) {
    Load(code);
    Again();
  }
  void Again() {
    machine->state().rip = kCode;
    machine->state().halted = 0;
    machine->StateChanged();
    REQUIRE(machine->Run() == Stop::kHalted);
  }
  // What came to the ports meanwhile.
  Log Heard() { return std::exchange(ports.log, {}); }
  u64 eax() { return machine->state().gpr[vcpu::kRax]; }
};

Code Writes(unsigned size, u32 value) {
  return Code().Dx(0x1234).Eax(value).Out(size).In(size).Halt();
}

TEST_CASE("A port that is a latch becomes memory at its second access, in all widths") {
  for (const unsigned size : {1u, 2u, 4u}) {
    CAPTURE(size);
    Fixture f;
    f.ports.width = size;
    f.ports.kept = size == 4 ? ~0u : 0x7f;
    f.Run(Writes(size, 0xabcdef85));
    const u32 written = size == 1 ? 0x85u : size == 2 ? 0xef85u : 0xabcdef85u;
    CHECK(f.Heard() == Log{"w" + std::to_string(size) + "@4660=" + std::to_string(written)});
    const u32 above = size == 4 ? 0 : 0xabcdef85u & (~0u << 8 * size);
    CHECK(f.eax() == (above | (written & f.ports.kept)));
    f.ports.cell = 0x5a5a5a5a;
    f.Again();
    CHECK(f.Heard().empty());
    // Nothing beside what the access is wide.
    CHECK(f.ports.cell ==
          ((0x5a5a5a5a & (size == 4 ? 0 : ~0u << 8 * size)) | (written & f.ports.kept)));
  }
}

TEST_CASE("Other ports, and other widths of the same one, are still asked") {
  Fixture f;
  f.Run(Writes(2, 5));
  f.Heard();
  f.Run(Code().Dx(0x1235).Eax(6).Out(2).Dx(0x1233).In(2).Dx(0x1234).Out(1).Out(4).In(1).Halt());
  CHECK(f.Heard() == Log{"w2@4661=6", "r2@4659", "w1@4660=119", "w4@4660=30583", "r1@4660"});
  CHECK(f.ports.cell == 5);
  // DX alone counts, not what is above it.
  f.Run(Code().Word(0xba, 0xffff1234).Eax(9).Out(2).Halt());
  CHECK(f.Heard().empty());
  CHECK(f.ports.cell == 9);
  // Port 0xffff is none that is not there.
  f.Run(Code().Dx(0xffff).Eax(9).Out(1).Dx(0).Out(1).In(1).Halt());
  CHECK(f.Heard().size() == 3);
}

TEST_CASE("A latch that goes elsewhere is heard of at once") {
  Fixture f;
  f.Run(Writes(2, 5));
  f.Heard();
  f.Run(Code()
            .Dx(0x1234)
            .Eax(7)
            .Out(2)  // quietly
            .Dx(0x99)
            .Eax(0x4321)
            .Out(4)  // moves it
            .Dx(0x1234)
            .Eax(8)
            .Out(2)
            .In(2)  // nobody's any more
            .Dx(0x4321)
            .Eax(9)
            .Out(2)
            .Eax(10)
            .Out(2)  // the second one quietly
            .Halt());
  CHECK(f.Heard() == Log{"w4@153=17185", "w2@4660=8", "r2@4660", "w2@17185=9"});
  CHECK(f.ports.cell == 10);
  // Between two runs, too.
  f.ports.port = 0x1234;
  f.Run(Code().Dx(0x4321).Eax(11).Out(2).Halt());
  CHECK(f.Heard() == Log{"w2@17185=11"});
  CHECK(f.ports.cell == 10);
}

TEST_CASE("Flags and other registers do not notice") {
  Fixture f;
  const Code code = Code()
                        .Word(0xbb, 0x11111111)
                        .Word(0xb9, 0x22222222)  // ebx, ecx
                        .Dx(0x1234)
                        .Eax(0x55)
                        .Raw({0xf9})  // stc
                        .Out(2)
                        .In(2)
                        .Raw({0x0f, 0x92, 0xc3})  // setc bl
                        .Raw({0x39, 0xc0})        // cmp eax, eax
                        .Out(2)
                        .Raw({0x0f, 0x94, 0xc5})  // setz ch
                        .Halt();
  for (int i = 0; i < 3; ++i) {
    f.Run(code);
    CHECK(f.machine->state().gpr[vcpu::kRbx] == 0x11111101);
    CHECK(f.machine->state().gpr[vcpu::kRcx] == 0x22220122);
    CHECK(f.eax() == 0x55);
  }
  CHECK(f.Heard() == Log{"w2@4660=85"});
}

TEST_CASE("A fixed latch that the instruction names is memory from the beginning") {
  Fixture f;
  f.ports.port = 0x80;
  f.ports.width = 1;
  f.ports.kept = ~0u;
  f.ports.fixed = true;
  f.Run(Code().Eax(0x1aa).Raw({0xe6, 0x80}).Eax(0).Raw({0xe4, 0x80}).Halt());
  CHECK(f.Heard().empty());
  CHECK(f.ports.cell == 0xaa);
  CHECK(f.eax() == 0xaa);
  // One that keeps less, or may go, is asked.
  for (const bool fixed : {true, false}) {
    Fixture g;
    g.ports.port = 0x80;
    g.ports.width = 1;
    g.ports.fixed = fixed;
    g.ports.kept = fixed ? 0x7f : ~0u;
    g.Run(Code().Eax(0xaa).Raw({0xe6, 0x80}).Raw({0xe6, 0x80}).Halt());
    CHECK(g.Heard() == Log{"w1@128=170", "w1@128=170"});
  }
}

class Counts final : public MachineObserver {
 public:
  void OnAccess(AccessKind, u64, unsigned, u64) override { ++accesses; }
  void OnInterrupt(InterruptKind, u8, u64) override {}
  int accesses = 0;
};

TEST_CASE("Who observes sees every access, even of a port that was memory before") {
  Fixture f;
  f.Run(Writes(2, 5));
  f.Heard();
  Counts counts;
  f.machine->set_observer(&counts);
  f.Again();
  f.Again();
  CHECK(counts.accesses == 4);
  f.machine->set_observer(nullptr);
  f.Heard();
  f.Again();
  f.Again();
  CHECK(f.Heard() == Log{"w2@4660=5"});
}

// User code whose TSS lets it use ports below 0x2000, or nothing.
void EnterUser(Fixture& f, bool may, u8 iopl) {
  f.Put<u64>(kGdt, {0, 0x00cf9a000000ffff, 0x00cf92000000ffff, 0x00cffa000000ffff,
                    0x00cff2000000ffff, 0x0000890050000000 | 0x1fff});
  std::vector<u8> tss(0x68 + 0x400, may ? 0 : 0xff);
  std::fill_n(tss.begin(), 0x68, u8{0});
  tss[0x66] = 0x68;  // where the map of ports is
  tss[4] = 0;
  tss[5] = 0x88;  // esp0
  tss[8] = 0x10;  // ss0
  tss.push_back(0xff);
  f.Put(kTss, tss);
  std::vector<u64> idt(32, 0);
  idt[13] = 0x00008e0000080000 | kHandler;
  f.Put(kIdt, idt);
  f.Put<u8>(kHandler, {0xf4});
  vcpu::VcpuState& state = f.machine->state();
  state.gdtr = {.base = kGdt, .limit = 0x2f};
  state.idtr = {.base = kIdt, .limit = 0xff};
  state.segment[vcpu::kTr] = {.base = kTss, .limit = 0x1fff, .selector = 0x28, .attributes = 0x8b};
  const auto user = [&](vcpu::SegmentIndex index, u16 selector, u16 attributes) {
    state.segment[index] = {
        .base = 0, .limit = ~0u, .selector = selector, .attributes = attributes};
  };
  user(vcpu::kCs, 0x1b, 0xc0fb);
  for (const auto index : {vcpu::kSs, vcpu::kDs, vcpu::kEs}) user(index, 0x23, 0xc0f3);
  state.cpl = 3;
  state.rip = kCode;
  state.halted = 0;
  state.SetRflags(u64{iopl} << 12);
  state.gpr[vcpu::kRsp] = kStack;
  f.machine->StateChanged();
}

TEST_CASE("Who may not use a port is told so, whoever used it before") {
  // Ends in the handler at CPL 0 if it was allowed, too: HLT is not user code's.
  const Code code = Code().Dx(0x1234).Eax(0x33).Out(2).Raw({0x43}).Halt();  // inc ebx
  struct Case {
    bool map;
    u8 iopl;
    bool allowed;
  };
  for (const Case& each : {Case{false, 0, false}, Case{true, 0, true}, Case{false, 3, true}}) {
    CAPTURE(each.map, unsigned{each.iopl});
    Fixture f;
    f.Run(Writes(2, 5));  // the kernel's; it is memory now
    f.Heard();
    f.Load(code);
    f.machine->state().gpr[vcpu::kRbx] = 0;
    EnterUser(f, each.map, each.iopl);
    REQUIRE(f.machine->Run() == Stop::kHalted);
    CHECK(f.machine->state().rip == kHandler + 1);
    CHECK(f.machine->state().gpr[vcpu::kRbx] == (each.allowed ? 1 : 0));
    CHECK(f.ports.cell == (each.allowed ? 0x33 : 5));
    // The frame names the instruction at fault.
    u32 frame[2];
    f.machine->memory().ReadPhys(PhysAddr(0x8800 - 24), frame, 8);
    CHECK(frame[1] == kCode + 10 + (each.allowed ? 3 : 0));
  }
}

}  // namespace
}  // namespace alibi::vmm
