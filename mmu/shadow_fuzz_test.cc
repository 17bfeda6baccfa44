// SPDX-License-Identifier: Apache-2.0
// Random page-table stores, accesses, fetches, traces and mode changes, against a reference that
// walks its own copy of memory. After every step memory (A and D bits included) and every shadow
// entry, inline TLB entry and jump-table entry of every view must be what the reference allows:
// what its tables say now, or, under a coherence strategy that leaves it to the guest's TLB
// flushes, what they have said since the flush that would have made it invalid.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;
using vcpu::GuestFault;
using vcpu::Privilege;

constexpr u64 kTablePages = 16;  // pages 0..15 hold tables, and are guest memory like any other
constexpr u64 kPages = 64;       // pages the tables name
constexpr u64 kStep = 8;
// Of the pages that mostly hold tables of level 1 and upwards; the last are the roots.
constexpr u64 kFirstOf[] = {11, 7, 4, 1};

struct ReferenceAccess {
  bool write, fetch, user, smap_open;
};

// The manual, once more and straightforwardly; shares nothing with page_walker.cc.
class Reference {
 public:
  std::vector<u8> ram = std::vector<u8>(M::kRamBytes);
  PagingMode mode;
  u64 root = 0;
  u64 pdpte[4] = {};  // PAE: as loaded
  bool wp = false, nxe = false, smep = false, smap = false, pse = false;

  struct Path {
    bool mapped = false;
    u32 code = 0;
    u64 pa = 0;
    bool accessed = true;  // A set wherever there is an A
    bool dirty = false;
    bool may_write = false, user_page = false, may_execute = false;
    std::vector<u64> entries;  // addresses with A
    u64 leaf = 0;
    unsigned shift = 0;  // of the page's size
    bool global = false;
  };

  u64 Load(u64 pa, unsigned bytes) const {
    u64 value = ~u64{0};
    if (pa + bytes <= ram.size()) {
      value = 0;
      std::memcpy(&value, &ram[pa], bytes);
    }
    return bytes == 4 ? value & 0xffffffff : value;
  }
  void Or(u64 pa, u64 bits) {
    if (pa < ram.size()) ram[pa] |= static_cast<u8>(bits);
  }

  Path Walk(u64 linear, const ReferenceAccess& access) const {
    Path path;
    const u32 who = (access.write ? 2 : 0) | (access.user ? 4 : 0) |
                    (access.fetch && (smep || (nxe && mode != PagingMode::k32Bit)) ? 16 : 0);
    const unsigned bytes = mode == PagingMode::k32Bit ? 4 : 8;
    const int levels = mode == PagingMode::k32Bit ? 2 : mode == PagingMode::kPae ? 3 : 4;
    const u64 frame_mask = bytes == 4 ? 0xfffff000 : 0x000ffffffffff000;
    u64 table = root;
    bool w = true, u = true, x = true;
    for (int level = levels; level >= 1; --level) {
      const unsigned shift = bytes == 4 ? 12 + 10 * (level - 1) : 12 + 9 * (level - 1);
      const u64 slots = bytes == 4 ? 1024 : (levels == 3 && level == 3) ? 4 : 512;
      const u64 at = table + ((linear >> shift) & (slots - 1)) * bytes;
      const bool is_pdpte = levels == 3 && level == 3;
      const u64 e = is_pdpte ? pdpte[linear >> 30 & 3] : Load(at, bytes);
      if (!(e & 1)) {
        path.code = who;
        return path;
      }
      const bool large = level > 1 && !is_pdpte && (e & 0x80) &&
                         ((bytes == 4 && pse) || (bytes == 8 && level <= 3));
      u64 reserved = 0;
      if (bytes == 8) {
        reserved = levels == 4 ? 0x000fff0000000000 : 0x7fffff0000000000;
        if (!nxe) reserved |= u64{1} << 63;

        if (level == 4) reserved |= 0x80;
        if (large) reserved |= level == 2 ? 0x1fe000 : 0x3fffe000;
      } else if (large) {
        reserved = 0x200000;
      }
      if (e & reserved) {
        path.code = who | 1 | 8;
        return path;
      }
      if (!is_pdpte) {
        path.entries.push_back(at);
        path.accessed &= (e & 0x20) != 0;
        w &= (e & 2) != 0;
        u &= (e & 4) != 0;
        x &= !(bytes == 8 && (e >> 63));
      }
      if (level == 1 || large) {
        u64 frame = e & frame_mask & ~((u64{1} << shift) - 1);
        if (large && bytes == 4) frame |= ((e >> 13) & 0xff) << 32;
        path.pa = frame | (linear & ((u64{1} << shift) - 1));
        path.dirty = e & 0x40;
        path.leaf = at;
        path.shift = shift;
        path.global = e & 0x100;
        break;
      }
      table = e & frame_mask;
    }
    path.may_write = access.user ? w : w || !wp;
    path.user_page = u;
    path.may_execute = x;
    bool allowed;
    if (access.user) {
      allowed = u && (!access.write || w) && (!access.fetch || x);
    } else if (access.fetch) {
      allowed = x && !(u && smep);
    } else {
      allowed = !(u && smap && !access.smap_open) && (!access.write || w || !wp);
    }
    path.mapped = allowed;
    if (!allowed) path.code = who | 1;
    return path;
  }
  void Mark(const Path& path, bool write) {
    for (u64 at : path.entries) Or(at, 0x20);
    if (write) Or(path.leaf, 0x40);
  }
};

