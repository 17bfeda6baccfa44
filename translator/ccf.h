// SPDX-License-Identifier: Apache-2.0
// Compiled code fragments: what the emitter is asked for and what it produces.
//
// A CCF has a hot part (the translation) and a cold part (exit stubs, look-up misses), which lie in
// different regions of the TC. Its record, descriptors and side data lie in the TC's data region,
// which emitted code knows by absolute addresses.
#ifndef ALIBI_TRANSLATOR_CCF_H_
#define ALIBI_TRANSLATOR_CCF_H_

#include <array>
#include <cstddef>
#include <span>

#include "abi/callouts.h"
#include "base/types.h"
#include "isa/ir.h"
#include "translator/code_references.h"
#include "translator/entry_check.h"
#include "translator/examined_code.h"
#include "translator/instr_list.h"
#include "translator/translation_unit.h"
#include "vcpu/memory.h"
#include "vcpu/state.h"

namespace alibi::translator {

struct Ccf;

inline constexpr PhysPage kNoPage{~u64{0}};

// May code at this linear address be moved in the TC to another one of which the same is true?
// (That of kernels stays where it is.)
constexpr bool IsMovable(LinearAddr pc) { return FormOf(pc) == PcForm::kWide; }

// A redirection of a CCF's entry overwrites so many bytes: nothing but the entry itself may be
// jumped to in them.
inline constexpr unsigned kEntryBytes = 5;

// The small set of mode bits that a translation depends on, besides PC and physical page.
struct CodeMode {
  u8 code_bits = 64;        // 16, 32, 64
  bool user = false;        // CPL 3
  bool cpl_1_or_2 = false;  // pages take it for the kernel, privileged instructions do not
  bool flat = true;         // not 16-bit code; CS DS ES SS have base 0 and no effective limit
  bool wide_stack = true;   // SS.B, of code that is not flat: ESP, not SP, is the stack pointer
  bool single = false;      // one instruction per TU, exits not chained (single-step, shadows)
  bool simulate = false;    // the TU's first memory site is translated SIMULATE (page crossings)
  bool careful = false;     // no access without a callout: alignment checks, data breakpoints
  u8 unit_rules = 0;        // UnitRule bits
  // Of CS; code is translated for one base and limit, because its branches depend on both.
  u32 code_base = 0;
  u64 code_limit = ~u64{0};

