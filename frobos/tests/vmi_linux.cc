// SPDX-License-Identifier: Apache-2.0
// VMI as Linux 2.6.32 (i386) uses it: the ROM in the kernel's direct map, operations that are the
// ROM's or stay the kernel's by the kind of answer, page tables in the order of paging_init(),
// fork(), a copy on write and exit(), and the timer as it is set up and moved to the local APIC.
// Functions are called as C calls them, from handlers, too.
#include "frobos/tests/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kP = 1, kW = 2, kU = 4, kA = 0x20, kPs = 0x80, kG = 0x100;
constexpr u32 kKernelEntry = kP | kW | kU | kA;  // probes of ring 3 are the kernel's code, here
constexpr u32 kDirectMap = 0xc0000000, kDirectMapBytes = 128u << 20;
constexpr u32 kUserArea = 0x40000000, kSlotArea = 0xff800000;
constexpr u32 kPool = 0x03000000, kPoolPages = 48, kCopies = 0x04000000, kUserPages = 200;
constexpr u32 kLevelPt = 1, kLevelPd = 2, kLevelPdp = 4, kCurrent = 0x10, kMayWait = 0x20;
constexpr u32 kPageL1 = 0x41, kPageL2 = 0x42, kPagePae = 0x10, kPageClone = 0x20;

typedef u64 (*RomFunction)(u32, u32, u32, u32, u32) __attribute__((regparm(3)));

// --- Operations: the ROM's, or the kernel's own ---

enum class Kind : u8 { kDirect, kWrapped, kFunction };
struct Fill {
  VmiCall call;
  Kind kind;
};
// In the order in which the kernel asks.
constexpr Fill kFills[] = {
    {kVmiCpuid, Kind::kWrapped},
    {kVmiClts, Kind::kDirect},
    {kVmiGetDr, Kind::kDirect},
    {kVmiSetDr, Kind::kDirect},
    {kVmiGetCr0, Kind::kDirect},
    {kVmiGetCr2, Kind::kDirect},
    {kVmiGetCr3, Kind::kDirect},
    {kVmiGetCr4, Kind::kDirect},
    {kVmiSetCr0, Kind::kDirect},
    {kVmiSetCr2, Kind::kDirect},
    {kVmiSetCr3, Kind::kDirect},
    {kVmiSetCr4, Kind::kDirect},
    {kVmiGetInterruptMask, Kind::kDirect},
    {kVmiSetInterruptMask, Kind::kDirect},
    {kVmiDisableInterrupts, Kind::kDirect},
    {kVmiEnableInterrupts, Kind::kDirect},
    {kVmiWbinvd, Kind::kDirect},
    {kVmiRdtsc, Kind::kDirect},
    {kVmiSetTr, Kind::kWrapped},
    {kVmiSetLdt, Kind::kWrapped},
    {kVmiSetGdt, Kind::kDirect},
    {kVmiSetIdt, Kind::kDirect},
    {kVmiGetGdt, Kind::kDirect},
    {kVmiGetIdt, Kind::kDirect},
    {kVmiGetTr, Kind::kDirect},
    {kVmiWriteLdtEntry, Kind::kWrapped},
    {kVmiWriteGdtEntry, Kind::kWrapped},
    {kVmiWriteIdtEntry, Kind::kWrapped},
    {kVmiUpdateKernelStack, Kind::kWrapped},
    {kVmiSetIoplMask, Kind::kDirect},
    {kVmiIoDelay, Kind::kDirect},
    {kVmiSetLazyMode, Kind::kWrapped},
    {kVmiFlushTlb, Kind::kWrapped},
    {kVmiInvalPage, Kind::kDirect},
    {kVmiSetPxe, Kind::kFunction},
    {kVmiUpdatePxe, Kind::kFunction},
    {kVmiSetPxeLong, Kind::kFunction},
    {kVmiUpdatePxeLong, Kind::kFunction},
    {kVmiAllocatePage, Kind::kFunction},
    {kVmiReleasePage, Kind::kFunction},
    {kVmiSetLinearMapping, Kind::kFunction},
    {kVmiSetInitialApState, Kind::kWrapped},
    {kVmiApicRead, Kind::kDirect},
    {kVmiApicWrite, Kind::kDirect},
    {kVmiGetCycleFrequency, Kind::kFunction},
    {kVmiGetCycleCounter, Kind::kFunction},
    {kVmiGetWallclockTime, Kind::kFunction},
    {kVmiWallclockUpdated, Kind::kFunction},
    {kVmiSetAlarm, Kind::kFunction},
    {kVmiCancelAlarm, Kind::kFunction},
    {kVmiHalt, Kind::kDirect},
};

