// SPDX-License-Identifier: Apache-2.0
#include "inspect/dump/example.h"

#include <fmt/format.h>

#include <map>

#include "inspect/dump/dump_text.h"
#include "inspect/dump/program.h"
#include "inspect/dump/recorder.h"

namespace alibi::vmm {
namespace {

constexpr double kSeconds = 20;  // for a sanitized build on a busy machine
constexpr u64 kNumber = 49;

// int isPrime(int a) { for (int i = 2; i < a; i++) if (a % i == 0) return 0; return 1; }
const std::vector<u8> kIsPrime = {
    0x89, 0xf9,                    // isPrime:  mov ecx, edi
    0xbe, 0x02, 0x00, 0x00, 0x00,  //           mov esi, 2
    0x39, 0xce,                    //           cmp esi, ecx
    0x7d, 0x0f,                    //           jge prime
    0x89, 0xc8,                    // nexti:    mov eax, ecx
    0x99,                          //           cdq
    0xf7, 0xfe,                    //           idiv esi
    0x85, 0xd2,                    //           test edx, edx
    0x74, 0x0c,                    //           jz notPrime
    0xff, 0xc6,                    //           inc esi
    0x39, 0xce,                    //           cmp esi, ecx
    0x7c, 0xf1,                    //           jl nexti
    0xb8, 0x01, 0x00, 0x00, 0x00,  // prime:    mov eax, 1
    0xc3,                          //           ret
    0x31, 0xc0,                    // notPrime: xor eax, eax
    0xc3,                          //           ret
};
const std::map<LinearAddr, std::string> kIsPrimeLabels = {{kProgramAddress, "isPrime"},
                                                          {kProgramAddress + 11, "nexti"},
                                                          {kProgramAddress + 26, "prime"},
                                                          {kProgramAddress + 32, "notPrime"}};

// Stores a page-table entry rcx times: innocent bytes, a guilty site.
const std::vector<u8> kStorePte = {
    0x48, 0x89, 0x37,  // storePte: mov [rdi], rsi
    0xff, 0xc9,        //           dec ecx
    0x75, 0xf9,        //           jnz storePte
    0xc3,              //           ret
};
const std::map<LinearAddr, std::string> kStorePteLabels = {{kProgramAddress, "storePte"},
                                                           {kProgramAddress + 7, "done"}};
constexpr u64 kStores = 8;

struct Example {
  std::unique_ptr<PcMachine> machine;
  std::unique_ptr<Recorder> recorder;
  std::string end;
};

template <class Prepare>
Result<Example> RunExample(const std::vector<u8>& code, const std::string& policy,
                           Prepare&& prepare) {
  Example example;
  auto machine = MakeProgramMachine(code, kProgramAddress, 64, policy);
  if (!machine.ok()) return machine.error();
  example.machine = std::move(*machine);
  Machine& inner = example.machine->machine();
  example.recorder = std::make_unique<Recorder>(inner.mmu(), *inner.translator());
  inner.translator()->set_translation_observer(example.recorder.get());
  prepare(inner);
  inner.StateChanged();
  example.end = RunLimited(*example.machine, kSeconds);
  inner.translator()->set_translation_observer(nullptr);
  return example;
}

}  // namespace

Result<std::string> IsPrimeExample(const std::string& policy) {
  auto prime = RunExample(kIsPrime, policy,
                          [](Machine& machine) { machine.state().gpr[vcpu::kRdi] = kNumber; });
  if (!prime.ok()) return prime.error();
  const vcpu::VcpuState& state = prime->machine->machine().state();
  DumpText text(*prime->recorder, *prime->machine->machine().translator(), kIsPrimeLabels);
  text.Limit(kProgramAddress, kProgramAddress + kIsPrime.size());
  std::string out = fmt::format(
      "isPrime({}), the example of Adams & Agesen 2006, section 3.2: {}, eax = {}\n\n"
      "Guest code that was translated\n",
      kNumber, prime->end, static_cast<u32>(state.gpr[vcpu::kRax]));
  out += text.GuestListing();
  out +=
      "\nTranslations, in the order of execution ([..]: a continuation, translates when taken)\n";
  for (const Translation& translation : prime->recorder->translations()) {
    if (translation.pc - kProgramAddress < kIsPrime.size()) {
      out += text.TranslationText(translation) + "\n";
    }
  }
  out += "The TC afterwards, in address order (*: a CCF's first instruction)\n";
  out += text.CacheContents();
  out += "\nExits before and after\n" + text.Exits();

  auto store = RunExample(kStorePte, policy, [](Machine& machine) {
    // The entry keeps its value: the page tables stay what they are.
    const u64 address = ProgramPteAddress(kProgramAddress - kPageSize);
    u64 value = 0;
    machine.memory().ReadPhys(PhysAddr(address), &value, sizeof(value));
    machine.state().gpr[vcpu::kRdi] = address;
    machine.state().gpr[vcpu::kRsi] = value;
    machine.state().gpr[vcpu::kRcx] = kStores;
  });
  if (!store.ok()) return store.error();
  DumpText adapted(*store->recorder, *store->machine->machine().translator(), kStorePteLabels);
  adapted.Limit(kProgramAddress, kProgramAddress + kStorePte.size());
  out +=
      fmt::format("\nAdaptation: a store to a page table, {} times, policy {}: {}\n\nGuest code\n",
                  kStores, policy, store->end);
  out += adapted.GuestListing() + "\n";
  for (const Translation& translation : store->recorder->translations()) {
    if (translation.pc - kProgramAddress < kStorePte.size()) {
      out += adapted.TranslationText(translation) + "\n";
    }
  }
  const std::string adaptations = adapted.Adaptations();
  out += "Adapted\n" + (adaptations.empty() ? "  nothing\n" : adaptations);
  out += "\nThe TC afterwards\n" + adapted.CacheContents();
  out += "\nExits before and after\n" + adapted.Exits();
  return out;
}

}  // namespace alibi::vmm
