// SPDX-License-Identifier: Apache-2.0
// Model-specific registers as a kernel meets them: what can be written and read back, which values
// are refused, and what the registers then do (Intel SDM vol. 4 ch. 2, AMD APM vol. 2 app. A).

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u32 kMsrTsc = 0x10, kMsrMtrrCap = 0xfe, kMsrMiscEnable = 0x1a0, kMsrPat = 0x277,
              kMsrMtrrDefType = 0x2ff, kMsrSpecCtrl = 0x48, kMsrX2ApicId = 0x802;
constexpr u64 kNotCanonical = 0x0000'8000'0000'0000ull;
constexpr u64 kHigh = 0xffff'f800'1234'5678ull, kLow = 0x0000'7fff'8765'4321ull;

bool intel;

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

const void *rdmsr, *wrmsr;

Outcome Read(u32 msr) { return RunKernel(rdmsr, {.rax = ~0ull, .rcx = msr, .rdx = ~0ull}); }
Outcome Write(u32 msr, u64 value) {
  return RunKernel(wrmsr, {.rax = static_cast<u32>(value), .rcx = msr, .rdx = value >> 32});
}
u64 Value(const Outcome& o) { return o.frame.rdx << 32 | o.frame.rax; }

// Written values come back, and what was there before is put back.
void CheckHolds(const char* name, u32 msr, std::initializer_list<u64> values) {
  const Outcome before = Read(msr);
  if (!before.Done()) return CheckDone(name, before);
  Group group(name);
  for (const u64 value : values) {
    const Outcome written = Write(msr, value), read = Read(msr);
    if (!group.Case(written.Done() && read.Done() && Value(read) == value)) {
      Print("  %lx: written with %s, read back with %s: %lx\n", value,
            VectorName(written.frame.vector), VectorName(read.frame.vector), Value(read));
    }
  }
  Write(msr, Value(before));
}

// #GP(0) at the instruction, and nothing changed.
void CheckRefuses(const char* name, u32 msr, std::initializer_list<u64> values) {
  const u64 before = Value(Read(msr));
  Group group(name);
  for (const u64 value : values) {
    const Outcome o = Write(msr, value);
    const u64 after = Value(Read(msr));
    if (!group.Case(o.Is(kGeneralProtection, 0) && o.frame.rip == At(wrmsr) && after == before)) {
      Print("  %lx: %s, before %lx after %lx\n", value, VectorName(o.frame.vector), before, after);
      Write(msr, before);
    }
  }
}

void TestPrivilege() {
  const void* user_rdmsr = USER_CODE("rdmsr");
  const void* user_wrmsr = USER_CODE("wrmsr");
  CheckFault("#GP rdmsr in CPL 3", RunUser(user_rdmsr, {.rcx = kMsrEfer}), kGeneralProtection, 0,
             At(user_rdmsr));
  CheckFault("#GP wrmsr in CPL 3", RunUser(user_wrmsr, {.rcx = kMsrStar}), kGeneralProtection, 0,
             At(user_wrmsr));
  CheckFault("#GP rdmsr of nothing in CPL 3", RunUser(user_rdmsr, {.rcx = 0x12345678}),
             kGeneralProtection, 0, At(user_rdmsr));
  const u64 star = ReadMsr(kMsrStar);
  WriteMsr(kMsrStar, 0x8877665544332211);
  Outcome o = RunKernel(rdmsr, {.rax = ~0ull, .rcx = 0xfffffffful << 32 | kMsrStar, .rdx = ~0ull});
  CheckEq("rdmsr zero-extends eax, ignores the upper half of rcx", o.frame.rax, 0x44332211);
  CheckEq("... and zero-extends edx", o.frame.rdx, 0x88776655);
  o = RunKernel(wrmsr, {.rax = 0xdead000012345678, .rcx = kMsrStar, .rdx = 0xdead00009abcdef0});
  CheckEq("wrmsr ignores the upper halves of rax and rdx", ReadMsr(kMsrStar), 0x9abcdef012345678);
  WriteMsr(kMsrStar, star);
}

