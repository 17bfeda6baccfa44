// SPDX-License-Identifier: Apache-2.0
// The host as oracle: random user-level instructions run on it and in the simulator, on the same
// registers, flags and memory. The data lies at the same low addresses in both.
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "isa/decoder.h"
#include "simulator/simulator.h"
#include "testsuite/host_cpu.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/test_machine.h"

namespace alibi::simulator {
namespace {

using namespace vcpu;  // the registers and flags

constexpr u64 kArea = 0x100000, kAreaBytes = 0x10000;  // data and stack, in guest and host
constexpr u64 kStackTop = kArea + 0xe000;
constexpr u64 kCode = 0x180000;

// What the native code loads and stores, at the end of the code page.
struct NativeState {
  u64 gpr[16];
  u64 flags;
  u64 host_rsp;
  u64 slack[64];  // the frame of PUSHFQ and POPFQ while the state is switched
  alignas(64) u8 xsave[4096];
};

class Native {
 public:
  Native() {
    Map(kArea, kAreaBytes, PROT_READ | PROT_WRITE);
    Map(kCode, 0x4000, PROT_READ | PROT_WRITE | PROT_EXEC);
    state_ = reinterpret_cast<NativeState*>(kCode + 0x1000);
  }
  ~Native() {
    munmap(reinterpret_cast<void*>(kArea), kAreaBytes);
    munmap(reinterpret_cast<void*>(kCode), 0x4000);
  }

  // With vector registers in xsave, in and out; otherwise they are the host's.
  void Run(const std::vector<u8>& instruction, VcpuState* s, u8* xsave = nullptr) {
    Begin(xsave);
    Store(kRsp, &state_->host_rsp);
    PointRsp(&state_->flags);
    Emit({0x9d});  // POPFQ
    for (unsigned reg = 0; reg < 16; ++reg) Load(reg, &state_->gpr[reg]);
    for (u8 byte : instruction) Emit({byte});
    for (unsigned reg = 0; reg < 16; ++reg) Store(reg, &state_->gpr[reg]);
    PointRsp(&state_->flags + 1);
    Emit({0x9c, 0xfc});  // PUSHFQ, CLD
    Load(kRsp, &state_->host_rsp);
    std::memcpy(state_->gpr, s->gpr, sizeof(s->gpr));
    state_->flags = s->Rflags();
    Finish(xsave);
    std::memcpy(s->gpr, state_->gpr, sizeof(s->gpr));
    s->SetRflags(state_->flags);
  }

  // Calls function(argument) while the registers of xsave are live.
  void Call(void (*function)(void*), void* argument, u8* xsave) {
    Begin(xsave);
    Store(kRsp, &state_->host_rsp);
    Emit({0x48, 0x83, 0xe4, 0xf0});  // AND RSP, -16
    Emit({0x48, 0xbf});
    Quad(argument);
    Emit({0x48, 0xb8});
    Quad(reinterpret_cast<void*>(function));
    Emit({0xff, 0xd0});
    Load(kRsp, &state_->host_rsp);
    Finish(xsave);
  }

