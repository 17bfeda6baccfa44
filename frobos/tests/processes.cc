// SPDX-License-Identifier: Apache-2.0
// A small operating system of 32 bits: processes with address spaces of their own that a timer
// preempts, fork() with copies on write, pages on demand, thread-local segments, sleeping, and a
// process that is killed because the kernel cannot return to it. All of the kernel's privileged
// work goes through privileged.h, so that the same kernel runs on VMI where there is a ROM.

#include "frobos/lib32/ticks.h"
#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

extern "C" {
extern const u8 snippet_start[], snippet_end[];
extern const u8 outer_iret[];
}

volatile u32 ticks;

// --- The interrupt flag, and waiting ---

void OnTick(Outcome*) {
  ticks = ticks + 1;
  EndTick();
}

// The rest of a probe whose code is the kernel's own.
[[noreturn]] void EndProbe() {
  asm volatile("int $0x7f");
  __builtin_unreachable();
}

void WaitForRequest() {
  while (!TickWaits()) {
  }
}

[[noreturn]] void UseFlag() {
  WaitForRequest();
  CheckEq("no interrupt while the flag is clear", ticks, 0);
  EnableInterrupts();
  asm volatile("nop");
  Check(ticks > 0, "... and at once when it is set");
  const u32 open = InterruptMask();
  CheckEq("the flag is shown", open & kFlagIf, kFlagIf);
  DisableInterrupts();
  const u32 shut = InterruptMask();
  CheckEq("... when it is clear, too", shut & kFlagIf, 0);
  u32 before = ticks;
  WaitForRequest();
  SetInterruptMask(shut);
  asm volatile("nop");
  CheckEq("a mask that leaves it clear", ticks, before);
  SetInterruptMask(open);
  asm volatile("nop");
  Check(ticks > before, "a mask that sets it");
  SetInterruptMask(shut);
  before = ticks;
  Halt();
  DisableInterrupts();
  Check(ticks > before, "a halted processor goes on with an interrupt");
  EndProbe();
}

void TestFlag() {
  ticks = 0;
  SetHandler(kTickVector, OnTick);
  StartTicks();
  CheckDone("the interrupt flag", Run(reinterpret_cast<const void*>(&UseFlag)));
  StopTicks();
  SetHandler(kTickVector, nullptr);
}

// --- Memory ---

constexpr u32 kP = 1, kW = 2, kU = 4, kPs = 0x80;
constexpr u32 kPfPresent = 1, kPfWrite = 2, kPfUser = 4;
constexpr u32 kPageSize = 4096, kKernelMemory = 128u << 20;
// A process has one page table, for this area: the programs, the thread-local pages of all, a
// stack, and data.
constexpr u32 kUserArea = 0x40000000;
constexpr u32 kLocalPage = 15, kStackPage = 16, kDataPages = 32, kDataEnd = 48;
constexpr u32 kFirstFrame = 0x03000000, kFrames = 256;

u8 users_of[kFrames];  // how many entries and directories lead to a frame

u32 FrameIndex(u32 address) { return (address - kFirstFrame) / kPageSize; }
u32 TakeFrame() {
  for (u32 i = 0; i < kFrames; i++) {
    if (users_of[i] != 0) continue;
    users_of[i] = 1;
    const u32 address = kFirstFrame + i * kPageSize;
    memset(reinterpret_cast<void*>(address), 0, kPageSize);
    return address;
  }
  Panic("no frames left");
}
void LeaveFrame(u32 address) { users_of[FrameIndex(address)]--; }
u32 FramesInUse() {
  u32 sum = 0;
  for (const u8 users : users_of) sum += users != 0;
  return sum;
}

bool IsWritable(u32 page) { return page == kStackPage || (page >= kDataPages && page < kDataEnd); }

u32 UserAddress(u32 page) { return kUserArea + page * kPageSize; }

alignas(kPageSize) u8 local_page[kPageSize];
alignas(kPageSize) DirectoryEntry kernel_directory[1024];

// --- Processes ---

constexpr u32 kProcesses = 8, kLocalBytes = 64;
constexpr u8 kSystemCall = 0x40;
enum Call : u32 { kExit, kFork, kYield, kWho, kSleep, kBreakFrame };

