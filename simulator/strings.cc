// SPDX-License-Identifier: Apache-2.0
// String instructions, with and without REP, in runs of elements that stay on one page.
//
// A run either happens as a whole or not at all, because all its elements share their pages; so
// after a fault the registers say exactly which elements are done, and the instruction restarts
// there.
#include <algorithm>

#include "base/raw_copy.h"
#include "simulator/execution.h"
#include "vcpu/breakpoints.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/port_access.h"

namespace alibi::simulator {

using vcpu::GuestFault;
using vcpu::kEs, vcpu::kRax, vcpu::kRcx, vcpu::kRdi, vcpu::kRdx, vcpu::kRsi;
using vcpu::Privilege;

namespace {

// What one call may do, so that interrupts get in between.
constexpr u64 kMaxBytes = 64 * 1024;
constexpr u64 kMaxPortElements = 4096;

class StringRun {
 public:
  explicit StringRun(Execution& e)
      : e_(e),
        size_(e.instr.element_bytes),
        repeated_(e.instr.rep || e.instr.repne),
        backward_(e.state.df_flag != 0) {
    ClearUpperHalves();
  }

  unsigned size() const { return size_; }
  // What this call may do: there are debug exceptions after each iteration.
  u64 Budget(u64 elements) const {
    const bool step = (e_.state.system_flags & vcpu::kTf) || vcpu::BreakpointsEnabled(e_.state);
    return step ? 1 : elements;
  }
  bool backward() const { return backward_; }
  u64 Remaining() const { return repeated_ ? e_.Reg(kRcx, Bits()) : 1; }

  // How many elements from this register on lie in one page and before the offset wraps. Zero: not
  // even one does.
  u64 Room(SegmentIndex segment, unsigned reg) const {
    const u64 offset = e_.Reg(reg, Bits());
    const u64 base =
        e_.state.In64BitCode() && segment < vcpu::kFs ? 0 : e_.state.segment[segment].base;
    const u64 in_page = (base + offset) & kPageMask;
    if (in_page + size_ > kPageSize) return 0;
    if (backward_) return std::min(in_page, offset) / size_ + 1;
    const u64 wrap = LowBits(~u64{0}, Bits()) - offset;  // bytes after this one
    return std::min((kPageSize - in_page) / size_, wrap / size_ + (wrap % size_ == size_ - 1));
  }

  // Lowest address of `count` elements from the register on.
  Outcome Span(SegmentIndex segment, unsigned reg, u64 count, bool write,
               LinearAddr* linear) const {
    u64 offset = e_.Reg(reg, Bits());
    if (backward_) offset -= (count - 1) * size_;
    return e_.AlignedLinear(segment, offset, static_cast<unsigned>(count * size_), size_, write,
                            linear);
  }

  // Is the span inside its segment? Runs that are not go one element at a time.
  u64 Clip(SegmentIndex segment, unsigned reg, u64 count, bool write) const {
    LinearAddr unused;
    return count > 1 && Span(segment, reg, count, write, &unused).faulted() ? 1 : count;
  }

  // Moves the index registers by `count` elements, and the counter.
  void Advance(u64 count, bool source, bool destination) {
    const u64 step = backward_ ? u64{0} - count * size_ : count * size_;
    if (source) Step(kRsi, step);
    if (destination) Step(kRdi, step);
    if (repeated_) Step(kRcx, u64{0} - count);
  }

  // RIP stays when there is more to do, and RF shows that to whatever comes in between.
  Outcome Finish() {
    if (repeated_ && Remaining() != 0) {
      e_.rip_set = true;
      e_.state.system_flags |= static_cast<u32>(vcpu::kRf);
    }
    return {};
  }

  u64 Element(const u8* data, u64 index, u64 count) const {
    u64 value = 0;
    const u64 at = backward_ ? count - 1 - index : index;
    __builtin_memcpy(&value, data + at * size_, size_);
    return value;
  }

 private:
  unsigned Bits() const { return e_.instr.address_bits; }
  // What the first element does anyhow, where the host's CPU does it in front of that.
  void ClearUpperHalves() {
    if (!repeated_ || Bits() != 32 ||
        !vcpu::HostHasIntelsWay(vcpu::HostDifference::kRepeatedUpperHalves)) {
      return;
    }
    Step(kRcx, 0);
    const bool moves = e_.instr.op == Op::kMovs;
    if (moves) Step(kRsi, 0);
    if (moves || e_.instr.op == Op::kStos) Step(kRdi, 0);
  }
  void Step(unsigned reg, u64 step) { e_.SetReg(reg, Bits(), e_.state.gpr[reg] + step); }

