// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kInitEntry = 0x80, kRelocationEntry = 0x88;

extern "C" const PrivilegedSite __start_privileged_sites[], __stop_privileged_sites[];

// The ROM that the kernel runs on.
const VmiHeader* kernel_rom;

}  // namespace

extern "C" {
extern u8 vmi_site[];
u32 vmi_entry;
}
asm(".pushsection .snippet, \"ax\"\n"
    "vmi_site:\n"
    ".skip 5, 0x90\n"
    "int $0x7f\n"
    ".popsection");

u32 InitVmi(const VmiHeader* rom) {
  vmi_entry = At(rom, kInitEntry);
  return Run(CODE32("call dword ptr [vmi_entry]"), {}).frame.eax;
}

Outcome RunRelocationInfo(const VmiHeader* rom, u32 call) {
  vmi_entry = At(rom, kRelocationEntry);
  return Run(
      CODE32("call dword ptr [vmi_entry]"),
      {.eax = call, .ebx = 0xb0b0b0b0, .esi = 0x51515151, .edi = 0xd1d1d1d1, .ebp = 0xbebebebe});
}

Relocation RelocationOf(const VmiHeader* rom, u32 call) {
  const Outcome o = RunRelocationInfo(rom, call);
  return {static_cast<Relocation::Type>(o.frame.edx), o.frame.eax};
}

void RunOnVmi() {
  const VmiHeader* rom = FindVmi();
  if (Option("rom") != nullptr) Check(rom != nullptr, "the kernel runs on VMI");
  if (rom == nullptr || InitVmi(rom) != 0) return;
  kernel_rom = rom;
  PatchSites(__start_privileged_sites, __stop_privileged_sites,
             [](u32 call) { return RelocationOf(kernel_rom, call); });
}

bool OnVmi() { return kernel_rom != nullptr; }
Relocation KernelRelocation(u32 call) { return RelocationOf(kernel_rom, call); }
bool HasVmiTimer() {
  return OnVmi() && KernelRelocation(kVmiGetCycleFrequency).type != Relocation::kNone;
}

u32 VmiSite() { return At(vmi_site); }

Outcome CallVmi(Relocation to, Frame frame, const u32* words, u32 count) {
  PatchSite(vmi_site, to);
  u32* stack = reinterpret_cast<u32*>(ProbeStackTop()) - count;
  for (u32 i = 0; i < count; i++) stack[i] = words[i];
  frame.esp = At(stack);
  return Run(vmi_site, frame);
}

}  // namespace alibi::frobos