class Fuzzer {
 public:
  Fuzzer(PagingMode mode, Coherence coherence, u64 seed)
      : m_(6, coherence), mode_(mode), coherence_(coherence), random_(seed) {
    m_.memory->set_mmio_handler(nullptr);
    for (u64 page = 0; page < kPages; ++page) {
      for (u64 i = 0; i < 512; ++i) m_.Host(page * kPageSize)[i] = 0;
    }
    for (u64 page = 1; page < kTablePages; ++page) {
      for (u64 slot : Slots()) {
        PlainStore(page * kPageSize + slot * EntryBytes(), RandomEntry(page));
      }
    }
    std::memcpy(reference_.ram.data(), m_.Host(0), M::kRamBytes);
    reference_.mode = mode;
    SwitchRoot();
    RandomMode();
  }

  void Run(unsigned steps) {
    for (unsigned step = 0; step < steps; ++step) {
      CAPTURE(step);
      switch (Pick(22)) {
        case 0:
          SwitchRoot();
          break;
        case 1:
          RandomMode();
          break;
        case 2:
          Trace();
          break;
        case 3:
        case 4:
          Fetch();
          break;
        case 5:
        case 6:
        case 7:
        case 8:
          DmaEntry();
          break;
        case 9:
        case 10:
        case 11:
        case 12:
          Access();
          break;
        case 20:
          InvalidatePage();
          break;
        case 21:
          if (Pick(4) == 0) InvalidateAll();
          break;
        default:
          Resolve();
      }
      REQUIRE(std::memcmp(m_.Host(0), reference_.ram.data(), kPages * kPageSize) == 0);
      Remember();
      if (past_count_ > kMaxPasts) InvalidateAll();
      if (step % kStep == 0) CheckViews();
    }
    CheckViews();
    REQUIRE(std::memcmp(m_.Host(0), reference_.ram.data(), M::kRamBytes) == 0);
    // The run must have been about something.
    const Counters& counters = m_.mmu->counters();
    CHECK(counters.hidden_faults > steps / 100);
    CHECK(counters.true_faults > steps / 100);
    CHECK(counters.demotions > 0);
    if (coherence_ == Coherence::kDropped) {
      CHECK(counters.pte_updates == 0);
    } else {
      CHECK(counters.pte_updates > steps / 200);
      CHECK(counters.range_poisons > 0);
    }
    CHECK((counters.table_resyncs > steps / 1000) == (coherence_ == Coherence::kDeferred));
    CHECK((counters.tlb_flushes > steps / 1000) == (coherence_ != Coherence::kEager));
    CHECK((stale_ > 0) == (coherence_ != Coherence::kEager));
  }

 private:
  u64 Pick(u64 below) { return random_() % below; }
  unsigned EntryBytes() const { return mode_ == PagingMode::k32Bit ? 4 : 8; }
  std::vector<u64> Slots() const {
    if (mode_ == PagingMode::k32Bit) return {0, 1, 2, 3, 1023};
    return {0, 1, 2, 3, 256, 511};
  }
  u64 AnySlot() {
    const auto slots = Slots();
    return slots[Pick(slots.size())];
  }

