// SPDX-License-Identifier: Apache-2.0
// Safety: no guest address, however hostile, reaches host memory outside the guest's RAM windows.
//
// The emitted access is: index = address[47:12]; host = address + entry[index]. An entry is either
// poison or leads its canonical page into a window. An address that is not canonical selects the
// entry of the canonical page with the same bits 47:12, and misses it by a multiple of 2^48; a host
// address below 2^47 plus a non-zero multiple of 2^48 (mod 2^64) has bit 47 clear and some of bits
// 63:48 set: not canonical, so the host's hardware refuses it.
#include <catch2/catch.hpp>
#include <csetjmp>
#include <csignal>
#include <random>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;
constexpr u64 kUsed = M::kP | M::kW | M::kU | M::kA | M::kD;

// All of [host, host + size) in the windows, or its first byte faults.
bool Safe(const M& m, u64 host, unsigned size, bool store) {
  if (!IsCanonical(host)) return true;
  if (m.InGuard(HostAddr(host))) return true;
  // From the read-only window a store faults at its first byte.
  if (store && m.InRo(HostAddr(host))) return true;
  const u64 window = m.memory->ro_base().value, bytes = 2 * m.memory->capacity() + kGuardBytes;
  // Crossing into the neighbouring page of the arena, or into the guard, stays in the arena.
  return host - window < bytes && host + size - 1 - window < bytes;
}

u64 HostOf(View& view, u64 address) {
  return address + view.Entry(EntryIndex(LinearAddr(address)));
}

struct Mapped : M {
  std::vector<u64> pages;
  Mapped() {
    // Windows' first and last pages, ROM, a hole; at both ends of both halves.
    const u64 frames[] = {0,     kRamBytes - kPageSize, kRomBase, kRomBase + kRomBytes - kPageSize,
                          kHole, 0xfffffff000};
    const u64 tops[] = {0, 0x7ffffffff000 - 0x6000, 0xffff800000000000, 0xfffffffffffff000 - 0x6000,
                        0x123456789000};
    for (u64 top : tops) {
      for (u64 i = 0; i < std::size(frames); ++i) {
        pages.push_back(top + i * kPageSize);
        Map(pages.back(), frames[i], kUsed);
      }
      pages.push_back(top + std::size(frames) * kPageSize);  // absent
    }
    EnterLongMode();
  }
};

TEST_CASE("every address class through every kind of entry ends where it may", "[safety]") {
  Mapped m;
  for (u8 cpl : {0, 3}) {
    m.SetCpl(cpl);
    // Before anything is filled, and after.
    for (int round = 0; round < 2; ++round) {
      View& view = m.mmu->current_view();
      for (u64 page : m.pages) {
        for (u64 high = 0; high < 65536; high += round == 0 ? 257 : 1) {
          const u64 address = (page & 0xffffffffffff) | high << 48;
          for (u64 offset : {u64{0}, u64{1}, u64{4032}, u64{4095}}) {
            const u64 host = HostOf(view, address + offset);
            // 64 bytes is the largest single access; FXSAVE and XSAVE take up to a page.
            for (unsigned size : {1u, 8u, 64u, 4096u}) {
              for (bool store : {false, true}) {
                if (!Safe(m, host, size, store)) {
                  CAPTURE(address, offset, size, store);
                  FAIL("reaches the VMM");
                }
              }
            }
            if (!IsCanonical(address) && IsCanonical(host)) FAIL("not refused by the host");
          }
        }
      }
      for (u64 page : m.pages) {
        m.Resolve(page, false);
        m.Resolve(page, true);
      }
    }
  }
}

TEST_CASE("closed SMAP reaches no user page, whatever open views and user views hold", "[safety]") {
  Mapped m;
  m.state->cr4 |= vcpu::kCr4Smap;
  m.mmu->PagingModeChanged();
  std::mt19937_64 random(5);
  constexpr u64 kRoots[] = {M::kRoot, M::kRoot | 0x123, M::kRoot | 0xfff};  // PCIDs of one root
  for (unsigned step = 0; step < 5000; ++step) {
    m.state->cpl = random() % 2 ? 3 : 0;
    m.state->system_flags = random() % 2 ? vcpu::kAc : 0;
    m.state->cr3 = kRoots[random() % 3];
    m.mmu->AddressSpaceLoaded();
    const u64 page = m.pages[random() % m.pages.size()];
    const bool write = random() % 2;
    const bool closed = m.state->cpl == 0 && m.state->system_flags == 0;
    const Resolution resolution = m.Resolve(page, write);
    if (closed) REQUIRE(resolution == Resolution::kGuestFault);
    if (step % 64 != 0) continue;
    m.state->cpl = 0;
    m.state->system_flags = 0;
    m.mmu->PrivilegeChanged();
    for (u64 at : m.pages) REQUIRE(m.InGuard(m.HostOf(at)));
    u64 value;
    for (u64 at : m.pages) {
      REQUIRE_FALSE(m.mmu->Read(LinearAddr(at), &value, 8, vcpu::Privilege::kSupervisor, &m.fault));
    }
  }
}

