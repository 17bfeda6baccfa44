// SPDX-License-Identifier: Apache-2.0
// What the privileged work of a 32-bit kernel costs: with its own instructions if there is no VMI
// ROM, and else by the ROM's calls at patched sites, as a paravirtual kernel's (docs/vmi.md). Lines
// and command line are nanobench's: one JSON line per benchmark, then {"done":true}; quick=yes,
// samples=N, only=a,b,c. Where the ROM leaves a call to the kernel (NONE), so does the benchmark.

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kP = 1, kW = 2, kPs = 0x80;
constexpr u32 kArea = 0x02000000, kFrames = 0x02400000;
constexpr u32 kBatch = 1024;  // entries of a leaf table
constexpr u32 kCyclesPerSample = 12'000'000, kCyclesPerQuickSample = 1'500'000;
constexpr u16 kSysenterCs = kSpare;
constexpr u32 kScratchDescriptor = 20;  // an index that nothing else uses

const VmiHeader* rom;
alignas(4096) u32 directory[1024], apic_table[1024];
extern "C" {
alignas(4096) u32 leaf_table[1024];
u32 local_apic = 0xfee00000;
}

struct PatchPlace {
  u32 address, call;
};
extern "C" {
extern const PatchPlace __start_vmi_sites[], __stop_vmi_sites[];
void sysenter_entry();
void sysenter_entry_vmi();
void map_page();
void map_page_vmi();
}

// Five bytes that PatchSite() makes a call, listed with the call's number.
#define SITE(call)                                    \
  "771: .byte 0x0f, 0x1f, 0x44, 0, 0\n"               \
  ".pushsection vmi_sites, \"a\"\n.long 771b, " #call \
  "\n"                                                \
  ".popsection\n"

#define CLOBBERS "eax", "ecx", "edx", "memory", "cc"
// A loop of n rounds, counted in ESI or EDI: what calls keep.
#define LOOP(name, body)                                                                \
  void name(u32 n) {                                                                    \
    asm volatile("1:\n" body "decl %0\njnz 1b" : "+S"(n) : "D"(leaf_table) : CLOBBERS); \
  }

LOOP(Empty, "")
LOOP(CliSti, "cli\nsti\n")
LOOP(CliStiVmi, SITE(30) SITE(29))
LOOP(SaveFlags, "pushfl\npopl %%eax\ncli\npushl %%eax\npopfl\n")
LOOP(SaveFlagsVmi, SITE(31) SITE(30) SITE(32))
LOOP(ReadCr2Loop, "movl %%cr2, %%eax\n")
LOOP(ReadCr2Vmi, SITE(20))
LOOP(LoadCr3, "movl %%cr3, %%eax\nmovl %%eax, %%cr3\n")
LOOP(LoadCr3Vmi, SITE(21) SITE(17))
LOOP(SwitchTs, "movl %%cr0, %%eax\norl $8, %%eax\nmovl %%eax, %%cr0\nclts\n")
LOOP(SwitchTsVmi, SITE(19) "orl $8, %%eax\n" SITE(15) SITE(28))
LOOP(WriteGdt, "movl $0, gdt + 160\nmovl $0x92, gdt + 164\n")
LOOP(WriteGdtVmi,
     "pushl $0x92\nmovl $gdt, %%eax\nmovl $20, %%edx\nxorl %%ecx, %%ecx\n" SITE(11) "popl %%eax\n")
LOOP(CpuidLoop, "pushl %%ebx\nxorl %%eax, %%eax\ncpuid\npopl %%ebx\n")
LOOP(CpuidVmi, "pushl %%ebx\nxorl %%eax, %%eax\n" SITE(0) "popl %%ebx\n")
LOOP(IretLoop, "pushfl\npushl %%cs\npushl $2f\niretl\n2:\n")
LOOP(IretVmi, "pushfl\npushl %%cs\npushl $2f\n" SITE(33) "2:\n")
LOOP(Delay, "outb %%al, $0x80\n")
LOOP(DelayVmi, SITE(65))
LOOP(Clock, "rdtsc\n")
LOOP(ClockVmi, "xorl %%eax, %%eax\n" SITE(67))
LOOP(ReadApic, "movl local_apic, %%eax\nmovl 0x20(%%eax), %%eax\n")
LOOP(ReadApicVmi, "movl $0x20, %%eax\n" SITE(64))
LOOP(WriteApic, "movl local_apic, %%eax\nmovl $0x10000, 0x370(%%eax)\n")
LOOP(WriteApicVmi, "movl $0x370, %%eax\nmovl $0x10000, %%edx\n" SITE(63))