u64 Nothing() { return 0; }

struct Operation {
  u32 address;  // 0: the kernel's own way
  u64 operator()(u32 a = 0, u32 d = 0, u32 c = 0, u32 low = 0, u32 high = 0) const {
    return reinterpret_cast<RomFunction>(address)(a, d, c, low, high);
  }
  explicit operator bool() const { return address != 0; }
};
Operation operations[kVmiCalls];

void Activate() {
  const VmiHeader* rom = reinterpret_cast<const VmiHeader*>(kDirectMap + At(FindVmi()));
  CheckEq("VMI_Init through the direct map", InitVmi(rom), 0);
  Group fills("each operation's kind of answer is one that the kernel can use");
  for (const Fill& fill : kFills) {
    const Relocation to = RelocationOf(rom, fill.call);
    Operation& operation = operations[fill.call];
    operation.address = to.type == Relocation::kCall ? to.address : 0;
    if (to.type == Relocation::kNop && fill.kind == Kind::kDirect) {
      operation.address = At(reinterpret_cast<const void*>(Nothing));
    }
    const bool in_map = to.address >= kDirectMap + 0xc0000 && to.address < kDirectMap + 0xe0000;
    fills.Case(to.type != Relocation::kJump && (to.type != Relocation::kCall || in_map));
  }
  // Called without a look at whether they are there.
  CheckEq("UpdatePxELong is a function if SetPxELong is one", !operations[kVmiUpdatePxeLong],
          !operations[kVmiSetPxeLong]);
  const bool timer = RelocationOf(rom, kVmiGetCycleFrequency).type != Relocation::kNone;
  for (const VmiCall call : List{kVmiGetCycleFrequency, kVmiGetCycleCounter, kVmiSetAlarm,
                                 kVmiCancelAlarm, kVmiGetWallclockTime}) {
    CheckEq("the timer's are functions", !operations[call], !timer);
  }
  for (const VmiCall call : List{kVmiIret, kVmiSysexit}) {
    const Relocation::Type type = RelocationOf(rom, call).type;
    Check(type == Relocation::kCall || type == Relocation::kJump, "the poisoned pointers go");
  }
}

void Lazy(u32 mode) {
  if (operations[kVmiSetLazyMode]) operations[kVmiSetLazyMode](mode);
}
void FlushTlb(u32 kind) {
  if (operations[kVmiFlushTlb]) {
    operations[kVmiFlushTlb](kind);
    return;
  }
  WriteCr3(ReadCr3());
}
void InvalPage(u32 address) {
  if (operations[kVmiInvalPage]) {
    operations[kVmiInvalPage](address);
    return;
  }
  asm volatile("invlpg (%0)" : : "r"(address) : "memory");
}
void LoadCr3(u32 root) {
  if (operations[kVmiSetCr3]) {
    operations[kVmiSetCr3](root);
    return;
  }
  WriteCr3(root);
}

// --- Page tables ---

// In pages of their own, by physical addresses; the tables of processes in high memory, which the
// kernel sees through slots, if it is built so.
struct Paging {
  bool pae, high;