void TestValues() {
  CheckHolds("SYSENTER_CS", kMsrSysenterCs, {0x1234, 0, 0xfff8});
  CheckHolds("SYSENTER_ESP", kMsrSysenterEsp, {0, 0x12345678, kLow, kHigh});
  CheckHolds("SYSENTER_EIP", kMsrSysenterEip, {0, 0x12345678, kLow, kHigh});
  CheckHolds("STAR", kMsrStar, {0, ~0ull, 0x0018000800000000});
  CheckHolds("LSTAR", kMsrLstar, {0, kLow, kHigh});
  CheckHolds("CSTAR", kMsrCstar, {0, kLow, kHigh});
  CheckHolds("SFMASK", kMsrSfmask, {0, 0xffffffff, 0x47700});
  CheckHolds("FS_BASE", kMsrFsBase, {0, kLow, kHigh});
  CheckHolds("GS_BASE", kMsrGsBase, {0, kLow, kHigh});
  CheckHolds("KERNEL_GS_BASE", kMsrKernelGsBase, {0, kLow, kHigh});
  if (HasRdtscp()) CheckHolds("TSC_AUX", kMsrTscAux, {0, 0xffffffff, 0x123});
  CheckHolds("PAT", kMsrPat, {0x0007040600070406, 0x0000000007070707, 0x0504010006070001});
  const u64 mtrr_type = ReadMsr(kMsrMtrrDefType);
  CheckHolds("MTRR_DEF_TYPE", kMsrMtrrDefType, {0, 0x806, 0xc00, mtrr_type});
}

void TestRefusedValues() {
  // QEMU's WRMSR checks next to nothing.
  if (SkipOnQemu("refused values")) return;
  struct Row {
    const char* name;
    u32 msr;
  };
  constexpr Row kRows[] = {{"#GP LSTAR not canonical", kMsrLstar},
                           {"#GP CSTAR not canonical", kMsrCstar},
                           {"#GP FS_BASE not canonical", kMsrFsBase},
                           {"#GP GS_BASE not canonical", kMsrGsBase},
                           {"#GP KERNEL_GS_BASE not canonical", kMsrKernelGsBase}};
  for (const Row& row : kRows) {
    CheckRefuses(row.name, row.msr,
                 {kNotCanonical, ~kNotCanonical, 1ull << 63, 0x00ffffffffffffff});
  }
  if (intel) {
    CheckRefuses("#GP SYSENTER_ESP not canonical", kMsrSysenterEsp, {kNotCanonical, 1ull << 63});
    CheckRefuses("#GP SYSENTER_EIP not canonical", kMsrSysenterEip, {kNotCanonical, 1ull << 63});
    CheckRefuses("#GP TSC_AUX above 32 bits", kMsrTscAux, {1ull << 32, 1ull << 63});
  }
  CheckRefuses("#GP PAT types that do not exist", kMsrPat,
               {0x0007040600070402, 0x0007040600070403, 0x0807040600070406, 0x00070406000704f6,
                0x0207040600070406});
  const u64 efer = ReadMsr(kMsrEfer);
  // Bits 1-7, 9 and 16 and up (but for what AMD defines in 12-21) exist nowhere.
  CheckRefuses("#GP EFER reserved bits", kMsrEfer,
               {efer | 1u << 1, efer | 1u << 7, efer | 1u << 9, efer | 1u << 22, efer | 1ull << 32,
                efer | 1ull << 63});
  CheckRefuses("#GP EFER.LME cleared under paging", kMsrEfer, {efer & ~kEferLme});
  CheckRefuses("#GP MTRRCAP is read-only", kMsrMtrrCap, {Value(Read(kMsrMtrrCap)), 0});
  CheckRefuses("#GP MTRR_DEF_TYPE reserved", kMsrMtrrDefType, {1u << 8, 1u << 12, 1ull << 40});
  const u64 base = ReadMsr(kMsrApicBase);
  const unsigned physical_bits = Cpuid(0x80000008).eax & 0xff;
  CheckRefuses(
      "#GP APIC_BASE reserved bits", kMsrApicBase,
      {base | 1, base | 0x80, base | 0x200, base | 1ull << physical_bits, base | 1ull << 63});
}

