// SPDX-License-Identifier: Apache-2.0
// Two Mmus over one memory, each used by a thread: what machine/gate.cc does with VCPUs, without
// guest code. Under --config=tsan the sanitizer sees that nobody touches another's without having
// the machine, or without having stopped it.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <utility>

#include "base/turn_lock.h"
#include "mmu/test_two_cpus.h"

namespace alibi::mmu {
namespace {

constexpr unsigned kPages = 8;
constexpr u64 kFirstPage = 0x200000, kFirstIndex = 0x40;
constexpr u64 PageOf(unsigned page) { return kFirstPage + page * kPageSize; }
constexpr u64 LinearOf(unsigned page) { return kLinear + (kFirstIndex + page) * kPageSize; }

// Stopping one waits until it has left guest code.
struct RunningCpus : TwoCpus {
  RunningCpus() {
    for (unsigned page = 0; page < kPages; ++page) {
      Host(kLeaf)[kFirstIndex + page] = PageOf(page) | kUsed;
    }
  }
  void StopBeside(unsigned vcpu) override {
    while (in_guest[vcpu].load()) {
      leave[vcpu].store(true);
      __builtin_ia32_pause();
    }
  }
  void AttendBeside(unsigned vcpu) override { leave[vcpu].store(true); }
  bool HasMachine(unsigned vcpu) override { return !in_guest[vcpu].load(); }
  bool TakeMachine(unsigned vcpu) override {
    in_guest[vcpu].store(false);
    core[vcpu].Unlock();
    Take(vcpu);
    return true;
  }
  void HoldBeside(unsigned vcpu) override { core[vcpu].Lock(); }
  void EndHoldBeside(unsigned vcpu) override { core[vcpu].Unlock(); }
  void Take(unsigned vcpu) {
    machine.Lock();
    Mmu& mmu = *(vcpu == 0 ? a : b)->mmu;
    mmu.HearNews();
    mmu.SettleTraces();
  }
  void Give(unsigned vcpu) {
    if (!HasMachine(vcpu)) return core[vcpu].Unlock();
    in_guest[vcpu].store(true);
    machine.Unlock();
  }
  // Out of guest code, into the core alone.
  void Leave(unsigned vcpu, Cpu& cpu) {
    core[vcpu].Lock();
    cpu.mmu->HearNews();
    if (leave[vcpu].load()) TakeMachine(vcpu);
  }

  TurnLock machine, core[2];
  std::atomic<bool> in_guest[2] = {}, leave[2] = {};
};

// One VCPU's thread. Each stores to a word of its own of every page.
class Worker {
 public:
  Worker(RunningCpus& both, Cpu& cpu, unsigned number)
      : both_(both), cpu_(cpu), number_(number), random_(number + 1) {}

  void Work() {
    both_.Take(number_);
    for (unsigned round = 0; round < 20'000; ++round) {
      both_.leave[number_].store(false);
      cpu_.mmu->HearCodeNews();
      CheckTraced();
      Manage();
      if (both_.leave[number_].load()) cpu_.mmu->TakeMachine();
      both_.Give(number_);
      ExecuteGuestCode();
      both_.Leave(number_, cpu_);
    }
    cpu_.mmu->TakeMachine();
    both_.machine.Unlock();
  }
  unsigned wrong() const { return wrong_; }
  u64 direct_stores() const { return direct_stores_; }

 private:
  unsigned Random(unsigned below) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<unsigned>(random_ % below);
  }

  // Without the machine: stores where the view lets it.
  void ExecuteGuestCode() {
    for (unsigned i = 0; i < 64 && !both_.leave[number_].load(); ++i) {
      const u64 linear = LinearOf(Random(kPages));
      if (!cpu_.CanStore(linear)) continue;
      u64* const word = reinterpret_cast<u64*>(cpu_.HostOf(linear)) + number_;
      __atomic_store_n(word, ++value_, __ATOMIC_RELAXED);
      ++direct_stores_;
    }
  }

  void Manage() {
    const unsigned page = Random(kPages);
    switch (Random(5)) {
      case 0:
        if (traced_[page]) break;
        cpu_.mmu->TraceCode(PhysAddr(PageOf(page)));
        traced_[page] = true;
        Remember(page);
        break;
      case 1:
        if (traced_[page]) cpu_.mmu->UntraceCode(PhysAddr(PageOf(page)));
        traced_[page] = false;
        break;
      case 2:  // carried out by the VMM, and told to whoever traces
        cpu_.Write(LinearOf(page) + number_ * 8, ++value_);
        break;
      case 3: {  // another page there: the other one may use it until it hears
        const u64 entry = PageOf(Random(kPages)) | kUsed;
        cpu_.Write(kTableAlias + (kFirstIndex + page) * 8, entry);
        if (cpu_.Resolve(LinearOf(page), true) != Resolution::kFilled) break;
        const u64 offset = cpu_.HostOf(LinearOf(page)) - cpu_.memory.ro_base().value;
        wrong_ += offset % cpu_.memory.capacity() != (entry & ~kPageMask);
        break;
      }
      default:
        cpu_.Resolve(LinearOf(page), true);
    }
  }

  // A traced page has the bytes that it had, or somebody has told of others.
  void CheckTraced() {
    for (const CodeNews& news : cpu_.code) {
      const u64 page = (news.address.value - kFirstPage) / kPageSize;
      if (page < kPages) Remember(static_cast<unsigned>(page));
    }
    cpu_.code.clear();
    // Too many to be told one by one.
    if (std::exchange(cpu_.map_changes, 0) != 0) {
      for (unsigned page = 0; page < kPages; ++page) Remember(page);
    }
    for (unsigned page = 0; page < kPages; ++page) {
      if (!traced_[page]) continue;
      for (unsigned word = 0; word < 2; ++word) {
        wrong_ += both_.Host(PageOf(page))[word] != bytes_[page][word];
      }
    }
  }
  void Remember(unsigned page) {
    if (!traced_[page]) return;  // others store there meanwhile
    for (unsigned word = 0; word < 2; ++word) {
      bytes_[page][word] = both_.Host(PageOf(page))[word];
    }
  }

  RunningCpus& both_;
  Cpu& cpu_;
  const unsigned number_;
  u64 random_, value_ = 0;
  bool traced_[kPages] = {};
  u64 bytes_[kPages][2] = {};
  unsigned wrong_ = 0;
  u64 direct_stores_ = 0;
};

TEST_CASE("Traces, page tables and stores of two VCPUs on two threads") {
  RunningCpus both;
  Worker first(both, *both.a, 0), second(both, *both.b, 1);
  std::thread other([&] { second.Work(); });
  first.Work();
  other.join();
  for (const Worker* worker : {&first, &second}) {
    CHECK(worker->wrong() == 0);
    CHECK(worker->direct_stores() > 1000);
  }
  // How much they meet is the host's scheduler's business.
  CHECK(both.a->mmu->counters().beside_demotions + both.b->mmu->counters().beside_demotions > 0);
  CHECK(both.a->mmu->counters().beside_table_news + both.b->mmu->counters().beside_table_news > 0);
}

}  // namespace
}  // namespace alibi::mmu