  u32 Bytes() const { return pae ? 8 : 4; }
  u32 Entries() const { return 4096 / Bytes(); }
  u32 Span() const { return pae ? 21 : 22; }
  u32 Slot(u32 address) const { return address >> Span() & (Entries() - 1); }

  u32 Load(u32 at) const { return *reinterpret_cast<volatile u32*>(at); }
  void Store(u32 at, u32 entry) const {
    volatile u32* words = reinterpret_cast<volatile u32*>(at);
    if (pae) words[1] = 0;
    words[0] = entry;
  }
  void Set(u32 at, u32 entry, u32 flags) const {
    if (pae && operations[kVmiSetPxeLong]) {
      operations[kVmiSetPxeLong](entry, 0, at, flags);
    } else if (!pae && operations[kVmiSetPxe]) {
      operations[kVmiSetPxe](entry, at, flags);
    } else {
      Store(at, entry);
    }
    // The kernel looks at once.
    constexpr u32 kByCpu = kA | 0x40;
    if ((Load(at) & ~kByCpu) != (entry & ~kByCpu)) Check(false, "an entry is there at once");
  }
  void Updated(u32 at, u32 flags) const {
    const Operation& update = operations[pae ? kVmiUpdatePxeLong : kVmiUpdatePxe];
    if (update) update(at, flags);
  }
  // An entry that is replaced as a whole, whatever its level: in PAE by the kernel's own CMPXCHG8B.
  void SetAtomic(u32 at, u32 entry) const {
    if (!pae) return Set(at, entry, kLevelPt);
    Store(at, entry);
    Updated(at, kLevelPt);
  }
  void Allocated(u32 page, u32 flags, u32 from = 0, u32 first = 0, u32 count = 0) const {
    const Operation& allocate = operations[kVmiAllocatePage];
    if (allocate) allocate(page >> 12, flags | (pae ? kPagePae : 0), from >> 12, first, count);
  }
  void Released(u32 page, u32 flags) const {
    const Operation& release = operations[kVmiReleasePage];
    if (release) release(page >> 12, flags | (pae ? kPagePae : 0));
  }
};

// The kernel's own tables: swapper_pg_dir, in PAE with its four directories; and that of the slots.
alignas(4096) u8 swapper[4096], swapper_directories[4][4096], slots[4096];
u32 next_page;

u32 TakePage() {
  const u32 page = kPool + next_page++ % kPoolPages * 4096;
  memset(reinterpret_cast<void*>(page), 0, 4096);
  return page;
}

u32 DirectoryEntry(const Paging& p, u32 address) {
  u8* directory = p.pae ? swapper_directories[address >> 30] : swapper;
  return At(directory) + p.Slot(address) * p.Bytes();
}

// What is there before VMI_Init: the boot's page tables.
void Boot(const Paging& p) {
  next_page = 0;
  memset(slots, 0, sizeof(slots));
  memset(swapper, 0, sizeof(swapper));
  for (u32 address = 0;; address += 1u << p.Span()) {
    const bool mapped = address >= kDirectMap && address - kDirectMap < kDirectMapBytes;
    const u32 to = mapped ? address - kDirectMap : address;
    p.Store(DirectoryEntry(p, address), to | kPs | kKernelEntry);
    if (address + (1u << p.Span()) == 0) break;
  }
  if (p.pae) {
    for (u32 i = 0; i < 4; i++) p.Store(At(swapper) + 8 * i, At(swapper_directories[i]) | kP);
  }
  p.Store(DirectoryEntry(p, kSlotArea), At(slots) | kKernelEntry);
  p.Store(DirectoryEntry(p, kUserArea), 0);
  WriteCr4((ReadCr4() & ~kCr4Pae) | kCr4Pse | (p.pae ? kCr4Pae : 0));
  WriteCr3(At(swapper));
  WriteCr0(ReadCr0() | kCr0Pg | kCr0Wp);
}
void Leave() {
  WriteCr0(ReadCr0() & ~(kCr0Pg | kCr0Wp));
  WriteCr4(ReadCr4() & ~kCr4Pae);
}

