// SPDX-License-Identifier: Apache-2.0
// A CCF outside any TC: what emitting it again would give, for another TC, another run of the same
// program, and another place of the same code. It holds the guest's bytes that it was made from, so
// that nobody need trust a key or a hash.
//
//   CCF in a TC --Pack()--> bytes --Parse(), MadeFrom()--> --Unpack()--> CCF in a TC
//
// Its code is that of a TC whose parts all begin at 0; the lists of its relocations say which
// values depend on which part's place. An entry check is left out, and made anew where it is
// wanted.
#ifndef ALIBI_TRANSLATOR_PACKED_CCF_H_
#define ALIBI_TRANSLATOR_PACKED_CCF_H_

#include <array>
#include <optional>
#include <span>

#include "abi/callouts.h"
#include "base/types.h"
#include "translator/ccf.h"
#include "translator/emitter.h"

namespace alibi::translator {

// The values in the code that depend on where something lies: ALIBI_RELOCATION(name, code that
// holds them, bytes, and the parts whose place is added and subtracted).
#define ALIBI_RELOCATIONS(X)             \
  X(HotToCold, Hot, 4, Cold, Hot)        \
  X(HotToStub, Hot, 4, Stubs, Hot)       \
  X(ColdToHot, Cold, 4, Hot, Cold)       \
  X(ColdToStub, Cold, 4, Stubs, Cold)    \
  X(HotDescriptor, Hot, 8, Data, None)   \
  X(ColdDescriptor, Cold, 8, Data, None) \
  X(MissOfHot, Cold, 8, Hot, Stubs)      \
  X(MissOfCold, Cold, 8, Cold, Stubs)    \
  X(BranchNote, Hot, 4, Data, Origin)    \
  X(HotPc32, Hot, 4, Pc, None)           \
  X(ColdPc32, Cold, 4, Pc, None)         \
  X(HotPc64, Hot, 8, Pc, None)

enum class Relocation : u8 {
#define ALIBI_RELOCATION(name, holder, bytes, plus, minus) k##name,
  ALIBI_RELOCATIONS(ALIBI_RELOCATION)
#undef ALIBI_RELOCATION
      kCount
};
inline constexpr unsigned kRelocationKinds = static_cast<unsigned>(Relocation::kCount);

class PackedCcf {
 public:
  static constexpr unsigned kAlignment = 8;  // of the bytes

  // What Emit() has just made, not committed yet, of `request`. `page` is the guest's, with the
  // examined bytes in it. The number of bytes; 0: it is not portable, or has no room there.
  static u64 Pack(const EmitRequest& request, const EmitResult& emitted, const StubTable& stubs,
                  const Ccf& ccf, const u8* page, std::span<u8> room);

  // None: Pack() has not written that. What it accepts can be unpacked; whether its code is what
  // the emitter made is for the caller to know.
  static std::optional<PackedCcf> Parse(std::span<const u8> bytes);

  LinearAddr pc() const { return header().pc; }
  // Is it what Emit() would make of code at `pc` in `page` now, but for the plans?
  bool MadeFrom(LinearAddr pc, const CodeMode& mode, const u8* page) const;
  // Of each instruction, and where it begins, counted from the PC.
  std::span<const SitePlan> plans() const { return {plans_, header().instrs}; }
  const u8* offsets() const { return offsets_; }
  // What it was made from, from the PC on.
  std::span<const CodeRange> ranges() const { return {ranges_, header().ranges}; }

  // Behaves as Emitter::Emit() of a request of which these parts count.
  struct Request {
    LinearAddr pc{};
    CodeMode mode;
    bool indirect_entry = false;
    const isa::FeatureSet* shown = nullptr;
    const StubTable* stubs = nullptr;
    const u8* page = nullptr;
    EmitTarget target;
  };
  // Its code, in the result, lives as long as the room for it.
  struct Room {
    std::array<u8, kMaxHotBytes> hot;
    std::array<u8, kMaxColdBytes> cold;
  };
  EmitResult Unpack(const Request& request, Room* room, Ccf* ccf) const;

 private:
  enum class Part : u8 { kNone, kHot, kCold, kData, kStubs, kOrigin, kPc, kCount };
  using Places = std::array<u64, static_cast<unsigned>(Part::kCount)>;
  struct RelocationKind {
    Part holder;
    u8 bytes;
    Part plus, minus;
  };
  static const RelocationKind kKinds[kRelocationKinds];

  // A CodeMode without gaps. Those with single or careful are not portable.
  struct Mode {
    static Mode Of(const CodeMode& mode);
    u64 code_limit;
    u32 code_base;
    u8 code_bits, facts, unit_rules, unused;
    bool operator==(const Mode&) const = default;
  };
  struct Header {
    LinearAddr pc;
    Mode mode;
    u16 hot_bytes, cold_bytes;
    u16 data_bytes, side_offset;  // descriptors lie in front of the side data
    u16 redirect;                 // in the cold code
    u16 slots_used;
    i16 examined_begin, examined_end;  // from the PC
    u16 examined_bytes;                // of all ranges
    u16 guest_bytes;
    u8 flags_live_in, movable;
    u8 exits, sites, faults, cold_map, pcs, instrs, ranges, words;
    std::array<u8, kRelocationKinds> relocations;
  };
  struct Site {
    i32 slot;
    u16 data_offset, resume, span_minus_1, size;
    u8 resumes_in;  // Part
    u8 shape, instr_index, vector, facts, unused[3];
  };
  struct Exit {
    i32 target;  // from the PC
    u16 data_offset, patch, stub;
    u8 kind, patch_length, instr_index, has_stub, unused[2];
  };

  const Header& header() const { return *reinterpret_cast<const Header*>(bytes_.data()); }
  bool Locate();
  bool IsSound() const;
  bool StaysInKernel(u64 delta) const;
  unsigned RelocationCount() const;
  static void Relocate(const u8* counts, const u16* offsets, const Places& from, const Places& to,
                       u8* hot, u8* cold);
  SiteDesc* MakeSite(const Site& site, const Places& places, u8* data, Ccf* ccf) const;
  ExitDesc* MakeExit(const Exit& exit, const Request& request, const Places& places, u8* hot,
                     Ccf* ccf) const;
  std::span<const isa::MovingWord> words() const { return {words_, header().words}; }
  // f(place) for the word's places in the bytes of the ranges, which may overlap. How many they
  // are.
  template <class F>
  unsigned ForEachPlace(const isa::MovingWord& word, F f) const;
  void MakeSideData(const Request& request, unsigned check, std::span<ExitDesc* const> exits,
                    std::span<SiteDesc* const> sites, Ccf* ccf) const;

  std::span<const u8> bytes_;
  // In `bytes_`, in this order behind the header.
  const Site* sites_ = nullptr;
  const Exit* exits_ = nullptr;
  const FaultPoint* faults_ = nullptr;
  const CodeMapEntry* map_ = nullptr;
  const ColdMapEntry* cold_map_ = nullptr;
  const CodeRange* ranges_ = nullptr;
  const isa::MovingWord* words_ = nullptr;
  const PcPlace* pcs_ = nullptr;
  const u16* relocations_ = nullptr;
  const SitePlan* plans_ = nullptr;
  const u8* offsets_ = nullptr;
  const u8* guest_ = nullptr;
  const u8* hot_ = nullptr;
  const u8* cold_ = nullptr;
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_PACKED_CCF_H_