struct Process {
  enum State : u8 { kFree, kReady, kAsleep, kDone };
  State state;
  Frame frame;
  u32 directory, table;
  u32 wake_at, result;

  DirectoryEntry* Directory() const { return reinterpret_cast<DirectoryEntry*>(directory); }
  PageEntry* Table() const { return reinterpret_cast<PageEntry*>(table); }
};
Process processes[kProcesses];  // number 0 is the kernel itself, when nobody is ready
u32 current, preemptions, copies, killed_at;

alignas(16) u8 idle_stack[1024];
[[noreturn]] void Idle() {
  for (;;) Halt();
}

void CreateSpace(Process* p) {
  p->directory = TakeFrame();
  AllocatePageTable(p->directory, kPageDirectory);
  SetLazyMode(kManyEntries);
  for (u32 i = 0; i < kKernelMemory >> 22; i++) p->Directory()[i] = i << 22 | kPs | kW | kP;
  p->table = TakeFrame();
  AllocatePageTable(p->table, kPageTable);
  const u32 code_pages = (At(snippet_end) - At(snippet_start)) / kPageSize;
  for (u32 i = 0; i < code_pages; i++) {
    p->Table()[i] = At(snippet_start, i * kPageSize) | kU | kP;
  }
  p->Table()[kLocalPage] = At(local_page) | kU | kP;
  p->Directory()[kUserArea >> 22] = p->table | kU | kW | kP;
  SetLazyMode(kImmediate);
}

// Nobody runs in it.
void DestroySpace(Process* p) {
  SetLazyMode(kManyEntries);
  for (u32 page = kStackPage; page < kDataEnd; page++) {
    const u32 entry = p->Table()[page];
    if ((entry & kP) == 0) continue;
    p->Table()[page] = 0;
    LeaveFrame(entry & ~(kPageSize - 1));
  }
  p->Directory()[kUserArea >> 22] = 0;
  SetLazyMode(kImmediate);
  ReleasePageTable(p->table, kPageTable);
  LeaveFrame(p->table);
  ReleasePageTable(p->directory, kPageDirectory);
  LeaveFrame(p->directory);
}

u32 FreeProcess() {
  for (u32 i = 1; i < kProcesses; i++) {
    if (processes[i].state == Process::kFree) return i;
  }
  Panic("no processes left");
}

// Address space, thread-local segment and kernel stack; they count when the mode is immediate.
void SwitchTo(u32 next, Outcome* at) {
  current = next;
  Process& p = processes[next];
  SetLazyMode(kTaskSwitch);
  WriteCr3(p.directory);
  SetGdt(kSpare, Descriptor(UserAddress(kLocalPage) + next * kLocalBytes, kLocalBytes - 1,
                            kData | kDpl3, k32Bit));
  main_tss.esp0 = RingStackTop(0) - 16 * next;
  UpdateKernelStack(main_tss.ss0, main_tss.esp0);
  Clts();
  SetLazyMode(kImmediate);
  at->frame = p.frame;
}

// The next that is ready, round robin; else the kernel waits, or it has come to its end.
void Schedule(Outcome* at) {
  bool any = false;
  for (u32 i = 1; i <= kProcesses; i++) {
    const u32 next = (current + i) % kProcesses;
    Process& p = processes[next];
    if (next == 0) continue;
    if (p.state == Process::kAsleep && ticks >= p.wake_at) p.state = Process::kReady;
    if (p.state == Process::kReady) return SwitchTo(next, at);
    any = any || p.state == Process::kAsleep;
  }
  SwitchTo(0, at);
  if (any) return;
  at->frame.eip = At(reinterpret_cast<const void*>(&EndProbe));
  at->frame.eflags = kFlagsFixed;
}

void Leave(Outcome* at, u32 result) {
  Process& p = processes[current];
  p.result = result;
  p.state = Process::kDone;
  Schedule(at);
  DestroySpace(&p);
}