  // For the table in a page. Mostly entries lead to tables of the next level, so that walks get
  // somewhere and some tables are leaves only; leaves' lead to tables half the time.
  u64 RandomEntry(u64 table) {
    const u64 levels = mode_ == PagingMode::k32Bit ? 2 : mode_ == PagingMode::kPae ? 3 : 4;
    u64 page = Pick(2) != 0 ? Pick(kPages) : 1 + Pick(kTablePages - 1);
    for (u64 below = 0; below + 1 < levels && Pick(8) != 0; ++below) {
      const u64 end = below == 0 ? kTablePages : kFirstOf[below - 1];
      const u64 first_above = below + 2 == levels ? 1 : kFirstOf[below + 1];
      if (table < first_above || table >= kFirstOf[below]) continue;
      page = kFirstOf[below] + Pick(end - kFirstOf[below]);
    }
    u64 entry = page * kPageSize;
    if (Pick(40) == 0) entry = M::kHole;
    entry |= M::kP;
    for (u64 bit : {M::kW, M::kU, M::kA, M::kD}) {
      if (Pick(5) != 0) entry |= bit;
    }
    if (Pick(8) == 0) entry &= ~M::kP;
    if (Pick(12) == 0) entry = (entry & 0xfff) | M::kPs;  // frame 0
    if (Pick(12) == 0) entry |= u64{1} << (8 + Pick(4));
    if (EntryBytes() == 8) {
      if (Pick(10) == 0) entry |= M::kNx;
      if (Pick(30) == 0) entry |= u64{1} << (40 + Pick(12));
      if (Pick(30) == 0) entry |= u64{1} << (52 + Pick(11));
    }
    return entry;
  }
  void PlainStore(u64 pa, u64 value) {
    std::memcpy(m_.memory->HostRw(PhysAddr(pa)), &value, EntryBytes());
  }

  u64 RandomLinear() {
    u64 linear = 0;
    switch (mode_) {
      case PagingMode::k4Level:
        linear = AnySlot() << 39 | AnySlot() << 30 | AnySlot() << 21 | AnySlot() << 12;
        linear = static_cast<u64>(static_cast<i64>(linear << 16) >> 16);
        break;
      case PagingMode::kPae:
        linear = Pick(4) << 30 | AnySlot() << 21 | AnySlot() << 12;
        break;
      default:
        linear = AnySlot() << 22 | AnySlot() << 12;
    }
    return linear | (Pick(2) != 0 ? AnySlot() * EntryBytes() : Pick(kPageSize));
  }
  // Of a page that can be written and probably is a leaf table, if one is soon found.
  u64 LinearOfLeafTable() {
    u64 linear = 0;
    for (unsigned attempt = 0; attempt < 100; ++attempt) {
      linear = RandomLinear();
      const auto path = reference_.Walk(linear, AccessNow(true, false));
      if (path.mapped && path.pa / kPageSize >= kFirstOf[0] && path.pa / kPageSize < kTablePages) {
        break;
      }
    }
    return linear;
  }
  u64 Wrap(u64 linear) const { return mode_ == PagingMode::k4Level ? linear : linear & 0xffffffff; }

