// SPDX-License-Identifier: Apache-2.0
// XSAVE and relatives in the simulator against the host's own, on the same registers and memory.
#include <cpuid.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "isa/decoder.h"
#include "simulator/simulator.h"
#include "testsuite/host_cpu.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/test_machine.h"

// Each runs its instruction on (rdi) with EDX:EAX = rsi.
asm(R"(
.macro alibi_native name, instruction
\name:
  mov %esi, %eax
  mov %rsi, %rdx
  shr $32, %rdx
  \instruction (%rdi)
  ret
.endm
.text
alibi_native alibi_native_xsave, xsave
alibi_native alibi_native_xsave64, xsave64
alibi_native alibi_native_xsavec, xsavec
alibi_native alibi_native_xsavec64, xsavec64
alibi_native alibi_native_xsaveopt, xsaveopt
alibi_native alibi_native_xsaveopt64, xsaveopt64
alibi_native alibi_native_xrstor, xrstor
alibi_native alibi_native_xrstor64, xrstor64
)");
extern "C" {
void alibi_native_xsave(void*, alibi::u64);
void alibi_native_xsave64(void*, alibi::u64);
void alibi_native_xsavec(void*, alibi::u64);
void alibi_native_xsavec64(void*, alibi::u64);
void alibi_native_xsaveopt(void*, alibi::u64);
void alibi_native_xsaveopt64(void*, alibi::u64);
void alibi_native_xrstor(void*, alibi::u64);
void alibi_native_xrstor64(void*, alibi::u64);
}

namespace alibi::simulator {
namespace {

using namespace vcpu;  // the registers and flags

constexpr u64 kArea = 0x10000;
constexpr unsigned kBytes = 4096;

struct alignas(64) Image {
  u8 bytes[kBytes] = {};

  template <class T>
  void Put(unsigned at, T value) {
    std::memcpy(bytes + at, &value, sizeof(T));
  }
  template <class T>
  T Get(unsigned at) const {
    T value;
    std::memcpy(&value, bytes + at, sizeof(T));
    return value;
  }
};

struct Host {
  u64 components = 0;
  u32 size[8] = {}, offset[8] = {};
  bool xsavec = false, xsaveopt = false;

  Host() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    __get_cpuid(1, &a, &b, &c, &d);
    if (!(c & (1u << 27))) return;
    asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    components = a & 0xe7;
    for (unsigned i = 2; i < 8; ++i) {
      if ((components >> i) & 1) __get_cpuid_count(0xd, i, &size[i], &offset[i], &c, &d);
    }
    __get_cpuid_count(0xd, 1, &a, &b, &c, &d);
    xsaveopt = a & 1;
    xsavec = a & 2;
  }
};

// Calls function(a, b) with the registers of the image, which then has what they are afterwards.
void WithRegisters(Image* image, u64 components, void (*function)(void*, u64), void* a, u64 b) {
  register u64 components_in asm("r12") = components;
  register Image* image_in asm("r13") = image;
  register void* a_in asm("r14") = a;
  register u64 b_in asm("r15") = b;
  const u32 mxcsr = 0x1f80;
  asm volatile(
      "mov %%rsp, %%rbx\n\t"
      "sub $256, %%rsp\n\t"
      "and $-64, %%rsp\n\t"
      "mov %%r12d, %%eax\n\t"
      "xor %%edx, %%edx\n\t"
      "xrstor64 (%%r13)\n\t"
      "mov %[function], %%rcx\n\t"
      "mov %[a], %%rdi\n\t"
      "mov %[b], %%rsi\n\t"
      "call *%%rcx\n\t"
      "mov %%r12d, %%eax\n\t"
      "xor %%edx, %%edx\n\t"
      "xsave64 (%%r13)\n\t"
      "mov %%rbx, %%rsp\n\t"
      "fninit\n\t"
      "vzeroupper\n\t"
      "ldmxcsr %[mxcsr]\n\t"
      :
      : "r"(components_in), [a] "r"(a_in), [b] "r"(b_in), [function] "D"(function),
        "r"(image_in), [mxcsr] "m"(mxcsr)
      : "memory", "cc", "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1",
        "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15");
}

class NoPorts : public PortIo {
 public:
  u32 In(u16, unsigned) override { return 0; }
  void Out(u16, unsigned, u32) override {}
};

class Sim : public TestMachine {
 public:
  explicit Sim(unsigned code_bits) {
    if (code_bits == 64) {
      LongMode();
    } else {
      Protected32();
    }
    state().cr4 |= kCr4Osxsave | kCr4Osfxsr;
    state().gpr[kRsi] = kArea;
  }

