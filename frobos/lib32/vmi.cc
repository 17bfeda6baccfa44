// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kFirstRom = 0xc0000, kEndOfRoms = 0xe0000, kRomStep = 2048;
constexpr u32 kInitEntry = 0x80, kRelocationEntry = 0x88;

struct Site {
  u32 address, call, bytes;
};
extern "C" const Site __start_privileged_sites[], __stop_privileged_sites[];

// The ROM that the kernel runs on.
const VmiHeader* kernel_rom;

bool SameText(const char* a, const char* b) {
  while (*a != 0 && *a == *b) a++, b++;
  return *a == *b;
}

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

const VmiHeader* FindVmi() {
  for (u32 at = kFirstRom; at < kEndOfRoms; at += kRomStep) {
    const VmiHeader* rom = reinterpret_cast<const VmiHeader*>(at);
    if (rom->signature != 0xaa55 || rom->vmi_signature != 0x696d5663 || rom->major != 3) continue;
    if (rom->licence == 0 || rom->pci == 0) continue;
    const char* licence = reinterpret_cast<const char*>(at + rom->licence);
    if (SameText(licence, "GPL") || SameText(licence, "GPL v2")) return rom;
  }
  return nullptr;
}

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

void PatchSite(void* site, Relocation to) {
  u8* bytes = static_cast<u8*>(site);
  const u32 displacement = to.address - (At(site) + kVmiSiteBytes);
  switch (to.type) {
    case Relocation::kNone:
      return;
    case Relocation::kCall:
    case Relocation::kJump:
      bytes[0] = to.type == Relocation::kCall ? 0xe8 : 0xe9;
      memcpy(bytes + 1, &displacement, sizeof(displacement));
      break;
    case Relocation::kNop:
      for (u32 i = 0; i < kVmiSiteBytes; i++) bytes[i] = 0x90;
      break;
  }
  Cpuid(0);  // as the architecture wants it for changed code
}

void RunOnVmi() {
  const VmiHeader* rom = FindVmi();
  if (Option("rom") != nullptr) Check(rom != nullptr, "the kernel runs on VMI");
  if (rom == nullptr || InitVmi(rom) != 0) return;
  kernel_rom = rom;
  u32 sites = 0;
  for (const Site* site = __start_privileged_sites; site != __stop_privileged_sites; site++) {
    const Relocation to = RelocationOf(rom, site->call);
    if (to.type == Relocation::kNone) continue;
    if (site->bytes < kVmiSiteBytes) Panic("no room for a call at %x", site->address);
    u8* bytes = reinterpret_cast<u8*>(site->address);
    // Behind the call; nobody runs there before PatchSite() has written it.
    for (u32 i = kVmiSiteBytes; i < site->bytes; i++) bytes[i] = 0x90;
    PatchSite(bytes, to);
    sites++;
  }
  Print("  on VMI: %u of %u sites are the ROM's\n", sites,
        static_cast<u32>(__stop_privileged_sites - __start_privileged_sites));
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