  constexpr u32 Bits() const {
    return (code_bits | (u32{user} << 8) | (u32{flat} << 9) | (u32{single} << 10) |
            (u32{simulate} << 11) | (u32{careful} << 12) | (u32{cpl_1_or_2} << 13) |
            (u32{wide_stack} << 14) | (u32{unit_rules} << 16)) ^
           code_base * 0x9e3779b1u;
  }
  // Linear PCs are what code is known by; RIP is the offset in CS.
  constexpr u64 RipOf(LinearAddr pc) const {
    return code_base == 0 ? pc.value : static_cast<u32>(pc.value - code_base);
  }
  // Only flat code uses the views' jump tables, which know PCs and nothing about segments
  // or privilege levels but for user and kernel.
  constexpr bool UsesJumpTable() const { return flat && !cpl_1_or_2; }
  constexpr bool operator==(const CodeMode&) const = default;
};

// Does the operand's segment have a say? Emitted code then compares the offset with the segment's
// room and adds its base (VcpuState::segment_fast_limit); where it is bounced, its callout gets the
// offset instead of the linear address.
inline bool ChecksSegment(const isa::Instr& instr, const CodeMode& mode) {
  return instr.code_bits != 64 && (!mode.flat || instr.mem.segment >= vcpu::kFs ||
                                   (instr.mem.segment == vcpu::kCs && instr.mem.written));
}

// How one guest instruction's memory operand is translated: from optimistic to general.
enum class SiteKind : u8 {
  kDirect,    // look-up, then the op; what it must not touch traps on the host
  kChecked,   // the look-up tests the entry and calls out instead of trapping
  kSimulate,  // always calls out; the op runs on a bounce operand
};

// Where a look-up gets its displacement from.
enum class LookupKind : u8 {
  kSlot,   // cached (page, displacement) pair behind a predicted branch
  kTable,  // the flat shadow table: no compare, but a load in the address's dependency chain
};

struct SitePlan {
  SiteKind kind = SiteKind::kDirect;
  LookupKind lookup = LookupKind::kSlot;
  bool alone = false;  // must not share another access's look-up (its group crossed pages)
  constexpr bool operator==(const SitePlan&) const = default;
};

// Which access of its instruction a site makes.
enum class AccessShape : u8 {
  kOperand,            // the explicit memory operand
  kPush,               // the stack slot below rsp
  kPop,                // the stack slot at rsp
  kFrame,              // LEAVE: the stack slot at rbp
  kStringSource,       // at rsi
  kStringDestination,  // at rdi
};
constexpr bool IsString(AccessShape shape) { return shape >= AccessShape::kStringSource; }

// A site's descriptor in the TC data region.
struct SiteDesc {
  HostAddr resume;  // behind the look-up, or behind the callout; none: dispatch
  Ccf* ccf = nullptr;
  mutable isa::Instr* instr = nullptr;  // decoded, once somebody has asked (the runtime's)
  void* record = nullptr;               // the adaptation record, once looked up (the runtime's)
  i32 slot = 0;                         // %gs displacement of the inline TLB entry; 0: none
  u16 span_minus_1 = 0;                 // bytes the look-up must cover, less one
  u16 size = 0;                         // bytes of this one access
  AccessShape shape = AccessShape::kOperand;
  u8 instr_index = 0;
  u8 vector = 0;             // raise: the exception vector
  bool window = false;       // index into VcpuState::ram_window. false: loads, true: stores
  bool checked = false;      // an unusable entry is a callout
  bool shared = false;       // later accesses use its displacement, too
  bool in_group = false;     // r10 holds a group's displacement, which must not grow stale
  bool keeps_flags = false;  // all of them are the guest's own here, those that nothing reads, too

  // Host PC of the instruction's first byte.
  HostAddr Restart() const;
};

// Where a CCF is left.
enum class ExitKind : u8 {
  kDirect,     // same page, chained by patching the rel32
  kCrossPage,  // constant target in another page: through the view's jump table
  kIndirect,   // computed target in r11, through the view's jump table
};

struct ExitDesc {
  LinearAddr target{};  // kIndirect: 0. Of a CCF that is not current, see Target()
  HostAddr patch{};     // the jump to patch: its first byte
  HostAddr stub{};      // the exit's stub
  Ccf* ccf = nullptr;
  Ccf* linked = nullptr;              // chained successor
  ExitDesc* next_incoming = nullptr;  // the successor's list of chained predecessors
  ExitKind kind = ExitKind::kDirect;
  u8 patch_length = 0;  // 5: jmp rel32, 6: jcc rel32, 9/10: jmp through the table
  u8 instr_index = 0;
  bool elided = false;  // falls through into `linked`, there is no jump

  // By its target's entry, whose %gs displacement the jump ends with.
  bool NamesTableEntry() const { return kind == ExitKind::kCrossPage && patch_length != 5; }

