// SPDX-License-Identifier: Apache-2.0
// Two Mmus over one memory: what one of them traces and stores, and what the other one hears of it.
#include "mmu/beside.h"

#include <catch2/catch.hpp>
#include <vector>

#include "mmu/test_two_cpus.h"

namespace alibi::mmu {
namespace {

TEST_CASE("A trace takes the page from another VCPU that could store to it, once it has stopped") {
  TwoCpus both;
  REQUIRE(both.b->Resolve(kLinear, true) == Resolution::kFilled);
  REQUIRE(both.b->CanStore(kLinear));
  both.stopped.clear();
  both.a->mmu->TraceCode(PhysAddr(kPage));
  CHECK(both.stopped == std::vector<unsigned>{1});
  CHECK_FALSE(both.b->CanStore(kLinear));
  CHECK(both.FlagsOf(*both.b, kPage) == kTracedElsewhere);
  // It does not get the page back by itself: its stores are told to the one that traces.
  CHECK(both.b->Resolve(kLinear, true) == Resolution::kSimulate);

  SECTION("and gives it back") {
    both.a->mmu->UntraceCode(PhysAddr(kPage));
    CHECK(both.FlagsOf(*both.b, kPage) == 0);
    CHECK(both.b->Resolve(kLinear, true) == Resolution::kFilled);
    CHECK(both.b->CanStore(kLinear));
  }
  SECTION("unless it traces the page itself, too") {
    both.b->mmu->TraceCode(PhysAddr(kPage));
    CHECK(both.FlagsOf(*both.a, kPage) == (kCodeTrace | kTracedElsewhere));
    both.a->mmu->UntraceCode(PhysAddr(kPage));
    CHECK(both.FlagsOf(*both.a, kPage) == kTracedElsewhere);
    CHECK(both.FlagsOf(*both.b, kPage) == kCodeTrace);
  }
}

TEST_CASE("Nobody is stopped for a page that no other VCPU can store to") {
  TwoCpus both;
  REQUIRE(both.b->Resolve(kLinear, false) == Resolution::kFilled);
  const auto before = both.stopped;
  both.a->mmu->TraceCode(PhysAddr(kOther));
  CHECK(both.stopped == before);
}

TEST_CASE("A store to a leaf table is news to the other VCPU, which is its TLB until it hears") {
  TwoCpus both;
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    REQUIRE(cpu->Resolve(kLinear, false) == Resolution::kFilled);
  }
  const u64 before = both.b->HostOf(kLinear);
  both.stopped.clear();
  REQUIRE(both.a->Write(kTableAlias, kOther | kUsed));
  CHECK(*both.Host(kLeaf) == (kOther | kUsed));
  CHECK(both.a->HostOf(kLinear) != before);
  CHECK(both.b->HostOf(kLinear) == before);
  CHECK(both.stopped.empty());
  both.b->mmu->HearNews();
  CHECK(both.b->HostOf(kLinear) == both.a->HostOf(kLinear));
  CHECK(both.b->mmu->counters().beside_table_news == 1);
}

TEST_CASE("With more news than there is room for, the other VCPU is stopped and hears them") {
  TwoCpus both;
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    REQUIRE(cpu->Resolve(kLinear, false) == Resolution::kFilled);
  }
  both.stopped.clear();
  for (u64 i = 0; i <= kMaxTableNews; ++i) {
    REQUIRE(both.a->Write(kTableAlias, (i % 2 == 0 ? kOther : kPage) | kUsed));
  }
  CHECK(both.stopped == std::vector<unsigned>{1});
  both.b->mmu->HearNews();
  CHECK(both.b->HostOf(kLinear) == both.a->HostOf(kLinear));
}

TEST_CASE("A load of CR3 that another VCPU makes by itself does not pass news by") {
  TwoCpus both;
  constexpr u64 kSecond = 0x5000;
  both.Host(kSecond)[0] = kPdpt | kUsed;
  Cpu& b = *both.b;
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    REQUIRE(cpu->Resolve(kLinear, false) == Resolution::kFilled);
  }
  const HostAddr first = b.mmu->gs_base();
  for (const u64 root : {kSecond, kRoot, kSecond}) {
    b.state->cr3 = root;
    b.mmu->AddressSpaceLoaded();
  }
  const auto fits = [&](u64 cr3) {
    const RootPeer& peer = RootPeerOf(first);
    return peer.mask != 0 && peer.negated + cr3 == 0;
  };
  REQUIRE(fits(kSecond));
  REQUIRE(both.a->Write(kTableAlias, kOther | kUsed));
  CHECK_FALSE(fits(kSecond));
}