void TestUnknown() {
  if (SkipOnQemu("MSRs that do not exist")) return;  // QEMU reads 0 from them
  Group group("#GP MSRs that do not exist");
  for (const u32 msr : {0x12345678u, 0xffffffffu, 0xc0000085u, 0xc0000200u, 0x00001fffu,
                        0xbffffffeu, 0x00000004u, 0xc0000079u}) {
    const Outcome read = Read(msr), written = Write(msr, 0);
    const bool good = read.Is(kGeneralProtection, 0) && written.Is(kGeneralProtection, 0) &&
                      read.frame.rip == At(rdmsr) && written.frame.rip == At(wrmsr) &&
                      read.frame.rax == ~0ull && read.frame.rdx == ~0ull;
    if (!group.Case(good)) {
      Print("  %x: read %s, written %s\n", msr, VectorName(read.frame.vector),
            VectorName(written.frame.vector));
    }
  }
  if ((ReadMsr(kMsrApicBase) & 1u << 10) == 0) {
    CheckFault("#GP x2APIC's MSRs in xAPIC mode", Read(kMsrX2ApicId), kGeneralProtection);
  }
  const CpuidResult leaf7 = ExtendedFeatures();
  const bool amd_ibrs = (Cpuid(0x80000000).eax >= 0x80000008) &&
                        (Cpuid(0x80000008).ebx & (1u << 14 | 1u << 15 | 1u << 24)) != 0;
  if ((leaf7.edx >> 26 & 3) == 0 && !amd_ibrs) {
    CheckFault("#GP SPEC_CTRL without its CPUID bit", Read(kMsrSpecCtrl), kGeneralProtection);
  }
  if (intel) CheckDone("MISC_ENABLE", Read(kMsrMiscEnable));
}

void TestEfer() {
  const u64 efer = ReadMsr(kMsrEfer);
  Check((efer & (kEferLme | kEferLma)) == (kEferLme | kEferLma), "LME and LMA in long mode");
  WriteMsr(kMsrEfer, efer & ~kEferSce);
  const void* syscall = USER_CODE("syscall");
  const void* sysret = KERNEL_CODE("sysretq");
  const Outcome no_syscall = RunUser(syscall), no_sysret = RunKernel(sysret);
  CheckEq("SCE reads back clear", ReadMsr(kMsrEfer) & kEferSce, 0);
  WriteMsr(kMsrEfer, efer);
  CheckFault("#UD syscall without EFER.SCE", no_syscall, kInvalidOpcode, 0, At(syscall));
  CheckFault("#UD sysret without EFER.SCE", no_sysret, kInvalidOpcode, 0, At(sysret));
}