  // kDirect: where its CCF's mapping is now. The stub of a CCF that was replaced long ago may still
  // be reached: a request to stop borrows it for the entry of an elided successor.
  LinearAddr Target() const;
};

// Host PC -> guest PC: instruction `instr_index` begins at hot offset `host_offset`. `ident` marks
// bytes copied from the guest.
struct CodeMapEntry {
  u16 host_offset = 0;
  u8 instr_index = 0;
  bool ident = false;
};

// A host instruction that may fault on behalf of the guest, by hot offset.
struct FaultPoint {
  u16 host_offset = 0;
  u8 site = 0;  // index into Ccf::sites()
  // The displacement in r10 was looked up by an earlier access: after a refill r10 must be
  // recomputed, because this access has no look-up of its own to restart.
  bool follower = false;
};

// Cold code, by the site it belongs to.
struct ColdMapEntry {
  u16 cold_offset = 0;
  u8 instr_index = 0;
  u8 unused = 0;
};

// Where the code holds a linear address that moves with the CCF's PC: 64 bits, at an
// offset in the hot code.
using PcPlace = u16;

// How often a CCF ran, if it was asked to count (EmitRequest::count). In the TC's data region.
struct ExecutionCounts {
  u64 entered = 0;
  // How often it was left (a fault, a retry, overwritten code) with this instruction the first that
  // was not executed.
  std::array<u64, kMaxTuInstructions> left_before{};
  bool told_before = false;  // the engine has told somebody of this CCF
};

// Where a physical page's code runs. Links (ExitDesc) never leave it. Kept by runtime/code_index.h.
struct CodeMapping {
  LinearAddr linear_page;  // its base; Ccf::pc of the CCFs that are current lies in it
  PhysPage phys_page;
  Ccf* enterable = nullptr;  // its CCFs; those that cross into another page are
  Ccf* crossing = nullptr;   // in this list
  CodeMapping* next_of_page = nullptr;
};

// Lies in the TC's data region, in front of its side data and descriptors: nothing of a CCF is
// allocated elsewhere, and all of it goes when the TC is flushed.
struct Ccf {
  // What a search or a walk over many of them looks at comes first: a CCF that has not been used
  // for a while is in no cache of the host's.
  LinearAddr pc;  // once it is not current, see Pc()
  CodeMode mode;
  HostAddr entry;           // direct entry
  HostAddr indirect_entry;  // checks that r11 is pc; none: not made
  Ccf* next_in_mapping = nullptr;
  bool valid = true;      // false: its guest code changed, or it is replaced and left for good
  bool retired = false;   // replaced by another translation of the same code
  u8 reached_by = 0;      // the kinds of jumps (a bit per JumpKind) known to lead here
  bool forwards = false;  // its entry leads to a later translation of the same place
  bool in_mapping = false, in_place = false;
  bool flags_live_in = true;  // its first instructions may read the flags it is entered with
  bool leaf = false;          // one of those that calls may inline (leaf_call.h)

  // Lists of runtime/code_index.h.
  CodeMapping* mapping = nullptr;
  Ccf* older = nullptr;
  Ccf* next_in_place = nullptr;
  PhysPage phys_page;             // of pc
  PhysPage phys_page2 = kNoPage;  // of the next page, for an instruction that crosses
  ExitDesc* incoming = nullptr;   // chained predecessors (intrusive: callouts may not allocate)
  HostAddr hot_start, hot_end;    // of the executable alias
  HostAddr cold_start, cold_end;
  HostAddr redirect;  // cold code that looks Pc() up again, for when the entry is redirected
  // Range, in pc's page, of the bytes this translation depends on: its own and those that
  // flag liveness looked ahead to. content_hash is theirs.
  LinearAddr examined_begin, examined_end;
  u64 content_hash = 0;
  ExecutionCounts* counts = nullptr;       // null: not counted
  const isa::FeatureSet* shown = nullptr;  // EmitRequest::shown
  const u8* side = nullptr;                // see SideData
  u8 exit_count = 0, site_count = 0, fault_count = 0, cold_count = 0, pc_count = 0, instr_count = 0;
  std::array<u8, kEntryBytes> entry_bytes{};  // what a redirection of the entry overwrote
  bool movable = false;  // what depends on its PC is in pcs(), exits() and its entry check
  u16 guest_bytes = 0;

  // Its mapping may have been moved while it was not current, or not.
  LinearAddr Pc() const { return mapping->linear_page + pc.PageOffset(); }

