// SPDX-License-Identifier: Apache-2.0
#include "frobos/compute/machine32.h"

namespace alibi::frobos {

// As pushed by boot32.S.
struct TrapFrame32 {
  u32 edi, esi, ebp, esp, ebx, edx, ecx, eax;
  u32 vector, error;
  u32 eip, cs, eflags, user_esp, user_ss;
};

extern "C" {
extern u8 trap_stubs[], user_return[], kernel_end[];
void EnterUser(u32 eip, u32 esp, u32* saved_esp);
[[noreturn]] void LeaveUser(u32 saved_esp);

// lib32/memory.cc
void* memcpy(void* to, const void* from, size_t n);
void* memset(void* to, int value, size_t n);
}

namespace {

constexpr u16 kUart = 0x3f8, kDebugExitPort = 0xf4;
constexpr u32 kMultibootMagic = 0x2badb002, kHasMemory = 1u << 0, kHasCommandLine = 1u << 2;
constexpr u8 kExitPanic = 2;
constexpr u32 kCr0Bits = 0x80010023;   // PG, WP, NE, MP, PE
constexpr u32 kCr0Clear = 0x6000000c;  // CD, NW, TS, EM
constexpr u32 kCr4Bits = 0x610;        // PSE, OSFXSR, OSXMMEXCPT
constexpr u32 kIdentityTables = 256;   // 1 GB

struct MultibootInfo {
  u32 flags, mem_lower_kb, mem_upper_kb, boot_device, command_line;
};

alignas(4096) u32 page_directory[1024];
alignas(16) u64 gdt[6];
alignas(16) u64 idt[256];
u32 tss[26];
alignas(16) u8 trap_stack[16384];

u32 memory_end = 64u << 20, next_free;
// Copied, because a loader may have put it behind the kernel, where AllocPages finds room.
char command_line[512];
u32 saved_esp;
UserResult* result = nullptr;

void Outb(u16 port, u8 value) { asm volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }
u8 Inb(u16 port) {
  u8 value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
void Invlpg(u32 va) { asm volatile("invlpg (%0)" : : "r"(va) : "memory"); }
void FlushTlb() {
  u32 cr3;
  asm volatile("mov %%cr3, %0; mov %0, %%cr3" : "=r"(cr3) : : "memory");
}

[[noreturn]] void Panic(const char* what) {
  Print("PANIC ");
  Print(what);
  Print("\n");
  Exit(kExitPanic);
}

constexpr u64 FlatSegment(unsigned type, unsigned dpl) {
  return 0x00cf'9000'0000'ffffull | u64{type} << 40 | u64{dpl} << 45;
}

void InitDescriptors() {
  gdt[1] = FlatSegment(0xb, 0);
  gdt[2] = FlatSegment(0x3, 0);
  gdt[3] = FlatSegment(0xb, 3);
  gdt[4] = FlatSegment(0x3, 3);
  const u32 base = reinterpret_cast<u32>(tss);
  gdt[5] = (sizeof(tss) - 1) | u64{base & 0xffffff} << 16 | 0x89ull << 40 | u64{base >> 24} << 56;
  tss[1] = reinterpret_cast<u32>(trap_stack + sizeof(trap_stack));
  tss[2] = 0x10;
  tss[25] = sizeof(tss) << 16;  // no I/O permission map
  for (u32 v = 0; v < 256; v++) {
    const u32 entry = reinterpret_cast<u32>(trap_stubs) + 16 * v;
    const u64 dpl = v == kProbeExit ? 3 : 0;
    idt[v] = (entry & 0xffff) | 8u << 16 | 0x8eull << 40 | dpl << 45 | u64{entry >> 16} << 48;
  }
  struct [[gnu::packed]] {
    u16 limit;
    u32 base;
  } gdt_pointer = {sizeof(gdt) - 1, reinterpret_cast<u32>(gdt)},
    idt_pointer = {sizeof(idt) - 1, reinterpret_cast<u32>(idt)};
  asm volatile(
      "lgdt %0\n"
      "lidt %1\n"
      "ljmp $8, $1f\n"
      "1: mov %2, %%ds\n"
      "mov %2, %%es\n"
      "mov %2, %%ss\n"
      "mov %3, %%fs\n"
      "mov %3, %%gs\n"
      "ltr %4\n"
      :
      : "m"(gdt_pointer), "m"(idt_pointer), "r"(0x10), "r"(0), "r"(static_cast<u16>(0x28))
      : "memory");
}

void InitPaging() {
  for (u32 i = 0; i < kIdentityTables; i++) page_directory[i] = i << 22 | kPteP | kPteW | kPtePs;
  u32 scratch;
  asm volatile(
      "mov %%cr4, %0\n or %2, %0\n mov %0, %%cr4\n"
      "mov %1, %%cr3\n"
      "mov %%cr0, %0\n and %4, %0\n or %3, %0\n mov %0, %%cr0\n"
      "jmp 1f\n1:\n fninit\n"
      : "=&r"(scratch)
      : "r"(page_directory), "i"(kCr4Bits), "i"(kCr0Bits), "i"(~kCr0Clear)
      : "memory");
}

u32* Entry(u32 va) {
  u32& pde = page_directory[va >> 22];
  if ((pde & kPteP) == 0) {
    pde = AllocPages(kPageSize) | kPteP | kPteW | kPteU;
  } else if ((pde & kPtePs) != 0) {
    u32* table = reinterpret_cast<u32*>(AllocPages(kPageSize));
    for (u32 i = 0; i < 1024; i++) table[i] = (pde & 0xffc00000) | i << 12 | kPteP | kPteW;
    pde = reinterpret_cast<u32>(table) | kPteP | kPteW | kPteU;
    FlushTlb();
  }
  return reinterpret_cast<u32*>(pde & ~(kPageSize - 1)) + (va >> 12 & 1023);
}

}  // namespace

void PutChar(char c) {
  for (int i = 0; i < 100000 && (Inb(kUart + 5) & 0x20) == 0; i++) {
  }
  Outb(kUart, static_cast<u8>(c));
}

void Print(const char* text) {
  for (; *text != 0; text++) PutChar(*text);
}

void Exit(u8 code) {
  Outb(kDebugExitPort, code);
  for (;;) asm volatile("cli; hlt");
}

u32 AllocPages(u32 size) {
  const u32 at = next_free;
  size = (size + kPageSize - 1) & ~(kPageSize - 1);
  if (at + size > memory_end) Panic("out of memory");
  next_free = at + size;
  memset(reinterpret_cast<void*>(at), 0, size);
  return at;
}

void MapShuffled(u32 va, u32 pages) {
  const u32 base = AllocPages(pages * kPageSize);
  // As MapShuffled of //frobos/lib, so that both kernels meet the same physical order.
  u32 size = 1;
  while (size < pages) size *= 2;
  const u32 step = (size * 5 / 8) | 1;
  u32 at = 0;
  for (u32 i = 0; i < pages; i++) {
    do {
      at = (at + step) & (size - 1);
    } while (at >= pages);
    *Entry(va + i * kPageSize) = (base + at * kPageSize) | kPteP | kPteW | kPteU;
    Invlpg(va + i * kPageSize);
  }
}

void MoveToShuffledPages(u8* begin, u8* end) {
  const u32 size = static_cast<u32>(end - begin);
  const u32 copy = AllocPages(size);
  memcpy(reinterpret_cast<void*>(copy), begin, size);
  MapShuffled(reinterpret_cast<u32>(begin), size / kPageSize);
  memcpy(begin, reinterpret_cast<void*>(copy), size);
}

UserResult CallUser(const void* function, u32 argument, u32 stack_top) {
  u32* stack = reinterpret_cast<u32*>(stack_top & ~15u) - 5;
  stack[0] = reinterpret_cast<u32>(user_return);
  stack[1] = argument;
  UserResult r;
  result = &r;
  EnterUser(reinterpret_cast<u32>(function), reinterpret_cast<u32>(stack), &saved_esp);
  result = nullptr;
  // TrapDispatch32 wrote it behind the compiler's back.
  asm volatile("" : "+m"(r) : : "memory");
  return r;
}

extern "C" [[gnu::used]] void TrapDispatch32(const TrapFrame32* frame) {
  u32 cr2;
  asm volatile("mov %%cr2, %0" : "=r"(cr2));
  if (result == nullptr) Panic("an exception in the kernel");
  *result = {frame->vector, frame->error, frame->eip, cr2, u64{frame->edx} << 32 | frame->eax};
  LeaveUser(saved_esp);
}

extern "C" [[gnu::used]] void KernelStart32(u32 magic, const MultibootInfo* info) {
  Outb(kUart + 1, 0);     // no interrupts
  Outb(kUart + 3, 0x80);  // DLAB
  Outb(kUart + 0, 1);     // 115200 baud
  Outb(kUart + 1, 0);
  Outb(kUart + 3, 0x03);  // 8n1
  Outb(kUart + 2, 0x07);  // FIFOs on and cleared
  Outb(kUart + 4, 0x03);  // DTR, RTS
  Print("\n");            // firmware may have left the terminal in the middle of a line
  if (magic != kMultibootMagic) Panic("not started by a multiboot loader");
  if (info->flags & kHasMemory) memory_end = (info->mem_upper_kb + 1024) << 10;
  if (info->flags & kHasCommandLine) {
    const char* text = reinterpret_cast<const char*>(info->command_line);
    for (u32 i = 0; i + 1 < sizeof(command_line) && text[i] != 0; i++) command_line[i] = text[i];
  }
  next_free = (reinterpret_cast<u32>(kernel_end) + kPageSize - 1) & ~(kPageSize - 1);
  InitDescriptors();
  InitPaging();
  Exit(static_cast<u8>(Main(command_line)));
}

}  // namespace alibi::frobos