  void SwitchRoot() {
    u64 root = (1 + Pick(3)) * kPageSize;
    if (mode_ == PagingMode::kPae) {
      // Anywhere, lower tables included.
      root += 32 * Pick(3);
      for (u64 i = 0; i < 4; ++i) {
        const u64 entry = (1 + Pick(kTablePages - 1)) * kPageSize | (Pick(6) != 0);
        if (Pick(3) == 0) Dma(root + 8 * i, &entry, 8);
      }
      u64 pdpte[4];
      bool valid = true;
      for (u64 i = 0; i < 4; ++i) {
        pdpte[i] = reference_.Load(root + 8 * i, 8);
        valid &= !(pdpte[i] & 1) || !(pdpte[i] & 0xffffff00000001e6);
      }
      REQUIRE(m_.mmu->LoadPdptes(root) == valid);
      if (!valid) {
        // MOV to CR3 faults. At first there must be some address space, though.
        if (reference_.root != 0) return;
        std::memset(pdpte, 0, sizeof(pdpte));
        for (u64 i = 0; i < 4; ++i) Dma(root + 8 * i, &pdpte[i], 8);
        REQUIRE(m_.mmu->LoadPdptes(root));
      }
      std::memcpy(reference_.pdpte, pdpte, sizeof(pdpte));
    }
    reference_.root = root;
    m_.state->cr3 = root;
    m_.mmu->AddressSpaceLoaded();
    loaded_ = ++now_;
    AcceptEarlyFlags();
    Remember();
  }
  // At a load of CR3 the root's entries may be fetched, and marked.
  void AcceptEarlyFlags() {
    if (mode_ == PagingMode::kPae) return;
    for (u64 at = reference_.root; at < reference_.root + kPageSize; at += EntryBytes()) {
      const u8 was = reference_.ram[at];
      if ((was & M::kP) && *m_.memory->HostRw(PhysAddr(at)) == (was | M::kA)) {
        reference_.Or(at, M::kA);
      }
    }
  }
  void RandomMode() {
    const bool old_smep = reference_.smep, old_pse = reference_.pse, old_pge = pge_;
    reference_.wp = Pick(3) != 0;
    reference_.smap = Pick(3) == 0;
    reference_.smep = Pick(3) == 0;
    reference_.nxe = mode_ != PagingMode::k32Bit && Pick(4) != 0;
    reference_.pse = mode_ == PagingMode::k32Bit && Pick(2) != 0;
    pge_ = Pick(4) != 0;
    vcpu::VcpuState& state = *m_.state;
    state.cr0 = vcpu::kCr0Pe | vcpu::kCr0Pg | (reference_.wp ? vcpu::kCr0Wp : 0);
    state.cr4 = (mode_ != PagingMode::k32Bit ? vcpu::kCr4Pae : 0) |
                (reference_.pse ? vcpu::kCr4Pse : 0) | (reference_.smep ? vcpu::kCr4Smep : 0) |
                (reference_.smap ? vcpu::kCr4Smap : 0) | (pge_ ? vcpu::kCr4Pge : 0);
    state.efer = (mode_ == PagingMode::k4Level ? vcpu::kEferLme | vcpu::kEferLma : 0) |
                 (reference_.nxe ? vcpu::kEferNxe : 0);
    state.segment[vcpu::kCs].attributes = mode_ == PagingMode::k4Level ? 0x209b : 0x409b;
    state.cpl = Pick(2) != 0 ? 3 : 0;
    state.system_flags = Pick(2) != 0 ? vcpu::kAc : 0;
    m_.mmu->PagingModeChanged();
    if (reference_.smep != old_smep || reference_.pse != old_pse || pge_ != old_pge) {
      InvalidateAll();
    }
  }

  // --- What translations may still be in use ---
  void InvalidatePage() {
    const u64 linear = RandomLinear();
    m_.mmu->InvalidatePage(LinearAddr(linear));
    invalidated_.push_back({++now_, linear});
    Remember();
  }
  void InvalidateAll() {
    m_.mmu->InvalidateAll();
    past_count_ = 0;
    invalidated_.clear();
    Remember();
  }
  // The tables as they are now; call it between changes of memory that follow upon each other.
  void Remember() {
    if (coherence_ == Coherence::kEager) return;
    if (past_count_ == past_.size()) past_.emplace_back();
    Past& past = past_[past_count_++];
    past.time = ++now_;
    past.root = reference_.root;
    std::memcpy(past.pdpte, reference_.pdpte, sizeof(past.pdpte));
    past.ram.assign(reference_.ram.begin(), reference_.ram.begin() + kPages * kPageSize);
  }
  // Looks for a walk that `accept`s in the past, as the view would have made it.
  template <class Accept>
  bool SomeWalk(const View& view, u64 linear, const ReferenceAccess& access, Accept accept) {
    Reference seen = Reference{{}, mode_};
    seen.wp = view.context().write_protect;
    seen.nxe = view.context().no_execute;
    seen.smep = view.context().smep;
    seen.smap = view.context().smap;
    seen.pse = view.context().large_pages && mode_ == PagingMode::k32Bit;
    const auto walks = [&](std::vector<u8>& ram, u64 root, const u64* pdpte,
                           const auto& may_be_used) {
      seen.ram.swap(ram);
      seen.root = root;
      std::memcpy(seen.pdpte, pdpte, sizeof(seen.pdpte));
      const auto path = seen.Walk(linear, access);
      seen.ram.swap(ram);
      return path.mapped && may_be_used(path) && accept(path);
    };
    if (walks(reference_.ram, view.context().root.value, view.context().pdpte,
              [](const Reference::Path&) { return true; })) {
      return true;
    }
    ++stale_;
    for (std::size_t at = past_count_; at-- > 0;) {
      Past* past = &past_[at];
      const auto may_be_used = [&](const Reference::Path& path) {
        const bool kept =
            path.global && pge_ && view.key().follows_root() && coherence_ == Coherence::kDropped;
        if (past->time < loaded_ && !kept) return false;
        for (const Invalidated& one : invalidated_) {
          if (one.time > past->time && one.linear >> path.shift == linear >> path.shift) {
            return false;
          }
        }
        return true;
      };
      if (walks(past->ram, past->root, past->pdpte, may_be_used)) return true;
    }
    return false;
  }

