// SPDX-License-Identifier: Apache-2.0
// The emitter's working state, shared by its parts: emitter.cc (the walk over a TU, exits),
// emitter_memory.cc (operands, look-ups, stack), emitter_control.cc (branches), emitter_strings.cc
// (string instructions, bit tests), emitter_system.cc (in-TC sequences for privileged
// instructions).
#ifndef ALIBI_TRANSLATOR_EMITTER_IMPL_H_
#define ALIBI_TRANSLATOR_EMITTER_IMPL_H_

#include <array>
#include <vector>

#include "abi/contract.h"
#include "isa/rewrite.h"
#include "translator/access_groups.h"
#include "translator/emitter.h"
#include "translator/host_code.h"
#include "translator/side_data.h"
#include "vcpu/descriptors.h"
#include "vcpu/fault.h"
#include "vcpu/state.h"

namespace alibi::translator {

class Emitter::Impl {
 public:
  explicit Impl(const StubTable& stubs) : stubs_(stubs) {}
  EmitResult Emit(const EmitRequest& request, Ccf* ccf);

 private:
  // How an operation runs in the TC: false if not this instruction, which is simulated then. By
  // operation, made from ops.inc.
  using Sequence = bool (Impl::*)(const isa::Instr&);
  static const std::array<Sequence, isa::kOpCount> kSequences;

  // An effective address, ready to be looked up.
  struct Ea {
    bool base_disp = false;    // [base + disp], 64-bit, base not stolen; else the address is in r11
    bool host_in_r11 = false;  // looked up already: r11 is the host address
    u8 base = isa::kNoReg;
    i32 disp = 0;
    bool moving = false;  // `disp` moves with the code's PC
  };

  // --- emitter.cc ---
  void EmitCount();
  void NoticeMovingParts(const isa::Instr& instr);
  void EmitInstr(unsigned i);
  void EmitTranslation(const isa::Instr& instr);
  bool EmitSequence(const isa::Instr& instr);  // false: nothing was emitted, simulate
  bool EmitNone(const isa::Instr&) { return false; }
  bool EmitCopy(const isa::Instr& instr);
  void NoteWaitingDisplacements();
  // How many bytes; 0: it cannot be expressed.
  unsigned EmitRewritten(const isa::Instr& instr, const isa::Rewrite& rewrite);
  void EmitPlain(const isa::Instr& instr);
  void EmitVzero32(const isa::Instr& instr);
  void EmitSimulateWhole(bool ends_tu);
  void EmitRaise(vcpu::Vector vector);
  void EmitCheckedDivide(const isa::Instr& instr);
  void EmitExit(LinearAddr target_pc);
  void EmitJccExit(u8 condition, LinearAddr target_pc);
  void EmitIndirectExit();
  void NoteBranch(const ExitDesc* exit);
  void FlushCold();
  // Room for the jump that forwards or invalidates this CCF, should its exit be elided.
  void PadEntry() {
    while (hot_.Here() - ccf_->entry < kEntryBytes) a().nop();
  }
  SiteDesc* NewSite();
  ExitDesc* NewExit(ExitKind kind, LinearAddr target);
  void* NewData(u32 size);
  // A linear address that moves with the PC.
  void MovPc(const x86::Gp& reg, LinearAddr pc);
  // An address that moves; what leads there from the PC stays as it is in r11.
  static bool NamesPlace(const isa::MovingWord& word) { return word && !word.against; }
  // What was just written ends with the instruction's displacement, and so many bytes more.
  void NoteDisplacement(unsigned behind = 0);
  // ... with its immediate.
  void NoteImmediate();
  // Its code names neither.
  void NoteNoParts() { noted_displacement_ = noted_immediate_ = true; }
  void CallStub(HostAddr stub, SiteDesc* site);  // resumes right behind
  void MarkFaultPoint(SiteDesc* site, bool follower);
  void NoteCold(u8 instr_index);  // what follows in the cold part is this instruction's
  bool FlagsLive() const { return !past_leaf_ && tu_->flags_live_before[index_] != 0; }
  // An exit to there may become a direct jump: both sides lie in one page, and in no other. (At the
  // page's end an instruction may reach into the next.)
  bool Chainable(LinearAddr pc) const {
    return !request_->mode.single && pc.InPage() == tu_->pc.InPage() &&
           ccf_->phys_page2 == kNoPage &&
           (pc.PageOffset() <= kPageSize - sizeof(isa::Instr::bytes) ||
            !request_->mode.UsesJumpTable());
  }
  bool CanBeCode(LinearAddr pc) const { return request_->mode.code_bits != 64 || IsCanonical(pc); }