// From the end of the activation to what paging_init() does to live tables.
void InitPaging(const Paging& p) {
  const Operation& mapping = operations[kVmiSetLinearMapping];
  if (mapping) mapping(0, kDirectMap, 0x33fe2, 0);
  // A table of the direct map is filled, announced when it is full, and takes a large page's place.
  const u32 table = kPool - 4096, covered = kDirectMap + kPool;
  for (u32 i = 0; i < p.Entries(); i++) {
    p.Set(table + i * p.Bytes(), (kPool & -(1u << p.Span())) + i * 4096 + kKernelEntry, kLevelPt);
  }
  p.Allocated(table, kPageL1);
  p.SetAtomic(DirectoryEntry(p, covered), table | kKernelEntry);
  for (u32 i = 0; p.pae && i < 4; i++) p.Allocated(At(swapper_directories[i]), kPageL2);
  p.Allocated(At(swapper), kPageL2);
  LoadCr3(At(swapper));
  FlushTlb(3);
  volatile u32* there = reinterpret_cast<volatile u32*>(kDirectMap + TakePage());
  *there = 0x600d;
  CheckEq("the direct map goes on by small pages", *there, 0x600d);
}

// A process's tables; the kernel sees `table` at Enter(slot), until Exit(slot).
struct Process {
  const Paging& p;
  u32 top = 0, directory = 0, table = 0;

  u32 Enter(u32 slot) const {
    if (!p.high) return kDirectMap + table;
    const u32 address = kSlotArea + slot * 4096;
    p.Set(At(slots) + slot * p.Bytes(), table | kKernelEntry, kLevelPt);
    const Operation& mapping = operations[kVmiSetLinearMapping];
    if (mapping) mapping(slot, address, 1, table >> 12);
    return address;
  }
  void Exit(u32 slot) const {
    if (!p.high) return;
    p.Set(At(slots) + slot * p.Bytes(), 0, kLevelPt);
    InvalPage(kSlotArea + slot * 4096);
  }
  void Create() {
    top = TakePage();
    const u32 words = p.pae ? 8 : 1024;
    // The kernel's part is copied, without a call for its entries.
    for (u32 i = 0; i < words; i++) {
      reinterpret_cast<volatile u32*>(top)[i] = reinterpret_cast<u32*>(At(swapper))[i];
    }
    p.Allocated(top, kPageL2 | kPageClone, At(swapper), p.pae ? 3 : 768, p.pae ? 1 : 256);
    if (p.pae) {
      directory = TakePage();
      p.Allocated(directory, kPageL2);
      p.Set(top + 8 * (kUserArea >> 30), directory | kP, kLevelPdp);
    } else {
      directory = top;
    }
    table = TakePage();
    p.Allocated(table, kPageL1);
    p.Set(directory + p.Slot(kUserArea) * p.Bytes(), table | kKernelEntry, kLevelPd);
  }
  void Destroy() {
    p.Set(directory + p.Slot(kUserArea) * p.Bytes(), 0, kLevelPd);
    p.Released(table, kPageL1);
    if (p.pae) {
      p.Store(top + 8 * (kUserArea >> 30), 0);
      p.Released(directory, kPageL2);
    }
    p.Released(top, kPageL2);
  }
};

u32 FrameOf(u32 i) { return kCopies + i * 4096; }
u32 CopyOf(u32 i) { return kCopies + (kUserPages + i) * 4096; }
u32 UserPage(u32 i) { return kUserArea + i * 4096; }
u32 Current(u32 i) { return kLevelPt | kCurrent | UserPage(i); }

const Process* running;
u32 copies, fault_count;

