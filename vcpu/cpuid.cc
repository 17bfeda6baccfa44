// SPDX-License-Identifier: Apache-2.0
#include "vcpu/cpuid.h"

#include <algorithm>
#include <bit>

#include "vcpu/cpu_differences.h"
#include "vcpu/cpu_models.h"
#include "vcpu/speculation.h"

namespace alibi::vcpu {

CpuidRegisters HostCpuid(u32 leaf, u32 subleaf) {
  CpuidRegisters r;
  asm volatile("cpuid"
               : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
               : "a"(leaf), "c"(subleaf));
  return r;
}

Vendor VendorOf(const CpuidRegisters& leaf0) {
  constexpr u32 kAuth = 0x68747541, kHygo = 0x6f677948;  // "Auth"enticAMD, "Hygo"nGenuine
  return leaf0.ebx == kAuth || leaf0.ebx == kHygo ? Vendor::kAmd : Vendor::kIntel;
}

u64 HostXcr0() {
  constexpr u32 kOsxsave = u32{1} << 27;
  if (!(HostCpuid(1, 0).ecx & kOsxsave)) return 0;
  u32 low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low | (u64{high} << 32);
}

namespace {

constexpr u32 Bit(unsigned n) { return u32{1} << n; }
template <class... N>
constexpr u32 Bits(N... n) {
  return (Bit(static_cast<unsigned>(n)) | ...);
}

// guest register = (host register & pass) | set.
struct PolicyRow {
  u32 leaf;
  u32 subleaf;
  bool any_subleaf;
  CpuidRegisters pass;
  CpuidRegisters set;
};

constexpr u32 kAll = 0xffffffff;
constexpr u32 kMaxBasic = 0xd, kMaxExtended = 0x80000021;
constexpr u32 kHypervisorLeaf = 0x40000000;
constexpr u32 kTopologyLeaf = 0xb;

// Leaf 1. Passed: instructions that run as they are. Hidden: DS, ACPI, HTT; DTES64, MONITOR,
// VMX, SMX, EST, TM2, DCA.
constexpr u32 kLeaf1EcxPass = Bits(
    0 /*SSE3*/, 1 /*PCLMUL*/, 9 /*SSSE3*/, 12 /*FMA*/, 13 /*CX16*/, 19 /*SSE4.1*/, 20 /*SSE4.2*/,
    22 /*MOVBE*/, 23 /*POPCNT*/, 25 /*AES*/, 26 /*XSAVE*/, 28 /*AVX*/, 29 /*F16C*/, 30 /*RDRAND*/);
constexpr u32 kPcidBit = Bit(17), kX2apicBit = Bit(21), kTscDeadlineBit = Bit(24),
              kHypervisorBit = Bit(31), kXsaveBit = Bit(26);
constexpr u32 kLeaf1EcxSet = kPcidBit | kX2apicBit | kTscDeadlineBit | kHypervisorBit;
constexpr u32 kLeaf1EdxPass = Bits(0 /*FPU*/, 8 /*CX8*/, 15 /*CMOV*/, 19 /*CLFSH*/, 23 /*MMX*/,
                                   24 /*FXSR*/, 25 /*SSE*/, 26 /*SSE2*/);
constexpr u32 kLeaf1EdxSet =
    Bits(1 /*VME*/, 2 /*DE*/, 3 /*PSE*/, 4 /*TSC*/, 5 /*MSR*/, 6 /*PAE*/, 7 /*MCE*/, 9 /*APIC*/,
         11 /*SEP*/, 12 /*MTRR*/, 13 /*PGE*/, 14 /*MCA*/, 16 /*PAT*/, 17 /*PSE36*/);
// Leaf 7. Hidden: SGX, HLE, RTM, MPX, PT; PKU, WAITPKG, CET, LA57, MOVDIR64B, ENQCMD; AMX. Of
// speculation control there is what speculation.h claims.
constexpr u32 kLeaf7EbxPass =
    Bits(3 /*BMI1*/, 5 /*AVX2*/, 8 /*BMI2*/, 9 /*ERMS*/, 16 /*AVX512F*/, 17 /*AVX512DQ*/,
         18 /*RDSEED*/, 19 /*ADX*/, 21 /*AVX512IFMA*/, 23 /*CLFLUSHOPT*/, 24 /*CLWB*/,
         28 /*AVX512CD*/, 29 /*SHA*/, 30 /*AVX512BW*/, 31 /*AVX512VL*/);
constexpr u32 kLeaf7EbxSet =
    Bits(0 /*FSGSBASE*/, 1 /*TSC_ADJUST*/, 7 /*SMEP*/, 10 /*INVPCID*/, 20 /*SMAP*/);
constexpr u32 kLeaf7EcxPass =
    Bits(0 /*PREFETCHWT1*/, 1 /*AVX512VBMI*/, 6 /*AVX512VBMI2*/, 8 /*GFNI*/, 9 /*VAES*/,
         10 /*VPCLMULQDQ*/, 11 /*AVX512VNNI*/, 12 /*AVX512BITALG*/, 14 /*AVX512VPOPCNTDQ*/);
constexpr u32 kLeaf7EcxSet = Bits(2 /*UMIP*/, 22 /*RDPID*/);
constexpr u32 kLeaf7EdxPass = Bits(4 /*FSRM*/, 8 /*AVX512VP2INTERSECT*/, 23 /*AVX512FP16*/);
constexpr u32 kLeaf7Sub1EaxPass = Bits(4 /*AVXVNNI*/, 5 /*AVX512BF16*/);
// Leaf 80000001h. Hidden: SVM, EXTAPIC, AltMovCr8, SSE4A, OSVW, IBS, XOP, FMA4, TBM, TOPOEXT;
// FFXSR, 3DNow.
constexpr u32 kExtEcxPass = Bits(0 /*LAHF*/, 5 /*ABM*/, 7 /*MISALIGNSSE*/, 8 /*3DNOWPREFETCH*/);
constexpr u32 kSyscallBit = Bit(11);
constexpr u32 kExtEdxPass = Bits(22 /*MMXEXT*/);
constexpr u32 kExtEdxSet =
    kSyscallBit | Bits(20 /*NX*/, 26 /*1GB pages*/, 27 /*RDTSCP*/, 29 /*LM*/);
// What AMD repeats of leaf 1 in 80000001h.
constexpr u32 kAmdRepeated = 0x0183f3ff;

constexpr PolicyRow kPolicy[] = {
    {0x0, 0, true, {0, kAll, kAll, kAll}, {}},
    {0x1,
     0,
     true,
     {kAll, 0x0000ffff, kLeaf1EcxPass, kLeaf1EdxPass},
     {0, 0, kLeaf1EcxSet, kLeaf1EdxSet}},
    {0x2, 0, true, {kAll, kAll, kAll, kAll}, {}},
    // One core, one thread: the sharing counts go.
    {0x4, 0, false, {0x3fff, kAll, kAll, kAll}, {}},
    {0x4, 1, false, {0x3fff, kAll, kAll, kAll}, {}},
    {0x4, 2, false, {0x3fff, kAll, kAll, kAll}, {}},
    {0x4, 3, false, {0x3fff, kAll, kAll, kAll}, {}},
    {0x6, 0, true, {}, {Bit(2) /*ARAT*/, 0, 0, 0}},
    {0x7,
     0,
     false,
     {0, kLeaf7EbxPass, kLeaf7EcxPass, kLeaf7EdxPass},
     {1, kLeaf7EbxSet, kLeaf7EcxSet, 0}},
    {0x7, 1, false, {kLeaf7Sub1EaxPass, 0, 0, 0}, {}},
    {0x7, 2, false, {}, {}},
    // One thread of one core: x2APIC ID 0 at both levels.
    {0xb, 0, false, {}, {0, 1, 0x100 /*level 0: threads*/, 0}},
    {0xb, 1, false, {}, {0, 1, 0x201 /*level 1: cores*/, 0}},
    // Sizes and EAX, EDX of subleaf 0 are computed. No XSAVES: no supervisor state.
    {0xd, 0, false, {}, {}},
    {0xd, 1, false, {Bits(0 /*XSAVEOPT*/, 1 /*XSAVEC*/, 2 /*XGETBV1*/), 0, 0, 0}, {}},
    {0xd, 2, false, {kAll, kAll, kAll, 0}, {}},
    {0xd, 5, false, {kAll, kAll, kAll, 0}, {}},
    {0xd, 6, false, {kAll, kAll, kAll, 0}, {}},
    {0xd, 7, false, {kAll, kAll, kAll, 0}, {}},
    // "AlibiAlibi  "
    {kHypervisorLeaf, 0, true, {}, {kHypervisorLeaf, 0x62696c41, 0x696c4169, 0x20206962}},
    {0x80000000, 0, true, {0, kAll, kAll, kAll}, {}},
    {0x80000001, 0, true, {kAll, kAll, kExtEcxPass, kExtEdxPass}, {0, 0, 0, kExtEdxSet}},
    {0x80000002, 0, true, {kAll, kAll, kAll, kAll}, {}},
    {0x80000003, 0, true, {kAll, kAll, kAll, kAll}, {}},
    {0x80000004, 0, true, {kAll, kAll, kAll, kAll}, {}},
    {0x80000005, 0, true, {kAll, kAll, kAll, kAll}, {}},
    {0x80000006, 0, true, {kAll, kAll, kAll, kAll}, {}},
    {0x80000007, 0, true, {0, 0, 0, Bit(8) /*invariant TSC*/}, {}},
    {0x80000008,
     0,
     true,
     {0, Bit(2) /*XSAVEERPTR*/, 0, 0},
     {(kLinearAddressBits << 8) | kPhysicalAddressBits, 0, 0, 0}},
    {0x80000019, 0, true, {kAll, kAll, 0, 0}, {}},
    {0x8000001a, 0, true, {kAll, 0, 0, 0}, {}},
    {0x80000021,
     0,
     true,
     {Bit(2) /*LFENCE serializes*/, 0, 0, 0},
     {Bit(6) /*null clears*/, 0, 0, 0}},
};

// Features whose registers the system must have enabled in XCR0.
struct StateDependency {
  u64 xcr0;
  u32 leaf;
  u32 subleaf;
  CpuidRegisters hidden;  // without it
};
constexpr u64 kXcr0AllAvx512 = kXcr0Avx | kXcr0Avx512;
constexpr StateDependency kDependencies[] = {
    {kXcr0X87 | kXcr0Sse, 0x1, 0, {0, 0, Bits(26, 28, 12, 29), 0}},
    {kXcr0Avx, 0x1, 0, {0, 0, Bits(28, 12, 29), 0}},
    {kXcr0Avx, 0x7, 0, {0, Bits(5), Bits(9, 10), 0}},
    {kXcr0Avx, 0x7, 1, {Bits(4), 0, 0, 0}},
    {kXcr0AllAvx512,
     0x7,
     0,
     {0, Bits(16, 17, 21, 28, 30, 31), Bits(1, 6, 11, 12, 14), Bits(8, 23)}},
    {kXcr0AllAvx512, 0x7, 1, {Bits(5), 0, 0, 0}},
};

CpuidRegisters operator&(const CpuidRegisters& a, const CpuidRegisters& b) {
  return {a.eax & b.eax, a.ebx & b.ebx, a.ecx & b.ecx, a.edx & b.edx};
}
CpuidRegisters operator|(const CpuidRegisters& a, const CpuidRegisters& b) {
  return {a.eax | b.eax, a.ebx | b.ebx, a.ecx | b.ecx, a.edx | b.edx};
}
CpuidRegisters operator~(const CpuidRegisters& a) { return {~a.eax, ~a.ebx, ~a.ecx, ~a.edx}; }

// AVX-512 comes with all of its three components or not at all.
u64 UsableXcr0(u64 host) {
  u64 usable = host & (kXcr0X87 | kXcr0Sse | kXcr0Avx | kXcr0Avx512);
  if ((usable & kXcr0Avx512) != kXcr0Avx512) usable &= ~kXcr0Avx512;
  return usable;
}

// Zeros beyond the highest leaf, where CPUs differ.
class BoundedCpuid {
 public:
  explicit BoundedCpuid(CpuidPolicy::RawCpuid raw)
      : raw_(raw), max_basic_(raw(0, 0).eax), max_extended_(raw(0x80000000, 0).eax) {}
  CpuidRegisters operator()(u32 leaf, u32 subleaf) const {
    const u32 most = leaf >= 0x80000000 ? max_extended_ : max_basic_;
    return leaf <= most ? raw_(leaf, subleaf) : CpuidRegisters();
  }
  u32 max_basic() const { return max_basic_; }
  u32 max_extended() const { return max_extended_; }

