// SPDX-License-Identifier: Apache-2.0
// Stubs that run here, with targets that are made by hand.
#include "runtime/stubs.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <iterator>
#include <vector>

#include "abi/contract.h"
#include "vcpu/state.h"

namespace alibi::runtime {
namespace {

using vcpu::VcpuState;

u8* Map(u64 bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return static_cast<u8*>(memory);
}

// What came of a jump, and the PC it came with.
struct Arrival {
  bool looked_up = false;
  u64 pc = 0;
};
u64 LookedUp(void* arrival, u64, u64 pc) {
  *static_cast<Arrival*>(arrival) = {true, pc};
  return 0;  // leaves translated code
}
u64 Reached(void*, u64, u64) { return 0; }

class Bench {
 public:
  Bench() {
    StubRequest request;
    request.engine = &arrival_;
    for (CalloutFunction& callout : request.callouts) callout = Reached;
    request.callouts[static_cast<unsigned>(Callout::kLookup)] = LookedUp;
    request.host = HostAddr(code_);
    std::vector<u8> bytes;
    stubs_ = EmitStubs(request, &bytes);
    REQUIRE(bytes.size() <= kStubBytes);
    std::memcpy(code_, bytes.data(), bytes.size());
    state().conflict_index_mask = ConflictEntry::kIndexMask;
    *At(0) = ConflictEntry::Empty(0);
  }
  ~Bench() {
    munmap(view_, kViewHeaderBytes);
    munmap(code_, kStubBytes);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Where a failed entry check goes: the registers count from 1000 on, and the flags are given.
  Arrival Jump(LinearAddr pc, u64 flags = 0) {
    arrival_ = {};
    for (unsigned i = 0; i < std::size(state().gpr); ++i) state().gpr[i] = 1000 + i;
    state().arithmetic_flags = flags;
    state().scratch.r11 = pc.value;
    const u64 before = _readgsbase_u64();
    _writegsbase_u64(reinterpret_cast<u64>(view_) + kViewHeaderBytes);
    reinterpret_cast<void (*)(u64)>(stubs_.enter.value)(stubs_.conflict.value);
    _writegsbase_u64(before);
    for (unsigned i = 0; i < std::size(state().gpr); ++i) {
      INFO(i);
      REQUIRE(state().gpr[i] == 1000 + i);
    }
    REQUIRE(state().arithmetic_flags == flags);
    return arrival_;
  }
  // A translation: it is known by its callout, which leaves at once.
  HostAddr entry() const { return stubs_.at(Callout::kStop); }
  VcpuState& state() { return *reinterpret_cast<VcpuState*>(At<u8>(kVcpuOffset)); }
  ConflictEntry* At(u64 index) { return At<ConflictEntry>(kConflictTableOffset) + index; }

 private:
  template <class T>
  T* At(i64 displacement) {
    return reinterpret_cast<T*>(view_ + kViewHeaderBytes + displacement);
  }
  u8* view_ = Map(kViewHeaderBytes, PROT_READ | PROT_WRITE);
  u8* code_ = Map(kStubBytes, PROT_READ | PROT_WRITE | PROT_EXEC);
  Arrival arrival_;
  Stubs stubs_;
};

constexpr u64 kAllFlags = 0x8d5;  // OF, SF, ZF, AF, PF, CF

TEST_CASE("A target in the conflict table is reached, with the flags and registers as they were") {
  Bench bench;
  for (const u64 pc : {u64{0x401230}, u64{0x7f1234567fff}, u64{0xffffffff81001000}, ~u64{0}}) {
    for (const u64 flags : {u64{0}, kAllFlags, u64{1}, u64{0x40}}) {
      INFO(std::hex << pc << ' ' << flags);
      *bench.At(ConflictEntry::IndexOf(LinearAddr(pc))) = {0 - pc, bench.entry()};
      CHECK_FALSE(bench.Jump(LinearAddr(pc), flags).looked_up);
    }
  }
}

TEST_CASE("Any other target is looked up") {
  Bench bench;
  const LinearAddr known(0x401230);
  *bench.At(ConflictEntry::IndexOf(known)) = {0 - known.value, bench.entry()};
  constexpr u64 kAlike = kPageSize * ConflictEntry::kPages;
  REQUIRE(ConflictEntry::IndexOf(known + kAlike) == ConflictEntry::IndexOf(known));
  for (const LinearAddr pc : {known + 1, known + kAlike, known + (u64{1} << 47), LinearAddr(0),
                              LinearAddr(16), LinearAddr(0x8000'0000'0000)}) {
    INFO(std::hex << pc.value);
    const Arrival arrival = bench.Jump(pc, kAllFlags);
    CHECK(arrival.looked_up);
    CHECK(arrival.pc == pc.value);
  }
}

TEST_CASE("No target is reached past a request to stop") {
  Bench bench;
  const LinearAddr pc(0x401230);
  *bench.At(ConflictEntry::IndexOf(pc)) = {0 - pc.value, bench.entry()};
  bench.state().stop_requested = 1;
  CHECK(bench.Jump(pc).looked_up);
}

TEST_CASE("A new conflict table names no PC at its own place") {
  for (u64 index = 0; index < ConflictEntry::kPages * ConflictEntry::kPerPage; ++index) {
    const LinearAddr named(0 - ConflictEntry::Empty(index).negated);
    REQUIRE(ConflictEntry::IndexOf(named) != index);
  }
}

}  // namespace
}  // namespace alibi::runtime