  // --- emitter_memory.cc ---
  void EmitMemory(const isa::Instr& instr);
  void EmitMemoryBounce(const isa::Instr& instr);
  bool EmitSimulatedStore(const isa::Instr& instr);
  Ea PrepareEa(const isa::MemOperand& mem, const isa::Instr& instr);
  void EmitSegment(u8 segment, unsigned size, bool write);
  // The stack slot of `size` bytes at [base + delta], base being the stack or frame pointer.
  Ea StackEa(u8 base, i32 delta, unsigned size, bool write);
  static x86::Mem Address(const isa::MemOperand& mem);
  void EaToR11(const Ea& ea);      // may have wrapped, in 32-bit code
  void LinearToR11(const Ea& ea);  // the address the guest means
  // After it, r10 is the displacement, or (ea.host_in_r11) r11 the host address.
  SiteDesc* EmitLookup(Ea& ea, unsigned size, bool write, AccessShape shape);
  SiteDesc* EmitOneLookup(Ea& ea, unsigned size, bool write, AccessShape shape);
  void EmitOperation(const isa::Instr& instr, const Ea* ea, SiteDesc* site, bool follower);
  static isa::HostMem HostMemOf(const Ea& ea);
  static x86::Mem HostOperand(const Ea& ea, unsigned size);
  bool EmitPush(const isa::Instr& instr);
  bool EmitPushMemory(const isa::Instr& instr);
  bool EmitPushSelector(const isa::Instr& instr);
  bool EmitPop(const isa::Instr& instr);
  bool EmitLeave(const isa::Instr& instr);
  void AdjustRsp(i32 delta);
  void SetRsp(u8 base, i32 delta);
  void LoadGpr(const x86::Gp& host, u8 guest_reg);   // 64 bits
  void StoreGpr(u8 guest_reg, const x86::Gp& host);  // 64 bits
  // Loads a stack slot or operand of `bytes` into r11, zero-extended.
  void LoadR11(const Ea& ea, unsigned bytes, SiteDesc* site);

  // --- emitter_control.cc ---
  bool IsUnusualBranch(const isa::Instr& instr) const;
  bool EmitJmp(const isa::Instr& instr);
  bool EmitJcc(const isa::Instr& instr);
  bool EmitCall(const isa::Instr& instr);
  bool EmitRet(const isa::Instr& instr);
  bool EmitIndirect(const isa::Instr& instr);
  void EmitBranchTargetToR11(const isa::Instr& instr);
  void EmitReturnAddressPush(const isa::Instr& instr);
  // ... but for the stack pointer, which stays.
  SiteDesc* StoreReturnAddress(const isa::Instr& instr);
  void EmitLeafCall(const isa::Instr& instr);
  bool EmitLoop(const isa::Instr& instr);
  void EmitLoop16(const isa::Instr& instr);

  // --- emitter_strings.cc ---
  bool EmitString(const isa::Instr& instr);
  bool EmitBitTest(const isa::Instr& instr);

  // --- emitter_system.cc ---
  bool EmitCli(const isa::Instr& instr);
  bool EmitSti(const isa::Instr& instr);
  bool EmitWriteDf(const isa::Instr& instr);
  bool EmitWriteAc(const isa::Instr& instr);
  bool IsWholeFlagsAccess(const isa::Instr& instr) const;
  bool EmitPushf(const isa::Instr& instr);
  bool EmitPopf(const isa::Instr& instr);
  bool EmitRdtsc(const isa::Instr& instr);
  bool EmitSegmentBase(const isa::Instr& instr);
  bool EmitReadSelector(const isa::Instr& instr);
  bool EmitSwapgs(const isa::Instr& instr);
  bool EmitSyscall(const isa::Instr& instr);
  bool EmitSysret(const isa::Instr& instr);
  bool EmitReadCr(const isa::Instr& instr);
  bool EmitWriteCr3(const isa::Instr& instr);
  bool EmitMovCr8(const isa::Instr& instr);
  bool EmitIn(const isa::Instr& instr);
  bool EmitOut(const isa::Instr& instr);
  struct LatchAccess;
  bool BeginLatch(const isa::Instr& instr, LatchAccess* access);
  void EmitIdleClac(SiteDesc* slow, HostCode::FarJump jump);
  void SimulateUnlessFlagsSimple(SiteDesc* site);
  void ComposeRflagsInR11();
  void StoreSystemFlagsFromR11();
  void LoadArithmeticFlagsFromR11();
  void CopySegment(vcpu::SegmentIndex to, std::size_t image);
  void SwitchToPeer(bool remember_self);
  void EmitWriteCr8(const isa::Instr& instr);
  // The whole instruction in software, from cold code, when the jump is taken.
  void SimulateIfTaken(SiteDesc* site, HostCode::FarJump jump, FlagsSave save = FlagsSave::kNone) {
    cold_calls_.push_back({site, stubs_.at(Callout::kSimulate), jump, save});
  }