 private:
  CpuidPolicy::RawCpuid raw_;
  u32 max_basic_, max_extended_;
};

// What a CPU of the host's must have for the bit to be shown. The other bits describe: how fast
// string instructions are, names, sizes; or are AMD's for instructions that every host has.
struct InstructionBits {
  u32 leaf, subleaf;
  CpuidRegisters bits;
};
constexpr u32 kErms = Bit(9), kFsrm = Bit(4);
constexpr InstructionBits kInstructions[] = {
    {0x1, 0, {0, 0, kLeaf1EcxPass, kLeaf1EdxPass}},
    {0x7, 0, {0, kLeaf7EbxPass & ~kErms, kLeaf7EcxPass, kLeaf7EdxPass & ~kFsrm}},
    {0x7, 1, {kLeaf7Sub1EaxPass, 0, 0, 0}},
    {0xd, 1, {kAll, 0, 0, 0}},
    {0x80000001, 0, {0, 0, kExtEcxPass, 0}},
};

// Bits that are features, of the CPU or of those who run the guest on it; all but the local APIC's
// and the hypervisor's bit, which are the machine's around it.
constexpr InstructionBits kFeatures[] = {
    {0x1, 0, {0, 0, ~(kX2apicBit | kTscDeadlineBit | kHypervisorBit), ~Bit(9)}},
    {0x7, 0, {0, kAll, kAll, kAll}},
    {0x7, 1, {kAll, 0, 0, 0}},
    {0x7, 2, {0, 0, 0, kAll}},
    {0xd, 1, {kAll, 0, 0, 0}},
    {0x80000001, 0, {0, 0, kAll, ~Bit(9)}},
    {0x80000007, 0, {0, 0, 0, kAll}},
    {0x80000008, 0, {0, kAll, 0, 0}},
    {0x80000021, 0, {kAll, 0, kAll, 0}},
};

// Bits of control registers that are reserved without a feature.
struct ControlBits {
  u64 cr4, efer;
  u32 leaf;
  u32 CpuidRegisters::*output;
  unsigned bit;
};
constexpr ControlBits kControlBits[] = {
    {kCr4Vme | kCr4Pvi, 0, 0x1, &CpuidRegisters::edx, 1},
    {kCr4De, 0, 0x1, &CpuidRegisters::edx, 2},
    {kCr4Pse, 0, 0x1, &CpuidRegisters::edx, 3},
    {kCr4Pae, 0, 0x1, &CpuidRegisters::edx, 6},
    {kCr4Pge, 0, 0x1, &CpuidRegisters::edx, 13},
    {kCr4Pcide, 0, 0x1, &CpuidRegisters::ecx, 17},
    {kCr4Osxsave, 0, 0x1, &CpuidRegisters::ecx, 26},
    {kCr4Fsgsbase, 0, 0x7, &CpuidRegisters::ebx, 0},
    {kCr4Smep, 0, 0x7, &CpuidRegisters::ebx, 7},
    {kCr4Smap, 0, 0x7, &CpuidRegisters::ebx, 20},
    {kCr4Umip, 0, 0x7, &CpuidRegisters::ecx, 2},
    {0, kEferSce, 0x80000001, &CpuidRegisters::edx, 11},
    {0, kEferNxe, 0x80000001, &CpuidRegisters::edx, 20},
    {0, kEferLme, 0x80000001, &CpuidRegisters::edx, 29},
    {0, kEferAibrse, 0x80000021, &CpuidRegisters::eax, 8},
};

struct ClaimPlace {
  SpeculationClaim::Place place;
  u32 leaf, subleaf;
  u32 CpuidRegisters::*output;
};
constexpr ClaimPlace kClaimPlaces[] = {
    {SpeculationClaim::Place::kLeaf7Edx, 0x7, 0, &CpuidRegisters::edx},
    {SpeculationClaim::Place::kLeaf7Subleaf2Edx, 0x7, 2, &CpuidRegisters::edx},
    {SpeculationClaim::Place::kLeaf80000008Ebx, 0x80000008, 0, &CpuidRegisters::ebx},
    {SpeculationClaim::Place::kLeaf80000021Eax, 0x80000021, 0, &CpuidRegisters::eax},
    {SpeculationClaim::Place::kLeaf80000021Ecx, 0x80000021, 0, &CpuidRegisters::ecx},
};

}  // namespace

bool CpuidPolicy::ForModel(std::string_view name, CpuidPolicy* policy,
                           std::vector<Missing>* missing) {
  if (name == "host") {
    *policy = ForHost();
    return true;
  }
  const CpuModel* model = FindCpuModel(name);
  if (model == nullptr) return false;
  *policy = Make(model->raw, model->xcr0 & HostXcr0(), &HostCpuid);
  if (missing == nullptr) return true;
  const CpuidPolicy whole = Make(model->raw, model->xcr0);
  for (const InstructionBits& row : kInstructions) {
    const Entry* wanted = whole.Find(row.leaf, row.subleaf);
    const Entry* shown = policy->Find(row.leaf, row.subleaf);
    if (wanted == nullptr || shown == nullptr) continue;
    const CpuidRegisters bits = wanted->registers & row.bits & ~shown->registers;
    if (bits != CpuidRegisters()) missing->push_back({row.leaf, row.subleaf, bits});
  }
  return true;
}

// Leaf 4: sets of a size that is a power of two; 80000006h: units of 512 KB.
void CpuidPolicy::BoundCaches() {
  if (CpuidRegisters* shared = FindRegisters(0x4, 3); shared != nullptr && shared->eax != 0) {
    const u32 ways = (shared->ebx >> 22) + 1, partitions = (shared->ebx >> 12 & 0x3ff) + 1,
              line = (shared->ebx & 0xfff) + 1;
    const u64 set_bytes = u64{partitions} * line * ways;
    u64 sets = u64{shared->ecx} + 1;
    if (sets * set_bytes > kMaxCacheBytes) {
      sets = 1;
      while (sets * 2 * set_bytes <= kMaxCacheBytes) sets *= 2;
      shared->ecx = static_cast<u32>(sets - 1);
    }
  }
  if (CpuidRegisters* shared = FindRegisters(0x80000006, 0)) {
    constexpr u32 kUnit = u32{512} << 10, kShift = 18;
    const u32 units = std::min(shared->edx >> kShift, kMaxCacheBytes / kUnit);
    shared->edx = (shared->edx & ((u32{1} << kShift) - 1)) | units << kShift;
  }
}

void CpuidPolicy::NoteFeatures() {
  const auto note = [this](Feature feature, u32 shown) {
    if (shown != 0) features_ |= Bit(static_cast<unsigned>(feature));
  };
  features_ = 0;
  const CpuidRegisters leaf1 = Find(1, 0)->registers;
  const Entry* leaf7 = Find(7, 0);
  note(Feature::kMtrr, leaf1.edx & Bit(12));
  note(Feature::kX2apic, leaf1.ecx & kX2apicBit);
  note(Feature::kTscDeadline, leaf1.ecx & kTscDeadlineBit);
  note(Feature::kTscAdjust, leaf7 == nullptr ? 0 : leaf7->registers.ebx & Bit(1));
}

void CpuidPolicy::HideApicMsrs() {
  for (Entry& entry : entries_) {
    if (entry.leaf == 1) entry.registers.ecx &= ~(kX2apicBit | kTscDeadlineBit);
    if (entry.leaf == 6) entry.registers.eax &= ~Bit(2);
  }
  NoteFeatures();
}

const CpuidPolicy& CpuidPolicy::ForHost() {
  static const CpuidPolicy policy = Make(&HostCpuid, HostXcr0());
  return policy;
}

CpuidPolicy CpuidPolicy::Make(RawCpuid raw, u64 xcr0, RawCpuid limit) {
  CpuidPolicy policy;
  const BoundedCpuid cpuid(raw);
  policy.vendor_ = VendorOf(raw(0, 0));
  policy.max_basic_ = std::min(cpuid.max_basic(), kMaxBasic);
  policy.max_extended_ = policy.vendor_ == Vendor::kAmd
                             ? kMaxExtended
                             : std::min(cpuid.max_extended(), u32{0x80000008});
  policy.xcr0_valid_ = UsableXcr0(xcr0);

  for (const PolicyRow& row : kPolicy) {
    const bool extended = row.leaf >= 0x80000000;
    const u32 guest_max = extended                      ? policy.max_extended_
                          : row.leaf >= kHypervisorLeaf ? kHypervisorLeaf
                                                        : policy.max_basic_;
    if (row.leaf > guest_max) continue;
    policy.entries_.push_back({row.leaf, row.subleaf, row.any_subleaf,
                               (cpuid(row.leaf, row.subleaf) & row.pass) | row.set});
  }
  auto find = [&policy](u32 leaf, u32 subleaf) { return policy.FindRegisters(leaf, subleaf); };
  if (limit != nullptr) {
    const BoundedCpuid limit_cpuid(limit);
    for (const InstructionBits& row : kInstructions) {
      CpuidRegisters* shown = find(row.leaf, row.subleaf);
      if (shown == nullptr) continue;
      *shown = *shown & (~row.bits | limit_cpuid(row.leaf, row.subleaf));
    }
  }
  policy.HideStateless();

  CpuidRegisters* leaf1 = find(1, 0);
  find(0, 0)->eax = policy.max_basic_;
  find(0x80000000, 0)->eax = policy.max_extended_;
  CpuidRegisters* extended1 = find(0x80000001, 0);
  if (policy.vendor_ == Vendor::kAmd && extended1 != nullptr) {
    extended1->edx |= leaf1->edx & kAmdRepeated;
  }
  policy.SizeXsave();

  policy.signature_ = leaf1->eax;
  policy.cr4_valid_ = kCr4Vme | kCr4Pvi | kCr4Tsd | kCr4De | kCr4Pse | kCr4Pae | kCr4Mce | kCr4Pge |
                      kCr4Pce | kCr4Osfxsr | kCr4Osxmmexcpt | kCr4Umip | kCr4Fsgsbase | kCr4Pcide |
                      kCr4Smep | kCr4Smap;
  if (leaf1->ecx & kXsaveBit) policy.cr4_valid_ |= kCr4Osxsave;
  policy.efer_valid_ = kEferSce | kEferLme | kEferNxe;
  for (const ClaimPlace& place : kClaimPlaces) {
    const u32 bits = static_cast<u32>(ClaimedBits(policy.vendor_, place.place));
    CpuidRegisters* registers = find(place.leaf, place.subleaf);
    if (registers == nullptr || bits == 0) continue;
    registers->*place.output |= bits;
    // Leaf 7 says how many subleaves it has.
    if (place.leaf == 7) find(7, 0)->eax = std::max(find(7, 0)->eax, place.subleaf);
  }
  if (policy.vendor_ == Vendor::kAmd) policy.efer_valid_ |= kEferAibrse;
  policy.BoundCaches();
  policy.NoteFeatures();
  return policy;
}

// What needs registers that XCR0 cannot enable.
void CpuidPolicy::HideStateless() {
  for (const StateDependency& dependency : kDependencies) {
    CpuidRegisters* registers = FindRegisters(dependency.leaf, dependency.subleaf);
    const bool enabled = (xcr0_valid_ & dependency.xcr0) == dependency.xcr0;
    if (registers != nullptr && !enabled) *registers = *registers & ~dependency.hidden;
  }
}

// XSAVE's leaf, by what XCR0 may enable; there is nothing of it without XSAVE.
void CpuidPolicy::SizeXsave() {
  const bool xsave = Find(1, 0)->registers.ecx & kXsaveBit;
  if (!xsave) xcr0_valid_ = 0;
  for (Entry& entry : entries_) {
    if (entry.leaf != 0xd) continue;
    // A component that XCR0 cannot enable does not exist.
    const bool component = entry.subleaf >= 2 && !((xcr0_valid_ >> entry.subleaf) & 1);
    if (!xsave || component) entry.registers = {};
  }
  if (CpuidRegisters* sizes = FindRegisters(0xd, 0); sizes != nullptr && xsave) {
    sizes->eax = static_cast<u32>(xcr0_valid_);
    sizes->ecx = 576;
    for (u32 i = 2; i < 8; ++i) {
      const CpuidRegisters* component = FindRegisters(0xd, i);
      if (component == nullptr || component->eax == 0) continue;
      sizes->ecx = std::max(sizes->ecx, component->eax + component->ebx);
    }
  }
  const CpuidRegisters* options = FindRegisters(0xd, 1);
  has_xgetbv1_ = options != nullptr && (options->eax & Bit(2));
}

void CpuidPolicy::LimitTo(const Supported& supported) {
  for (const InstructionBits& row : kFeatures) {
    CpuidRegisters* shown = FindRegisters(row.leaf, row.subleaf);
    if (shown != nullptr) *shown = *shown & (~row.bits | supported(row.leaf, row.subleaf));
  }
  const CpuidRegisters components = supported(0xd, 0);
  xcr0_valid_ = UsableXcr0(xcr0_valid_ & (components.eax | u64{components.edx} << 32));
  HideStateless();
  SizeXsave();
  for (const ControlBits& row : kControlBits) {
    const CpuidRegisters* shown = FindRegisters(row.leaf, 0);
    if (shown != nullptr && ((shown->*row.output >> row.bit) & 1)) continue;
    cr4_valid_ &= ~row.cr4;
    efer_valid_ &= ~row.efer;
  }
  NoteFeatures();
}

const CpuidPolicy::Entry* CpuidPolicy::Find(u32 leaf, u32 subleaf) const {
  for (const Entry& entry : entries_) {
    if (entry.leaf == leaf && (entry.any_subleaf || entry.subleaf == subleaf)) return &entry;
  }
  return nullptr;
}

CpuidRegisters* CpuidPolicy::FindRegisters(u32 leaf, u32 subleaf) {
  for (Entry& entry : entries_) {
    if (entry.leaf == leaf && entry.subleaf == subleaf) return &entry.registers;
  }
  return nullptr;
}

// Of several VCPUs each is a core with one thread, and all are in one package and share its
// highest level of cache.
void CpuidPolicy::ShowTopology(const VcpuState& state, u32 leaf, u32 subleaf,
                               CpuidRegisters* r) const {
  const u32 cores = state.vcpus;
  const u32 id_bits = static_cast<u32>(std::bit_width(cores - 1));
  switch (leaf) {
    case 1:
      r->ebx |= u32{state.number} << 24 | cores << 16;
      r->edx |= Bit(28);  // HTT: several IDs in a package
      break;
    case 4:
      if (r->eax == 0) break;
      r->eax |= ((1u << id_bits) - 1) << 26;
      if (subleaf == 3) r->eax |= ((1u << id_bits) - 1) << 14;
      break;
    case kTopologyLeaf:
      r->edx = state.number;
      if (subleaf == 1) {
        r->eax = id_bits;
        r->ebx = cores;
      }
      break;
    case 0x80000001:
      if (vendor_ == Vendor::kAmd) r->ecx |= Bit(1);  // CmpLegacy: these are cores
      break;
    case 0x80000008:
      if (vendor_ == Vendor::kAmd) r->ecx |= id_bits << 12 | (cores - 1);
      break;
    default:
      break;
  }
}

CpuidRegisters CpuidPolicy::Query(const VcpuState& state, u32 leaf, u32 subleaf) const {
  const bool basic = leaf < kHypervisorLeaf;
  const bool too_high = basic ? leaf > max_basic_ : leaf >= 0x80000000 && leaf > max_extended_;
  if (too_high) {
    if (!HasIntelsWay(GuestDifference::kCpuidBeyondHighestLeaf, vendor_)) return {};
    leaf = max_basic_;
  }
  const Entry* entry = Find(leaf, subleaf);
  // Levels of the topology that there are not still tell whose they are (SDM vol. 2, CPUID).
  if (entry == nullptr && leaf == kTopologyLeaf && state.vcpus > 1 && Find(leaf, 0) != nullptr) {
    return {0, 0, subleaf & 0xff, state.number};
  }
  if (entry == nullptr) return {};
  CpuidRegisters r = entry->registers;
  if (state.vcpus > 1) ShowTopology(state, leaf, subleaf, &r);
  const u32 apic = (state.apic_base & Bit(11)) ? ~u32{0} : ~Bit(9);
  switch (leaf) {
    case 1:
      r.edx &= apic;
      if ((state.cr4 & kCr4Osxsave) && (r.ecx & Bit(26))) r.ecx |= Bit(27);
      break;
    case 0xd: {
      if (subleaf > 1 || xcr0_valid_ == 0) break;
      // Size of the area for what XCR0 enables now: standard format, or compacted in subleaf 1.
      u32 size = 576;
      for (u32 i = 2; i < 8; ++i) {
        const Entry* component = Find(0xd, i);
        if (component == nullptr || !((state.xcr0 >> i) & 1)) continue;
        const CpuidRegisters& c = component->registers;
        if (subleaf == 0) {
          size = std::max(size, c.eax + c.ebx);
        } else {
          if (c.ecx & 2) size = (size + 63) & ~63u;
          size += c.eax;
        }
      }
      if (subleaf == 0 || (r.eax & Bit(1))) r.ebx = size;
      break;
    }
    case 0x80000001:
      if (vendor_ == Vendor::kAmd) {
        r.edx &= apic;
      } else if (!state.In64BitCode()) {
        r.edx &= ~kSyscallBit;  // Intel shows SYSCALL in 64-bit mode only
      }
      break;
    default:
      break;
  }
  return r;
}

void ExecuteCpuid(VcpuState& state, const CpuidPolicy& policy) {
  CpuidRegisters r =
      policy.Query(state, static_cast<u32>(state.gpr[kRax]), static_cast<u32>(state.gpr[kRcx]));
  state.gpr[kRax] = r.eax;
  state.gpr[kRbx] = r.ebx;
  state.gpr[kRcx] = r.ecx;
  state.gpr[kRdx] = r.edx;
}

}  // namespace alibi::vcpu