// A copy on write, or the first access to a page of the kernel's, by the handler.
void OnPageFault(Outcome* at) {
  fault_count++;
  const u32 i = (at->cr2 - kUserArea) >> 12;
  if (i >= kUserPages || at->error != (kP | kW | kU)) Panic("a fault that nobody expects");
  const Paging& p = running->p;
  const u32 entry = running->Enter(1) + i * p.Bytes();
  volatile u32* from = reinterpret_cast<volatile u32*>(FrameOf(i));
  *reinterpret_cast<volatile u32*>(CopyOf(i)) = *from;
  // The old entry is cleared by the kernel's own exchange, flushed, and the new one set.
  p.Store(entry, 0);
  p.Updated(entry, Current(i));
  InvalPage(UserPage(i));
  p.Set(entry, CopyOf(i) | kP | kW | kU | kA | 0x40, Current(i));
  running->Exit(1);
  copies++;
}

// Between 2 and 0 the kernel changes the address space, its TLS descriptors, and CR0.TS.
void SwitchTo(const Process& next) {
  Lazy(2);
  LoadCr3(next.top);
  const u64 tls = Flat(kData | kDpl3);
  if (operations[kVmiWriteGdtEntry]) {
    for (const u32 index : List{20u, 21u, 22u}) {
      operations[kVmiWriteGdtEntry](At(gdt), index, static_cast<u32>(tls),
                                    static_cast<u32>(tls >> 32));
    }
  }
  if (operations[kVmiUpdateKernelStack]) {
    operations[kVmiUpdateKernelStack](DataSelector(0), RingStackTop(0));
  }
  if (operations[kVmiClts]) operations[kVmiClts]();
  Lazy(0);
  running = &next;
}

// fork(): the child gets the parent's entries, and both lose the right to write.
void CopyTable(const Process& parent, const Process& child) {
  const Paging& p = parent.p;
  const u32 from = parent.Enter(1), to = child.Enter(2);
  Lazy(1);
  for (u32 i = 0; i < kUserPages; i++) {
    const u32 at = from + i * p.Bytes();
    *reinterpret_cast<volatile u32*>(at) = p.Load(at) & ~kW;
    p.Updated(at, Current(i));
    p.Set(to + i * p.Bytes(), p.Load(at) & ~kA, kLevelPt);
  }
  Lazy(0);
  child.Exit(2);
  parent.Exit(1);
  FlushTlb(1);
}

const void* read_code;
const void* write_code;

Outcome ReadUser(u32 i) { return Run(read_code, {.ebx = UserPage(i)}, 3); }
Outcome WriteUser(u32 i, u32 value) {
  return Run(write_code, {.eax = value, .ebx = UserPage(i)}, 3);
}