void Fork(Outcome* at) {
  Process& parent = processes[current];
  const u32 number = FreeProcess();
  Process& child = processes[number];
  CreateSpace(&child);
  SetLazyMode(kManyEntries);
  for (u32 page = kStackPage; page < kDataEnd; page++) {
    const u32 entry = parent.Table()[page] & ~kW;
    if ((entry & kP) == 0) continue;
    parent.Table()[page] = entry;
    child.Table()[page] = entry;
    users_of[FrameIndex(entry)]++;
  }
  SetLazyMode(kImmediate);
  FlushTlb();
  child.frame = at->frame;
  child.frame.eax = 0;
  child.state = Process::kReady;
  at->frame.eax = number;
}

void OnSystemCall(Outcome* at) {
  Process& p = processes[current];
  switch (at->frame.eax) {
    case kExit:
      return Leave(at, at->frame.ebx);
    case kFork:
      return Fork(at);
    case kWho:
      at->frame.eax = current;
      return;
    case kSleep:
      p.state = Process::kAsleep;
      p.wake_at = ticks + at->frame.ebx;
      p.frame = at->frame;
      return Schedule(at);
    case kYield:
      p.frame = at->frame;
      return Schedule(at);
    default:
      at->frame.cs = kGdtEntries * 8 | 3;  // beyond the GDT
      return;
  }
}

void OnTimer(Outcome* at) {
  ticks = ticks + 1;
  EndTick();
  const u32 before = current;
  if (before != 0) processes[before].frame = at->frame;
  Schedule(at);
  preemptions += before != 0 && current != before;
}

void OnPageFault(Outcome* at) {
  const u32 page = (at->cr2 - kUserArea) / kPageSize;
  if (at->cr2 < kUserArea || !IsWritable(page) || (at->error & kPfUser) == 0) {
    return Leave(at, 0xfa017);
  }
  PageEntry& entry = processes[current].Table()[page];
  if ((at->error & kPfPresent) == 0) {
    entry = TakeFrame() | kU | kW | kP;
    return;
  }
  if ((at->error & kPfWrite) == 0) Panic("a page that cannot be read");
  const u32 frame = entry & ~(kPageSize - 1);
  if (users_of[FrameIndex(frame)] == 1) {
    entry = frame | kU | kW | kP;
  } else {
    const u32 copy = TakeFrame();
    memcpy(reinterpret_cast<void*>(copy), reinterpret_cast<const void*>(frame), kPageSize);
    LeaveFrame(frame);
    entry = copy | kU | kW | kP;
    copies++;
  }
  InvalidatePage(at->cr2);
}

// The kernel's IRET faulted: the frame is the process's fault.
void OnGeneralProtection(Outcome* at) {
  if ((at->frame.cs & 3) != 0) return Leave(at, 0x6b);
  killed_at = at->frame.eip;
  Leave(at, 0xdead);
}

void Spawn(const void* code) {
  const u32 number = FreeProcess();
  Process& p = processes[number];
  CreateSpace(&p);
  p.frame = {};
  p.frame.edi = UserAddress(kDataPages);
  p.frame.esp = UserAddress(kStackPage + 1);
  p.frame.eip = kUserArea + (At(code) - At(snippet_start));
  p.frame.cs = CodeSelector(3);
  p.frame.ss = p.frame.ds = p.frame.es = DataSelector(3);
  p.frame.gs = kSpare | 3;
  p.frame.eflags = kFlagsFixed | kFlagIf;
  p.state = Process::kReady;
}

// What is spawned runs until all have ended.
void RunProcesses() {
  for (u32 i = 0; i < kProcesses; i++) {
    *reinterpret_cast<u32*>(local_page + i * kLocalBytes) = i;
  }
  Process& kernel = processes[0];
  kernel.directory = At(kernel_directory);
  kernel.frame = {};
  kernel.frame.eip = At(reinterpret_cast<const void*>(&Idle));
  kernel.frame.esp = At(idle_stack + sizeof(idle_stack));
  kernel.frame.cs = CodeSelector(0);
  kernel.frame.ss = kernel.frame.ds = kernel.frame.es = DataSelector(0);
  kernel.frame.eflags = kFlagsFixed | kFlagIf;
  for (u32 i = 0; i < kKernelMemory >> 22; i++) kernel_directory[i] = i << 22 | kPs | kW | kP;
  SetHandler(kTickVector, OnTimer);
  SetHandler(kSystemCall, OnSystemCall);
  SetHandler(kPageFault, OnPageFault);
  SetHandler(kGeneralProtection, OnGeneralProtection);
  SetIdt(kSystemCall, idt[kSystemCall] | u64{kDpl3} << 40);
  WriteCr4(ReadCr4() | kCr4Pse);
  WriteCr3(kernel.directory);
  WriteCr0(ReadCr0() | kCr0Pg | kCr0Wp);
  ticks = preemptions = copies = killed_at = current = 0;
  StartTicks();
  const Outcome o = RunFrame(kernel.frame);
  StopTicks();
  CheckDone("the processes have come to their end", o);
  CheckEq("... without a frame left behind", FramesInUse(), 0);
  WriteCr0(ReadCr0() & ~(kCr0Pg | kCr0Wp));
  for (const u8 vector : List{kTickVector, kSystemCall, u8{kPageFault}, u8{kGeneralProtection}}) {
    SetHandler(vector, nullptr);
  }
  RestoreIdt(kSystemCall);
  main_tss.esp0 = RingStackTop(0);
}

