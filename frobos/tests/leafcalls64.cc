// SPDX-License-Identifier: Apache-2.0
// What `leafcalls` does, in 64-bit code: calls of functions in another page that do next to
// nothing, at addresses of every size. The return address is in memory, an interrupt that STI lets
// in comes behind the return, and whatever becomes of the function - other bytes, another page,
// none, a breakpoint, a single step - is seen by the next call.
#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u64 kRounds = 40, kMark = 0x5a5a5a00;

struct Function {
  const char* name;
  u8 code[8];
  enum { kKeeps, kIsSeven, kIsCarry, kIsCr0, kIsCr8, kIsCr3InR10 } result;
  enum { kSame, kClear, kSet } flag;
};
constexpr Function kFunctions[] = {
    {"cli", {0xfa, 0xc3}, Function::kKeeps, Function::kClear},
    {"sti", {0xfb, 0xc3}, Function::kKeeps, Function::kSet},
    {"ret", {0xc3}, Function::kKeeps, Function::kSame},
    {"setc al", {0x0f, 0x92, 0xc0, 0xc3}, Function::kIsCarry, Function::kSame},
    {"mov rax, cr0", {0x0f, 0x20, 0xc0, 0xc3}, Function::kIsCr0, Function::kSame},
    {"mov rax, cr8", {0x44, 0x0f, 0x20, 0xc0, 0xc3}, Function::kIsCr8, Function::kSame},
    {"mov r10, cr3", {0x41, 0x0f, 0x20, 0xda, 0xc3}, Function::kIsCr3InR10, Function::kSame},
    {"mov eax, 7", {0xb8, 7, 0, 0, 0, 0xc3}, Function::kIsSeven, Function::kSame},
    {"cli; setc al", {0xfa, 0x0f, 0x92, 0xc0, 0xc3}, Function::kIsCarry, Function::kClear},
};
constexpr u64 kCount = sizeof(kFunctions) / sizeof(kFunctions[0]);
constexpr u64 kSti = 1;  // its place
constexpr u64 kTaskPriority = 6;

// An area has a page of callers, each of which meets the function of its number first, and behind
// it the page of the function.
constexpr u64 kCallerBytes = 64, kCodeBytes = 56;

// Behind the code for probes, which is copied from here: RCX calls with the carry flag as in EDX.
// What is left: RAX, RBX the word below the stack, RSI the return address, RDI the flags behind the
// last call, which the one form reads each time and the other when it is done.
#define CALL "call . + 0x11223349\n"
const void* CallerThatReadsFlags() {
  return KERNEL_CODE("lea rsi, [rip + 3f]\n2: mov eax, 0x5a5a5a00\nbt edx, 0\n" CALL
                     "3: mov rbx, [rsp - 8]\npushfq\npop rdi\ndec ecx\njnz 2b");
}
const void* Caller() {
  return KERNEL_CODE("lea rsi, [rip + 3f]\n2: mov eax, 0x5a5a5a00\nbt edx, 0\n" CALL
                     "3: dec ecx\nmov rbx, [rsp - 8]\njnz 2b\npushfq\npop rdi");
}
// With interrupts shut but for the moment behind the call.
const void* LateCaller() {
  return KERNEL_CODE("lea rsi, [rip + 3f]\n2: mov edi, 4000\n4: dec edi\njnz 4b\n" CALL
                     "3: cli\ndec ecx\njnz 2b");
}

class Area {
 public:
  explicit Area(u64 base) : base_(base), callers_(AllocPage()), function_(AllocPage()) {
    Map(base, callers_, kPteW);
    Map(function(), function_, kPteW);
    for (u64 i = 0; i < kCount; i++) {
      Copy(i, Caller());
      Copy(kCount + i, CallerThatReadsFlags());
    }
    Copy(2 * kCount, LateCaller());
  }
  u64 function() const { return base_ + kPageSize; }
  const void* caller(u64 i, bool reads_flags) const {
    return reinterpret_cast<const void*>(base_ + kCallerBytes * (i + (reads_flags ? kCount : 0)));
  }
  const void* late_caller() const { return caller(2 * kCount, false); }
  void Put(u64 i) const { PutInto(function_, i); }
  static void PutInto(u64 frame, u64 i) {
    memcpy(reinterpret_cast<void*>(frame), kFunctions[i].code, sizeof(kFunctions[i].code));
  }
  void Lead(u64 frame) const {
    if (frame != 0) return Map(function(), frame, kPteW);
    Unmap(function());
  }
  void LeadBack() const { Lead(function_); }

 private:
  // The call leads to the function.
  void Copy(u64 place, const void* code) const {
    u8* to = reinterpret_cast<u8*>(callers_ + kCallerBytes * place);
    memcpy(to, code, kCodeBytes);
    for (u64 i = 0; i + 5 <= kCodeBytes; i++) {
      const u32 displacement = static_cast<u32>(kPageSize - (kCallerBytes * place + i + 5));
      u32 bytes;
      memcpy(&bytes, to + i + 1, sizeof(bytes));
      if (to[i] == 0xe8 && bytes == 0x11223344) memcpy(to + i + 1, &displacement, 4);
    }
  }

  u64 base_, callers_, function_;
};

