// What images of the x87 state show of the host: nothing but where guest code lies.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "runtime/simulator/simulator.h"
#include "translator/decoder.h"
#include "vcpu/test_machine.h"

namespace alibi::runtime {
namespace {

using namespace vcpu;  // the registers

constexpr u64 kArea = 0x10000, kTranslated = 0x7f12'3456'7890, kElsewhere = 0x7f12'0000'0000;
constexpr u64 kHostData = 0x7ffc'1234'5678, kGuestRip = 0x1234'5678'9abc;

class NoPorts : public PortIo {
 public:
  u32 In(u16, unsigned) override { return 0; }
  void Out(u16, unsigned, u32) override {}
};

class OneTranslation : public HostCode {
 public:
  bool GuestRip(u64 host, u64* rip) const override {
    *rip = kGuestRip;
    return host == kTranslated;
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

// As if x87 instructions at `instruction` had loaded pi and 1.
void LoadHost(u64 instruction, u64 data) {
  Image image;
  asm volatile(
      "fninit\n\tfldpi\n\tfld1\n\tfxsave64 %0\n\tmov %1, 8+%0\n\tmov %2, 16+%0\n\tfxrstor64 %0"
      : "+m"(image)
      : "r"(instruction), "r"(data)
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
    translator::Instr instr;
    REQUIRE(translator::Decode(padded.data(), 15, state().rip, 64, &instr) ==
            translator::DecodeStatus::kOk);
    REQUIRE(CanSimulate(instr.op));
    REQUIRE(instr.treatment == translator::Treatment::kSimulate);
    state().gpr[kRax] = 3;
    state().gpr[kRdx] = 0;
    SimulatorContext context{state(), memory, ports_, platform, policy(), &code_};
    const Outcome outcome = Simulate(instr, context);
    REQUIRE(outcome.done());
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

// Does this CPU keep what it is given while no exception is pending? Old ones of AMD do not.
bool KeepsPointers() {
  LoadHost(kTranslated, kHostData);
  const bool keeps = Registers().Get<u64>(8) == kTranslated;
  asm volatile("fninit");
  if (!keeps) WARN("not checked: this CPU has x87 pointers for pending exceptions only");
  return keeps;
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
    translator::Instr instr;
    const u8 bytes[16] = {opcode, 0x36};
    REQUIRE(translator::Decode(bytes, 15, 0x400000, 64, &instr) == translator::DecodeStatus::kOk);
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

}  // namespace
}  // namespace alibi::runtime
