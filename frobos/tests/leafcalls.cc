// SPDX-License-Identifier: Apache-2.0
// Calls of functions in another page that do next to nothing, as a VMI ROM's for the interrupt flag
// do: the return address is in memory, an interrupt that STI lets in comes behind the return, and
// whatever becomes of the function - other bytes, another page, none, a breakpoint, a single step -
// is seen by the next call.

#include "frobos/lib32/ticks.h"
#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kP = 1, kW = 2, kPs = 0x80;
constexpr u32 kFunction = 0x02000000;  // leaf_function below
constexpr u32 kFrames = 0x02400000;
constexpr u32 kRounds = 40;

alignas(4096) DirectoryEntry directory[1024];
alignas(4096) PageEntry table[1024];

struct Function {
  const char* name;
  u8 code[8];
  u32 eax;  // what becomes of it, if anything
  enum { kKeeps, kIsEax, kIsCarry, kIsCr0 } result;
  enum { kSame, kClear, kSet } flag;
};
constexpr u32 kMark = 0x5a5a5a00;
constexpr Function kFunctions[] = {
    {"cli", {0xfa, 0xc3}, 0, Function::kKeeps, Function::kClear},
    {"sti", {0xfb, 0xc3}, 0, Function::kKeeps, Function::kSet},
    {"ret", {0xc3}, 0, Function::kKeeps, Function::kSame},
    {"setc al", {0x0f, 0x92, 0xc0, 0xc3}, 0, Function::kIsCarry, Function::kSame},
    {"mov eax, cr0", {0x0f, 0x20, 0xc0, 0xc3}, 0, Function::kIsCr0, Function::kSame},
    {"mov eax, 7", {0xb8, 7, 0, 0, 0, 0xc3}, 7, Function::kIsEax, Function::kSame},
    {"cli; setc al", {0xfa, 0x0f, 0x92, 0xc0, 0xc3}, 0, Function::kIsCarry, Function::kClear},
};

void Put(u32 address, const Function& function) {
  memcpy(reinterpret_cast<void*>(address), function.code, sizeof(function.code));
}

constexpr u32 kCount = sizeof(kFunctions) / sizeof(kFunctions[0]);

// ECX calls with the carry flag as in EDX. What is left: EAX, EBX the word below the stack, ESI
// the return address, EDI the flags behind the last call, which the one form reads each time and
// the other when it is done. Each kNumber is code of its own, which meets its function first.
template <u32 kNumber>
const void* CallerThatReadsFlags() {
  return CODE32(
      ".globl leaf_function\n.set leaf_function, 0x02000000\n"
      "mov esi, offset 3f\n2: mov eax, 0x5a5a5a00\nbt edx, 0\ncall leaf_function\n"
      "3: mov ebx, [esp - 4]\npushfd\npop edi\ndec ecx\njnz 2b");
}
template <u32 kNumber>
const void* Caller() {
  return CODE32(
      "mov esi, offset 3f\n2: mov eax, 0x5a5a5a00\nbt edx, 0\ncall leaf_function\n"
      "3: dec ecx\nmov ebx, [esp - 4]\njnz 2b\npushfd\npop edi");
}

struct Callers {
  const void* (*code)();
  const void* (*reading_flags)();
};
#define CALLERS(number) \
  { Caller<number>, CallerThatReadsFlags<number> }
// One for each function without paging, and one with it.
constexpr Callers kCallers[] = {CALLERS(0),  CALLERS(1),  CALLERS(2),  CALLERS(3), CALLERS(4),
                                CALLERS(5),  CALLERS(6),  CALLERS(7),  CALLERS(8), CALLERS(9),
                                CALLERS(10), CALLERS(11), CALLERS(12), CALLERS(13)};
static_assert(sizeof(kCallers) / sizeof(kCallers[0]) == 2 * kCount);

bool CallsRightly(const Function& function, const void* caller, bool reads_flags, u32 carry,
                  u32 flag_before) {
  const Outcome o =
      Run(caller, {.ecx = kRounds, .edx = carry, .eflags = kFlagsFixed | flag_before});
  const Frame& f = o.frame;
  u32 eax = kMark;
  if (function.result == Function::kIsEax) eax = function.eax;
  if (function.result == Function::kIsCarry) eax = kMark | carry;
  if (function.result == Function::kIsCr0) eax = ReadCr0();
  u32 flag = flag_before;
  if (function.flag != Function::kSame) flag = function.flag == Function::kSet ? kFlagIf : 0;
  return o.Done() && f.eax == eax && f.ebx == f.esi && (f.edi & kFlagIf) == flag &&
         (!reads_flags || (f.edi & kFlagCf) == carry) && f.esp == ProbeStackTop();
}

void CheckAllWays(const Function& function, const Callers& callers) {
  Group calls(function.name);
  for (const bool reads_flags : List{false, true}) {
    const void* caller = reads_flags ? callers.reading_flags() : callers.code();
    for (const u32 carry : List{1u, 0u}) {
      for (const u32 flag : List{u32{kFlagIf}, 0u}) {
        calls.Case(CallsRightly(function, caller, reads_flags, carry, flag));
      }
    }
  }
}