void TestFork(const Paging& p, u32 round) {
  Process parent{p}, child{p};
  parent.Create();
  for (u32 i = 0; i < kUserPages; i++) *reinterpret_cast<volatile u32*>(FrameOf(i)) = round + i;
  const u32 entries = parent.Enter(1);
  Lazy(1);
  for (u32 i = 0; i < kUserPages; i++) {
    p.Set(entries + i * p.Bytes(), FrameOf(i) | kP | kW | kU, kLevelPt);
  }
  Lazy(0);
  parent.Exit(1);
  SwitchTo(parent);
  bool ok = WriteUser(3, round + 3).Done() && ReadUser(kUserPages - 1).Done();
  child.Create();
  CopyTable(parent, child);
  SetHandler(kPageFault, OnPageFault);
  copies = fault_count = 0;
  SwitchTo(child);
  for (u32 i = 0; i < kUserPages; i += 7) {
    const Outcome read = ReadUser(i);
    ok = ok && read.Done() && read.frame.eax == round + i;
    ok = ok && WriteUser(i, 0xc0de).Done() && ReadUser(i).frame.eax == 0xc0de;
    ok = ok && *reinterpret_cast<volatile u32*>(FrameOf(i)) == round + i;
  }
  ok = ok && copies == (kUserPages + 6) / 7 && fault_count == copies;
  // Which pages were used, the kernel asks by clearing the bit.
  const u32 used = child.Enter(1) + 8 * p.Bytes();
  ok = ok && (p.Load(used) & kA) == 0 && ReadUser(8).Done() && (p.Load(used) & kA) != 0;
  *reinterpret_cast<volatile u32*>(used) = p.Load(used) & ~kA;
  p.Updated(used, Current(8));
  InvalPage(UserPage(8));
  ok = ok && ReadUser(8).Done() && (p.Load(used) & kA) != 0;
  // exit(): what the child had goes, while it still runs.
  const u32 all = child.Enter(2);
  Lazy(1);
  for (u32 i = 0; i < kUserPages; i++) {
    p.Store(all + i * p.Bytes(), 0);
    p.Updated(all + i * p.Bytes(), Current(i));
  }
  Lazy(0);
  child.Exit(2);
  child.Exit(1);
  FlushTlb(1);
  SetHandler(kPageFault, nullptr);
  ok = ok && ReadUser(8).Is(kPageFault, kU) && ReadUser(0).Is(kPageFault, kU);
  SwitchTo(parent);
  child.Destroy();
  SetHandler(kPageFault, OnPageFault);
  ok = ok && ReadUser(0).frame.eax == round && WriteUser(1, 0xfa7).Done();
  ok = ok && ReadUser(1).frame.eax == 0xfa7;
  SetHandler(kPageFault, nullptr);
  const Process kernel{p, At(swapper)};
  SwitchTo(kernel);
  parent.Destroy();
  // Their pages are data now.
  for (const u32 page : List{parent.top, parent.table, child.top, child.directory, child.table}) {
    for (u32 i = 0; i < 1024; i++) reinterpret_cast<volatile u32*>(page)[i] = page + i;
    for (u32 i = 0; i < 1024; i++) {
      ok = ok && reinterpret_cast<volatile u32*>(kDirectMap + page)[i] == page + i;
    }
  }
  if (!ok) Check(false, "fork, copies on write, exit");
}

void TestKernel(const Paging& p) {
  read_code = CODE32("mov eax, [ebx]");
  write_code = CODE32("mov [ebx], eax");
  Boot(p);
  Activate();
  InitPaging(p);
  const u32 cr4 = ReadCr4();
  if (operations[kVmiSetCr4]) operations[kVmiSetCr4](cr4 | 0x80);
  Group rounds(p.pae ? "processes of a PAE kernel" : "processes");
  for (u32 round = 0; round < 40; round++) {
    TestFork(p, 0x1000 * round);
    rounds.Case(true);
  }
  WriteCr4(cr4);
  Leave();
}

// --- The timer ---

constexpr u8 kLocalVector = 0x41;
constexpr u32 kApic = 0xfee00000, kLvtTimer = 0x320, kEoi = 0xb0;
constexpr u32 kPeriodic = 0x100, kLocalAlarm = 0x10000, kMasked = 0x10000, kHz = 250;

volatile u32 jiffies;
u32 wiring;
u64 event_at;  // one-shot: when the next event is due; 0: periodic

void ApicWrite(u32 offset, u32 value) {
  if (operations[kVmiApicWrite]) {
    operations[kVmiApicWrite](offset, value);
    return;
  }
  *reinterpret_cast<volatile u32*>(kApic + offset) = value;
}
u32 ApicRead(u32 offset) {
  if (operations[kVmiApicRead]) return static_cast<u32>(operations[kVmiApicRead](offset));
  return *reinterpret_cast<volatile u32*>(kApic + offset);
}
u64 Real() { return operations[kVmiGetCycleCounter](0); }
void Alarm(u32 flags, u64 expiry, u64 period) {
  operations[kVmiSetAlarm](flags | wiring, static_cast<u32>(expiry), static_cast<u32>(expiry >> 32),
                           static_cast<u32>(period), static_cast<u32>(period >> 32));
}

