// SPDX-License-Identifier: Apache-2.0
#include "inspect/profile/profile.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "inspect/dump/program.h"

namespace alibi::vmm {
namespace {

std::unique_ptr<ExecutionProfile> Profile(const std::vector<u8>& code, unsigned bits = 64) {
  auto profile = std::make_unique<ExecutionProfile>();
  auto machine = MakeProgramMachine(code, kProgramAddress, bits, "hysteresis", profile.get());
  REQUIRE(machine.ok());
  CHECK(RunLimited(**machine, 5) == "the code returned");
  (*machine)->machine().translator()->CollectExecutions();
  return profile;
}

TEST_CASE("A loop of known length") {
  const auto profile = Profile({0xb9, 0xe8, 0x03, 0x00, 0x00,  // mov ecx, 1000
                                0xff, 0xc9,                    // dec ecx
                                0x75, 0xfc,                    // jnz
                                0xc3});                        // ret
  CHECK(profile->instructions() == 1 + 1000 + 1000 + 1 + 1);   // and HLT
  CHECK(profile->of(InstrClass::jcc) == 1000);
  CHECK(profile->of(InstrClass::ret) == 1);
  CHECK(profile->of(InstrClass::hlt) == 1);
  CHECK(profile->of(InstrClass::stack) == 1);
  CHECK(profile->of(Execution::ident) == 1001);
  CHECK(profile->of(Execution::control) == 1001);
  CHECK(profile->of(Execution::simulate) == 1);
  CHECK(profile->ExecutionsAt(kProgramAddress + 5) == 1000);
}

TEST_CASE("What runs in the TC without the VMM is counted, and what calls out") {
  const auto profile = Profile({0xb9, 0x64, 0x00, 0x00, 0x00,        // mov ecx, 100
                                0xe4, 0x80,                          // in al, 80h
                                0x31, 0xc0,                          // xor eax, eax
                                0x44, 0x0f, 0x22, 0xc0,              // mov cr8, rax
                                0xfa,                                // cli
                                0x9c,                                // pushfq
                                0x58,                                // pop rax
                                0x0f, 0x31,                          // rdtsc
                                0x48, 0x89, 0x44, 0x24, 0xf8,        // mov [rsp-8], rax
                                0xf0, 0x48, 0xff, 0x44, 0x24, 0xf0,  // lock inc qword [rsp-16]
                                0xff, 0xc9,                          // dec ecx
                                0x75, 0xe4,                          // jnz
                                0xc3});                              // ret
  for (const InstrClass once : {InstrClass::in, InstrClass::cr8_write, InstrClass::cli,
                                InstrClass::pushf, InstrClass::rdtsc, InstrClass::lock}) {
    CHECK(profile->of(once) == 100);
  }
  CHECK(profile->of(InstrClass::store) == 200);
  CHECK(profile->of(InstrClass::load) == 100);
  CHECK(profile->instructions() == 1 + 100 * 11 + 1 + 1);
}

TEST_CASE("Of too many blocks the hottest are kept, and the others' instructions are told of") {
  constexpr unsigned kMax = 8, kOnce = 40;
  ExecutionProfile profile(kMax);
  std::vector<u8> code;
  const auto jump = [&] { code.insert(code.end(), {0xeb, 0x00}); };  // to the next instruction
  for (unsigned i = 0; i < kOnce / 2; ++i) jump();
  code.insert(code.end(), {0xb9, 0xe8, 0x03, 0x00, 0x00,  // mov ecx, 1000
                           0xff, 0xc9,                    // dec ecx
                           0x75, 0xfc});                  // jnz
  const LinearAddr loop = kProgramAddress + code.size() - 4;
  for (unsigned i = 0; i < kOnce / 2; ++i) jump();
  code.push_back(0xc3);
  auto machine = MakeProgramMachine(code, kProgramAddress, 64, "hysteresis", &profile);
  REQUIRE(machine.ok());
  CHECK(RunLimited(**machine, 5) == "the code returned");
  (*machine)->machine().translator()->CollectExecutions();

  const auto json = profile.Json(1000);
  CHECK(profile.instructions() == kOnce + 1 + 2 * 1000 + 2);
  REQUIRE(json["blocks"].size() <= kMax);
  REQUIRE(json["blocks"].size() >= kMax / 4);
  CHECK(json["blocks"][0]["pc"] == fmt::format("{:#x}", loop.value));
  CHECK(profile.ExecutionsAt(loop) >= 999);
  CHECK(json["blocks_forgotten"].get<u64>() > kOnce / 2);
  u64 known = 0;
  for (const auto& block : json["blocks"]) known += block["instructions"].get<u64>();
  CHECK(known + json["instructions_forgotten"].get<u64>() == profile.instructions());
}

TEST_CASE("32-bit code is told apart, and its JSON is complete") {
  const auto profile = Profile({0xb9, 0x0a, 0x00, 0x00, 0x00,  // mov ecx, 10
                                0x49,                          // dec ecx
                                0x75, 0xfd,                    // jnz
                                0xc3},
                               32);
  const auto json = profile->Json(2);
  CHECK(json["instructions"] == 1 + 20 + 1 + 1);
  REQUIRE(json["modes"].size() == 1);
  CHECK(json["modes"][0]["code_bits"] == 32);
  CHECK(json["modes"][0]["user"] == false);
  CHECK(json["modes"][0]["instructions"] == 23);
  CHECK(json["modes"][0]["translations"] == 4);  // from the start, from DEC, RET, HLT
  CHECK(json["modes"][0]["classes"]["jcc"] == 10);
  CHECK(json["classes"]["jcc"] == 10);
  CHECK(json["translation_lengths"][2] == 1);  // DEC, JNZ
  CHECK(json["translations_not_entered"] == 0);
  CHECK(json["mnemonics"]["DEC"]["kernel"] == 10);
  CHECK(json["executions"]["ident"] == 1);  // 32-bit DEC has another encoding in 64-bit code
  CHECK(json["executions"]["reg"] == 10);
  REQUIRE(json["blocks"].size() == 2);
  CHECK(json["blocks"][0]["pc"] == "0x100005");
  CHECK(json["blocks"][0]["entered"] == 9);
  CHECK(json["blocks"][0]["code"][0]["text"] == "DEC ecx");
  CHECK(json["blocks"][0]["code"][0]["executed"] == 9);
}

TEST_CASE("The documentation has every class and every kind of execution") {
  std::ifstream file(std::getenv("OBSERVABILITY"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const char* const rows[] = {
#define ALIBI_INSTRUCTION_CLASS(name, what, predicate) "| `" #name "` | " what " |",
#include "inspect/profile/classes.inc"
#define ALIBI_EXECUTION(name, what) "| `" #name "` | " what " |",
#include "inspect/profile/executions.inc"
  };
  for (const char* row : rows) CHECK_THAT(text, Catch::Contains(row));
}

// The nanobenchmarks' loops, of a length that their command line says: what more there is in the
// longer run are the loops' instructions alone. (Not of IN and OUT, by which the console writes its
// figures.)
TEST_CASE("A kernel's operations, as often as it was told") {
  struct Operation {
    const char* benchmark;
    std::vector<const char*> classes;
  };
  const auto run = [](const std::string& benchmark, unsigned iterations) {
    const std::string file = std::string(std::getenv("TEST_TMPDIR")) + "/profile.json";
    const std::string command =
        fmt::format("{} run --no-reboot --profile {} --append 'only={} samples=1 iters={}' {}",
                    std::getenv("ALIBI"), file, benchmark, iterations, std::getenv("NANOBENCH"));
    INFO(command);
    const int status = std::system((command + " > /dev/null").c_str());
    CHECK(WEXITSTATUS(status) == 1);
    std::ifstream json(file);
    return nlohmann::json::parse(json);
  };
  for (const Operation& operation :
       {Operation{"syscall", {"syscall", "sysret"}}, Operation{"cr8wr", {"cr8_write"}},
        Operation{"callret", {"call", "ret"}}, Operation{"clisti", {"cli", "sti"}},
        Operation{"divzero", {"iret"}}, Operation{"pgfault", {"iret"}},
        Operation{"cr3", {"cr3_write"}}}) {
    constexpr unsigned kFew = 600, kMany = 1600;
    const auto few = run(operation.benchmark, kFew), many = run(operation.benchmark, kMany);
    for (const char* name : operation.classes) {
      const u64 more =
          many["profile"]["classes"][name].get<u64>() - few["profile"]["classes"][name].get<u64>();
      INFO(operation.benchmark << ": " << name << ": " << more);
      CHECK(more >= kMany - kFew);
      CHECK(more % (kMany - kFew) == 0);
    }
  }
}

}  // namespace
}  // namespace alibi::vmm