// Who has met a function meets it and all others.
template <class Show>
void CheckAll(u32 first_caller, Show show) {
  for (u32 i = 0; i < kCount; i++) {
    show(i);
    CheckAllWays(kFunctions[i], kCallers[first_caller + i]);
  }
  for (u32 round = 0; round < 2; round++) {
    for (u32 i = 0; i < kCount; i++) {
      show(i);
      for (u32 c = 0; c < kCount; c++) CheckAllWays(kFunctions[i], kCallers[first_caller + c]);
    }
  }
}

void TestOverwritten() {
  CheckAll(0, [](u32 i) { Put(kFunction, kFunctions[i]); });
}

void Map(u32 entry) {
  table[0] = entry;
  InvalidatePage(kFunction);
}

void TestMapped() {
  for (u32 i = 0; i < kCount; i++) Put(kFrames + i * 4096, kFunctions[i]);
  for (u32 i = 0; i < 1024; i++) {
    directory[i] = i << 22 | kPs | kW | kP;
    table[i] = (kFunction + i * 4096) | kW | kP;
  }
  directory[kFunction >> 22] = At(table) | kW | kP;
  WriteCr4(ReadCr4() | kCr4Pse);
  WriteCr3(At(directory));
  WriteCr0(ReadCr0() | kCr0Pg);
  CheckAll(kCount, [](u32 i) { Map((kFrames + i * 4096) | kW | kP); });
  for (const Callers& callers : kCallers) {
    Map(0);
    const Outcome o = Run(callers.code(), {.ecx = 1});
    CheckFault("... and none", o, kPageFault, 0, kFunction);
    CheckEq("... for which the return address is there", StackDword(o, 0), o.frame.esi);
  }
  WriteCr0(ReadCr0() & ~kCr0Pg);
}

u32 tick_count, tick_eip, step_count, step_places;
void OnTick(Outcome* at) {
  if (tick_count++ == 0) tick_eip = at->frame.eip;  // on a busy host another follows at once
  EndTick();
}
void TestInterrupt() {
  Put(kFunction, kFunctions[1]);
  CheckAllWays(kFunctions[1], kCallers[1]);
  SetHandler(kTickVector, OnTick);
  StartTicks();
  Group behind("an interrupt that STI lets in comes behind the return");
  for (u32 i = 0; i < 30; i++) {
    while (!TickWaits()) asm volatile("pause");
    tick_count = 0;
    const Outcome o =
        Run(i % 2 == 0 ? kCallers[1].code() : kCallers[1].reading_flags(), {.ecx = 1});
    behind.Case(o.Done() && tick_count >= 1 && tick_eip == o.frame.esi);
  }
  StopTicks();
  SetHandler(kTickVector, nullptr);
}

// What comes while interrupts are shut comes behind the call that lets it in, where CLI follows:
// there or never. The call has gone on from there to there many times before, so that nobody asks
// for interrupts on the way unless it does.
constexpr u32 kTicksWanted = 20;
u32 ticks_elsewhere;
void OnLateTick(Outcome* at) {
  if (at->frame.eip != at->frame.esi) ticks_elsewhere++;
  if (++tick_count == kTicksWanted) at->frame.ecx = 1;
  EndTick();
}
void TestLateInterrupts() {
  Put(kFunction, kFunctions[1]);
  CheckAllWays(kFunctions[1], kCallers[1]);
  SetHandler(kTickVector, OnLateTick);
  StartTicks();
  tick_count = ticks_elsewhere = 0;
  const Outcome o = Run(CODE32("mov esi, offset 3f\n2: mov edi, 4000\n4: dec edi\njnz 4b\n"
                               "call leaf_function\n3: cli\ndec ecx\njnz 2b"),
                        {.ecx = 200'000});
  StopTicks();
  SetHandler(kTickVector, nullptr);
  CheckDone("interrupts that have waited for STI", o);
  // Where the host was busy, one follows another at once.
  Check(tick_count >= kTicksWanted, "... all come");
  CheckEq("... behind the return", ticks_elsewhere, 0);
}

void OnStep(Outcome* at) {
  step_count++;
  if (at->frame.eip >= kFunction && at->frame.eip < kFunction + 2) step_places++;
  at->frame.eflags |= kFlagRf;
}
void TestDebugged() {
  Put(kFunction, kFunctions[0]);
  CheckAllWays(kFunctions[0], kCallers[0]);
  SetHandler(kDebug, OnStep);
  step_count = step_places = 0;
  CheckDone("single steps", Run(kCallers[0].code(), {.ecx = 3, .eflags = kFlagsFixed | kFlagTf}));
  CheckEq("... in the function: CLI and RET of each call", step_places, 6);
  step_count = step_places = 0;
  WriteDr<0>(kFunction + 1);
  WriteDr<7>(1);
  CheckDone("a breakpoint at its RET", Run(kCallers[0].code(), {.ecx = kRounds}));
  WriteDr<7>(0);
  Check(step_count == kRounds && step_places == kRounds, "... stops each call");
  SetHandler(kDebug, nullptr);
  CheckAllWays(kFunctions[0], kCallers[0]);
}

constexpr Section kSections[] = {{"overwritten", TestOverwritten},
                                 {"mapped", TestMapped},
                                 {"interrupt", TestInterrupt},
                                 {"late", TestLateInterrupts},
                                 {"debugged", TestDebugged}};

}  // namespace

int Main() {
  RunOnVmi();
  StopTicks();  // firmware's, too
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