void ForgetProcesses() {
  for (Process& p : processes) p.state = Process::kFree;
}

constexpr u32 kRounds = 300'000, kSlots = kDataEnd - kDataPages;

// Four processes by two forks, each of which adds its number to words in all data pages. The
// pages' first values are from before the forks.
void TestForks() {
  const void* code = CODE32(
      "xor ecx, ecx\n"
      "2: lea eax, [ecx + 1]; mov edx, ecx; shl edx, 12; mov [edi + edx], eax\n"
      "inc ecx; cmp ecx, 16; jb 2b\n"
      "mov eax, 1; int 0x40; mov eax, 1; int 0x40\n"
      "mov eax, 3; int 0x40; mov esi, eax\n"
      "mov ebx, 300000\n"
      "3: cmp esi, gs:[0]; jne 5f\n"
      "mov edx, ebx; and edx, 15; shl edx, 12; add [edi + edx], esi\n"
      "dec ebx; jnz 3b\n"
      "xor ecx, ecx\n"
      "4: mov edx, ecx; shl edx, 12; add ebx, [edi + edx]; inc ecx; cmp ecx, 16; jb 4b\n"
      "push ebx; mov eax, 4; mov ebx, 3; int 0x40; pop ebx\n"
      "xor eax, eax; int 0x40\n"
      "5: xor eax, eax; mov ebx, 0xbad; int 0x40");
  Spawn(code);
  RunProcesses();
  for (u32 i = 1; i <= 4; i++) {
    CheckEq("a process's sum", processes[i].result, kSlots * (kSlots + 1) / 2 + kRounds * i);
  }
  Check(ticks > 0 && preemptions > 0, "... with the timer between them");
  // Who is the last to have a page need not copy it; how many that are is the timer's matter.
  Check(copies >= kSlots && copies <= 3 * kSlots, "... and copies of what they shared");
  ForgetProcesses();
}

// Where an IRET's fault is: at the kernel's own, wherever the ROM has it done; unless the ROM has
// the kernel jump, and does it there.
u32 IretPlace() {
  if (!OnVmi()) return At(outer_iret);
  const Relocation iret = KernelRelocation(kVmiIret);
  return iret.type == Relocation::kJump ? iret.address : At(outer_iret);
}

void TestKills() {
  Spawn(CODE32("mov eax, 5; int 0x40"));
  Spawn(CODE32("mov eax, 4; mov ebx, 2; int 0x40; xor eax, eax; mov ebx, 0x600d; int 0x40"));
  Spawn(CODE32("mov eax, [0x100000]"));
  Spawn(CODE32("cli"));
  RunProcesses();
  CheckEq("a process to which the kernel cannot return", processes[1].result, 0xdead);
  CheckEq("... by a fault at the kernel's IRET", killed_at, IretPlace());
  CheckEq("its neighbour goes on", processes[2].result, 0x600d);
  CheckEq("a process that reads the kernel", processes[3].result, 0xfa017);
  CheckEq("a process that clears the interrupt flag", processes[4].result, 0x6b);
  ForgetProcesses();
}

constexpr Section kSections[] = {
    {"flag", TestFlag},
    {"forks", TestForks},
    {"kills", TestKills},
};

}  // namespace

int Main() {
  RunOnVmi();
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
