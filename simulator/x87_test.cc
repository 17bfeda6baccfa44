// SPDX-License-Identifier: Apache-2.0
// What images of the x87 state show of the host: nothing but where guest code lies.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "isa/decoder.h"
#include "simulator/simulator.h"
#include "testsuite/host_cpu.h"
#include "vcpu/test_machine.h"

namespace alibi::simulator {
namespace {

using namespace vcpu;  // the registers

constexpr u64 kArea = 0x10000, kTranslated = 0x7f12'3456'7890, kElsewhere = 0x7f12'0000'0000;
constexpr u64 kHostData = 0x7ffc'1234'5678, kGuestRip = 0x1234'5678'9abc, kGuestLinear = 0xe'dcba;
// What stands in the guest's code, and what its translation with another operand has.
constexpr u16 kGuestOpcode = 0x037, kHostOpcode = 0x072;

class NoPorts : public PortIo {
 public:
  u32 In(u16, unsigned) override { return 0; }
  void Out(u16, unsigned, u32) override {}
};

class OneTranslation : public HostCode {
 public:
  bool GuestRip(HostAddr host, u64* rip, LinearAddr* linear) const override {
    *rip = kGuestRip;
    *linear = LinearAddr(kGuestLinear);
    return host.value == kTranslated;
  }
  bool X87Opcodes(HostAddr host, u16* guest, u16* translated) const override {
    *guest = kGuestOpcode;
    *translated = kHostOpcode;
    return host.value == kTranslated;
  }
};

struct alignas(64) Image {
  u8 bytes[512] = {};
  template <class T>
  T Get(unsigned at) const {
    T value;
    std::memcpy(&value, bytes + at, sizeof(T));
    return value;
  }
};

#define ALIBI_XMM                                                                          \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

Image Registers() {
  Image image;
  asm volatile("fxsave64 %0" : "+m"(image) : : "memory");
  return image;
}

// As if x87 instructions at `instruction` had loaded pi and 1; one had `opcode`.
void LoadHost(u64 instruction, u64 data, u16 opcode = 0) {
  Image image;
  asm volatile(
      "fninit\n\tfldpi\n\tfld1\n\tfxsave64 %0\n\tmov %1, 8+%0\n\tmov %2, 16+%0\n\t"
      "mov %3, 6+%0\n\tfxrstor64 %0"
      : "+m"(image)
      : "r"(instruction), "r"(data), "r"(opcode)
      : "memory", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)", ALIBI_XMM);
}

class Sim : public TestMachine {
 public:
  Sim() {
    LongMode();
    state().cr4 |= kCr4Osxsave | kCr4Osfxsr;
    state().xcr0 = 3;
    state().gpr[kRsi] = kArea;
  }
  // On [RSI], with all components asked for.
  void Run(const std::vector<u8>& bytes) {
    std::vector<u8> padded(bytes);
    padded.resize(16);
    isa::Instr instr;
    REQUIRE(isa::Decode(padded.data(), 15, LinearAddr(state().rip), state().CodeBits(), &instr) ==
            isa::DecodeStatus::kOk);
    REQUIRE(CanSimulate(instr.op));
    REQUIRE(instr.treatment == isa::Treatment::kSimulate);
    state().gpr[kRax] = 3;
    state().gpr[kRdx] = 0;
    SimulatorContext context{state(), memory, ports_, platform, policy(), &code_};
    const Outcome outcome = Simulate(instr, context);
    REQUIRE(outcome.done());
  }
  // Code of another kind. The memory operand is [ESI], in 16-bit code [SI].
  void EnterCode(unsigned code_bits, bool protected_mode, bool virtual8086) {
    VcpuState& s = state();
    s.efer = 0;
    s.cr0 = protected_mode ? s.cr0 | kCr0Pe : s.cr0 & ~u64{kCr0Pe | kCr0Pg};
    s.system_flags = virtual8086 ? s.system_flags | kVm : s.system_flags & ~static_cast<u32>(kVm);
    s.segment[kCs] = {.base = 0xa0000,
                      .limit = 0xffff,
                      .selector = 0xa000,
                      .attributes = static_cast<u16>(code_bits == 32 ? 0x409b : 0x9b)};
    s.segment[kDs] = {.base = kArea, .limit = 0xffff, .selector = kArea >> 4, .attributes = 0x93};
    s.gpr[kRsi] = 0;
    s.rip = 0x100;
    REQUIRE(s.CodeBits() == code_bits);
  }
  template <class T>
  u64 Get(unsigned at) {
    return memory.Get<T>(kArea + at);
  }
  void Put(unsigned at, u64 value) { memory.Put<u64>(kArea + at, value); }