void TestBases() {
  const u64 fs = ReadMsr(kMsrFsBase), gs = ReadMsr(kMsrGsBase), kernel = ReadMsr(kMsrKernelGsBase);
  static u64 words[4] = {11, 22, 33, 44};
  WriteMsr(kMsrFsBase, reinterpret_cast<u64>(words));
  WriteMsr(kMsrGsBase, reinterpret_cast<u64>(words + 1));
  WriteMsr(kMsrKernelGsBase, reinterpret_cast<u64>(words + 2));
  const Outcome o =
      RunKernel(KERNEL_CODE("mov rax, fs:[8]; mov rbx, gs:[0]; swapgs; mov rcx, gs:[0]; swapgs\n"
                            "mov rdx, gs:[8]"));
  CheckDone("accesses by FS and GS bases", o);
  CheckEq("... fs", o.frame.rax, 22);
  CheckEq("... gs", o.frame.rbx, 22);
  CheckEq("... swapgs", o.frame.rcx, 33);
  CheckEq("... and back", o.frame.rdx, 33);
  const Outcome swapped = RunKernel(KERNEL_CODE("swapgs"));
  CheckDone("swapgs", swapped);
  CheckEq("... KERNEL_GS_BASE is the old base", ReadMsr(kMsrKernelGsBase),
          reinterpret_cast<u64>(words + 1));
  CheckEq("... GS_BASE is the new one", ReadMsr(kMsrGsBase), reinterpret_cast<u64>(words + 2));
  CheckFault("#GP swapgs in CPL 3", RunUser(USER_CODE("swapgs")), kGeneralProtection);
  // A selector load replaces the base.
  RunKernel(KERNEL_CODE("mov fs, eax"), {.rax = kKernelData});
  CheckEq("mov to fs replaces the base", ReadMsr(kMsrFsBase), 0);
  WriteMsr(kMsrFsBase, kHigh);
  if (HasFsgsbase()) {
    const u64 cr4 = ReadCr4();
    WriteCr4(cr4 | kCr4Fsgsbase);
    const Outcome read = RunUser(USER_CODE("rdfsbase rax; rdgsbase rbx"));
    const void* write = USER_CODE("wrfsbase rax");
    const Outcome refused = RunUser(write, {.rax = kNotCanonical});
    const Outcome half = RunUser(USER_CODE("wrgsbase eax"), {.rax = 0xffffffff'12345678});
    const u64 low = ReadMsr(kMsrGsBase);
    WriteCr4(cr4 & ~kCr4Fsgsbase);
    const Outcome off = RunUser(USER_CODE("rdfsbase rax"));
    WriteCr4(cr4);
    CheckDone("rdfsbase", read);
    CheckEq("... is the MSR", read.frame.rax, kHigh);
    if (!SkipOnQemu("#GP wrfsbase not canonical")) {
      CheckFault("#GP wrfsbase not canonical", refused, kGeneralProtection, 0, At(write));
    }
    CheckDone("wrgsbase of 32 bits", half);
    CheckEq("... zero-extends", low, 0x12345678);
    CheckFault("#UD rdfsbase without CR4.FSGSBASE", off, kInvalidOpcode);
  }
  WriteMsr(kMsrFsBase, fs);
  WriteMsr(kMsrGsBase, gs);
  WriteMsr(kMsrKernelGsBase, kernel);
}

void TestTsc() {
  const u64 first = Rdtsc(), second = Rdtsc();
  Check(second > first, "RDTSC grows");
  const u64 by_msr = ReadMsr(kMsrTsc), after = Rdtsc();
  // QEMU's TCG has another count there, and does not let the guest set it.
  if (!SkipOnQemu("the TSC by RDMSR")) {
    Check(by_msr > second && by_msr < after, "the TSC by RDMSR");
  }
  constexpr u64 kStart = 1ull << 50;
  WriteMsr(kMsrTsc, kStart);
  const u64 moved = Rdtsc();
  if (!SkipOnQemu("a written TSC goes on from there")) {
    Check(moved >= kStart && moved - kStart < 1ull << 40, "a written TSC goes on from there");
  }
  WriteMsr(kMsrTsc, after);
  if (HasRdtscp()) {
    WriteMsr(kMsrTscAux, 0x5a5a1234);
    const Outcome o = RunKernel(KERNEL_CODE("rdtscp"), {.rcx = ~0ull});
    CheckEq("rdtscp: TSC_AUX", o.frame.rcx, 0x5a5a1234);
    if (ExtendedFeatures().ecx >> 22 & 1) {
      CheckEq("rdpid", RunUser(USER_CODE("rdpid rax")).frame.rax, 0x5a5a1234);
    }
    WriteMsr(kMsrTscAux, 0);
  }
  const u64 cr4 = ReadCr4();
  WriteCr4(cr4 | kCr4Tsd);
  const Outcome user = RunUser(USER_CODE("rdtsc")), kernel = RunKernel(KERNEL_CODE("rdtsc"));
  const Outcome user_p = RunUser(USER_CODE("rdtscp"));
  WriteCr4(cr4);
  CheckFault("#GP rdtsc in CPL 3 with CR4.TSD", user, kGeneralProtection);
  if (HasRdtscp()) CheckFault("#GP rdtscp in CPL 3 with CR4.TSD", user_p, kGeneralProtection);
  CheckDone("rdtsc in CPL 0 with CR4.TSD", kernel);
}

constexpr Section kSections[] = {
    {"privilege", TestPrivilege},
    {"values", TestValues},
    {"refused", TestRefusedValues},
    {"unknown", TestUnknown},
    {"efer", TestEfer},
    {"bases", TestBases},
    {"tsc", TestTsc},
};

}  // namespace

int Main() {
  intel = Cpuid(0).ebx == 0x756e6547;
  rdmsr = KERNEL_CODE("rdmsr");
  wrmsr = KERNEL_CODE("wrmsr");
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