  ReferenceAccess AccessNow(bool write, bool fetch) const {
    const bool user = m_.state->cpl == 3;
    return {write, fetch, user, !user && (m_.state->system_flags & vcpu::kAc)};
  }

  void Dma(u64 pa, const void* data, u64 size) {
    m_.memory->WritePhys(PhysAddr(pa), data, size);
    std::memcpy(&reference_.ram[pa], data, size);
  }
  void DmaEntry() {
    const u64 table = 1 + Pick(kTablePages - 1);
    const u64 pa = table * kPageSize + AnySlot() * EntryBytes();
    u64 value = RandomEntry(table);
    // Often only a bit or two change.
    if (Pick(2) != 0) {
      value = reference_.Load(pa, EntryBytes());
      for (u64 bit : {M::kP, M::kW, M::kU, M::kA, M::kD}) {
        if (Pick(4) == 0) value ^= bit;
      }
    }
    if (Pick(50) == 0) {
      std::vector<u8> page(kPageSize);
      std::memcpy(page.data(), &reference_.ram[pa & ~kPageMask], kPageSize);
      page[pa & kPageMask] ^= 2;
      return Dma(pa & ~kPageMask, page.data(), kPageSize);
    }
    Dma(pa, &value, EntryBytes());
  }

  void Trace() {
    const PhysAddr page(Pick(kPages) * kPageSize);
    if (traced_.count(page.value)) {
      m_.mmu->UntraceCode(page);
      traced_.erase(page.value);
    } else {
      m_.mmu->TraceCode(page);
      traced_.insert(page.value);
    }
  }

  void RequireFault(u64 linear, u32 code) {
    REQUIRE(m_.fault.vector == vcpu::kPageFault);
    REQUIRE(m_.fault.cr2 == linear);
    REQUIRE(m_.fault.error_code == code);
  }

  void Fetch() {
    const u64 linear = RandomLinear();
    const auto path = reference_.Walk(linear, AccessNow(false, true));
    PhysAddr pa;
    View& view = m_.mmu->current_view();
    const PhysPage known = view.ExecutedAs(EntryIndex(LinearAddr(linear)));
    const bool done = m_.mmu->Fetch(LinearAddr(linear), &pa, &m_.fault);
    if (known != View::kNoPage) {
      REQUIRE(done);
      REQUIRE(pa == known.Base() + (linear & kPageMask));
      RequireExecuted(view, linear & ~kPageMask, known.Base().value);
      return;
    }
    REQUIRE(done == path.mapped);
    if (!done) {
      RequireFault(linear, path.code);
      return;
    }
    REQUIRE(pa.value == path.pa);
    reference_.Mark(path, false);
    // The "host address" of the entry is the linear page itself, for CheckViews.
    if (m_.memory->Info(pa) != nullptr) {
      for (const JumpKind kind : kJumpKinds) {
        const HostAddr host(linear & ~kPageMask | 1);
        m_.mmu->current_view().SetJump(LinearAddr(linear), kind, host);
      }
      m_.mmu->current_view().SetConflict(LinearAddr(linear), HostAddr(1));
    }
  }