bool CallsRightly(const Function& function, const void* caller, bool reads_flags, u64 carry,
                  u64 flag_before) {
  const Outcome o = RunKernel(
      caller, {.rcx = kRounds, .rdx = carry, .r10 = 10, .rflags = kFlagsFixed | flag_before});
  const TrapFrame& f = o.frame;
  u64 rax = kMark, r10 = 10;
  if (function.result == Function::kIsSeven) rax = 7;
  if (function.result == Function::kIsCarry) rax = kMark | carry;
  if (function.result == Function::kIsCr0) rax = ReadCr0();
  if (function.result == Function::kIsCr8) rax = kTaskPriority;
  if (function.result == Function::kIsCr3InR10) r10 = ReadCr3();
  u64 flag = flag_before;
  if (function.flag != Function::kSame) flag = function.flag == Function::kSet ? kFlagIf : 0;
  return o.Done() && f.rax == rax && f.r10 == r10 && f.rbx == f.rsi && (f.rdi & kFlagIf) == flag &&
         (!reads_flags || (f.rdi & kFlagCf) == carry) && f.rsp == ProbeStackTop();
}

void CheckAllWays(const Area& area, u64 function, u64 caller) {
  Group calls(kFunctions[function].name);
  for (const bool reads_flags : {false, true}) {
    for (const u64 carry : {u64{1}, u64{0}}) {
      for (const u64 flag : {kFlagIf, u64{0}}) {
        calls.Case(CallsRightly(kFunctions[function], area.caller(caller, reads_flags), reads_flags,
                                carry, flag));
      }
    }
  }
}

// Who has met a function meets it and all others.
template <class Show>
void CheckAll(const Area& area, Show show) {
  for (u64 i = 0; i < kCount; i++) {
    show(i);
    CheckAllWays(area, i, i);
  }
  for (u64 round = 0; round < 2; round++) {
    for (u64 i = 0; i < kCount; i++) {
      show(i);
      for (u64 caller = 0; caller < kCount; caller++) CheckAllWays(area, i, caller);
    }
  }
}

// Below 4 GB, above, and in the upper half: at an address that sign extension makes of 32 bits, and
// at one that it does not.
constexpr u64 kPlaces[] = {0x40000000, kUserBase, kHighBase, 0xffffffff80000000};

void TestOverwritten() {
  for (const u64 place : kPlaces) {
    const Area area(place);
    CheckAll(area, [&](u64 i) { area.Put(i); });
  }
}

void TestMapped() {
  u64 frames[kCount];
  for (u64 i = 0; i < kCount; i++) Area::PutInto(frames[i] = AllocPage(), i);
  for (const u64 place : kPlaces) {
    const Area area(place + (u64{1} << 21));
    CheckAll(area, [&](u64 i) { area.Lead(frames[i]); });
    for (u64 i = 0; i < kCount; i++) {
      area.Lead(0);
      const Outcome o = RunKernel(area.caller(i, false), {.rcx = 1});
      CheckFault("... and none", o, kPageFault, kPfFetch * (HasNx() || HasSmep()), area.function());
      CheckEq("... for which the return address is there", *reinterpret_cast<u64*>(o.frame.rsp),
              o.frame.rsi);
    }
  }
}

constexpr u64 kTicksWanted = 20;
u64 ticks, ticks_elsewhere;
void TestLateInterrupts() {
  InitPic();
  SetHandler(kIrqBase, [](TrapFrame* f) {
    if (f->rip != f->rsi) ticks_elsewhere++;
    if (++ticks == kTicksWanted) f->rcx = 1;
    EndOfIrq(0);
  });
  for (const u64 place : kPlaces) {
    const Area area(place + (u64{2} << 21));
    area.Put(kSti);
    CheckAllWays(area, kSti, kSti);
    ticks = ticks_elsewhere = 0;
    UnmaskIrq(0);
    StartPit(PitMode::kPeriodic, 1193);
    const Outcome o = RunKernel(area.late_caller(), {.rcx = 200'000});
    StopPit();
    MaskAllInterrupts();
    CheckDone("interrupts that have waited for STI", o);
    // Where the host was busy, one follows another at once.
    Check(ticks >= kTicksWanted, "... all come");
    CheckEq("... behind the return", ticks_elsewhere, 0);
  }
  SetHandler(kIrqBase, nullptr);
}

u64 steps, steps_inside, watched;
void WriteDr0And7(u64 dr0, u64 dr7) {
  asm volatile("mov %0, %%dr0; mov %1, %%dr7" : : "r"(dr0), "r"(dr7));
}
void TestDebugged() {
  const Area area(kHighBase + (u64{3} << 21));
  area.Put(0);
  for (const u64 caller : {0, 1}) CheckAllWays(area, 0, caller);
  watched = area.function();
  SetHandler(kDebug, [](TrapFrame* f) {
    steps++;
    if (f->rip - watched < 2) steps_inside++;
    f->rflags |= kFlagRf;
  });
  steps = steps_inside = 0;
  CheckDone("single steps",
            RunKernel(area.caller(1, false), {.rcx = 3, .rflags = kFlagsFixed | kFlagTf}));
  CheckEq("... in the function: CLI and RET of each call", steps_inside, 6);
  steps = steps_inside = 0;
  WriteDr0And7(area.function() + 1, 1);
  CheckDone("a breakpoint at its RET", RunKernel(area.caller(1, false), {.rcx = kRounds}));
  WriteDr0And7(0, 0);
  Check(steps == kRounds && steps_inside == kRounds, "... stops each call");
  SetHandler(kDebug, nullptr);
  CheckAllWays(area, 0, 1);
}

constexpr Section kSections[] = {{"overwritten", TestOverwritten},
                                 {"mapped", TestMapped},
                                 {"late", TestLateInterrupts},
                                 {"debugged", TestDebugged}};

}  // namespace

int Main() {
  WriteCr8(kTaskPriority);
  RunSections(kSections);
  WriteCr8(0);
  return Summary();
}

}  // namespace alibi::frobos