 private:
  static void Map(u64 address, u64 bytes, int protection) {
    void* wanted = reinterpret_cast<void*>(address);
    void* got =
        mmap(wanted, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(got == wanted);
  }
  void Begin(const u8* xsave) {
    code_ = reinterpret_cast<u8*>(kCode);
    for (u8 reg : {3, 5}) Emit({static_cast<u8>(0x50 + reg)});
    for (u8 reg : {4, 5, 6, 7}) Emit({0x41, static_cast<u8>(0x50 + reg)});
    if (xsave == nullptr) return;
    std::memcpy(state_->xsave, xsave, sizeof(state_->xsave));
    Components();
    Emit({0x48, 0x0f, 0xae, 0x2c, 0x25});  // XRSTOR64
    Word(state_->xsave);
  }
  void Finish(u8* xsave) {
    if (xsave != nullptr) {
      Components();
      Emit({0x48, 0x0f, 0xae, 0x24, 0x25});  // XSAVE64
      Word(state_->xsave);
    }
    for (u8 reg : {7, 6, 5, 4}) Emit({0x41, static_cast<u8>(0x58 + reg)});
    for (u8 reg : {5, 3}) Emit({static_cast<u8>(0x58 + reg)});
    Emit({0xc3});
    reinterpret_cast<void (*)()>(kCode)();
    if (xsave != nullptr) std::memcpy(xsave, state_->xsave, sizeof(state_->xsave));
  }
  // EDX:EAX: SSE, AVX, AVX-512.
  void Components() { Emit({0xb8, 0xe6, 0, 0, 0, 0x31, 0xd2}); }
  void Quad(const void* value) {
    std::memcpy(code_, &value, 8);
    code_ += 8;
  }
  void Emit(std::initializer_list<int> bytes) {
    for (int byte : bytes) *code_++ = static_cast<u8>(byte);
  }
  void Word(const void* address) {
    u32 low = static_cast<u32>(reinterpret_cast<u64>(address));
    std::memcpy(code_, &low, 4);
    code_ += 4;
  }
  void Access(u8 opcode, unsigned reg, const void* address) {
    Emit({static_cast<int>(0x48 | reg >> 3 << 2), opcode, static_cast<int>(4 | (reg & 7) << 3),
          0x25});
    Word(address);
  }
  void Load(unsigned reg, const void* address) { Access(0x8b, reg, address); }
  void Store(unsigned reg, const void* address) { Access(0x89, reg, address); }
  void PointRsp(const void* address) {
    Emit({0x48, 0xc7, 0xc4});
    Word(address);
  }

  NativeState* state_ = nullptr;
  u8* code_ = nullptr;
};

class NoPorts : public PortIo {
 public:
  u32 In(u16, unsigned) override { return 0; }
  void Out(u16, unsigned, u32) override {}
};

struct Sample {
  const char* name;
  std::vector<u8> bytes;
  u64 undefined_flags = 0;
};

// BT and its relatives define CF alone and leave ZF.
constexpr u64 kBitTestUndefined = kOf | kSf | kAf | kPf;

std::vector<Sample> Samples() {
  std::vector<Sample> samples = {
      {"PUSH RAX", {0x50}},
      {"PUSH RSP", {0x54}},
      {"PUSH R10", {0x41, 0x52}},
      {"PUSH AX", {0x66, 0x50}},
      {"PUSH imm8", {0x6a, 0x85}},
      {"PUSH imm32", {0x68, 1, 2, 3, 0x84}},
      {"PUSH imm16", {0x66, 0x68, 1, 0x82}},
      {"PUSH [RSI]", {0xff, 0x36}},
      {"PUSH [RSP+8]", {0xff, 0x74, 0x24, 8}},
      {"POP RBX", {0x5b}},
      {"POP RSP", {0x5c}},
      {"POP CX", {0x66, 0x59}},
      {"POP [RSI]", {0x8f, 0x06}},
      {"POP [RSP]", {0x8f, 0x04, 0x24}},
      {"PUSHFQ", {0x9c}},
      {"LEAVE", {0xc9}},
      {"ENTER 16,0", {0xc8, 16, 0, 0}},
      {"ENTER 8,1", {0xc8, 8, 0, 1}},
      {"ENTER 24,5", {0xc8, 24, 0, 5}},
      {"XLAT", {0xd7}},
      {"MOV [RDI],RAX", {0x48, 0x89, 0x07}},
      {"MOV [RDI],AH", {0x88, 0x27}},
      {"MOV CH,[RSI]", {0x8a, 0x2e}},
      {"MOV R9D,[RSI+4]", {0x44, 0x8b, 0x4e, 4}},
      {"MOV SI,[RDI]", {0x66, 0x8b, 0x37}},
      {"MOV DL,SIL", {0x40, 0x88, 0xf2}},
      {"MOV R8,imm64", {0x49, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}},
      {"MOV [RSI],imm32", {0x48, 0xc7, 0x06, 1, 2, 3, 0xff}},
      {"XCHG [RSI],RBX", {0x48, 0x87, 0x1e}},
      {"XCHG BL,[RSI]", {0x86, 0x1e}},
      {"XCHG EAX,R11D", {0x41, 0x93}},
      {"XCHG AH,CL", {0x86, 0xcc}},
      {"LEA EAX,[RSI+RDI*4-5]", {0x8d, 0x44, 0xbe, 0xfb}},
      {"LEA R10,[EBX+ECX]", {0x67, 0x4c, 0x8d, 0x14, 0x0b}},
      {"CLD", {0xfc}},
      {"STD", {0xfd}},
      {"LOOP", {0xe2, 0}},
      {"LOOPE", {0xe1, 0}},
      {"LOOPNE", {0xe0, 0}},
      {"LOOP ECX", {0x67, 0xe2, 0}},
      {"JRCXZ", {0xe3, 0}},
  };
  for (u8 opcode : {0xa3, 0xab, 0xb3, 0xbb}) {
    samples.push_back({"BT.. [RSI],EDX", {0x0f, opcode, 0x16}, kBitTestUndefined});
    samples.push_back({"BT.. [RSI],DX", {0x66, 0x0f, opcode, 0x16}, kBitTestUndefined});
    samples.push_back({"BT.. [RSI],RDX", {0x48, 0x0f, opcode, 0x16}, kBitTestUndefined});
  }
  for (u8 opcode : {0xa4, 0xa6, 0xaa, 0xac, 0xae}) {
    for (u8 wide : {0, 1}) {
      for (int prefix : {0, 0xf3, 0xf2}) {
        for (int size : {0, 0x66, 0x48}) {
          if (!wide && size != 0) continue;
          std::vector<u8> bytes;
          if (prefix != 0) bytes.push_back(static_cast<u8>(prefix));
          if (size != 0) bytes.push_back(static_cast<u8>(size));
          bytes.push_back(static_cast<u8>(opcode | wide));
          samples.push_back({"string", bytes});
          bytes.insert(bytes.begin(), 0x67);
          samples.push_back({"string, 32-bit address", bytes});
        }
      }
    }
  }
  return samples;
}

TEST_CASE("The simulator agrees with the host on random user-level instructions",
          "[simulator][native]") {
  Native native;
  TestMachine m;
  NoPorts ports;
  const std::vector<Sample> samples = Samples();
  std::mt19937_64 random(20240607);
  u8* area = reinterpret_cast<u8*>(kArea);
  VcpuState expected;
  for (int round = 0; round < 30000; ++round) {
    const Sample& sample = samples[random() % samples.size()];
    m.LongMode(3);
    VcpuState& s = m.state();
    s.rip = kCode;
    for (u64& reg : s.gpr) reg = random();
    // Few distinct bytes, so that comparisons run on for a while.
    const u64 pattern = random() & 0x0101010101010101;
    if (round % 64 == 0) {
      for (u64 i = 0; i < kAreaBytes; ++i) area[i] = random() % 50 == 0;
    }
    s.gpr[kRax] = random() % 2 ? pattern : random() & 0xff;
    s.gpr[kRcx] = random() % 8 == 0 ? 0 : random() % 700;
    s.gpr[kRdx] = random() % 0x4000 - 0x2000;
    s.gpr[kRsi] = kArea + 0x4000 + random() % 0x4000;
    // Often close to the source: overlapping moves.
    s.gpr[kRdi] =
        random() % 3 == 0 ? s.gpr[kRsi] + random() % 40 - 20 : kArea + 0x4000 + random() % 0x4000;
    s.gpr[kRbx] = sample.bytes[0] == 0xd7 ? kArea + random() % kAreaBytes / 2 : random();
    s.gpr[kRbp] = kArea + 0x9000 + random() % 0x1000;
    s.gpr[kRsp] = kStackTop - random() % 0x1000;
    s.SetRflags((random() & (kArithmeticFlags | kDf)) | kIf);
    if (sample.bytes[0] == 0x67 && random() % 4 == 0) s.gpr[kRcx] |= u64{1} << 40;

    for (u64 i = 0; i < kAreaBytes; ++i) m.memory.Put<u8>(kArea + i, area[i]);
    std::memcpy(static_cast<void*>(&expected), &s, sizeof(VcpuState));
    native.Run(sample.bytes, &expected);

    std::vector<u8> padded(sample.bytes);
    padded.resize(16);
    isa::Instr instr;
    REQUIRE(isa::Decode(padded.data(), 15, LinearAddr(s.rip), 64, &instr) ==
            isa::DecodeStatus::kOk);
    SimulatorContext context{s, m.memory, ports, m.platform, m.policy()};
    INFO(sample.name << ": " << isa::Disassemble(instr) << ", round " << round);
    const Outcome outcome = Simulate(instr, context);
    INFO("vector " << int{outcome.fault().vector} << " rdi " << s.gpr[kRdi] << " rcx "
                   << s.gpr[kRcx] << " rsi " << s.gpr[kRsi] << " seg "
                   << int{instr.segment_override} << " abits " << int{instr.address_bits} << " df "
                   << int{s.df_flag});
    REQUIRE(outcome.done());
    for (unsigned reg = 0; reg < 16; ++reg) {
      INFO("register " << reg);
      REQUIRE(s.gpr[reg] == expected.gpr[reg]);
    }
    REQUIRE((s.Rflags() & ~sample.undefined_flags) ==
            (expected.Rflags() & ~sample.undefined_flags));
    REQUIRE(s.rip == kCode + sample.bytes.size());
    bool same = true;
    for (u64 i = 0; i < kAreaBytes; ++i) same = same && m.memory.Get<u8>(kArea + i) == area[i];
    REQUIRE(same);
  }
}

struct SimulateCall {
  const isa::Instr* instr;
  SimulatorContext* context;
  Outcome outcome;
};

// What a callout is compiled like.
__attribute__((target("general-regs-only"))) void SimulateThunk(void* argument) {
  auto* call = static_cast<SimulateCall*>(argument);
  call->outcome = Simulate(*call->instr, *call->context);
}

struct VectorSample {
  const char* name;
  std::vector<u8> bytes;
  bool avx512 = false;
};

TEST_CASE("Gathers, scatters and masked moves agree with the host", "[simulator][native]") {
  Native native;
  TestMachine m;
  NoPorts ports;
  const bool avx2 = __builtin_cpu_supports("avx2"), avx512 = __builtin_cpu_supports("avx512vl");
  testsuite::CanCheck(avx512, "EVEX gathers and scatters", "AVX512VL");
  if (!testsuite::CanCheck(avx2, "VEX gathers and masked moves", "AVX2")) return;
  std::vector<VectorSample> samples = {
      {"MASKMOVDQU XMM1,XMM10", {0x66, 0x41, 0x0f, 0xf7, 0xca}},
      {"VMASKMOVDQU XMM1,XMM2", {0xc5, 0xf9, 0xf7, 0xca}},
  };
  for (u8 opcode : {0x2c, 0x2d, 0x2e, 0x2f, 0x8c, 0x8e}) {
    for (u8 tail : {0x61, 0x65, 0xe1, 0xe5}) {  // vvvv = 3, L, W
      if (opcode < 0x80 && (tail & 0x80)) continue;
      samples.push_back({"masked move", {0xc4, 0x62, tail, opcode, 0x4e, 0x10}});
    }
  }
  for (u8 opcode : {0x90, 0x91, 0x92, 0x93}) {
    for (u8 tail : {0x61, 0x65, 0xe1, 0xe5}) {
      // reg = xmm9, index = xmm12, base = RSI, scale 4
      samples.push_back({"VEX gather", {0xc4, 0x22, tail, opcode, 0x4c, 0xa6, 0x08}});
    }
    for (u8 length : {0x00, 0x20, 0x40}) {
      for (u8 w : {0x7d, 0xfd}) {
        // reg = zmm25, index = zmm20, k2, disp8 * element size
        const u8 p2 = static_cast<u8>(length | 0x02);
        samples.push_back({"EVEX gather", {0x62, 0x62, w, p2, opcode, 0x4c, 0xa6, 0x02}, true});
        samples.push_back({"EVEX scatter",
                           {0x62, 0x62, w, p2, static_cast<u8>(opcode + 0x10), 0x4c, 0xa6, 0x02},
                           true});
      }
    }
  }
  std::mt19937_64 random(20240608);
  u8* area = reinterpret_cast<u8*>(kArea);
  VcpuState expected;
  static u8 before[4096], wanted[4096], got[4096];
  u32 offset[8] = {};
  for (u32 i = 2; i < 8; ++i) {
    u32 a, c, d;
    asm volatile("cpuid" : "=a"(a), "=b"(offset[i]), "=c"(c), "=d"(d) : "a"(0xd), "c"(i));
  }
  for (int round = 0; round < 3000; ++round) {
    const VectorSample& sample = samples[random() % samples.size()];
    if (sample.avx512 && !avx512) continue;
    m.LongMode(3);
    VcpuState& s = m.state();
    s.rip = kCode;
    for (u64& reg : s.gpr) reg = random();
    s.gpr[kRsi] = s.gpr[kRdi] = kArea + 0x8000;
    s.gpr[kRsp] = kStackTop;
    s.SetRflags(kIf);
    for (u64 i = 0; i < kAreaBytes; ++i) area[i] = static_cast<u8>(random());
    // Indices of both sizes that stay in the area, in every register; masks come from their signs.
    std::memset(before, 0, sizeof(before));
    for (u64 i = 160; i < 416; ++i) before[i] = static_cast<u8>(random());
    for (u64 i = 576; i < 2688; ++i) before[i] = static_cast<u8>(random());
    const u64 components = avx512 ? 0xe6 : 6;
    std::memset(before + 512, 0, 64);
    std::memcpy(before + 512, &components, 8);
    const u32 mxcsr = 0x1f80;
    std::memcpy(before + 24, &mxcsr, 4);
    auto index_words = [&](u64 at, u64 bytes, bool wide) {
      for (u64 i = 0; i < bytes; i += wide ? 8 : 4) {
        const i64 value = static_cast<i64>(random() % 0x1000) - 0x800;
        std::memcpy(before + at + i, &value, wide ? 8 : 4);
      }
    };
    // XMM12/YMM12 and ZMM20 in the standard layout of this host.
    u8 opcode = sample.bytes[sample.bytes[0] == 0x62 ? 4 : 3];
    index_words(160 + 12 * 16, 16, opcode & 1);
    index_words(offset[2] + 12 * 16, 16, opcode & 1);
    if (avx512) index_words(offset[7] + 4 * 64, 64, opcode & 1);

    for (u64 i = 0; i < kAreaBytes; ++i) m.memory.Put<u8>(kArea + i, area[i]);
    std::memcpy(static_cast<void*>(&expected), &s, sizeof(VcpuState));
    std::memcpy(wanted, before, sizeof(wanted));
    std::memcpy(got, before, sizeof(got));
    native.Run(sample.bytes, &expected, wanted);

    std::vector<u8> padded(sample.bytes);
    padded.resize(16);
    isa::Instr instr;
    REQUIRE(isa::Decode(padded.data(), 15, LinearAddr(s.rip), 64, &instr) ==
            isa::DecodeStatus::kOk);
    SimulatorContext context{s, m.memory, ports, m.platform, m.policy()};
    SimulateCall call{&instr, &context, {}};
    native.Call(SimulateThunk, &call, got);
    INFO(sample.name << ": " << isa::Disassemble(instr) << ", round " << round);
    REQUIRE(call.outcome.done());
    // The header says which components are in their initial state: not architectural here.
    std::memset(wanted + 512, 0, 64);
    std::memset(got + 512, 0, 64);
    unsigned at = 24;
    while (at < 4096 && got[at] == wanted[at]) ++at;
    INFO("first differing XSAVE byte");
    REQUIRE(at == 4096);
    bool same = true;
    for (u64 i = 0; i < kAreaBytes; ++i) same = same && m.memory.Get<u8>(kArea + i) == area[i];
    REQUIRE(same);
  }
}

TEST_CASE("A gather that faults keeps what is done", "[simulator][native]") {
  if (!testsuite::CanCheck(__builtin_cpu_supports("avx2"), "a gather that faults", "AVX2")) return;
  Native native;
  TestMachine m;
  NoPorts ports;
  m.LongMode(3);
  VcpuState& s = m.state();
  s.gpr[kRsi] = kArea;
  static u8 registers[4096];
  const u64 components = 6;
  const u32 mxcsr = 0x1f80;
  std::memcpy(registers + 24, &mxcsr, 4);
  std::memcpy(registers + 512, &components, 8);
  const u32 upper = HostCpuid(0xd, 2).ebx;
  for (u32 i = 0; i < 4; ++i) {
    const u32 index = i * 0x400, mask = 0x80000000;  // the fourth is in the next page
    std::memcpy(registers + 160 + 12 * 16 + i * 4, &index, 4);
    std::memcpy(registers + 160 + 3 * 16 + i * 4, &mask, 4);
    // The upper halves of the destination and the mask.
    for (const u32 reg : {9u, 3u}) std::memcpy(registers + upper + reg * 16 + i * 4, &mask, 4);
    m.memory.Put<u32>(kArea + i * 0x1000, 0x1111 * (i + 1));
  }
  m.memory.Poison(kArea + 0x2000);
  isa::Instr instr;
  const u8 gather[16] = {0xc4, 0x22, 0x61, 0x90, 0x0c, 0xa6};  // VPGATHERDD XMM9,[RSI+XMM12*4],XMM3
  s.rip = kCode;
  REQUIRE(isa::Decode(gather, 15, LinearAddr(s.rip), 64, &instr) == isa::DecodeStatus::kOk);
  SimulatorContext context{s, m.memory, ports, m.platform, m.policy()};
  SimulateCall call{&instr, &context, {}};
  auto word = [&](unsigned reg, unsigned i) {
    u32 value;
    std::memcpy(&value, registers + 160 + reg * 16 + i * 4, 4);
    return value;
  };
  native.Call(SimulateThunk, &call, registers);
  CHECK(call.outcome.fault().cr2 == kArea + 0x2000);
  CHECK(s.rip == kCode);
  CHECK(word(9, 1) == 0x2222);
  CHECK(word(3, 1) == 0);
  const bool early = HostHasIntelsWay(HostDifference::kGatherFault);
  CHECK(word(3, 2) == (early ? 0xffffffff : 0x80000000));
  for (const u32 reg : {9u, 3u}) {
    u32 above;
    std::memcpy(&above, registers + upper + reg * 16, 4);
    CHECK(above == (early ? 0 : 0x80000000));
  }
  m.memory.Heal();
  native.Call(SimulateThunk, &call, registers);
  CHECK(call.outcome.done());
  CHECK(word(9, 3) == 0x4444);
  CHECK(word(3, 3) == 0);
}

}  // namespace
}  // namespace alibi::simulator