  void RequireExecuted(const View& view, u64 page, u64 pa) {
    REQUIRE(SomeWalk(view, page, {false, true, view.user(), false},
                     [&](const Reference::Path& path) { return path.pa == pa; }));
  }

  // Where an access of one page goes without a walk, or kNowhere.
  static constexpr u64 kNowhere = ~u64{0};
  u64 KnownTo(View& view, u64 linear, bool write) {
    const View::WriteTarget& target = view.WriteTargetOf(LinearAddr(linear));
    if (write && target.page == LinearAddr(linear).PageBase()) {
      return target.phys.value | (linear & kPageMask);
    }
    const HostAddr host = m_.HostOf(linear);
    if (m_.InRw(host)) return m_.memory->PhysOf(host - m_.memory->rw_base()).value;
    if (m_.InRo(host) && !write) return m_.memory->PhysOf(host - m_.memory->ro_base()).value;
    return kNowhere;
  }

  void Resolve() {
    const u64 linear = RandomLinear();
    const bool write = Pick(2) != 0;
    const unsigned size = 1 + static_cast<unsigned>(Pick(64));
    const auto path = reference_.Walk(linear, AccessNow(write, false));
    const Resolution resolution = m_.mmu->ResolveAccess(LinearAddr(linear), size, write, &m_.fault);
    if ((linear & kPageMask) + size > kPageSize) {
      REQUIRE(resolution == Resolution::kSimulate);
      return;
    }
    REQUIRE((resolution == Resolution::kGuestFault) == !path.mapped);
    if (!path.mapped) {
      RequireFault(linear, path.code);
      return;
    }
    reference_.Mark(path, write);
    const PageInfo* info = m_.memory->Info(PhysAddr(path.pa));
    const bool direct = info != nullptr && (!write || info->flags == 0);
    REQUIRE((resolution == Resolution::kFilled) == direct);
    if (direct) {
      REQUIRE(m_.HostOf(linear) - (write ? m_.memory->rw_base() : m_.memory->ro_base()) <
              (write ? 1 : 2) * m_.memory->capacity());
      if (Pick(4) == 0) {
        REQUIRE(m_.mmu->FillSlot(write, static_cast<unsigned>(Pick(8)), LinearAddr(linear)));
      }
    }
  }

  void Access() {
    static constexpr unsigned kSizes[] = {1, 2, 4, 8, 8, 8, 8, 16, 32, 64, 200};
    const unsigned size = kSizes[Pick(std::size(kSizes))];
    const bool write = Pick(3) != 0;
    u64 linear = write && Pick(2) == 0 ? LinearOfLeafTable() : RandomLinear();
    if (size == 8 && Pick(4) != 0) linear &= ~u64{7};
    u8 data[200], expected[200];
    const u64 first = std::min<u64>(size, kPageSize - (linear & kPageMask));
    const u64 second_at = Wrap(linear + first);
    auto a = reference_.Walk(linear, AccessNow(write, false));
    View& view = m_.mmu->current_view();
    const u64 known = first == size ? KnownTo(view, linear, write) : kNowhere;
    if (known != kNowhere) {
      REQUIRE(SomeWalk(view, linear, AccessNow(write, false), [&](const Reference::Path& path) {
        if (path.pa != known || !path.accessed || (write && !path.dirty)) return false;
        a = path;
        return true;
      }));
    }
    Reference::Path b;
    if (a.mapped && first < size) {
      if (mode_ == PagingMode::k4Level && !IsCanonical(second_at)) return;
      b = reference_.Walk(second_at, AccessNow(write, false));
    }
    const bool ok = a.mapped && (first == size || b.mapped);
    for (unsigned i = 0; i < size; i += 8) {
      const u64 value = RandomEntry(Pick(kTablePages));
      std::memcpy(data + i, &value, std::min<u64>(8, size - i));
    }
    const bool done =
        write ? m_.mmu->Write(LinearAddr(linear), data, size, Privilege::kCpl, &m_.fault)
              : m_.mmu->Read(LinearAddr(linear), data, size, Privilege::kCpl, &m_.fault);
    REQUIRE(done == ok);
    if (!ok) {
      a.mapped ? RequireFault(second_at, b.code) : RequireFault(linear, a.code);
      return;
    }
    if (known == kNowhere) reference_.Mark(a, write);
    if (first < size) reference_.Mark(b, write);
    Remember();
    const u64 pas[] = {a.pa, b.pa};
    const u64 from[] = {0, first}, count[] = {first, size - first};
    for (unsigned part = 0; part < 2; ++part) {
      const bool ram = pas[part] < M::kRamBytes;
      if (count[part] == 0) continue;
      if (write && ram) {
        std::memcpy(&reference_.ram[pas[part]], data + from[part], count[part]);
        Remember();
      } else if (!write && ram) {
        std::memcpy(expected + from[part], &reference_.ram[pas[part]], count[part]);
      } else if (!write) {
        std::memset(expected + from[part],
                    pas[part] >= M::kRomBase && pas[part] < M::kRomBase + M::kRomBytes ? 0 : 0xff,
                    count[part]);
      }
    }
    if (!write) REQUIRE(std::memcmp(data, expected, size) == 0);
  }

