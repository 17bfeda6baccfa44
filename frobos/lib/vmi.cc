// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/vmi.h"

#include "frobos/lib/kernel.h"
#include "frobos/lib/privileged.h"

namespace alibi::frobos {
namespace {

extern "C" const PrivilegedSite __start_privileged_sites[], __stop_privileged_sites[];
const VmiHeader* kernel_rom;

struct Answer {
  u64 rax, rdx;
};
Answer Call(u64 entry, u64 rax) {
  Answer answer;
  asm volatile("call *%[entry]"
               : "=a"(answer.rax), "=d"(answer.rdx)
               : "a"(rax), [entry] "r"(entry)
               : "rcx", "cc", "memory");
  return answer;
}

}  // namespace

u64 VmiInitEntry(const VmiHeader* rom) { return reinterpret_cast<u64>(rom) + rom->entries64; }
u64 VmiRelocationEntry(const VmiHeader* rom) { return VmiInitEntry(rom) + 8; }

u64 InitVmi(const VmiHeader* rom) { return Call(VmiInitEntry(rom), 0).rax; }
Relocation RelocationOf(const VmiHeader* rom, u64 call) {
  const Answer answer = Call(VmiRelocationEntry(rom), call);
  return {static_cast<Relocation::Type>(answer.rdx), answer.rax};
}

void RunOnVmi() {
  if (OptionIs("vmi", "no")) return;
  const VmiHeader* rom = FindVmi();
  if (rom == nullptr || rom->entries64 == 0 || InitVmi(rom) != 0) {
    if (OptionIs("rom", "yes")) Panic("there is no VMI ROM");
    return;
  }
  kernel_rom = rom;
  PatchSites(__start_privileged_sites, __stop_privileged_sites,
             [](u32 call) { return RelocationOf(kernel_rom, call); });
}

const VmiHeader* KernelRom() { return kernel_rom; }

}  // namespace alibi::frobos
