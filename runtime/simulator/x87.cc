// x87's pointers, and the instructions that store its environment.
#include "base/raw_copy.h"
#include "runtime/simulator/execution.h"
#include "runtime/simulator/vector_state.h"
#include "runtime/simulator/x87_pointers.h"

namespace alibi::runtime {
namespace {

using vcpu::GuestFault;
using vcpu::Privilege;

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

// Environments (SDM vol. 1, figures 8-9 and 8-11): control, status, tags, instruction, its
// selector, data, its selector. In the large format each takes four bytes, and the opcode lies
// above the instruction's selector.
enum Word : unsigned { kInstruction = 3, kCodeSelector, kData, kDataSelector, kWords };
constexpr unsigned kLargeEnvironment = 4 * kWords, kRegisterBytes = 80;

// FNSTENV and FNSAVE.
Outcome StoreX87(Execution& e) {
  constexpr u8 kSave = 0xdd;
  const bool save = e.Opcode() == kSave;
  const unsigned word = e.instr.operand_bits == 16 ? 2 : 4;
  const unsigned bytes = kWords * word + (save ? kRegisterBytes : 0);
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(
      e.Linear(static_cast<SegmentIndex>(e.instr.mem.segment), e.Offset(), bytes, true, &linear));
  ALIBI_RETURN_IF_FAULT(e.CheckAlignment(linear, word));
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
  Put<u32>(image + 4 * kInstruction, pointers.instruction);
  Put<u16>(image + 4 * kCodeSelector, selectors.code);
  Put<u32>(image + 4 * kData, pointers.data);
  Put<u16>(image + 4 * kDataSelector, selectors.data);
  if (word == 2) {
    for (unsigned i = 1; i < kWords; ++i) Put<u16>(image + 2 * i, Load<u16>(image + 4 * i));
    if (save) RawCopy(image + 2 * kWords, image + kLargeEnvironment, kRegisterBytes);
  }
  if (!e.memory.Write(linear, image, bytes, Privilege::kCpl, &fault)) return fault;
  return {};
}

constexpr HandlerRow kRows[] = {{Op::kStoreX87, StoreX87}};

}  // namespace

X87Pointers ShownX87Pointers(const Execution& e, u64 instruction, u64 data) {
  if (GivenByGuest(instruction)) {
    return {AsGiven(instruction), GivenByGuest(data) ? AsGiven(data) : 0, false};
  }
  u64 rip = 0;
  const HostCode* code = e.context.host_code;
  if (code == nullptr || !code->GuestRip(instruction, &rip)) rip = 0;
  return {rip, 0, true};
}

u64 LoadedX87Pointer(u64 guest) {
  if (guest < kLowEnd) return guest;
  return guest < kHalf ? guest | ~u64{0} << 47 : 0;
}

void ShowX87Pointers(const Execution& e, bool rex_w, u8* image) {
  u64 instruction = Load<u64>(image + kX87InstructionAt), data = Load<u64>(image + kX87DataAt);
  if (rex_w) {
    const X87Pointers pointers = ShownX87Pointers(e, instruction, data);
    Put<u64>(image + kX87InstructionAt, pointers.instruction);
    Put<u64>(image + kX87DataAt, pointers.data);
    return;
  }
  ReadWholePointers(&instruction, &data);
  const X87Pointers pointers = ShownX87Pointers(e, instruction, data);
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

Handler X87Handler(Op op) { return FindHandler(kRows, op); }

}  // namespace alibi::runtime