// A whole table in a round: every entry gets the value of EBX; then a flush, and if there is a
// page, it is read.
#define BATCH(value, set, flush)                                               \
  "pushl %%ebx\npushl %%ebp\nmovl %%esi, %%ebx\nandl $1, %%ebx\n" value        \
  "movl %%edi, %%ebp\n2:\nmovl %%ebx, %%eax\nmovl %%ebp, %%edx\n" set          \
  "addl $4, %%ebp\nleal 4096(%%edi), %%eax\ncmpl %%eax, %%ebp\njne 2b\n" flush \
  "testl %%ebx, %%ebx\njz 3f\nmovl 0x2000000, %%eax\n3:\npopl %%ebp\npopl %%ebx\n"
// One frame or the next; a frame or nothing.
#define TO_ANOTHER_FRAME "shll $12, %%ebx\norl $0x2400003, %%ebx\n"
#define TO_NOTHING "negl %%ebx\nandl $0x2400003, %%ebx\n"
#define STORE "movl %%eax, (%%edx)\n"
#define FLUSH "movl %%cr3, %%eax\nmovl %%eax, %%cr3\n"
#define STORE_VMI "movl $0x21, %%ecx\n" SITE(38)
#define FLUSH_VMI "movl $1, %%eax\n" SITE(47)
LOOP(ChangeTable, BATCH(TO_ANOTHER_FRAME, STORE, FLUSH))
LOOP(ChangeTableVmi, BATCH(TO_ANOTHER_FRAME, STORE_VMI, FLUSH_VMI))
LOOP(MapTable, BATCH(TO_NOTHING, STORE, FLUSH))
LOOP(MapTableVmi, BATCH(TO_NOTHING, STORE_VMI, FLUSH_VMI))

// The page leads elsewhere, and is read. Its frames hold their numbers' last bit.
#define TOUCH(set, invalidate)                                                              \
  "movl %%esi, %%eax\nandl $1, %%eax\nshll $12, %%eax\norl $0x2400003, %%eax\nmovl %%edi, " \
  "%%edx\n" set "movl $0x2000000, %%eax\n" invalidate                                       \
  "movl 0x2000000, %%eax\nxorl %%esi, %%eax\ntestl $1, %%eax\njnz 3f\n"
#define TOUCH_LOOP(name, set, invalidate)                              \
  void name(u32 n) {                                                   \
    asm volatile("1:\n" TOUCH(set, invalidate) "decl %0\njnz 1b\n3:\n" \
                 : "+S"(n)                                             \
                 : "D"(leaf_table)                                     \
                 : CLOBBERS);                                          \
    rounds_left = n;                                                   \
  }
u32 rounds_left;
TOUCH_LOOP(PteTouch, "movl %%eax, (%%edx)\n", "invlpg (%%eax)\n")
TOUCH_LOOP(PteTouchVmi, "movl $1, %%ecx\n" SITE(38), SITE(46))

// A page fault whose handler maps the page, and the page is unmapped again.
#define FAULT_LOOP(name, set, invalidate)                         \
  void name(u32 n) {                                              \
    asm volatile("1:\nxorl %%eax, %%eax\nmovl %%edi, %%edx\n" set \
                 "movl $0x2000000, %%eax\n" invalidate            \
                 "movl 0x2000000, %%eax\n"                        \
                 "decl %0\njnz 1b"                                \
                 : "+S"(n)                                        \
                 : "D"(leaf_table)                                \
                 : CLOBBERS);                                     \
  }
FAULT_LOOP(Fault, "movl %%eax, (%%edx)\n", "invlpg (%%eax)\n")
FAULT_LOOP(FaultVmi, "movl $1, %%ecx\n" SITE(38), SITE(46))
extern "C" {
u32 faults;
}
asm(".pushsection .text\n"
    "map_page:\n"
    "pushl %eax\npushl %edx\nincl faults\n"
    "movl $0x2400003, leaf_table\n"
    "popl %edx\npopl %eax\naddl $4, %esp\niretl\n"
    "map_page_vmi:\n"
    "pushl %eax\npushl %edx\npushl %ecx\nincl faults\n"
    "movl $0x2400003, %eax\nmovl $leaf_table, %edx\nmovl $1, %ecx\n" SITE(
        38) "popl %ecx\npopl %edx\npopl %eax\naddl $4, %esp\n" SITE(33) ".popsection");