 private:
  NoPorts ports_;
  OneTranslation code_;
};

bool KeepsPointers() {
  return testsuite::CanCheck(testsuite::FxsaveAlwaysHasX87Pointers(), "x87 pointers",
                             "FXSAVE to store them without an exception");
}

struct Store {
  const char* name;
  std::vector<u8> bytes;
  bool rex_w;
};
const Store kStores[] = {
    {"FXSAVE", {0x0f, 0xae, 0x06}, false},   {"FXSAVE64", {0x48, 0x0f, 0xae, 0x06}, true},
    {"XSAVE", {0x0f, 0xae, 0x26}, false},    {"XSAVE64", {0x48, 0x0f, 0xae, 0x26}, true},
    {"XSAVEC", {0x0f, 0xc7, 0x26}, false},   {"XSAVEC64", {0x48, 0x0f, 0xc7, 0x26}, true},
    {"XSAVEOPT", {0x0f, 0xae, 0x36}, false}, {"XSAVEOPT64", {0x48, 0x0f, 0xae, 0x36}, true},
};

TEST_CASE("FXSAVE and XSAVE show guest addresses", "[simulator][x87]") {
  if (!KeepsPointers()) return;
  for (const Store& store : kStores) {
    INFO(store.name);
    Sim m;
    for (const u64 host : {kTranslated, kElsewhere}) {
      const u64 expected = host == kTranslated ? kGuestRip : 0;
      LoadHost(host, kHostData);
      m.Run(store.bytes);
      asm volatile("fninit");
      if (store.rex_w) {
        CHECK(m.Get<u64>(8) == expected);
        CHECK(m.Get<u64>(16) == 0);
      } else {
        CHECK(m.Get<u32>(8) == static_cast<u32>(expected));
        const u64 selector = m.Get<u16>(12);  // new CPUs have none
        CHECK((selector == 0 || selector == m.state().segment[kCs].selector));
        CHECK(m.Get<u32>(16) == 0);
        CHECK(m.Get<u16>(20) == 0);
      }
      CHECK(m.Get<u16>(32 + 8) == 0x3fff);       // 1
      CHECK(m.Get<u16>(32 + 16 + 8) == 0x4000);  // pi
    }
  }
}

TEST_CASE("FNSTENV and FNSAVE show guest addresses", "[simulator][x87]") {
  if (!KeepsPointers()) return;
  for (const bool save : {false, true}) {
    for (const bool small : {false, true}) {
      INFO("save " << save << " small " << small);
      Sim m;
      std::vector<u8> bytes = {static_cast<u8>(save ? 0xdd : 0xd9), 0x36};
      if (small) bytes.insert(bytes.begin(), 0x66);
      const unsigned word = small ? 2 : 4;
      for (unsigned at = 0; at < 128; at += 8) m.Put(at, 0xccccccccccccccccu);
      LoadHost(kTranslated, kHostData);
      m.Run(bytes);
      const Image after = Registers();
      asm volatile("fninit");
      CHECK(m.Get<u16>(0) == 0x37f);
      CHECK(m.Get<u16>(word) == 6 << 11);
      CHECK(m.Get<u16>(2 * word) == 0x0fff);
      CHECK((small ? m.Get<u16>(3 * word) : m.Get<u32>(3 * word)) ==
            (small ? kGuestRip & 0xffff : kGuestRip & 0xffffffff));
      CHECK((small ? m.Get<u16>(5 * word) : m.Get<u32>(5 * word)) == 0);
      CHECK(m.Get<u16>(6 * word) == 0);
      const unsigned end = 7 * word + (save ? 80 : 0);
      if (save) CHECK(m.Get<u16>(7 * word + 8) == 0x3fff);
      CHECK(m.Get<u8>(end) == 0xcc);
      // FNSTENV masks all exceptions, FNSAVE initializes.
      CHECK(after.Get<u16>(0) == 0x37f);
      CHECK(after.Get<u8>(4) == (save ? 0 : 0xc0));
    }
  }
}

TEST_CASE("FNSTENV and FNSAVE that fault change nothing", "[simulator][x87]") {
  for (const u8 opcode : {u8{0xd9}, u8{0xdd}}) {
    Sim m;
    m.memory.Poison(kArea + 0x1000);
    m.state().gpr[kRsi] = kArea + 0x1000 - 20;
    isa::Instr instr;
    const u8 bytes[16] = {opcode, 0x36};
    REQUIRE(isa::Decode(bytes, 15, LinearAddr(0x400000), 64, &instr) == isa::DecodeStatus::kOk);
    NoPorts ports;
    SimulatorContext context{m.state(), m.memory, ports, m.platform, m.policy()};
    asm volatile("fninit\n\tfld1\n\tfldcw %0" : : "m"(static_cast<const u16&>(u16{0x37e})));
    const Outcome outcome = Simulate(instr, context);
    const Image after = Registers();
    asm volatile("fninit");
    CHECK(outcome.fault().vector == kPageFault);
    CHECK(outcome.fault().cr2 == kArea + 0x1000);
    CHECK(after.Get<u16>(0) == 0x37e);
    CHECK(after.Get<u8>(4) == 0x80);
    CHECK(m.memory.Get<u8>(kArea + 0x1000 - 20) == 0);
  }
}

TEST_CASE("Pointers that the guest loads come back, whatever they are", "[simulator][x87]") {
  if (!KeepsPointers()) return;
  const Store kLoads[] = {{"FXRSTOR64", {0x48, 0x0f, 0xae, 0x0e}, true},
                          {"XRSTOR64", {0x48, 0x0f, 0xae, 0x2e}, true}};
  for (const Store& load : kLoads) {
    for (const Store& store : kStores) {
      INFO(load.name << ", " << store.name);
      Sim m;
      // Also if it is where a translation lies: the guest must not find that out.
      for (const u64 pointer : {u64{0}, u64{0x1234}, kTranslated, kElsewhere, ~u64{0} << 40}) {
        INFO(std::hex << pointer);
        LoadHost(kElsewhere, kHostData);
        m.Run(kStores[1].bytes);
        m.Put(8, pointer);
        m.Put(16, pointer);
        for (unsigned at = 512; at < 576; at += 8) m.Put(at, at == 512 ? 3 : 0);
        m.Run(load.bytes);
        m.Put(8, 0);
        m.Put(16, 0);
        m.Run(store.bytes);
        asm volatile("fninit");
        const u64 expected = pointer >> 47 != 0 ? 0 : pointer;  // the upper half is forgotten
        if (store.rex_w) {
          CHECK(m.Get<u64>(8) == expected);
          CHECK(m.Get<u64>(16) == expected);
        } else {
          CHECK(m.Get<u32>(8) == static_cast<u32>(expected));
          CHECK(m.Get<u32>(16) == static_cast<u32>(expected));
        }
      }
    }
  }
}

// Code whose environments have linear addresses, and code of 32 bits or 16 that has offsets.
struct Code {
  const char* name;
  unsigned bits;
  bool protected_mode, virtual8086;
  bool Linear() const { return !protected_mode || virtual8086; }
};
const Code kCodes[] = {{"real-address mode", 16, false, false},
                       {"virtual-8086 mode", 16, true, true},
                       {"32-bit code in real-address mode", 32, false, false},
                       {"16-bit code", 16, true, false},
                       {"32-bit code", 32, true, false}};

// With [ESI] or [SI], and the operand size that is asked for.
std::vector<u8> Instruction(const Code& code, u8 opcode, u8 extension, bool large) {
  std::vector<u8> bytes = {opcode, static_cast<u8>(extension << 3 | (code.bits == 16 ? 4 : 6))};
  if (large != (code.bits == 32)) bytes.insert(bytes.begin(), 0x66);
  return bytes;
}
constexpr u8 kLoadExtension = 4, kStoreExtension = 6;

TEST_CASE("Environments of real-address and virtual-8086 mode", "[simulator][x87]") {
  if (!KeepsPointers()) return;
  for (const Code& code : kCodes) {
    for (const u8 opcode : {u8{0xd9}, u8{0xdd}}) {
      for (const bool large : {false, true}) {
        INFO(code.name << ", save " << (opcode == 0xdd) << ", large " << large);
        Sim m;
        m.EnterCode(code.bits, code.protected_mode, code.virtual8086);
        for (unsigned at = 0; at < 128; at += 8) m.Put(at, 0xccccccccccccccccu);
        LoadHost(kTranslated, kHostData, kHostOpcode);
        m.Run(Instruction(code, opcode, kStoreExtension, large));
        asm volatile("fninit");
        const unsigned word = large ? 4 : 2;
        CHECK(m.Get<u16>(0) == 0x37f);
        CHECK(m.Get<u16>(word) == 6 << 11);
        CHECK(m.Get<u16>(2 * word) == 0x0fff);
        if (code.Linear() && large) {
          CHECK(m.Get<u32>(12) == (0xffff0000 | (kGuestLinear & 0xffff)));
          CHECK(m.Get<u32>(16) == ((kGuestLinear >> 16) << 12 | kGuestOpcode));
          CHECK(m.Get<u32>(20) == 0xffff0000);
          CHECK(m.Get<u32>(24) == 0);
        } else if (code.Linear()) {
          CHECK(m.Get<u16>(6) == (kGuestLinear & 0xffff));
          CHECK(m.Get<u16>(8) == ((kGuestLinear >> 16) << 12 | kGuestOpcode));
          CHECK(m.Get<u16>(10) == 0);
          CHECK(m.Get<u16>(12) == 0);
        } else {
          CHECK(m.Get<u16>(3 * word) == (kGuestRip & 0xffff));
          if (large) CHECK(m.Get<u32>(12) == static_cast<u32>(kGuestRip));
          if (large) CHECK(m.Get<u16>(18) == kGuestOpcode);
          CHECK(m.Get<u16>(5 * word) == 0);
        }
        const unsigned end = 7 * word + (opcode == 0xdd ? 80 : 0);
        if (opcode == 0xdd) CHECK(m.Get<u16>(7 * word + 8) == 0x3fff);
        CHECK(m.Get<u8>(end) == 0xcc);
      }
    }
  }
}

TEST_CASE("What FLDENV and FRSTOR load comes back in every mode", "[simulator][x87]") {
  if (!KeepsPointers()) return;
  for (const Code& code : kCodes) {
    for (const u8 opcode : {u8{0xd9}, u8{0xdd}}) {
      for (const bool large : {false, true}) {
        INFO(code.name << ", restore " << (opcode == 0xdd) << ", large " << large);
        const unsigned word = large ? 4 : 2, bytes = 7 * word + (opcode == 0xdd ? 80 : 0);
        Sim m;
        m.EnterCode(code.bits, code.protected_mode, code.virtual8086);
        LoadHost(kElsewhere, kHostData, kHostOpcode);
        m.Run(Instruction(code, 0xdd, kStoreExtension, large));
        // Addresses with 16 significant bits, or 20, or 32; a selector is lost on new CPUs.
        constexpr u32 kInstruction = 0xfedc'ba98, kData = 0x7654'3210, kLoadedOpcode = 0x5a5;
        const u32 parts[] = {kInstruction, 0, kData, 0};
        u32 words[4];
        for (unsigned i = 0; i < 4; i += 2) {
          const u32 address = parts[i], above = i == 0 ? kLoadedOpcode : 0;
          words[i] = large ? (code.Linear() ? 0xffff0000 | (address & 0xffff) : address)
                           : address & 0xffff;
          words[i + 1] = !code.Linear() ? (large ? above << 16 : 0)
                         : large        ? address >> 16 << 12 | above
                                        : (address >> 4 & 0xf000) | above;
        }
        if (large && !code.Linear()) words[3] = 0xffff0000;  // stored so, as in the other words
        for (unsigned i = 0; i < 4; ++i) {
          if (large) m.memory.Put<u32>(kArea + 12 + 4 * i, words[i]);
          if (!large) m.memory.Put<u16>(kArea + 6 + 2 * i, static_cast<u16>(words[i]));
        }
        m.memory.Put<u16>(kArea + 0, 0x27f);
        m.memory.Put<u16>(kArea + word, 0x3800);      // TOP is 7
        m.memory.Put<u16>(kArea + 2 * word, 0x3fff);  // one register
        std::vector<u8> given;
        for (unsigned i = 0; i < bytes; ++i) given.push_back(m.Get<u8>(i));
        LoadHost(kElsewhere, kHostData, kHostOpcode);
        m.Run(Instruction(code, opcode, kLoadExtension, large));
        const Image host = Registers();
        CHECK(host.Get<u16>(0) == 0x27f);
        CHECK(host.Get<u8>(4) == 0x80);
        const u32 mask = !large ? (code.Linear() ? 0xfffff : 0xffff) : 0xffffffff;
        CHECK(host.Get<u64>(8) == (kInstruction & mask));
        CHECK(host.Get<u64>(16) == (kData & mask));
        CHECK(host.Get<u16>(6) == (large || code.Linear() ? kLoadedOpcode : 0));
        if (opcode == 0xdd) CHECK(host.Get<u16>(32 + 8) == 0x3fff);
        for (unsigned i = 0; i < bytes; ++i) m.memory.Put<u8>(kArea + i, 0xcc);
        m.Run(Instruction(code, opcode, kStoreExtension, large));
        asm volatile("fninit");
        for (unsigned i = 0; i < bytes; ++i) {
          INFO(i);
          CHECK(m.Get<u8>(i) == given[i]);
        }
      }
    }
  }
}

TEST_CASE("FLDENV and FRSTOR of protected mode against the host", "[simulator][x87]") {
  for (const bool restore : {false, true}) {
    for (const bool large : {false, true}) {
      INFO("restore " << restore << ", large " << large);
      Image given;
      for (unsigned i = 0; i < sizeof(given.bytes); ++i)
        given.bytes[i] = static_cast<u8>(i * 37 + 5);
      given.bytes[0] |= 0x3f;  // no exception is pending
      Sim m;
      m.EnterCode(32, true, false);
      for (unsigned i = 0; i < 128; ++i) m.memory.Put<u8>(kArea + i, given.bytes[i]);
      LoadHost(kElsewhere, kHostData, kHostOpcode);
      m.Run(Instruction(kCodes[4], restore ? 0xdd : 0xd9, kLoadExtension, large));
      const Image ours = Registers();
      LoadHost(kElsewhere, kHostData, kHostOpcode);
      if (restore && large) asm volatile("frstor %0" : : "m"(given) : "memory");
      if (restore && !large) asm volatile(".byte 0x66\n\tfrstor %0" : : "m"(given) : "memory");
      if (!restore && large) asm volatile("fldenv %0" : : "m"(given) : "memory");
      if (!restore && !large) asm volatile(".byte 0x66\n\tfldenv %0" : : "m"(given) : "memory");
      const Image hosts = Registers();
      asm volatile("fninit");
      CHECK(std::memcmp(ours.bytes, hosts.bytes, 24) == 0);
      CHECK(std::memcmp(ours.bytes + 32, hosts.bytes + 32, 128) == 0);
    }
  }
}

TEST_CASE("FLDENV and FRSTOR that fault change nothing", "[simulator][x87]") {
  for (const u8 opcode : {u8{0xd9}, u8{0xdd}}) {
    Sim m;
    m.EnterCode(16, true, false);
    m.memory.Poison(kArea + 0x1000);
    m.state().gpr[kRsi] = 0x1000 - 10;
    isa::Instr instr;
    const u8 bytes[16] = {opcode, 0x24};
    REQUIRE(isa::Decode(bytes, 15, LinearAddr(0x400000), 16, &instr) == isa::DecodeStatus::kOk);
    NoPorts ports;
    SimulatorContext context{m.state(), m.memory, ports, m.platform, m.policy()};
    LoadHost(0x1234, 0x5678);
    const Image before = Registers();
    const Outcome outcome = Simulate(instr, context);
    const Image after = Registers();
    asm volatile("fninit");
    CHECK(outcome.fault().vector == kPageFault);
    CHECK(outcome.fault().cr2 == kArea + 0x1000);
    CHECK(std::memcmp(before.bytes, after.bytes, 160) == 0);
  }
}

TEST_CASE("The opcode of a translation is shown as the guest's, any other as it is",
          "[simulator][x87]") {
  if (!KeepsPointers()) return;
  for (const Store& store : kStores) {
    INFO(store.name);
    for (const u64 host : {kTranslated, kElsewhere, u64{0x1234}}) {
      for (const u16 opcode : {u16{0}, kHostOpcode, u16{0x123}}) {
        Sim m;
        LoadHost(host, kHostData, opcode);
        m.Run(store.bytes);
        asm volatile("fninit");
        const bool translations = host == kTranslated && opcode == kHostOpcode;
        CHECK(m.Get<u16>(6) == (translations ? kGuestOpcode : opcode));
      }
    }
  }
}

}  // namespace
}  // namespace alibi::simulator