TEST_CASE("A store above the leaves stops whoever shadows the table, and is followed at once") {
  TwoCpus both;
  constexpr u64 kLeaf2 = 0x6000;
  both.Host(kLeaf2)[0] = kOther | kUsed;
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    REQUIRE(cpu->Resolve(kLinear, false) == Resolution::kFilled);
  }
  both.stopped.clear();
  REQUIRE(both.a->Write(kDirectoryAlias, kLeaf2 | kUsed));
  CHECK(both.stopped == std::vector<unsigned>{1, 1});  // behind the store it is still so
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    REQUIRE(cpu->Resolve(kLinear, false) == Resolution::kFilled);
    CHECK(cpu->PageAt(kLinear) == kOther);
    // The old table is none any more, for either.
    CHECK((both.FlagsOf(*cpu, kLeaf) & kPageTableTrace) == 0);
  }
}

TEST_CASE("A device's large store over a table makes it data for all") {
  TwoCpus both;
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    REQUIRE(cpu->Resolve(kLinear, false) == Resolution::kFilled);
  }
  const std::vector<u8> zeros(4096);
  both.memory->WritePhys(PhysAddr(kLeaf), zeros.data(), zeros.size());
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    CHECK(cpu->Resolve(kLinear, false) == Resolution::kGuestFault);
  }
}

TEST_CASE("Nothing is stored to code before its VCPU has stopped, which hears at a boundary") {
  TwoCpus both;
  both.b->mmu->TraceCode(PhysAddr(kPage));
  both.stopped.clear();
  REQUIRE(both.a->Write(kLinear, 1));
  CHECK(both.stopped == std::vector<unsigned>{1});
  CHECK(both.attended == std::vector<unsigned>{1});
  both.b->mmu->HearNews();
  CHECK(both.b->code.empty());
  both.b->mmu->HearCodeNews();
  REQUIRE(both.b->code.size() == 1);
  CHECK(both.b->code[0].address == PhysAddr(kPage));
  CHECK(both.b->code[0].size == 8);
  // Beyond what there is room for, all is new.
  for (u64 i = 0; i <= kMaxCodeNews; ++i) REQUIRE(both.a->Write(kLinear, i));
  both.b->mmu->HearCodeNews();
  CHECK(both.b->code.size() == 1);
  CHECK(both.b->map_changes == 1);
}

struct LooksAtSlots : TwoCpus {
  void StopBeside(unsigned vcpu) override {
    slot_was_there.push_back(memory->IsBacked(PhysAddr(0x8000000), 1));
    TwoCpus::StopBeside(vcpu);
  }
  std::vector<bool> slot_was_there;
};

TEST_CASE("A slot that comes or goes is everybody's") {
  LooksAtSlots both;
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    REQUIRE(cpu->Resolve(kLinear, false) == Resolution::kFilled);
  }
  both.stopped.clear();
  both.slot_was_there.clear();
  // By the second VCPU: slots are the first one's.
  both.has_machine[0] = false;
  REQUIRE(both.share->AddSlot(PhysAddr(0x8000000), 0x2000, true).ok());
  CHECK(both.takes == 0);
  CHECK(both.stopped == std::vector<unsigned>{0, 1});
  // Nobody looks at the slots while they change.
  CHECK(both.slot_was_there == std::vector<bool>{false, false});
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    CHECK(cpu->map_changes == 1);
    CHECK(both.FlagsOf(*cpu, 0x8000000) == kRomPage);
    CHECK(both.FlagsOf(*cpu, kLeaf) == 0);
  }
  REQUIRE(both.memory->RemoveSlot(PhysAddr(0x8000000)).ok());
  CHECK_FALSE(both.share->IsBacked(PhysAddr(0x8000000), 1));
}

TEST_CASE("A VCPU stores to its page tables without the machine, as long as nobody else does") {
  TwoCpus both;
  REQUIRE(both.b->Resolve(kLinear, false) == Resolution::kFilled);
  both.has_machine[1] = false;
  REQUIRE(both.b->Write(kTableAlias, kOther | kUsed));
  CHECK(both.takes == 0);
  CHECK(both.b->PageAt(kLinear) == kOther);

  SECTION("by a store") { REQUIRE(both.a->Write(kTableAlias, kPage | kUsed)); }
  SECTION("by an atomic instruction, which is going to") {
    both.a->mmu->BeginSharedStore(both.memory->ArenaOffset(PhysAddr(kLeaf)));
  }
  CHECK(both.takes == 0);
  REQUIRE(both.b->Write(kTableAlias, kOther | kUsed));
  CHECK(both.takes == 1);
  // The other's store came before.
  CHECK(both.b->PageAt(kLinear) == kOther);
}