  Execution& e_;
  const unsigned size_;
  const bool repeated_;
  const bool backward_;
};

// A run that goes backward begins at its highest address, and that is where the fault must be
// reported: the first element alone names it.
Outcome SpanFault(const StringRun& run, u64 count, const GuestFault& whole,
                  auto&& access_first_element) {
  GuestFault first;
  if (run.backward() && count > 1 && !access_first_element(&first)) return first;
  return whole;
}

Outcome ReadSpan(Execution& e, const StringRun& run, SegmentIndex segment, unsigned reg, u64 count,
                 u8* data) {
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(run.Span(segment, reg, count, false, &linear));
  GuestFault fault;
  const unsigned bytes = static_cast<unsigned>(count * run.size());
  if (e.memory.Read(linear, data, bytes, Privilege::kCpl, &fault)) return {};
  return SpanFault(run, count, fault, [&](GuestFault* first) {
    return e.memory.Read(linear + (bytes - run.size()), data, run.size(), Privilege::kCpl, first);
  });
}

Outcome WriteSpan(Execution& e, const StringRun& run, u64 count, const u8* data) {
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(run.Span(kEs, kRdi, count, true, &linear));
  GuestFault fault;
  const unsigned bytes = static_cast<unsigned>(count * run.size());
  if (e.memory.Write(linear, data, bytes, Privilege::kCpl, &fault)) return {};
  return SpanFault(run, count, fault, [&](GuestFault* first) {
    return e.memory.ProbeWrite(linear + (bytes - run.size()), run.size(), Privilege::kCpl, first);
  });
}

}  // namespace

Outcome handlers::Movs(Execution& e) {
  StringRun run(e);
  const SegmentIndex source = e.SourceSegment();
  u8 data[kPageSize];
  for (u64 budget = run.Budget(kMaxBytes / run.size()); budget != 0 && run.Remaining() != 0;) {
    u64 count = std::min({run.Remaining(), budget, std::max<u64>(1, run.Room(source, kRsi)),
                          std::max<u64>(1, run.Room(kEs, kRdi))});
    if (run.Room(source, kRsi) == 0 || run.Room(kEs, kRdi) == 0) count = 1;
    count = run.Clip(source, kRsi, count, false);
    count = run.Clip(kEs, kRdi, count, true);
    if (count > 1) {
      // Where the destination follows closely behind the source, elements just written are read.
      LinearAddr from, to;
      ALIBI_RETURN_IF_FAULT(run.Span(source, kRsi, 1, false, &from));
      ALIBI_RETURN_IF_FAULT(run.Span(kEs, kRdi, 1, true, &to));
      const u64 distance = run.backward() ? from - to : to - from;
      if (distance != 0) count = std::min(count, std::max<u64>(1, distance / run.size()));
    }
    ALIBI_RETURN_IF_FAULT(ReadSpan(e, run, source, kRsi, count, data));
    ALIBI_RETURN_IF_FAULT(WriteSpan(e, run, count, data));
    run.Advance(count, true, true);
    budget -= count;
    if (!e.instr.rep && !e.instr.repne) break;
  }
  return run.Finish();
}

namespace {

// Fills `bytes`, rounded up to whole words, with the low `size` (1, 2, 4, 8) bytes of `value`.
void RepeatElement(u64 value, unsigned size, u8* data, u64 bytes) {
  if (size < 8) value = LowBits(value, 8 * size) * (~u64{0} / LowBits(~u64{0}, 8 * size));
  RawFill(reinterpret_cast<u64*>(data), value, (bytes + 7) / 8);
}

}  // namespace

Outcome handlers::Stos(Execution& e) {
  StringRun run(e);
  alignas(8) u8 data[kPageSize];
  u64 filled = 0;
  for (u64 budget = run.Budget(kMaxBytes / run.size()); budget != 0 && run.Remaining() != 0;) {
    u64 count = std::min({run.Remaining(), budget, std::max<u64>(1, run.Room(kEs, kRdi))});
    count = run.Clip(kEs, kRdi, count, true);
    if (count > filled) {
      filled = count;
      RepeatElement(e.state.gpr[kRax], run.size(), data, count * run.size());
    }
    ALIBI_RETURN_IF_FAULT(WriteSpan(e, run, count, data));
    run.Advance(count, false, true);
    budget -= count;
    if (!e.instr.rep && !e.instr.repne) break;
  }
  return run.Finish();
}

Outcome handlers::Lods(Execution& e) {
  StringRun run(e);
  const SegmentIndex source = e.SourceSegment();
  u8 data[kPageSize];
  for (u64 budget = run.Budget(kMaxBytes / run.size()); budget != 0 && run.Remaining() != 0;) {
    u64 count = std::min({run.Remaining(), budget, std::max<u64>(1, run.Room(source, kRsi))});
    count = run.Clip(source, kRsi, count, false);
    ALIBI_RETURN_IF_FAULT(ReadSpan(e, run, source, kRsi, count, data));
    e.SetReg(kRax, run.size() * 8, run.Element(data, count - 1, count));
    run.Advance(count, true, false);
    budget -= count;
    if (!e.instr.rep && !e.instr.repne) break;
  }
  return run.Finish();
}

namespace {

void SetCompareFlags(Execution& e, u64 a, u64 b, unsigned bits) {
  const u64 result = LowBits(a - b, bits);
  const u64 sign = u64{1} << (bits - 1);
  e.SetFlag(vcpu::kCf, a < b);
  e.SetFlag(vcpu::kPf, !__builtin_parity(static_cast<u8>(result)));
  e.SetFlag(vcpu::kAf, (a ^ b ^ result) & 0x10);
  e.SetFlag(vcpu::kZf, result == 0);
  e.SetFlag(vcpu::kSf, result & sign);
  e.SetFlag(vcpu::kOf, (a ^ b) & (a ^ result) & sign);
}

}  // namespace

// CMPS and SCAS: they differ in where the first operand comes from.
Outcome handlers::Compare(Execution& e) {
  StringRun run(e);
  const bool two = e.instr.op == Op::kCmps;
  const bool repeated = e.instr.rep || e.instr.repne;
  const SegmentIndex source = e.SourceSegment();
  const unsigned bits = run.size() * 8;
  u8 first[kPageSize], second[kPageSize];
  u64 a = e.Reg(kRax, bits), b = 0;
  const bool destination_first = vcpu::HostComparesDestinationFirst(e.instr.rep && run.size() == 1);
  bool compared = false, decided = false;
  for (u64 budget = run.Budget(kMaxBytes / run.size());
       budget != 0 && run.Remaining() != 0 && !decided;) {
    u64 count = std::min({run.Remaining(), budget, std::max<u64>(1, run.Room(kEs, kRdi))});
    if (two) count = std::min(count, std::max<u64>(1, run.Room(source, kRsi)));
    count = run.Clip(kEs, kRdi, count, false);
    if (two) count = run.Clip(source, kRsi, count, false);
    const auto read_source = [&]() -> Outcome {
      return two ? ReadSpan(e, run, source, kRsi, count, first) : Outcome();
    };
    if (!destination_first) ALIBI_RETURN_IF_FAULT(read_source());
    ALIBI_RETURN_IF_FAULT(ReadSpan(e, run, kEs, kRdi, count, second));
    if (destination_first) ALIBI_RETURN_IF_FAULT(read_source());
    u64 done = 0;
    while (done < count && !decided) {
      if (two) a = run.Element(first, done, count);
      b = run.Element(second, done, count);
      ++done;
      decided = !repeated || (a == b) == e.instr.repne;
    }
    compared = true;
    run.Advance(done, two, true);
    budget -= done;
  }
  // The flags change only with the last element: a fault on the way leaves the old ones.
  if (compared) SetCompareFlags(e, a, b, bits);
  return decided ? Outcome() : run.Finish();
}

Outcome handlers::Ins(Execution& e) {
  StringRun run(e);
  const u16 port = static_cast<u16>(e.state.gpr[kRdx]);
  ALIBI_RETURN_IF_FAULT(vcpu::CheckPortAccess(e.state, e.memory, port, run.size()));
  for (u64 budget = run.Budget(kMaxPortElements); budget != 0 && run.Remaining() != 0; --budget) {
    LinearAddr linear;
    ALIBI_RETURN_IF_FAULT(run.Span(kEs, kRdi, 1, true, &linear));
    GuestFault fault;
    // What a port has given cannot be put back.
    if (!e.memory.ProbeWrite(linear, run.size(), Privilege::kCpl, &fault)) return fault;
    const u32 value = e.context.ports.In(port, run.size());
    if (!e.memory.Write(linear, &value, run.size(), Privilege::kCpl, &fault)) return fault;
    run.Advance(1, false, true);
    if (!e.instr.rep && !e.instr.repne) break;
  }
  return run.Finish();
}

Outcome handlers::Outs(Execution& e) {
  StringRun run(e);
  const u16 port = static_cast<u16>(e.state.gpr[kRdx]);
  ALIBI_RETURN_IF_FAULT(vcpu::CheckPortAccess(e.state, e.memory, port, run.size()));
  for (u64 budget = run.Budget(kMaxPortElements); budget != 0 && run.Remaining() != 0; --budget) {
    u32 value = 0;
    ALIBI_RETURN_IF_FAULT(
        ReadSpan(e, run, e.SourceSegment(), kRsi, 1, reinterpret_cast<u8*>(&value)));
    e.context.ports.Out(port, run.size(), value);
    run.Advance(1, true, false);
    if (!e.instr.rep && !e.instr.repne) break;
  }
  return run.Finish();
}

}  // namespace alibi::simulator