TEST_CASE("hostile addresses in the VMM's own accesses: a fault or a verdict, never a crash",
          "[safety]") {
  Mapped m;
  std::mt19937_64 random(3);
  std::vector<u8> data(kPageSize, 0x5a);
  for (unsigned step = 0; step < 200000; ++step) {
    u64 address = random();
    switch (random() % 4) {
      case 0:
        address = m.pages[random() % m.pages.size()] + random() % kPageSize;
        break;
      case 1:
        address = (m.pages[random() % m.pages.size()] + random() % kPageSize) ^
                  u64 { 1 } << (random() % 64);
        break;
      case 2:
        address = 0 - random() % 5000;  // wraps round the top
        break;
    }
    const unsigned size = 1 + static_cast<unsigned>(random() % (random() % 8 == 0 ? 4096 : 64));
    if (step % 1000 == 0) m.SetCpl(random() % 2 ? 3 : 0);
    const bool write = random() % 2;
    const Resolution resolution = m.mmu->ResolveAccess(LinearAddr(address), size, write, &m.fault);
    if (!IsCanonical(address)) REQUIRE(resolution == Resolution::kSimulate);
    const bool done =
        write
            ? m.mmu->Write(LinearAddr(address), data.data(), size, vcpu::Privilege::kCpl, &m.fault)
            : m.mmu->Read(LinearAddr(address), data.data(), size, vcpu::Privilege::kCpl, &m.fault);
    if (!IsCanonical(address)) REQUIRE_FALSE(done);
    PhysAddr pa;
    m.mmu->Fetch(LinearAddr(address), &pa, &m.fault);
    m.mmu->DebugRead(LinearAddr(address), data.data(), size);
    m.mmu->FillSlot(write, static_cast<unsigned>(random()), LinearAddr(address));
  }
  CHECK_FALSE(m.Resolve(0x800000000000, false) == Resolution::kFilled);
  // Across the end of the lower half: the second page is not addressable.
  u64 value = 0;
  CHECK_FALSE(m.Read64(0x7ffffffffffc, &value));
}

TEST_CASE("page-table contents are attacks too", "[safety]") {
  // Tables of random bits, leading anywhere, themselves included; all accesses must come back.
  for (u64 seed = 1; seed <= 20; ++seed) {
    M m;
    std::mt19937_64 random(seed);
    for (u64 page = 1; page < 32; ++page) {
      for (u64 i = 0; i < 512; ++i) {
        u64 entry = random();
        if (random() % 4 != 0) entry = (entry & 0x1ffff) | kUsed;
        m.Host(page * kPageSize)[i] = entry;
      }
    }
    const int mode = static_cast<int>(seed % 3);
    if (mode == 0) m.EnterLongMode();
    if (mode == 1) m.Enter32Bit(0x1000, false);
    if (mode == 2) m.Enter32Bit(0x1000, true);
    for (unsigned step = 0; step < 3000; ++step) {
      u64 address = random();
      if (mode == 0) address = static_cast<u64>(static_cast<i64>(address << 16) >> 16);
      if (mode != 0) address &= 0xffffffff;
      u64 value = random();
      switch (random() % 4) {
        case 0:
          m.Resolve(address, random() % 2);
          break;
        case 1:
          m.Write64(address, value);
          break;
        case 2:
          m.Read64(address, &value);
          break;
        default:
          m.SetCpl(random() % 2 ? 3 : 0);
      }
      View& view = m.mmu->current_view();
      REQUIRE(Safe(m, HostOf(view, address), 64, false));
      REQUIRE(Safe(m, HostOf(view, address), 64, true));
    }
  }
}

sigjmp_buf g_back;
volatile u64 g_fault_address;

void OnFault(int, siginfo_t* info, void*) {
  g_fault_address = reinterpret_cast<u64>(info->si_addr);
  siglongjmp(g_back, 1);
}

// The emitted sequence itself, on the host.
bool LoadFaults(HostAddr gs_base, u64 address) {
  if (sigsetjmp(g_back, 1) != 0) return true;
  const u64 index = (address >> 12) & (kShadowEntries - 1);
  const u64 entry = gs_base.As<const volatile u64>()[index];
  [[maybe_unused]] const u8 byte = *reinterpret_cast<const volatile u8*>(address + entry);
  return false;
}

TEST_CASE("the host's hardware agrees", "[safety]") {
  Mapped m;
  struct sigaction action = {}, old_segv, old_bus;
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &old_segv);
  sigaction(SIGBUS, &action, &old_bus);
  const HostAddr base = m.mmu->gs_base();
  for (u64 page : m.pages) {
    // A chunk that was never touched faults at the table, inside the view.
    if (!m.mmu->current_view().ChunkReady(EntryIndex(LinearAddr(page)))) {
      CHECK(LoadFaults(base, page));
      CHECK(HostAddr(g_fault_address) - base < kShadowTableBytes);
    }
    const bool filled = m.Resolve(page, false) == Resolution::kFilled;
    CHECK(LoadFaults(base, page) == !filled);
    if (!filled) CHECK(m.InGuard(HostAddr(g_fault_address)));
    for (u64 high : {u64{1}, u64{0x7fff}, u64{0x8000}, u64{0xfffe}}) {
      CHECK(LoadFaults(base, page ^ high << 48));
    }
  }
  sigaction(SIGSEGV, &old_segv, nullptr);
  sigaction(SIGBUS, &old_bus, nullptr);
}

}  // namespace
}  // namespace alibi::mmu