  // --- helpers ---
  static x86::Gp Gp64(u8 reg) { return x86::gpq(reg); }
  static x86::Mem GsAbs(i32 displacement, unsigned size);
  static x86::Mem State(std::size_t offset, unsigned size = 8) {
    return GsAbs(kVcpuOffset + static_cast<i32>(offset), size);
  }
  static x86::Mem Selector(unsigned segment) {
    return State(offsetof(vcpu::VcpuState, segment) + sizeof(vcpu::Segment) * segment +
                     offsetof(vcpu::Segment, selector),
                 2);
  }
  static x86::Mem SegmentBase(unsigned segment) {
    return State(offsetof(vcpu::VcpuState, segment) + sizeof(vcpu::Segment) * segment +
                 offsetof(vcpu::Segment, base));
  }
  static x86::Mem GuestGpr(u8 reg) { return State(offsetof(vcpu::VcpuState, gpr) + 8u * reg); }
  static i32 PlaceOf(u8 reg) {
    return kVcpuOffset + static_cast<i32>(offsetof(vcpu::VcpuState, gpr) + 8u * reg);
  }
  WatchingAssembler& a() { return hot_.assembler; }

  struct ColdLookup {
    SiteDesc* site;
    HostCode::FarJump jump;  // in the hot code
    Ea ea;
    u8 instr_index;
    FlagsSave save = FlagsSave::kNone;  // in force on the way to the miss
    HostAddr hot_resume{};  // if any: r11 is the offset in the page, and becomes the host address
    bool keep_r10 = false;  // it is a group's
  };
  struct ColdExit {
    ExitDesc* exit;
    HostCode::FarJump jump;
    u8 instr_index;
  };
  struct ColdCall {
    SiteDesc* site;
    HostAddr stub;
    HostCode::FarJump jump;
    FlagsSave save = FlagsSave::kNone;  // in force on the way there
  };

  StubTable stubs_;
  SideData side_;
  HostCode hot_, cold_;
  const EmitRequest* request_ = nullptr;
  const TranslationUnit* tu_ = nullptr;
  Ccf* ccf_ = nullptr;
  unsigned index_ = 0;
  u32 data_used_ = 0;
  // An IDENT instruction that is more than itself where there are several VCPUs?
  bool Calls(const isa::Instr& instr) const {
    return instr.op != isa::Op::kNone && (InfoOf(instr.op).needs & missing_ & isa::kOneVcpu) != 0;
  }

  u8 missing_ = 0;  // OpNeeds that do not hold in this TU
  PcForm form_ = PcForm::kFixed;
  bool portable_ = true;
  bool past_leaf_ = false;   // what is emitted needs to keep the flags no more than what follows
  isa::MovingParts moving_;  // of the instruction; its code was seen to name them:
  bool noted_displacement_ = false, noted_immediate_ = false;
  MissWord MissWordOf(const SiteDesc& site) const;
  unsigned ChooseSlot(const isa::Instr& instr, AccessShape shape);
  // %gs displacement of an inline TLB entry.
  static i32 SlotAt(unsigned slot, bool stores) {
    return kSlotsOffset + (static_cast<i32>(stores) * kSlotCount + static_cast<i32>(slot)) *
                              static_cast<i32>(sizeof(InlineTlbEntry));
  }
  u32 next_slot_ = 0;
  AccessPlans groups_{};
  u64 followed_ = 0;  // by a follower of the same group: a bit per instruction
  std::vector<ColdLookup> cold_lookups_;
  std::vector<ColdExit> cold_exits_;
  std::vector<ColdCall> cold_calls_;
  bool overflow_ = false;
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_EMITTER_IMPL_H_
