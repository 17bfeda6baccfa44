// SPDX-License-Identifier: Apache-2.0
// Where guest instructions leave the CPU: ports, device memory, platform registers. Compiled for
// general registers only, because the guest's vector state is live until the guard has saved it.
#include <bit>
#include <iterator>

#include "machine/machine.h"
#include "machine/observer.h"

namespace alibi::vmm {

// An observer is to see every access, and other VCPUs what this one writes.
PortLatch Machine::FixedLatch(u16 port, unsigned size) {
  const PortLatch latch = KeepsLatches() ? io_.Latch(port, size) : PortLatch{};
  return latch.fixed ? latch : PortLatch{};
}

// If it is a latch, the next access by DX does not come here.
void Machine::KeepLatch(u16 port, unsigned size) {
  if (!KeepsLatches()) return;
  const PortLatch latch = io_.Latch(port, size);
  if (latch.cell == nullptr) return;
  state_->latched_port[std::countr_zero(size)] = {~u64{port}, reinterpret_cast<u64>(latch.cell),
                                                  latch.kept};
}

// What was a latch may be none any more.
void Machine::CheckLatches() {
  for (unsigned log = 0; log < std::size(state_->latched_port); ++log) {
    vcpu::VcpuState::LatchedPort& known = state_->latched_port[log];
    if (known.negated == 0) continue;
    const PortLatch latch = io_.Latch(static_cast<u16>(~known.negated), 1u << log);
    if (reinterpret_cast<u64>(latch.cell) != known.cell || latch.kept != known.kept) known = {};
  }
}

void Machine::Observe(AccessKind kind, u64 address, unsigned size, u64 value) {
  if (observer_ == nullptr) return;
  engine_->DrainEvents();  // they happened before
  observer_->OnAccess(kind, address, size, value);
}

u32 Machine::In(u16 port, unsigned size) {
  ++counters_.port_reads;
  u32 value;
  if (observer_ == nullptr && io_.PeekPort(port, size, &value)) {
    ++counters_.port_reads_answered;
    KeepLatch(port, size);
    return value;
  }
  const Crossing crossing = Cross(&Counters::port_crossings, &Counters::port_cycles);
  SimdGuard guard(simd_);
  value = io_.PortRead(port, size);
  Observe(AccessKind::kPortRead, port, size, value);
  CheckLatches();
  KeepLatch(port, size);
  return value;
}

void Machine::Out(u16 port, unsigned size, u32 value) {
  ++counters_.port_writes;
  if (observer_ == nullptr && io_.PokePort(port, size, value)) {
    ++counters_.port_writes_answered;
    KeepLatch(port, size);
    return;
  }
  const Crossing crossing = Cross(&Counters::port_crossings, &Counters::port_cycles);
  SimdGuard guard(simd_);
  Observe(AccessKind::kPortWrite, port, size, value);
  io_.PortWrite(port, size, value);
  timer().Settle();
  CheckLatches();
  KeepLatch(port, size);
}

u64 Machine::MmioRead(PhysAddr address, unsigned size) {
  u64 value;
  if (observer_ == nullptr && io_.PeekMmio(address, size, &value)) return value;
  const Crossing crossing = Cross(&Counters::device_crossings, &Counters::device_cycles);
  SimdGuard guard(simd_);
  value = io_.MmioRead(address, size);
  Observe(AccessKind::kMmioRead, address.value, size, value);
  CheckLatches();
  return value;
}

void Machine::MmioWrite(PhysAddr address, unsigned size, u64 value) {
  const Crossing crossing = Cross(&Counters::device_crossings, &Counters::device_cycles);
  SimdGuard guard(simd_);
  Observe(AccessKind::kMmioWrite, address.value, size, value);
  io_.MmioWrite(address, size, value);
  timer().Settle();
  CheckLatches();
}

void Machine::ApicBaseWritten() {
  SimdGuard guard(simd_);
  interrupts_.ApicBaseWritten();
  InterruptsChanged();
}

void Machine::TscWritten() {
  SimdGuard guard(simd_);
  hooks_.TscWritten();
}

void Machine::TscReading(u64 host_tsc) {
  ++counters_.watched_tsc_reads;
  SimdGuard guard(simd_);
  hooks_.TscReading(host_tsc);
}

// A turn may begin with some of a lock that is free soon, or with a delay by the clock.
void Machine::Pausing() {
  constexpr unsigned kPatience = 16;
  if (!contended_ || ++pauses_ < kPatience) return;
  yields_ = true;
  engine_->RequestAttention();
}

bool Machine::NumericError() {
  SimdGuard guard(simd_);
  return interrupts_.NumericError();
}

bool Machine::ReadApicMsr(u32 index, u64* value) {
  SimdGuard guard(simd_);
  return interrupts_.ReadApicMsr(index, value);
}

bool Machine::WriteApicMsr(u32 index, u64 value) {
  SimdGuard guard(simd_);
  const bool ok = interrupts_.WriteApicMsr(index, value);
  InterruptsChanged();
  timer().Settle();
  return ok;
}

// A register whose reading has no effect.
bool Machine::PeekLocalApic(u64 offset, u64* value) {
  constexpr u64 kEnabled = 1 << 11;
  return observer_ == nullptr && offset < kPageSize && (state_->apic_base & kEnabled) != 0 &&
         io_.PeekMmio(PhysAddr(state_->apic_base).PageBase() + (offset & ~u64{3}), 4, value);
}

// What concerns the shadow alone is no crossing to the devices.
void Machine::Hypercall(const vcpu::HypercallArguments& arguments, u64* result) {
  ++counters_.hypercalls;
  if (arguments.number == vcpu::Hypercall::kAnnouncePageTables) return mmu_->BeginDeferral();
  if (arguments.number == vcpu::Hypercall::kReleasePage) {
    const PhysAddr page = PhysPage(arguments.rax).Base();
    if (page.InPage().number == arguments.rax) mmu_->TableReleased(page);
    return;
  }
  if (arguments.number == vcpu::Hypercall::kReadLocalApic && PeekLocalApic(arguments.rax, result)) {
    return;
  }
  SimdGuard guard(simd_);
  hooks_.Hypercall(arguments, result);
  timer().Settle();
  CheckLatches();
}

void Machine::TaskPriorityWritten() {
  // Without an interrupt that waits, the priority decides nothing.
  if (!state_->irq_pending && state_->cr8_bias == 0) return;
  SimdGuard guard(simd_);
  InterruptsChanged();
}

}  // namespace alibi::vmm
