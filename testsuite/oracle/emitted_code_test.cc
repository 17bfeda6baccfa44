// SPDX-License-Identifier: Apache-2.0
// Golden emitted code of a few translation units, and the verifier over what the generator makes.
#include <catch2/catch.hpp>
#include <vector>

#include "testsuite/golden.h"
#include "testsuite/oracle/generator.h"
#include "testsuite/oracle/guest_machine.h"
#include "testsuite/oracle/harness.h"
#include "testsuite/oracle/listing.h"
#include "testsuite/verifier/observer.h"
#include "translator/ccf.h"

namespace alibi::oracle {
namespace {

using Code = std::vector<std::vector<u8>>;

class Recorder final : public runtime::TranslationObserver {
 public:
  explicit Recorder(runtime::TranslatingEngine& engine) : stubs_(engine.stub_table()) {}
  void OnTranslation(const translator::Ccf& ccf) override {
    for (auto& complaint : verifier::Verify(ccf, stubs_)) complaints.push_back(complaint);
    if (ccf.pc - kCodeBase < LinearAddr(kCodeBytes))
      text += ListIr(ccf) + ListStable(ccf, stubs_) + "\n";
  }
  void OnAdaptation(const translator::Ccf&, const translator::Ccf&) override {}

  std::string text;
  std::vector<std::string> complaints;

 private:
  const StubTable& stubs_;
};

TestCase Prepare(const Code& code) {
  TestCase test;
  test.code = code;
  CpuState& state = test.initial;
  state.rip = kCodeBase + 0x100;
  for (u64& gpr : state.gpr) gpr = kDataBase + 0x400;
  state.gpr[vcpu::kRsp] = kStackBase + 2 * kPageSize - 0x100;
  return test;
}

// What becomes of the code on a fresh machine, each line's page already known to the shadow.
std::string Translation(Kind kind, const Code& code) {
  const TestCase test = Prepare(code);
  Outcome outcome;
  GuestMachine machine(kind);
  Recorder recorder(machine.engine());
  machine.set_observer(&recorder);
  // A stop on the way leads to a translation that begins there.
  if (machine.Run(test, {}, &outcome) != 0) return Translation(kind, code);
  for (const std::string& complaint : recorder.complaints) FAIL_CHECK(complaint);
  CHECK(outcome.vector == 3);
  return "Guest code:\n" + ListGuest(test.Bytes(), test.initial.rip) + "\n" + recorder.text;
}

void CheckGolden(const char* name, const std::string& text) {
  CHECK(testsuite::CompareWithGolden(std::string("testsuite/oracle/golden/") + name, text) == "");
}

TEST_CASE("Golden: loads and stores of every shape", "[oracle]") {
  const Code code = {{0x48, 0x8b, 0x07},                                // mov rax, [rdi]
                     {0x89, 0x46, 0x10},                                // mov [rsi+16], eax
                     {0x4c, 0x01, 0x5d, 0x08},                          // add [rbp+8], r11
                     {0x4d, 0x8b, 0x12},                                // mov r10, [r10]
                     {0x8a, 0x61, 0x03},                                // mov ah, [rcx+3]
                     {0x66, 0x0f, 0xfe, 0x02},                          // paddd xmm0, [rdx]
                     {0x48, 0x8b, 0x04, 0x25, 0x00, 0x08, 0x00, 0x20},  // mov rax, [20000800]
                     {0x67, 0x8b, 0x03}};                               // mov eax, [ebx]
  CheckGolden("memory.txt", Translation(Kind::kAlone, code));
  CheckGolden("memory_table.txt", Translation(Kind::kTable, code));
  CheckGolden("memory_checked.txt", Translation(Kind::kChecked, code));
  CheckGolden("memory_simulate.txt", Translation(Kind::kSimulate, code));
}

TEST_CASE("Golden: accesses that share a look-up", "[oracle]") {
  CheckGolden("group.txt",
              Translation(Kind::kThreshold, {{0x8b, 0x46, 0x10},        // mov eax, [rsi+16]
                                             {0x01, 0x46, 0x14},        // add [rsi+20], eax
                                             {0x48, 0x83, 0xc6, 0x08},  // add rsi, 8
                                             {0x4c, 0x89, 0x5e, 0x20},  // mov [rsi+32], r11
                                             {0x3b, 0x06}}));           // cmp eax, [rsi]
  CheckGolden("push.txt", Translation(Kind::kThreshold, {{0x55},        // push rbp
                                                         {0x41, 0x57},  // push r15
                                                         {0x41, 0x53},  // push r11
                                                         {0x48, 0x83, 0xec, 0x18},  // sub rsp, 24
                                                         {0x48, 0x83, 0xc4, 0x18},  // add rsp, 24
                                                         {0x41, 0x5b},              // pop r11
                                                         {0x41, 0x5f},              // pop r15
                                                         {0x5d}}));                 // pop rbp
}

TEST_CASE("Golden: strings, bits", "[oracle]") {
  CheckGolden("strings.txt", Translation(Kind::kThreshold, {{0xb9, 4, 0, 0, 0},     // mov ecx, 4
                                                            {0xf3, 0xa5},           // rep movsd
                                                            {0x48, 0xab},           // stosq
                                                            {0xae},                 // scasb
                                                            {0x0f, 0x94, 0xc0}}));  // sete al
  CheckGolden("bits.txt",
              Translation(Kind::kThreshold, {{0xba, 9, 0, 0, 0},              // mov edx, 9
                                             {0xf0, 0x48, 0x0f, 0xab, 0x17},  // lock bts [rdi], rdx
                                             {0x72, 0x00}}));                 // jc
}

TEST_CASE("Golden: call, return, computed jump", "[oracle]") {
  CheckGolden("call_ret.txt",
              Translation(Kind::kThreshold, {{0xe8, 0x02, 0x00, 0x00, 0x00},  // call +2
                                             {0xeb, 0x04},                    // jmp +4
                                             {0x31, 0xc0},                    // xor eax, eax
                                             {0xc3},                          // ret
                                             {0x90},
                                             {0x90}}));
}

TEST_CASE("Emitted code is safe: every access has its look-up", "[oracle]") {
  for (unsigned kind = 0; kind < kKindCount; ++kind) {
    if (static_cast<Kind>(kind) == Kind::kDirect) continue;  // little of it is translated
    for (const unsigned code_bits : {64u, 32u, 16u}) {
      GuestMachine machine(static_cast<Kind>(kind));
      verifier::Observer observer;
      observer.Watch(machine.engine());
      auto outcome = std::make_unique<Outcome>();
      u64 ran = 0;
      for (u64 i = 0; i < 150; ++i) {
        const GeneratedCase made = Generator(SeedOf(0xe5, i)).Make(code_bits);
        if (!Harness::Applies(made.traits, machine.kind())) continue;
        ++ran;
        machine.Run(made.test, {.cold = false, .new_code = true, .limit_ms = 50}, outcome.get());
        const std::vector<std::string> complaints = observer.Take();
        INFO(KindName(machine.kind()) << ", " << code_bits << " bits");
        if (!complaints.empty()) FAIL(complaints.front() + "\n" + ListGuest(made.test));
      }
      // One kind, at CPL 0, is of 64-bit code alone.
      if (ran != 0 || code_bits == 64) CHECK(observer.translations() > 100);
    }
  }
}

}  // namespace
}  // namespace alibi::oracle