  // On [RSI], with the registers of the image.
  Outcome Run(const std::vector<u8>& bytes, u64 requested, Image* registers) {
    const Host host;
    std::vector<u8> padded(bytes);
    padded.resize(16);
    REQUIRE(isa::Decode(padded.data(), 15, LinearAddr(state().rip), state().CodeBits(), &instr_) ==
            isa::DecodeStatus::kOk);
    REQUIRE(CanSimulate(instr_.op));
    REQUIRE(instr_.treatment == isa::Treatment::kSimulate);
    state().gpr[kRax] = static_cast<u32>(requested);
    state().gpr[kRdx] = requested >> 32;
    WithRegisters(registers, host.components, &Sim::Thunk, this, 0);
    return outcome_;
  }
  void Load(const Image& image) {
    for (unsigned i = 0; i < kBytes; ++i) memory.Put<u8>(kArea + i, image.bytes[i]);
  }
  Image Memory() {
    Image image;
    for (unsigned i = 0; i < kBytes; ++i) image.bytes[i] = memory.Get<u8>(kArea + i);
    return image;
  }

 private:
  // What a callout is compiled like: the registers are live.
  __attribute__((target("general-regs-only"))) static void Thunk(void* self, u64) {
    Sim& sim = *static_cast<Sim*>(self);
    SimulatorContext context{sim.state(), sim.memory, sim.ports_, sim.platform, policy()};
    sim.outcome_ = Simulate(sim.instr_, context);
  }