  // All linear pages that RandomLinear can name.
  const std::vector<u64>& LinearPages() {
    if (!pages_.empty()) return pages_;
    const auto slots = Slots();
    for (u64 i1 : slots) {
      for (u64 i2 : slots) {
        if (mode_ == PagingMode::k32Bit) {
          pages_.push_back(i2 << 22 | i1 << 12);
          continue;
        }
        for (u64 i3 : slots) {
          if (mode_ == PagingMode::kPae) {
            if (i3 < 4) pages_.push_back(i3 << 30 | i2 << 21 | i1 << 12);
            continue;
          }
          for (u64 i4 : slots) {
            const u64 linear = i4 << 39 | i3 << 30 | i2 << 21 | i1 << 12;
            pages_.push_back(static_cast<u64>(static_cast<i64>(linear << 16) >> 16));
          }
        }
      }
    }
    return pages_;
  }

  void CheckViews() {
    for (unsigned id = 0; id < m_.mmu->views().count(); ++id) {
      View& view = m_.mmu->views()[id];
      if (view.key().mode() != mode_) continue;
      const bool runs = view.context().root.value == reference_.root;
      if (runs) {
        REQUIRE(std::memcmp(view.context().pdpte, reference_.pdpte, sizeof(reference_.pdpte)) == 0);
      }
      CAPTURE(id);
      // The other ones' flush comes with their CR3.
      if (runs || coherence_ == Coherence::kEager) {
        for (u64 page : LinearPages()) CheckEntry(view, page);
      }
      CheckSlots(view);
      CheckJumps(view);
    }
  }
  void CheckEntry(const View& view, u64 page) {
    const u64 index = EntryIndex(LinearAddr(page));
    const HostAddr host = view.HostOf(LinearAddr(page));
    const ReferenceAccess load{false, false, view.user(), !view.smap_closed()};
    if (host != m_.memory->guard()) {
      CAPTURE(page);
      const bool writable = m_.InRw(host);
      REQUIRE((writable || m_.InRo(host)));
      const u64 offset = host - (writable ? m_.memory->rw_base() : m_.memory->ro_base());
      const u64 pa = m_.memory->PhysOf(offset).value;
      if (writable) REQUIRE(m_.memory->InfoAt(offset).flags == 0);
      Reference::Path path;
      REQUIRE(SomeWalk(view, page, load, [&](const Reference::Path& one) {
        path = one;
        return one.pa == pa && one.accessed && (!writable || (one.dirty && one.may_write));
      }));
      for (u64 entry : path.entries) {
        if (entry >= M::kRamBytes) continue;
        const PageInfo& info = *m_.memory->Info(PhysAddr(entry));
        REQUIRE((info.table_chain != 0) == (coherence_ != Coherence::kDropped));
        const bool traced = info.flags & kPageTableTrace;
        if (coherence_ != Coherence::kDeferred) REQUIRE(traced == (info.table_chain != 0));
      }
    }
    const PhysPage executed = view.ExecutedAs(index);
    if (executed != View::kNoPage) RequireExecuted(view, page, executed.Base().value);
  }
  void CheckSlots(View& view) {
    const auto* slots = (view.gs_base() + kSlotsOffset).As<InlineTlbEntry>();
    for (int i = 0; i < 2 * kSlotCount; ++i) {
      if (slots[i].neg_page == InlineTlbEntry::Empty().neg_page) continue;
      const u64 page = 0 - slots[i].neg_page;
      REQUIRE(slots[i].displacement == view.Entry(EntryIndex(LinearAddr(page))));
      const HostAddr host(page + slots[i].displacement);
      REQUIRE((m_.InRw(host) || (i < kSlotCount && m_.InRo(host))));
    }
  }
  void CheckJumps(View& view) {
    const auto* jumps = (view.gs_base() + kJumpTableOffset).As<u64>();
    for (int i = 0; i < kJumpTableEntries; ++i) {
      if (jumps[i] == reinterpret_cast<u64>(&M::kDefaultJump)) continue;
      REQUIRE(view.ExecutedAs(EntryIndex(LinearAddr(jumps[i] - 1))) != View::kNoPage);
    }
    const auto* conflicts = (view.gs_base() + kConflictTableOffset).As<ConflictEntry>();
    for (u64 i = 0; i < ConflictEntry::kPages * ConflictEntry::kPerPage; ++i) {
      const LinearAddr pc(0 - conflicts[i].negated);
      if (ConflictEntry::IndexOf(pc) != i) continue;
      REQUIRE(view.ExecutedAs(EntryIndex(pc)) != View::kNoPage);
    }
  }

