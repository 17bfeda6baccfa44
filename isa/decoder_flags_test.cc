// SPDX-License-Identifier: Apache-2.0
// The IR's flag masks against the CPU we run on: liveness rests on them.

#include <Zydis/Zydis.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>

#include "isa/decoder.h"
#include "vcpu/state.h"

namespace alibi::isa {
namespace {

constexpr u32 kAll = static_cast<u32>(vcpu::kArithmeticFlags);

struct Registers {
  u64 gpr[16];
  u64 flags;
};

// Lies below 2 GB, so that the harness reaches it by absolute addresses without a base register.
struct Shared {
  Registers in, out;
  u64 saved_rsp;
};

sigjmp_buf fault_exit;

void OnFault(int) { siglongjmp(fault_exit, 1); }

// Runs single instructions that touch neither memory nor rsp.
class Runner {
 public:
  Runner() {
    void* memory = mmap(nullptr, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    code_ = static_cast<u8*>(memory);
    shared_ = reinterpret_cast<Shared*>(code_ + 4096);
    for (unsigned i = 0; i < std::size(kSignals); ++i) {
      struct sigaction action {};
      action.sa_handler = OnFault;
      action.sa_flags = SA_NODEFER;
      sigaction(kSignals[i], &action, &previous_[i]);
    }
  }
  ~Runner() {
    for (unsigned i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], &previous_[i], nullptr);
    }
    munmap(code_, 8192);
  }

  void Load(const Instr& instr) {
    n_ = 0;
    for (u8 byte : {0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57}) Put(byte);
    Absolute(0x89, 4, &shared_->saved_rsp);
    for (u8 reg = 0; reg < 16; ++reg) {
      if (reg != 4) Absolute(0x8b, reg, &shared_->in.gpr[reg]);
    }
    Absolute(0xff, 6, &shared_->in.flags);  // PUSH
    Put(0x9d);
    for (unsigned i = 0; i < instr.length; ++i) Put(instr.bytes[i]);
    Put(0x9c);
    Absolute(0x8f, 0, &shared_->out.flags);  // POP
    for (u8 reg = 0; reg < 16; ++reg) {
      if (reg != 4) Absolute(0x89, reg, &shared_->out.gpr[reg]);
    }
    Absolute(0x8b, 4, &shared_->saved_rsp);
    for (u8 byte : {0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3}) Put(byte);
  }

  // False when the instruction faulted.
  bool Run(const Registers& in, Registers* out) {
    shared_->in = in;
    if (sigsetjmp(fault_exit, 0) != 0) return false;
    reinterpret_cast<void (*)()>(code_)();
    shared_->out.gpr[4] = 0;
    *out = shared_->out;
    return true;
  }

 private:
  void Put(unsigned byte) { code_[n_++] = static_cast<u8>(byte); }
  void Absolute(u8 opcode, u8 reg, const void* address) {
    Put(0x48 | (reg >= 8 ? 4 : 0));
    Put(opcode);
    Put(0x04 | (reg & 7) << 3);
    Put(0x25);
    u32 low = static_cast<u32>(reinterpret_cast<u64>(address));
    std::memcpy(code_ + n_, &low, 4);
    n_ += 4;
  }