  isa::Instr instr_;
  Outcome outcome_;
  NoPorts ports_;
};

// Registers in XSAVE's standard format, some components in their initial state.
Image RandomRegisters(std::mt19937_64& random, const Host& host) {
  Image image;
  for (unsigned at = 32; at < 416; ++at) image.bytes[at] = static_cast<u8>(random());
  for (unsigned at = 576; at < 2688; ++at) image.bytes[at] = static_cast<u8>(random());
  for (unsigned st = 0; st < 8; ++st) std::memset(image.bytes + 32 + st * 16 + 10, 0, 6);
  image.Put<u16>(0, 0x37f);
  image.Put<u8>(4, static_cast<u8>(random()));
  image.Put<u32>(24, 0x1f80 | (random() % 4) << 13);
  image.Put<u64>(512, host.components & random());
  return image;
}

unsigned FirstDifference(const Image& a, const Image& b, unsigned begin = 0) {
  unsigned at = begin;
  while (at < kBytes && a.bytes[at] == b.bytes[at]) ++at;
  return at;
}

TEST_CASE("XSAVE, XSAVEC, XSAVEOPT and XRSTOR agree with the host", "[simulator][xsave]") {
  const Host host;
  if (!testsuite::CanCheck(host.components != 0 && host.xsavec && host.xsaveopt,
                           "XSAVE and its relatives", "XSAVEC and XSAVEOPT")) {
    return;
  }
  struct Sample {
    std::vector<u8> bytes;
    void (*native)(void*, u64);
    bool restores;
  };
  const Sample samples[] = {
      {{0x0f, 0xae, 0x26}, alibi_native_xsave, false},
      {{0x48, 0x0f, 0xae, 0x26}, alibi_native_xsave64, false},
      {{0x0f, 0xc7, 0x26}, alibi_native_xsavec, false},
      {{0x48, 0x0f, 0xc7, 0x26}, alibi_native_xsavec64, false},
      {{0x0f, 0xae, 0x36}, alibi_native_xsaveopt, false},
      {{0x48, 0x0f, 0xae, 0x36}, alibi_native_xsaveopt64, false},
      {{0x0f, 0xae, 0x2e}, alibi_native_xrstor, true},
      {{0x48, 0x0f, 0xae, 0x2e}, alibi_native_xrstor64, true},
      {{0x48, 0x0f, 0xae, 0x2e}, alibi_native_xrstor64, true},
  };
  std::mt19937_64 random(4);
  Sim m(64);
  m.state().xcr0 = host.components;
  for (int round = 0; round < 1500; ++round) {
    const Sample& sample = samples[random() % std::size(samples)];
    const Image before = RandomRegisters(random, host);
    Image memory;
    for (u8& byte : memory.bytes) byte = static_cast<u8>(random());
    if (sample.restores) {
      memory = RandomRegisters(random, host);
      if (round % 2 != 0) {
        const u64 layout = random() & host.components;
        memory.Put<u64>(512, memory.Get<u64>(512) & layout);
        memory.Put<u64>(520, layout | u64{1} << 63);
      }
    }
    const u64 requested = round % 5 == 0 ? ~u64{0} : random();
    CAPTURE(round, requested, sample.bytes);
    Image native_registers, registers, native_memory, simulated_memory;
    // A component that holds its initial values may be in use or not, and a task switch of the
    // host's may change that between the two (SDM vol. 1, 13.6).
    for (int tries = 0; tries < 5; ++tries) {
      m.state().rip = 0x400000;
      m.Load(memory);
      native_registers = registers = before;
      native_memory = memory;
      // The host may have enabled more (AMX), which would show in XSTATE_BV.
      WithRegisters(&native_registers, host.components, sample.native, &native_memory,
                    requested & host.components);
      const Outcome outcome = m.Run(sample.bytes, requested, &registers);
      REQUIRE(outcome.done());
      simulated_memory = m.Memory();
      if (simulated_memory.Get<u64>(512) == native_memory.Get<u64>(512)) break;
    }
    CAPTURE(FirstDifference(simulated_memory, native_memory));
    REQUIRE(std::memcmp(simulated_memory.bytes, native_memory.bytes, kBytes) == 0);
    // Which components count as initial is not compared (SDM vol. 1, 13.6), their values are.
    registers.Put<u64>(512, 0);
    native_registers.Put<u64>(512, 0);
    CAPTURE(FirstDifference(registers, native_registers));
    REQUIRE(std::memcmp(registers.bytes, native_registers.bytes, kBytes) == 0);
  }
}

TEST_CASE("A smaller XCR0 than the host's bounds what XSAVE and XRSTOR touch",
          "[simulator][xsave]") {
  const Host host;
  if ((host.components & 7) != 7) return;
  std::mt19937_64 random(5);
  Sim m(64);
  m.state().xcr0 = 3;
  Image untouched;
  std::memset(untouched.bytes, 0xcc, kBytes);
  m.Load(untouched);
  Image registers = RandomRegisters(random, host);
  registers.Put<u64>(512, host.components);
  REQUIRE(m.Run({0x48, 0x0f, 0xae, 0x26}, ~u64{0}, &registers).done());
  CHECK(FirstDifference(m.Memory(), untouched, 520) == kBytes);
  CHECK(m.Memory().Get<u64>(512) == 0xcccccccccccccccf);

  // The area may end where what is asked for ends.
  m.memory.Poison(kArea + 0x1000);
  m.state().gpr[kRsi] = kArea + 0x1000 - 576;
  CHECK(m.Run({0x48, 0x0f, 0xae, 0x26}, ~u64{0}, &registers).done());
  m.state().gpr[kRsi] = kArea + 0x1000 - 512;
  const Outcome fault = m.Run({0x48, 0x0f, 0xae, 0x26}, ~u64{0}, &registers);
  CHECK(fault.fault().vector == kPageFault);
  const bool end_first = HostHasIntelsWay(HostDifference::kXsaveAreaEnd);
  CHECK(fault.fault().cr2 == kArea + 0x1000 + (end_first ? 63 : 0));
  m.memory.Heal();
  m.state().gpr[kRsi] = kArea;

  auto restore = [&](u64 present, u64 layout, u64 rest) {
    Image image = RandomRegisters(random, host);
    image.Put<u64>(512, present);
    image.Put<u64>(520, layout);
    image.Put<u64>(528, rest);
    m.Load(image);
    Image r = registers;
    const Outcome outcome = m.Run({0x48, 0x0f, 0xae, 0x2e}, ~u64{0}, &r);
    return outcome.faulted() ? outcome.fault().vector : -1;
  };
  CHECK(restore(3, 0, 0) == -1);
  CHECK(restore(7, 0, 0) == kGeneralProtection);  // a component that XCR0 lacks
  CHECK(restore(1, 1, 0) == kGeneralProtection);  // reserved in the standard format
  CHECK(restore(1, 0, 1) == kGeneralProtection);
  if (host.xsavec) {
    CHECK(restore(1, (u64{1} << 63) | 3, 0) == -1);
    CHECK(restore(1, (u64{1} << 63) | 7, 0) == kGeneralProtection);
    CHECK(restore(2, (u64{1} << 63) | 1, 0) == kGeneralProtection);
    CHECK(restore(1, (u64{1} << 63) | 1, 1) == kGeneralProtection);
  }
  // MXCSR with a bit that does not exist; the area not aligned.
  Image image = RandomRegisters(random, host);
  image.Put<u64>(512, 3);
  image.Put<u32>(24, 0x80000000);
  m.Load(image);
  CHECK(m.Run({0x48, 0x0f, 0xae, 0x2e}, 3, &registers).fault().vector == kGeneralProtection);
  CHECK(m.Run({0x48, 0x0f, 0xae, 0x2e}, 1, &registers).done());
  m.state().gpr[kRsi] = kArea + 8;
  CHECK(m.Run({0x48, 0x0f, 0xae, 0x26}, 3, &registers).fault().vector == kGeneralProtection);
}

TEST_CASE("32-bit code saves and restores eight vector registers", "[simulator][xsave]") {
  const Host host;
  if (host.components == 0) return;
  std::mt19937_64 random(6);
  Sim m(32);
  m.state().xcr0 = host.components;
  Image filled;
  std::memset(filled.bytes, 0xcc, kBytes);
  Image registers = RandomRegisters(random, host);
  registers.Put<u64>(512, host.components);
  const Image before = registers;
  auto check = [&](unsigned begin, unsigned end, const Image& expected) {
    const Image memory = m.Memory();
    CAPTURE(begin, end);
    CHECK(std::memcmp(memory.bytes + begin, expected.bytes + begin, end - begin) == 0);
  };
  m.Load(filled);
  REQUIRE(m.Run({0x0f, 0xae, 0x26}, ~u64{0}, &registers).done());
  check(160, 288, before);
  check(288, 512, filled);
  for (unsigned i : {2u, 6u}) {
    if (host.size[i] == 0) continue;
    check(host.offset[i], host.offset[i] + host.size[i] / 2, before);
    check(host.offset[i] + host.size[i] / 2, host.offset[i] + host.size[i], filled);
  }
  if (host.size[7] != 0) check(host.offset[7], kBytes, filled);

  m.Load(filled);
  REQUIRE(m.Run({0x0f, 0xae, 0x06}, 0, &registers).done());  // FXSAVE
  check(160, 288, before);
  check(288, kBytes, filled);

  // What 32-bit code cannot name it does not change.
  Image other = RandomRegisters(random, host);
  for (u64 present : {host.components, u64{0}}) {
    Image expected = before;
    for (unsigned at = 0; at < 128; ++at)
      expected.bytes[160 + at] = present ? other.bytes[160 + at] : 0;
    for (unsigned i : {2u, 5u, 6u}) {
      for (unsigned at = 0; at < (i == 5 ? host.size[i] : host.size[i] / 2); ++at) {
        expected.bytes[host.offset[i] + at] = present ? other.bytes[host.offset[i] + at] : 0;
      }
    }
    other.Put<u64>(512, present);
    m.Load(other);
    registers = before;
    REQUIRE(m.Run({0x0f, 0xae, 0x2e}, 0xe6, &registers).done());
    CHECK(std::memcmp(registers.bytes + 160, expected.bytes + 160, 256) == 0);
    CHECK(std::memcmp(registers.bytes + 576, expected.bytes + 576, 2400 - 576) == 0);
  }
  registers = before;
  m.Load(other);
  REQUIRE(m.Run({0x0f, 0xae, 0x0e}, 0, &registers).done());  // FXRSTOR
  CHECK(std::memcmp(registers.bytes + 160, other.bytes + 160, 128) == 0);
  CHECK(std::memcmp(registers.bytes + 288, before.bytes + 288, 128) == 0);
  CHECK(std::memcmp(registers.bytes + 576, before.bytes + 576, 2400 - 576) == 0);
}

}  // namespace
}  // namespace alibi::simulator