TEST_CASE("An atomic instruction stops who has ceased to trace the page, and has not told yet") {
  TwoCpus both;
  both.b->mmu->TraceCode(PhysAddr(kPage));
  both.has_machine[1] = false;
  both.b->mmu->UntraceCode(PhysAddr(kPage));
  // It may store there as it likes; the other one believes that it may not.
  REQUIRE(both.FlagsOf(*both.b, kPage) == 0);
  REQUIRE(both.FlagsOf(*both.a, kPage) == kTracedElsewhere);
  both.stopped.clear();
  both.a->mmu->BeginSharedStore(both.memory->ArenaOffset(PhysAddr(kPage)));
  CHECK(both.stopped == std::vector<unsigned>{1});
}

TEST_CASE("Flags of page tables that both shadow are set by who has the machine") {
  TwoCpus both;
  for (Cpu* cpu : {both.a.get(), both.b.get()}) {
    REQUIRE(cpu->Resolve(kLinear, false) == Resolution::kFilled);
  }
  REQUIRE(both.a->Write(kTableAlias, kPage | kP | kW | kU));
  both.b->mmu->HearNews();
  both.has_machine[1] = false;
  // Meanwhile the page is another one.
  both.while_waiting = [&] { REQUIRE(both.a->Write(kTableAlias, kOther | kP | kW | kU)); };
  REQUIRE(both.b->Resolve(kLinear, true) == Resolution::kFilled);
  CHECK(both.takes == 1);
  CHECK(*both.Host(kLeaf) == (kOther | kUsed));
  CHECK(both.b->PageAt(kLinear) == kOther);
}

TEST_CASE("Who waits for the machine to trace a table walks once more") {
  TwoCpus both;
  both.has_machine[1] = false;
  both.while_waiting = [&] {
    REQUIRE(both.a->Resolve(kLinear, false) == Resolution::kFilled);
    REQUIRE(both.a->Write(kTableAlias, kOther | kUsed));
  };
  const u64 epoch = both.b->mmu->machine_epoch();
  REQUIRE(both.b->Resolve(kLinear, false) == Resolution::kFilled);
  CHECK(both.takes == 1);
  CHECK(both.b->mmu->machine_epoch() != epoch);
  CHECK(both.b->PageAt(kLinear) == kOther);
}

TEST_CASE("What is traced no more is told when the VCPU has the machine next") {
  TwoCpus both;
  both.a->mmu->TraceCode(PhysAddr(kPage));
  both.has_machine[0] = false;
  both.a->mmu->UntraceCode(PhysAddr(kPage));
  CHECK(both.takes == 0);
  CHECK(both.FlagsOf(*both.b, kPage) == kTracedElsewhere);
  SECTION("and is then so no more") {
    both.a->mmu->TakeMachine();
    CHECK(both.FlagsOf(*both.b, kPage) == 0);
  }
  SECTION("unless it is traced again") {
    both.a->mmu->TraceCode(PhysAddr(kPage));
    CHECK(both.FlagsOf(*both.b, kPage) == kTracedElsewhere);
  }
}

TEST_CASE("Memory may go while a store to it waits for the machine") {
  TwoCpus both;
  const PhysAddr place(0x8000000);
  REQUIRE(both.memory->AddSlot(place, 0x2000).ok());
  both.a->mmu->TraceCode(place);
  both.has_machine[1] = false;
  both.while_waiting = [&] { REQUIRE(both.memory->RemoveSlot(place).ok()); };
  const u64 value = 1;
  both.share->WritePhys(place, &value, sizeof(value));  // to a device that there is not
  CHECK(both.takes == 1);
}

TEST_CASE("More pages than one remembers may be traced no more") {
  TwoCpus both;
  constexpr u64 kFirst = 0x400000;
  for (u64 i = 0; i <= kMaxForgotten; ++i) {
    both.a->mmu->TraceCode(PhysAddr(kFirst + i * kPageSize));
  }
  both.a->mmu->TraceCode(PhysAddr(kPage));
  both.has_machine[0] = false;
  for (u64 i = 0; i <= kMaxForgotten; ++i) {
    both.a->mmu->UntraceCode(PhysAddr(kFirst + i * kPageSize));
  }
  both.a->mmu->TakeMachine();
  for (u64 i = 0; i <= kMaxForgotten; ++i) {
    REQUIRE(both.FlagsOf(*both.b, kFirst + i * kPageSize) == 0);
  }
  CHECK(both.FlagsOf(*both.b, kPage) == kTracedElsewhere);
}