  static constexpr int kSignals[] = {SIGILL, SIGFPE, SIGSEGV, SIGBUS, SIGTRAP};
  struct sigaction previous_[std::size(kSignals)];
  u8* code_;
  Shared* shared_;
  unsigned n_ = 0;
};

// Integer instructions whose only inputs are GPRs and flags.
bool Comparable(const ZydisDecodedInstruction& z, const ZydisDecodedOperand* operands) {
  if (z.meta.category == ZYDIS_CATEGORY_RDRAND || z.meta.category == ZYDIS_CATEGORY_RDSEED) {
    return false;
  }
  for (unsigned i = 0; i < z.operand_count; ++i) {
    if (operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY) return false;
    if (operands[i].type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
    ZydisRegister reg = operands[i].reg.value;
    bool flags = reg >= ZYDIS_REGISTER_FLAGS && reg <= ZYDIS_REGISTER_RFLAGS;
    if (reg > ZYDIS_REGISTER_R15 && !flags) return false;
    bool stack =
        ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg) == ZYDIS_REGISTER_RSP;
    if (stack) return false;
  }
  return z.operand_count != 0;
}

TEST_CASE("Flag masks agree with the host CPU", "[decoder][native]") {
  Runner runner;
  std::mt19937_64 random(4);
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  std::map<std::string, std::string> wrong;
  std::set<u16> tried;
  unsigned runs = 0;
  for (unsigned i = 0; i < 400'000; ++i) {
    u8 bytes[15];
    for (u8& byte : bytes) byte = static_cast<u8>(random());
    unsigned n = 0;
    if (random() % 4 == 0) bytes[n++] = random() % 2 != 0 ? 0x66 : 0xf3;
    if (random() % 2 != 0) bytes[n++] = static_cast<u8>(0x40 | random() % 16);
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        bytes[n++] = 0x0f;
        break;
      case 3:
        bytes[n++] = 0x0f;
        bytes[n++] = 0x38;
        break;
      case 4:
        bytes[0] = 0xc4;
        bytes[1] = static_cast<u8>((random() & 0xe0) | (2 + random() % 2));
        bytes[2] &= 0xfb;
        n = 3;
        break;
      default:
        break;
    }
    bytes[n + 1] |= 0xc0;  // register forms
    Instr instr;
    if (Decode(bytes, sizeof bytes, {}, 64, &instr) != DecodeStatus::kOk ||
        instr.treatment != Treatment::kIdent) {
      continue;
    }
    ZydisDecodedInstruction z;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    ZydisDecoderDecodeFull(&decoder, instr.bytes.data(), instr.length, &z, operands);
    if (!Comparable(z, operands)) continue;
    const u32 written =
        instr.flags_written_maybe ? 0 : instr.flags_written & ~instr.flags_kept_maybe;

    runner.Load(instr);
    Registers in, out[2];
    for (u64& gpr : in.gpr) gpr = random() >> (random() % 64);
    in.flags = 0x202 | (random() & kAll);
    // The same inputs but for the flags that the IR says are not read.
    Registers other = in;
    other.flags ^= random() & kAll & ~instr.flags_read;
    if (!runner.Run(in, &out[0]) || !runner.Run(other, &out[1])) continue;
    ++runs;
    tried.insert(instr.mnemonic);
    std::string problem;
    if (std::memcmp(out[0].gpr, out[1].gpr, sizeof in.gpr) != 0) {
      problem = "a result depends on flags that are not in flags_read";
    }
    if ((out[0].flags ^ out[1].flags) & written) {
      problem = "flags in flags_written depend on earlier flags";
    }
    u32 kept = kAll & ~instr.flags_written;
    if ((out[0].flags ^ in.flags) & kept) problem = "a flag outside flags_written changed";
    for (unsigned reg = 0; reg < 16; ++reg) {
      bool named = (instr.implicit_gprs_written >> reg & 1) != 0;
      for (unsigned g = 0; g < instr.gpr_count; ++g) {
        named |= instr.gprs[g].reg == reg && instr.gprs[g].written;
      }
      if (reg != 4 && !named && out[0].gpr[reg] != in.gpr[reg]) {
        problem = "a GPR changed that is not written";
      }
    }
    if (!problem.empty()) wrong[MnemonicName(instr.mnemonic)] = Disassemble(instr) + ": " + problem;
  }
  for (const auto& [name, text] : wrong) UNSCOPED_INFO(text);
  CHECK(wrong.empty());
  CHECK(runs > 20'000);
  CHECK(tried.size() > 70);
}

}  // namespace
}  // namespace alibi::isa
