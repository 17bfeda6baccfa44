// SPDX-License-Identifier: Apache-2.0
// All rights of a leaf entry and its parent, at every page size, against every kind of access,
// under CR0.WP and CR4.SMEP: outcome, error code, CR2, and the A and D bits (SDM vol. 3A 4.6-4.8).

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/trap.h"
#include "frobos/tests/paging.h"

namespace alibi::frobos {
namespace {

enum class Access { kRead, kWrite, kFetch };
constexpr Access kAccesses[] = {Access::kRead, Access::kWrite, Access::kFetch};
constexpr const char* kAccessNames[] = {"read", "write", "fetch"};

struct Rights {
  bool present, write, user, nx;
  u64 Bits() const {
    return (present ? kPteP : 0) | (write ? kPteW : 0) | (user ? kPteU : 0) | (nx ? kPteNx : 0);
  }
};

struct Case {
  Rights leaf, parent;
  Access access;
  bool user, wp, smep;
};

struct Expectation {
  bool fault;
  u64 error;
};

Expectation Expect(const Case& c) {
  const u64 kind = (c.access == Access::kWrite ? kPfWrite : 0) | (c.user ? kPfUser : 0) |
                   (c.access == Access::kFetch && (HasNx() || c.smep) ? kPfFetch : 0);
  if (!c.parent.present || !c.leaf.present) return {true, kind};
  const bool write = c.leaf.write && c.parent.write;
  const bool user = c.leaf.user && c.parent.user;
  const bool nx = c.leaf.nx || c.parent.nx;
  bool fault = c.access == Access::kFetch && nx;
  if (c.user) {
    fault |= !user || (c.access == Access::kWrite && !write);
  } else {
    fault |= c.access == Access::kWrite && !write && c.wp;
    fault |= c.access == Access::kFetch && user && c.smep;
  }
  return {fault, kind | kPfPresent};
}

Rights RightsFromBits(unsigned bits) {
  return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
}

// What it needs of a page: the code of a fetch is "int 0x7f", which ends the probe.
constexpr u16 kLeaveProbe = 0x7fcd;

struct Target {
  int level;  // of the leaf
  u64 va;
  u64 base;  // physical base of the (large) page
  u64 extra;
  u64* leaf;
  u64* parent;
};

Outcome Do(const Case& c, u64 va) {
  // Unused code pointers are cheap; making them here keeps both kinds side by side.
  const void* const user_code[] = {USER_CODE("mov al, [rdi]"), USER_CODE("mov [rdi], al"),
                                   USER_CODE("jmp rdi")};
  const void* const kernel_code[] = {KERNEL_CODE("mov al, [rdi]"), KERNEL_CODE("mov [rdi], al"),
                                     KERNEL_CODE("jmp rdi")};
  const Regs regs = {.rax = kLeaveProbe & 0xff, .rdi = va};
  const int i = static_cast<int>(c.access);
  return c.user ? RunUser(user_code[i], regs) : RunKernel(kernel_code[i], regs);
}

void RunCase(Group* group, const Target& t, const Case& c) {
  const u64 parent_table = *t.parent & kPteAddress;
  *t.leaf = t.base | c.leaf.Bits() | t.extra;
  *t.parent = parent_table | c.parent.Bits();
  Invlpg(t.va);
  const u64 leaf_before = *t.leaf;
  const Expectation want = Expect(c);
  const Outcome o = Do(c, t.va);
  const u64 leaf_after = *t.leaf, parent_after = *t.parent;
  *t.parent = parent_table | kPteP | kPteW | kPteU;

  bool ok;
  if (want.fault) {
    // A faulting access must leave the leaf alone; whether it sets A above it is the CPU's choice.
    // QEMU treats a 1 GB leaf as if it stood above one (SDM vol. 3A 4.8).
    const u64 ignored = t.level == 3 && OptionIs("host", "qemu") ? kPteA : 0;
    ok = o.Is(kPageFault, want.error) && o.cr2 == t.va && (leaf_after & ~ignored) == leaf_before;
  } else {
    const u64 used = kPteA | (c.access == Access::kWrite ? kPteD : 0);
    ok = o.Done() && leaf_after == (leaf_before | used) &&
         parent_after == (parent_table | c.parent.Bits() | kPteA);
  }
  if (!group->Case(ok)) {
    Print(
        "  level %d %s %s wp=%d smep=%d leaf %lx parent %lx: expected %s %lx got %s %lx cr2 %lx "
        "leaf %lx parent %lx\n",
        t.level, c.user ? "user" : "kernel", kAccessNames[static_cast<int>(c.access)], c.wp, c.smep,
        c.leaf.Bits(), c.parent.Bits(), want.fault ? "#PF" : "no fault",
        want.fault ? want.error : 0, VectorName(o.frame.vector), o.frame.error, o.cr2, leaf_after,
        parent_after);
  }
}

void RunLevel(const char* name, int level, bool wp, bool smep) {
  Group group(name);
  static u64 frame = 0;
  if (frame == 0) frame = AllocPage();
  *reinterpret_cast<volatile u16*>(frame) = kLeaveProbe;

  const u64 size = kPageSize << (9 * (level - 1));
  // Each level has its own 512 GB slot, because the parent of a 1 GB page is the PML4E.
  const u64 va = kUserBase * static_cast<u64>(level) + (frame & (size - 1));
  const Target target = {level,
                         va,
                         frame & ~(size - 1),
                         level > 1 ? kPtePs : 0,
                         Entry(va, level),
                         Entry(va, level + 1)};
  const unsigned limit = HasNx() ? 16 : 8;
  for (unsigned parent = 0; parent < limit; parent++) {
    for (unsigned leaf = 0; leaf < limit; leaf++) {
      for (const Access access : kAccesses) {
        for (const bool user : {false, true}) {
          RunCase(&group, target,
                  {RightsFromBits(leaf), RightsFromBits(parent), access, user, wp, smep});
        }
      }
    }
  }
  *target.leaf = 0;
  Invlpg(va);
}

}  // namespace

void TestPermutations() {
  const u64 cr0 = ReadCr0(), cr4 = ReadCr4();
  for (const bool smep : {false, true}) {
    if (smep && !HasSmep()) {
      Skip("rights with SMEP", "CPUID has no SMEP");
      continue;
    }
    for (const bool wp : {true, false}) {
      WriteCr4(smep ? cr4 | kCr4Smep : cr4 & ~kCr4Smep);
      WriteCr0(wp ? cr0 | kCr0Wp : cr0 & ~kCr0Wp);
      constexpr const char* kNames[3][4] = {
          {"rights of 4 KB pages", "rights of 4 KB pages, WP=0", "rights of 4 KB pages, SMEP",
           "rights of 4 KB pages, WP=0, SMEP"},
          {"rights of 2 MB pages", "rights of 2 MB pages, WP=0", "rights of 2 MB pages, SMEP",
           "rights of 2 MB pages, WP=0, SMEP"},
          {"rights of 1 GB pages", "rights of 1 GB pages, WP=0", "rights of 1 GB pages, SMEP",
           "rights of 1 GB pages, WP=0, SMEP"},
      };
      for (int level = 1; level <= 3; level++) {
        const char* name = kNames[level - 1][(smep ? 2 : 0) + (wp ? 0 : 1)];
        if (level == 3 && !HasGigabytePages()) {
          Skip(name, "CPUID has no 1 GB pages");
        } else {
          RunLevel(name, level, wp, smep);
        }
      }
    }
  }
  WriteCr0(cr0);
  WriteCr4(cr4);
}

}  // namespace alibi::frobos
