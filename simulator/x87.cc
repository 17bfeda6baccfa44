// SPDX-License-Identifier: Apache-2.0
// x87's pointers, and the instructions that store its environment.
#include "base/raw_copy.h"
#include "simulator/execution.h"
#include "simulator/vector_state.h"
#include "simulator/x87_pointers.h"
#include "vcpu/descriptors.h"

namespace alibi::simulator {

using vcpu::GuestFault;
using vcpu::Privilege;

namespace {

constexpr u64 kLowEnd = u64{1} << 32, kHalf = u64{1} << 47;

template <class T>
T Load(const u8* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(value));
  return value;
}
template <class T>
void Put(u8* at, u64 value) {
  const T narrow = static_cast<T>(value);
  __builtin_memcpy(at, &narrow, sizeof(narrow));
}

bool GivenByGuest(u64 pointer) { return pointer < kLowEnd || pointer >= ~u64{0} << 47; }
u64 AsGiven(u64 pointer) { return pointer < kLowEnd ? pointer : pointer & (kHalf - 1); }

// The whole pointers: other images have half of them. They stay zero on CPUs that store them only
// while an exception is pending.
void ReadWholePointers(u64* instruction, u64* data) {
  alignas(16) u8 image[kLegacyBytes];
  __builtin_memset(image + kX87InstructionAt, 0, kX87PointersEnd - kX87InstructionAt);
  asm volatile("fxsave64 %0" : "+m"(image) : : "memory");
  *instruction = Load<u64>(image + kX87InstructionAt);
  *data = Load<u64>(image + kX87DataAt);
}

struct Selectors {
  u16 code, data;
};

// `stored`: what the host shows; new CPUs have none.
Selectors ShownSelectors(const Execution& e, const X87Pointers& pointers, Selectors stored) {
  if (!pointers.host) return stored;
  return {stored.code != 0 ? e.state.segment[vcpu::kCs].selector : u16{0}, 0};
}

// `stored`: what the host shows. It is that of the last instruction with an unmasked exception on
// most CPUs, or what was loaded since: the pointed-at instruction's only if it fits that.
u16 ShownOpcode(const Execution& e, u64 instruction, u16 stored) {
  const HostCode* code = e.context.host_code;
  u16 guest, translated;
  if (stored == 0 || code == nullptr || GivenByGuest(instruction)) return stored;
  if (!code->X87Opcodes(HostAddr(instruction), &guest, &translated)) return stored;
  return stored == translated ? guest : stored;
}

// Environments (SDM vol. 1, figures 8-9 to 8-12): control, status, tags, and of the last
// instruction where it is and where its operand is. In the large formats each takes four bytes.
// Protected mode has offsets and selectors; above the instruction's selector of the large format
// lies the opcode. Real-address and virtual-8086 mode have linear addresses: the lower 16 bits in
// the offset's place, the others in the selector's, above the 12 bits that begin with the opcode.
enum Word : unsigned { kInstruction = 3, kCodeSelector, kData, kDataSelector, kWords };
constexpr unsigned kLargeEnvironment = 4 * kWords, kRegisterBytes = 80;
constexpr u32 kReserved = 0xffff0000;  // stored as ones, as in the other words
constexpr u32 kOpcode = 0x7ff;

struct Linear {
  u32 instruction, data;
};

// Both make a large image, or make their image from one. The small image's words are the lower
// halves of the large one's, but of a linear address it has four upper bits, not 16.
void PutLinear(u8* image, bool large, Linear linear, u16 opcode) {
  const auto upper = [&](u32 address) {
    return large ? (address & 0xffff0000) >> 4 : address >> 4 & 0xf000;
  };
  Put<u32>(image + 4 * kInstruction, kReserved | (linear.instruction & 0xffff));
  Put<u32>(image + 4 * kCodeSelector, upper(linear.instruction) | (opcode & kOpcode));
  Put<u32>(image + 4 * kData, kReserved | (linear.data & 0xffff));
  Put<u32>(image + 4 * kDataSelector, upper(linear.data));
}
// The host, which is in protected mode, gets an offset from 0.
void TakeLinear(u8* image) {
  const auto at = [&](Word word) { return Load<u32>(image + 4 * word); };
  const u32 above = at(kCodeSelector);
  const auto address = [&](Word word) {
    return (at(word) & 0xffff) | (at(static_cast<Word>(word + 1)) & 0x0ffff000) << 4;
  };
  Put<u32>(image + 4 * kInstruction, address(kInstruction));
  Put<u32>(image + 4 * kCodeSelector, (above & kOpcode) << 16);
  Put<u32>(image + 4 * kData, address(kData));
  Put<u32>(image + 4 * kDataSelector, 0);
}

struct Format {
  explicit Format(const Execution& e)
      : large(e.instr.operand_bits != 16), linear(RealOrVirtual8086(e.state)) {}
  unsigned Word() const { return large ? 4 : 2; }
  unsigned Environment() const { return kWords * Word(); }
  bool large, linear;
};

// FNSTENV, and FNSAVE, which stores the registers, too.
Outcome StoreX87(Execution& e, bool save) {
  const Format format(e);
  const unsigned bytes = format.Environment() + (save ? kRegisterBytes : 0);
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(e.AlignedLinear(static_cast<SegmentIndex>(e.instr.mem.segment), e.Offset(),
                                        bytes, format.Word(), true, &linear));
  GuestFault fault;
  // Both change the state when they have stored it.
  if (!e.memory.ProbeWrite(linear, bytes, Privilege::kCpl, &fault)) return fault;

  u64 instruction, data;
  ReadWholePointers(&instruction, &data);
  u8 image[kLargeEnvironment + kRegisterBytes];
  if (save) {
    asm volatile("fnsave %0" : "=m"(image) : : "memory");
  } else {
    asm volatile("fnstenv %0" : "=m"(image) : : "memory");
  }
  const VectorState keep;  // the memory may be a device whose model uses vector registers
  const X87Pointers pointers = ShownX87Pointers(e, instruction, data);
  const Selectors selectors = ShownSelectors(
      e, pointers, {Load<u16>(image + 4 * kCodeSelector), Load<u16>(image + 4 * kDataSelector)});
  const u16 opcode = ShownOpcode(e, instruction, Load<u16>(image + 4 * kCodeSelector + 2));
  if (format.linear) {
    // What the guest has loaded may have a selector, on CPUs that have one.
    const u64 data_base = u64{selectors.data} << 4;
    const u64 code_base = u64{selectors.code} << 4;
    PutLinear(image, format.large,
              {static_cast<u32>(pointers.host ? pointers.linear : pointers.instruction + code_base),
               static_cast<u32>(pointers.data + data_base)},
              opcode);
  } else {
    Put<u32>(image + 4 * kInstruction, pointers.instruction);
    Put<u16>(image + 4 * kCodeSelector, selectors.code);
    Put<u16>(image + 4 * kCodeSelector + 2, opcode);
    Put<u32>(image + 4 * kData, pointers.data);
    Put<u16>(image + 4 * kDataSelector, selectors.data);
  }
  if (!format.large) {
    for (unsigned i = 1; i < kWords; ++i) Put<u16>(image + 2 * i, Load<u16>(image + 4 * i));
    if (save) RawCopy(image + 2 * kWords, image + kLargeEnvironment, kRegisterBytes);
  }
  if (!e.memory.Write(linear, image, bytes, Privilege::kCpl, &fault)) return fault;
  return {};
}

// FLDENV, and FRSTOR, which loads the registers, too.
Outcome LoadX87(Execution& e, bool restore) {
  const Format format(e);
  const unsigned registers = restore ? kRegisterBytes : 0;
  // A pending exception comes first, whatever the memory is (EngineImpl::HandleHostFault).
  asm volatile("fwait");
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(e.AlignedLinear(static_cast<SegmentIndex>(e.instr.mem.segment), e.Offset(),
                                        format.Environment() + registers, format.Word(), false,
                                        &linear));
  u8 stored[kLargeEnvironment + kRegisterBytes], image[kLargeEnvironment + kRegisterBytes];
  {
    const VectorState keep;
    GuestFault fault;
    if (!e.memory.Read(linear, stored, format.Environment() + registers, Privilege::kCpl, &fault)) {
      return fault;
    }
  }
  for (unsigned i = 0; i < kWords; ++i) {
    Put<u32>(image + 4 * i, format.large ? Load<u32>(stored + 4 * i) : Load<u16>(stored + 2 * i));
  }
  RawCopy(image + kLargeEnvironment, stored + format.Environment(), registers);
  if (format.linear) TakeLinear(image);
  if (restore) {
    asm volatile("frstor %0" : : "m"(image) : "memory");
  } else {
    asm volatile("fldenv %0" : : "m"(image) : "memory");
  }
  return {};
}

}  // namespace