// The page tables of a process that comes and goes: a directory and a table, which map a page that
// is read; then both are announced to be free, and are data.
alignas(4096) u32 passing_directory[1024], passing_table[1024];
void Release(const u32* table) {
  u32 frame = At(table) >> 12, flags = table == passing_table ? 0x41 : 0x42;
  asm volatile(SITE(45) : "+a"(frame), "+d"(flags) : : "ecx", "memory", "cc");
}
template <bool kReleases>
void PassingSpaces(u32 n) {
  volatile u32* top = passing_directory;
  volatile u32* table = passing_table;
  for (u32 round = 0; round < n; round++) {
    for (u32 i = 0; i < 1024; i++) top[i] = directory[i];
    for (u32 i = 0; i < 1024; i++) table[i] = 0;
    table[0] = kFrames | kW | kP;
    top[kArea >> 22] = At(passing_table) | kW | kP;
    WriteCr3(At(passing_directory));
    rounds_left |= *reinterpret_cast<volatile u32*>(kArea);
    table[0] = 0;
    top[kArea >> 22] = 0;
    WriteCr3(At(directory));
    if (kReleases) {
      Release(passing_table);
      Release(passing_directory);
    }
    for (u32 i = 0; i < 1024; i++) {
      top[i] = i;
      table[i] = i;
    }
  }
}

// System calls: EBX rounds of a program in ring 3.
asm(".pushsection .text\n"
    "sysenter_entry:\n"
    "sti\nsysexit\n"
    "sysenter_entry_vmi:\n" SITE(34) ".popsection");
void RunProgram(u32 n, void (*entry)()) {
  asm volatile("wrmsr" : : "c"(0x176), "a"(entry), "d"(0));
  const void* program = CODE32("2: mov ecx, esp; mov edx, offset 3f; sysenter; 3: dec ebx; jnz 2b");
  const Outcome o = Run(program, {.ebx = n}, 3);
  rounds_left = o.Done() ? o.frame.ebx : ~0u;
}
void SystemCalls(u32 n) { RunProgram(n, sysenter_entry); }
void SystemCallsVmi(u32 n) { RunProgram(n, sysenter_entry_vmi); }

void CatchFaults() {
  faults = 0;
  void (*handler)() = rom == nullptr ? map_page : map_page_vmi;
  SetIdt(kPageFault,
         Gate(CodeSelector(0), At(reinterpret_cast<const void*>(handler)), kInterruptGate32));
}

struct Benchmark {
  const char* name;
  void (*native)(u32 n);
  void (*vmi)(u32 n);
  VmiCall call;         // of those it makes, the one that the ROM may leave to the kernel
  u32 operations = 1;   // in a round
  bool faults = false;  // each round is a page fault
};

constexpr Benchmark kBenchmarks[] = {
    {.name = "clisti", .native = CliSti, .vmi = CliStiVmi, .call = kVmiEnableInterrupts},
    {.name = "saveflags", .native = SaveFlags, .vmi = SaveFlagsVmi, .call = kVmiSetInterruptMask},
    {.name = "cr2", .native = ReadCr2Loop, .vmi = ReadCr2Vmi, .call = kVmiGetCr2},
    {.name = "cr3", .native = LoadCr3, .vmi = LoadCr3Vmi, .call = kVmiSetCr3},
    {.name = "ts", .native = SwitchTs, .vmi = SwitchTsVmi, .call = kVmiClts},
    {.name = "gdtentry", .native = WriteGdt, .vmi = WriteGdtVmi, .call = kVmiWriteGdtEntry},
    {.name = "cpuid", .native = CpuidLoop, .vmi = CpuidVmi, .call = kVmiCpuid},
    {.name = "iret", .native = IretLoop, .vmi = IretVmi, .call = kVmiIret},
    {.name = "sysenter", .native = SystemCalls, .vmi = SystemCallsVmi, .call = kVmiSysexit},
    {.name = "ptechange",
     .native = ChangeTable,
     .vmi = ChangeTableVmi,
     .call = kVmiSetPxe,
     .operations = kBatch},
    {.name = "ptemap",
     .native = MapTable,
     .vmi = MapTableVmi,
     .call = kVmiSetPxe,
     .operations = kBatch},
    {.name = "ptetouch", .native = PteTouch, .vmi = PteTouchVmi, .call = kVmiSetPxe},
    {.name = "pgfault_map", .native = Fault, .vmi = FaultVmi, .call = kVmiSetPxe, .faults = true},
    {.name = "tablelife",
     .native = PassingSpaces<false>,
     .vmi = PassingSpaces<true>,
     .call = kVmiReleasePage},
    {.name = "delay", .native = Delay, .vmi = DelayVmi, .call = kVmiIoDelay},
    {.name = "clock", .native = Clock, .vmi = ClockVmi, .call = kVmiGetCycleCounter},
    {.name = "apicread", .native = ReadApic, .vmi = ReadApicVmi, .call = kVmiApicRead},
    {.name = "apicwrite", .native = WriteApic, .vmi = WriteApicVmi, .call = kVmiApicWrite},
};