  std::span<ExitDesc* const> exits() const { return List<ExitDesc*>(0, exit_count); }
  std::span<SiteDesc* const> sites() const { return List<SiteDesc*>(SitesAt(), site_count); }
  std::span<const FaultPoint> faults() const { return List<FaultPoint>(FaultsAt(), fault_count); }
  std::span<const CodeMapEntry> map() const { return List<CodeMapEntry>(MapAt(), instr_count); }
  std::span<const ColdMapEntry> cold_map() const {
    return List<ColdMapEntry>(ColdMapAt(), cold_count);
  }
  std::span<const PcPlace> pcs() const { return List<PcPlace>(PcsAt(), pc_count); }
  std::span<const SitePlan> plans() const { return List<SitePlan>(PlansAt(), instr_count); }
  InstrList instrs() const {
    return InstrList(side + InstrsAt(), instr_count, pc, mode.code_bits, mode.code_base, shown);
  }

 private:
  friend class PackedCcf;
  friend class SideData;
  // Where the lists begin. The most aligned are the first.
  u64 SitesAt() const { return exit_count * sizeof(ExitDesc*); }
  u64 FaultsAt() const { return SitesAt() + site_count * sizeof(SiteDesc*); }
  u64 MapAt() const { return FaultsAt() + fault_count * sizeof(FaultPoint); }
  u64 ColdMapAt() const { return MapAt() + instr_count * sizeof(CodeMapEntry); }
  u64 PcsAt() const { return ColdMapAt() + cold_count * sizeof(ColdMapEntry); }
  u64 PlansAt() const { return PcsAt() + pc_count * sizeof(PcPlace); }
  u64 InstrsAt() const { return PlansAt() + instr_count * sizeof(SitePlan); }
  template <class T>
  std::span<const T> List(u64 offset, u8 count) const {
    return {reinterpret_cast<const T*>(side + offset), count};
  }
};

static_assert(offsetof(Ccf, mapping) == 64);

inline LinearAddr ExitDesc::Target() const {
  return ccf->mapping->linear_page + target.PageOffset();
}

inline HostAddr SiteDesc::Restart() const {
  return ccf->hot_start + ccf->map()[instr_index].host_offset;
}

// Where the emitted bytes will run.
struct EmitTarget {
  HostAddr hot;
  HostAddr cold;
  u32 hot_room = 0;
  u32 cold_room = 0;
  HostAddr data_origin;  // of the whole region: what VcpuState::last_branch counts from
  u8* data = nullptr;    // descriptors, right behind the CCF; for reading and writing
  u32 data_room = 0;
};

// A function that is one instruction and its return, or nothing else than that (leaf_call.h).
struct LeafCall {
  HostAddr entry;               // what the jump table holds for it; none: there is no such function
  isa::Op op = isa::Op::kNone;  // what it does before it returns
  isa::Instr instr;             // that instruction, unless it only returns
};

struct EmitRequest {
  const TranslationUnit* tu = nullptr;
  CodeMode mode;
  std::array<SitePlan, kMaxTuInstructions> plans{};
  LeafCall leaf;                // that the CALL at the TU's end calls
  bool indirect_entry = false;  // reached through the jump table: put the PC check in the hot path
  const isa::FeatureSet* shown = nullptr;  // that the TU was built with; outlives the CCF
  vcpu::PortIo* ports = nullptr;           // for latched ports; may be null
  bool one_vcpu = true;                    // PAUSE waits for no other
  bool sysret_loads_ss = true;             // Intel; AMD changes the selector alone
  bool pushes_half_selectors = false;      // Intel: of the 32 bits that PUSH makes room for
  // Its fault is reported if both operands have one; and of REPE CMPSB?
  std::array<bool, 2> cmps_destination_first{};
  u32 slot_seed = 0;   // first inline TLB entry to hand out
  bool count = false;  // with Ccf::counts; costs a few instructions per entry
  EmitTarget target;
};

struct EmitResult {
  bool fits = true;
  u32 hot_size = 0, cold_size = 0, data_size = 0;
  u32 slots_used = 0;
  // Nothing in it depends on this machine but what the references say.
  bool portable = false;
  // If it fits: the code and its references, the emitter's own until it emits again.
  const u8* hot_code = nullptr;
  const u8* cold_code = nullptr;
  const CodeReferences* hot_references = nullptr;
  const CodeReferences* cold_references = nullptr;
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_CCF_H_