Outcome handlers::Fnstenv(Execution& e) { return StoreX87(e, false); }
Outcome handlers::Fnsave(Execution& e) { return StoreX87(e, true); }
Outcome handlers::Fldenv(Execution& e) { return LoadX87(e, false); }
Outcome handlers::Frstor(Execution& e) { return LoadX87(e, true); }

X87Pointers ShownX87Pointers(const Execution& e, u64 instruction, u64 data) {
  if (GivenByGuest(instruction)) {
    return {AsGiven(instruction), 0, GivenByGuest(data) ? AsGiven(data) : 0, false};
  }
  u64 rip = 0;
  LinearAddr linear;
  const HostCode* code = e.context.host_code;
  if (code == nullptr || !code->GuestRip(HostAddr(instruction), &rip, &linear))
    rip = 0, linear = {};
  return {rip, linear.value, 0, true};
}

u64 LoadedX87Pointer(u64 guest) {
  if (guest < kLowEnd) return guest;
  return guest < kHalf ? guest | ~u64{0} << 47 : 0;
}

void ShowX87Pointers(const Execution& e, bool rex_w, u8* image) {
  u64 instruction = Load<u64>(image + kX87InstructionAt), data = Load<u64>(image + kX87DataAt);
  if (!rex_w) ReadWholePointers(&instruction, &data);
  Put<u16>(image + kX87OpcodeAt, ShownOpcode(e, instruction, Load<u16>(image + kX87OpcodeAt)));
  const X87Pointers pointers = ShownX87Pointers(e, instruction, data);
  if (rex_w) {
    Put<u64>(image + kX87InstructionAt, pointers.instruction);
    Put<u64>(image + kX87DataAt, pointers.data);
    return;
  }
  const Selectors selectors = ShownSelectors(
      e, pointers, {Load<u16>(image + kX87CodeSelectorAt), Load<u16>(image + kX87DataSelectorAt)});
  Put<u32>(image + kX87InstructionAt, pointers.instruction);
  Put<u16>(image + kX87CodeSelectorAt, selectors.code);
  Put<u32>(image + kX87DataAt, pointers.data);
  Put<u16>(image + kX87DataSelectorAt, selectors.data);
}

void LoadX87Pointers(bool rex_w, u8* image) {
  if (!rex_w) return;  // they have 32 bits
  for (unsigned at : {kX87InstructionAt, kX87DataAt}) {
    Put<u64>(image + at, LoadedX87Pointer(Load<u64>(image + at)));
  }
}

}  // namespace alibi::simulator