u32 Cycles(void (*loop)(u32), u32 n) {
  u32 begin, end, high;
  asm volatile("rdtsc" : "=a"(begin), "=d"(high));
  loop(n);
  asm volatile("rdtsc" : "=a"(end), "=d"(high));
  return end - begin;
}

u32 Number(const char* option, u32 otherwise) {
  const char* text = Option(option);
  if (text == nullptr) return otherwise;
  u32 value = 0;
  for (; *text >= '0' && *text <= '9'; text++) value = value * 10 + static_cast<u32>(*text - '0');
  return value != 0 ? value : otherwise;
}

// Why the loop did not do what it should; nullptr: it did.
const char* Failure(const Benchmark& b, u32 n) {
  if (rounds_left != 0) return "the operation did not have its effect";
  if (b.faults && faults != n) return "there were other faults";
  return nullptr;
}

void Measure(const Benchmark& b, u32 cycles_per_sample, u32 samples) {
  const bool left = rom == nullptr || RelocationOf(rom, b.call).type == Relocation::kNone;
  void (*loop)(u32) = left ? b.native : b.vmi;
  u32 n = 2;
  rounds_left = 0;
  if (b.faults) CatchFaults();
  loop(n);  // what has not run is not translated
  while (n < 1u << 24 && Cycles(loop, n) < cycles_per_sample / 2) n *= 2;
  Print("{\"name\":\"%s\",", b.name);
  char separator = '[';
  Print("\"samples\":");
  const char* failure = nullptr;
  for (u32 i = 0; i < samples; i++) {
    if (b.faults) CatchFaults();
    const u32 with = Cycles(loop, n);
    if (failure == nullptr) failure = Failure(b, n);
    const u32 without = b.operations == 1 && !b.faults ? Cycles(Empty, n) : 0;
    // In hundredths; a sample that the host broke into is cut off, and no median's.
    u32 net = with > without ? with - without : 0;
    if (net > 42'000'000) net = 42'000'000;
    const u32 hundredths = net * 100 / (n * b.operations);
    Print("%c%u.%02u", separator, hundredths / 100, hundredths % 100);
    separator = ',';
  }
  RestoreIdt(kPageFault);
  if (failure != nullptr) {
    Print("],\"error\":\"%s\"}\n", failure);
  } else {
    Print("],\"iterations\":%u}\n", n);
  }
}

void EnterPaging() {
  for (u32 i = 0; i < 1024; i++) directory[i] = i << 22 | kPs | 4 | kW | kP;
  for (u32 i = 0; i < kBatch; i++) {
    leaf_table[i] = 0;
    apic_table[i] = (local_apic & ~0x3fffffu) + i * 4096 + kP + kW;  // as kernels map devices
    *reinterpret_cast<volatile u32*>(kFrames + i * 4096) = i;
  }
  directory[kArea >> 22] = At(leaf_table) | kW | kP;
  directory[local_apic >> 22] = At(apic_table) | kW | kP;
  WriteCr4(ReadCr4() | kCr4Pse);
  WriteCr3(At(directory));
  WriteCr0(ReadCr0() | kCr0Pg | kCr0Wp);
}

void PrepareSystemCalls() {
  SetGdt(kSysenterCs, Flat(kCode));
  SetGdt(kSysenterCs + 8, Flat(kData));
  SetGdt(kSysenterCs + 16, Flat(kCode | kDpl3));
  SetGdt(kSysenterCs + 24, Flat(kData | kDpl3));
  asm volatile("wrmsr" : : "c"(0x174), "a"(u32{kSysenterCs}), "d"(0));
  asm volatile("wrmsr" : : "c"(0x175), "a"(RingStackTop(0)), "d"(0));
}

}  // namespace

int Main() {
  static_assert(kSysenterCs + 24 < kScratchDescriptor * 8);
  EnterPaging();
  PrepareSystemCalls();
  rom = FindVmi();
  if (rom != nullptr) {
    if (InitVmi(rom) != 0) Panic("VMI_Init failed");
    for (const PatchPlace* place = __start_vmi_sites; place != __stop_vmi_sites; place++) {
      PatchSite(reinterpret_cast<void*>(place->address), RelocationOf(rom, place->call));
    }
  }
  const bool quick = Option("quick") != nullptr;
  const u32 cycles = quick ? kCyclesPerQuickSample : kCyclesPerSample;
  const u32 samples = Number("samples", 5);
  for (const Benchmark& b : kBenchmarks) {
    if (Selected(b.name)) Measure(b, cycles, samples);
  }
  Print("{\"done\":true}\n");
  return 0;
}

}  // namespace alibi::frobos
