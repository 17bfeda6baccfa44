// SPDX-License-Identifier: Apache-2.0
// Runs the compute programs in CPL 3, on 4 KB user pages whose physical order is shuffled, and
// prints per program one JSON line:
//     {"name":"sha256","samples":[cycles per run,...],"checksum":"hex"}   then {"done":true}
// Command line: samples=N scale=PERCENT only=a,b,c quick.

#include "frobos/compute/compute.h"

#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

extern "C" u8 program_start[], program_end[], program_bss_start[], program_bss_end[];

struct Program {
  const char* name;
  uint64_t (*run)(unsigned scale);
  unsigned scale;
};

#define COMPUTE_ROW(name, default_scale) {#name, run_##name, default_scale},
constexpr Program kPrograms[] = {COMPUTE_PROGRAMS(COMPUTE_ROW)};
#undef COMPUTE_ROW

constexpr u64 kStackPages = 16;
constexpr u64 kStackBase = kUserBase;

// Moves a part of the linked program to RAM pages in another order, and lets CPL 3 at them.
void MoveToShuffledPages(u8* begin, u8* end) {
  const u64 start = reinterpret_cast<u64>(begin), size = reinterpret_cast<u64>(end) - start;
  const u64 copy = AllocRange(size, kPageSize);
  memcpy(reinterpret_cast<void*>(copy), begin, size);
  for (u64 va = start; va < start + size; va += kPageSize) SplitLargePage(va);
  MapShuffled(start, size / kPageSize, kPteW | kPteU);
  memcpy(begin, reinterpret_cast<void*>(copy), size);
}

unsigned Scaled(const Program& p, u64 percent) {
  if (strcmp(p.name, "fib") == 0) return p.scale;  // an exponent
  const u64 scale = p.scale * percent / 100;
  return scale != 0 ? static_cast<unsigned>(scale) : 1;
}

}  // namespace

int Main() {
  const u64 samples = NumberOption("samples", HasOption("quick") ? 3 : 9);
  const u64 percent = NumberOption("scale", 100);
  const u64 stack_top = kStackBase + kStackPages * kPageSize;
  MoveToShuffledPages(program_start, program_end);
  MoveToShuffledPages(program_bss_start, program_bss_end);
  MapShuffled(kStackBase, kStackPages, kPteW | kPteU);

  bool good = true;
  for (const Program& p : kPrograms) {
    if (!Selected("only", p.name)) continue;
    const unsigned scale = Scaled(p, percent);
    const void* run = reinterpret_cast<const void*>(p.run);
    Outcome o = CallUser(run, scale, stack_top);  // warms up
    Print("{\"name\":\"%s\",", p.name);
    if (!o.Done()) {
      good = false;
      Print("\"error\":\"%s error 0x%lx at 0x%lx cr2 0x%lx\"}\n", VectorName(o.frame.vector),
            o.frame.error, o.frame.rip, o.cr2);
      continue;
    }
    const u64 checksum = o.frame.rax;
    bool same = true;
    Print("\"samples\":[");
    for (u64 i = 0; i < samples; i++) {
      const u64 start = Rdtsc();
      o = CallUser(run, scale, stack_top);
      const u64 cycles = Rdtsc() - start;
      same &= o.Done() && o.frame.rax == checksum;
      Print("%s%lu", i == 0 ? "" : ",", cycles);
    }
    Print("],\"checksum\":\"%016lx\"", checksum);
    if (!same) {
      good = false;
      Print(",\"error\":\"a repetition gave another checksum\"");
    }
    Print("}\n");
  }
  Print("{\"done\":true}\n");
  return good ? 0 : 1;
}

}  // namespace alibi::frobos