  // The tables as they once were.
  struct Past {
    u64 time, root;
    u64 pdpte[4];
    std::vector<u8> ram;
  };
  struct Invalidated {
    u64 time, linear;
  };
  static constexpr std::size_t kMaxPasts = 100;

  M m_;
  PagingMode mode_;
  Coherence coherence_;
  bool pge_ = false;
  u64 now_ = 0;
  u64 loaded_ = 0;          // the time of CR3's last load
  u64 stale_ = 0;           // translations in use that the tables do not give any more
  std::vector<Past> past_;  // the first past_count_ of them
  std::size_t past_count_ = 0;
  std::vector<Invalidated> invalidated_;
  std::mt19937_64 random_;
  Reference reference_;
  std::set<u64> traced_;
  std::vector<u64> pages_;
};

// --- What the fuzzer found, each as a test of its own ---

constexpr u64 kAll = M::kP | M::kW | M::kU;

TEST_CASE("found: error codes of a user view follow CR4.SMEP of now, not of its creation",
          "[mmu][fuzz]") {
  M m;
  m.EnterLongMode();
  m.state->efer &= ~vcpu::kEferNxe;
  m.mmu->PagingModeChanged();
  m.SetCpl(3);
  PhysAddr pa;
  for (u64 smep : {u64{0}, vcpu::kCr4Smep, u64{0}}) {
    m.state->cr4 = vcpu::kCr4Pae | smep;
    m.mmu->PagingModeChanged();
    REQUIRE_FALSE(m.mmu->Fetch(LinearAddr(0x5000), &pa, &m.fault));
    CHECK(m.fault.error_code == (vcpu::kPfUser | (smep != 0 ? vcpu::kPfFetch : 0)));
  }
}

// ALIBI_FUZZ_STEPS and ALIBI_FUZZ_SEED make a long run by hand.
u64 FromEnvironment(const char* name, u64 otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

TEST_CASE("the shadow against a reference", "[mmu][fuzz]") {
  const PagingMode mode = GENERATE(PagingMode::k32Bit, PagingMode::kPae, PagingMode::k4Level);
  const Coherence coherence =
      GENERATE(Coherence::kEager, Coherence::kDeferred, Coherence::kDropped);
  const u64 seed = FromEnvironment("ALIBI_FUZZ_SEED", 1) * 1000 + GENERATE(1, 2, 3, 4);
  CAPTURE(static_cast<int>(mode), NameOf(coherence), seed);
  Fuzzer fuzzer(mode, coherence, seed);
  fuzzer.Run(static_cast<unsigned>(FromEnvironment("ALIBI_FUZZ_STEPS", 6000)));
}

}  // namespace
}  // namespace alibi::mmu