void OnTimer(Outcome* at) {
  if (at->vector == kLocalVector) {
    ApicWrite(kEoi, 0);
  } else {
    Outb(0x20, 0x20);
  }
  // Too early is harmless: the kernel looks, and asks again.
  if (event_at == 0 || Real() >= event_at) jiffies = jiffies + 1;
  if (event_at != 0) Alarm(0, event_at = Real() + 300'000, 0);
}

// Ticks from now on. An alarm that went off before it was cancelled may still wait for the kernel
// to let it in, and is none of them.
void StartTicks(u32 flags, u64 first, u64 period) {
  event_at = 0;
  Run(CODE32("sti; nop; nop; cli"), {});
  jiffies = 0;
  Alarm(flags, first, period);
}

// Idle until so many have come: a lost alarm stops the machine, and the test by its time limit.
void IdleFor(u32 ticks) {
  while (jiffies < ticks) CallVmi({Relocation::kCall, operations[kVmiHalt].address}, kMarked);
}

void TestWiring(u64 period) {
  const u64 begin = Real();
  StartTicks(kPeriodic, begin, period);
  IdleFor(4);
  // The first comes at once.
  Check(Real() - begin >= 3 * period, "periodic ticks are no faster than their period");
  // To one-shot alarms, without a cancellation.
  jiffies = 0;
  event_at = Real() + 1;
  Alarm(0, event_at, 0);
  IdleFor(6);
  operations[kVmiCancelAlarm](wiring);
}

void TestLinuxTime() {
  if (!operations[kVmiGetCycleFrequency]) return Skip("the kernel's timer", "it keeps its own");
  CatchTicks();
  SetHandler(kIrqBase, OnTimer);
  SetHandler(kLocalVector, OnTimer);
  Outb(0x43, 0x3a);
  // A 250th of a second, or so: there is no division of 64 bits.
  const u64 period = u64{static_cast<u32>(operations[kVmiGetCycleFrequency]() >> 8)};
  static_assert(kHz < 256);
  wiring = 0;
  TestWiring(period);
  // vmi_time_bsp_init(): suspended, LVT, resumed.
  Alarm(kPeriodic, Real(), period);
  operations[kVmiCancelAlarm](kPeriodic | wiring);
  ApicWrite(0xf0, ApicRead(0xf0) | 0x100);
  wiring = kLocalAlarm;
  const u32 lvt = ApicRead(kLvtTimer);
  ApicWrite(kLvtTimer, kLocalVector);
  TestWiring(period);
  // Masked and unmasked by its chip's functions.
  ApicWrite(kLvtTimer, ApicRead(kLvtTimer) | kMasked);
  ApicWrite(kLvtTimer, ApicRead(kLvtTimer) & ~kMasked);
  CheckEq("the LVT entry is as it was", ApicRead(kLvtTimer) & 0x300ff, kLocalVector);
  // As 2.6.21: periodic against available time.
  const u64 available = operations[kVmiGetCycleCounter](1) + period;
  StartTicks(kPeriodic | 1, available, period);
  IdleFor(3);
  Check(operations[kVmiGetCycleCounter](1) >= available + 2 * period, "ticks of available time");
  operations[kVmiCancelAlarm](1);
  ApicWrite(kLvtTimer, lvt);
  SetHandler(kLocalVector, nullptr);
  ForgetTicks();
}

}  // namespace

void TestLinux() {
  TestKernel({.pae = false, .high = false});
  TestKernel({.pae = false, .high = true});
  TestKernel({.pae = true, .high = true});
  // Its functions are at other addresses without paging.
  for (Operation& operation : operations) {
    if (operation.address >= kDirectMap) operation.address -= kDirectMap;
  }
  TestLinuxTime();
}

}  // namespace alibi::frobos