// Random stores to tables and pages, traces and accesses of either VCPU, while the other one has
// not heard of them. Tables are pages, too. Where one has to wait for the machine, the other one
// has it meanwhile.
class Fuzz {
 public:
  explicit Fuzz(u64 seed) : random_(seed) {
    for (Cpu* cpu : cpus_) cpu->EnterLongMode(kRoot);
  }

  void Step() {
    const unsigned number = static_cast<unsigned>(Next(2));
    both_.has_machine[number] = false;
    if (Next(2) != 0) both_.while_waiting = [this, number] { StepOf(1 - number); };
    StepOf(number);
    both_.while_waiting = nullptr;
  }

  // Of each entry: where it leads, and that nobody traces what can be stored to through it.
  void Check() {
    for (Cpu* cpu : cpus_) {
      for (u64 page = 0; page < kPages; ++page) {
        const LinearAddr linear(kLinear + page * kPageSize);
        const HostAddr host = cpu->mmu->current_view().HostOf(linear);
        const u64 offset = host - cpu->memory.ro_base();
        if (offset >= 2 * cpu->memory.capacity()) continue;
        if (host - cpu->memory.rw_base() < cpu->memory.capacity()) {
          const u64 place = host - cpu->memory.rw_base();
          for (Cpu* other : cpus_) REQUIRE((other->memory.InfoAt(place).flags & kOwnTraces) == 0);
        }
        if (HasNews(*cpu)) continue;
        PhysAddr now;
        REQUIRE(cpu->mmu->DebugTranslate(linear, &now));
        REQUIRE(offset % cpu->memory.capacity() == now.value);
      }
    }
  }

 private:
  void StepOf(unsigned number) {
    Cpu& cpu = *cpus_[number];
    cpu.mmu->HearNews();  // it has left guest code
    switch (Next(8)) {
      case 0:
      case 1:
      case 2:
        (void)cpu.Resolve(kLinear + Next(kPages) * kPageSize, Next(2) != 0);
        break;
      case 3:
        Store(cpu, TableOf(Next(3)) + Next(4) * 8, LeafEntry());
        break;
      case 4:
        if (Next(4) == 0) {
          Store(cpu, kPdpt + 8, DirectoryOf(Next(2)) | RandomBits());
        } else {
          Store(cpu, DirectoryOf(Next(2)) + Next(2) * 8, TableOf(Next(3)) | RandomBits());
        }
        break;
      case 5:
        Store(cpu, PageOf(Next(6)) + Next(4) * 8, LeafEntry());
        break;
      case 6:
        if (Next(2) != 0) {
          cpu.mmu->TraceCode(PhysAddr(PageOf(Next(6))));
        } else {
          cpu.mmu->UntraceCode(PhysAddr(PageOf(Next(6))));
        }
        break;
      default:
        cpu.mmu->HearCodeNews();
    }
  }

  static constexpr u64 kPages = 1024;
  static constexpr u64 DirectoryOf(u64 number) { return kDirectory + number * 0x30000; }
  // Leaf tables, and pages that may be any.
  static constexpr u64 TableOf(u64 number) { return kLeaf + number * 0x10000; }
  static constexpr u64 PageOf(u64 number) {
    return number < 3 ? TableOf(number) : kPage + number * kPageSize;
  }

  u64 Next(u64 bound) {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return (random_ >> 33) % bound;
  }
  u64 RandomBits() { return Next(8) == 0 ? 0 : kP | kA | kU | (Next(4) != 0 ? kW | kD : 0); }
  u64 LeafEntry() { return PageOf(Next(6)) | RandomBits(); }
  static void Store(Cpu& cpu, u64 address, u64 value) {
    cpu.memory.WritePhys(PhysAddr(address), &value, 8);
  }
  static bool HasNews(const Cpu& cpu) { return cpu.mmu->has_news(); }

  TwoCpus both_;
  Cpu* cpus_[2] = {both_.a.get(), both_.b.get()};
  u64 random_;
};

TEST_CASE("Whatever two VCPUs do to their tables, each shadow is a TLB of them") {
  for (u64 seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    Fuzz fuzz(seed);
    for (unsigned step = 0; step < 1000; ++step) {
      INFO("step " << step);
      fuzz.Step();
      fuzz.Check();
    }
  }
}

}  // namespace
}  // namespace alibi::mmu
