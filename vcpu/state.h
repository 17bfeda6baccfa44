// SPDX-License-Identifier: Apache-2.0
// The architectural and VMM-side state of one virtual CPU.
//
// Rules of this struct:
//  1. Emitted code reaches it at small negative %gs offsets (see abi/contract.h), so it is
//     standard-layout, its size is fixed, and every offset that emitted code or assembly uses is
//     asserted below.
//  2. While translated code runs, the arithmetic flags, the vector state and all GPRs except the
//     stolen ones (r10, r11) live in the host registers; gpr[10] and gpr[11] are always current.
//     Outside translated code everything here is current (the extended state after a full exit).
//  3. CF PF AF ZF SF OF are real; DF and IF are bytes of their own (emitted code flips them with
//     one store); every other RFLAGS bit lives in system_flags. Rflags()/SetRflags() combine them.
//  4. Segment bases of FS/GS in 64-bit mode are segment[].base; MSR_FS_BASE/GS_BASE alias them.
#ifndef ALIBI_VCPU_STATE_H_
#define ALIBI_VCPU_STATE_H_

#include <cstddef>

#include "base/types.h"

namespace alibi::vcpu {

enum Gpr : u8 {
  kRax,
  kRcx,
  kRdx,
  kRbx,
  kRsp,
  kRbp,
  kRsi,
  kRdi,
  kR8,
  kR9,
  kR10,
  kR11,
  kR12,
  kR13,
  kR14,
  kR15
};

// In the order of the Sreg encoding (SDM vol. 2, table B-8).
enum SegmentIndex : u8 { kEs, kCs, kSs, kDs, kFs, kGs, kLdtr, kTr, kSegmentCount };

// RFLAGS bits.
inline constexpr u64 kCf = 1u << 0, kPf = 1u << 2, kAf = 1u << 4, kZf = 1u << 6, kSf = 1u << 7,
                     kTf = 1u << 8, kIf = 1u << 9, kDf = 1u << 10, kOf = 1u << 11, kIopl = 3u << 12,
                     kNt = 1u << 14, kRf = 1u << 16, kVm = 1u << 17, kAc = 1u << 18,
                     kVif = 1u << 19, kVip = 1u << 20, kId = 1u << 21;
inline constexpr u64 kArithmeticFlags = kCf | kPf | kAf | kZf | kSf | kOf;
inline constexpr u64 kFlagsReserved1 = 2;  // bit 1 reads as one

// CR0, CR4, EFER bits.
inline constexpr u64 kCr0Pe = 1u << 0, kCr0Mp = 1u << 1, kCr0Em = 1u << 2, kCr0Ts = 1u << 3,
                     kCr0Et = 1u << 4, kCr0Ne = 1u << 5, kCr0Wp = 1u << 16, kCr0Am = 1u << 18,
                     kCr0Nw = 1u << 29, kCr0Cd = 1u << 30, kCr0Pg = 1u << 31;
inline constexpr u64 kCr4Vme = 1u << 0, kCr4Pvi = 1u << 1, kCr4Tsd = 1u << 2, kCr4De = 1u << 3,
                     kCr4Pse = 1u << 4, kCr4Pae = 1u << 5, kCr4Mce = 1u << 6, kCr4Pge = 1u << 7,
                     kCr4Pce = 1u << 8, kCr4Osfxsr = 1u << 9, kCr4Osxmmexcpt = 1u << 10,
                     kCr4Umip = 1u << 11, kCr4Fsgsbase = 1u << 16, kCr4Pcide = 1u << 17,
                     kCr4Osxsave = 1u << 18, kCr4Smep = 1u << 20, kCr4Smap = 1u << 21;
inline constexpr u64 kEferSce = 1u << 0, kEferLme = 1u << 8, kEferLma = 1u << 10,
                     kEferNxe = 1u << 11, kEferAibrse = 1u << 21;

inline constexpr u64 kDebugCtlBtf = 1u << 1;

// Descriptor attributes as in bits 8-15 and 20-23 of a descriptor's high dword (SDM vol. 3,
// 3.4.5): bits 0-3 type, 4 S, 5-6 DPL, 7 P, 12 AVL, 13 L, 14 D/B, 15 G.
struct Segment {
  u64 base = 0;
  u32 limit = 0;  // in bytes, granularity applied
  u16 selector = 0;
  u16 attributes = 0;

  constexpr unsigned Type() const { return attributes & 0xf; }
  constexpr bool CodeOrData() const { return attributes & 0x10; }
  constexpr unsigned Dpl() const { return (attributes >> 5) & 3; }
  constexpr bool Present() const { return attributes & 0x80; }
  constexpr bool Long() const { return attributes & 0x2000; }
  constexpr bool Big() const { return attributes & 0x4000; }
};

struct DescriptorTable {
  u64 base = 0;
  u16 limit = 0;
  u16 pad[3] = {};
};

inline constexpr unsigned kMaxVcpus = 16;  // of a machine

inline constexpr std::size_t kXsaveAreaSize = 4096;
// MSRs that nothing but RDMSR and WRMSR knows; see vcpu/msr.cc.
inline constexpr unsigned kStoredMsrs = 40;

struct Scratch {
#define ALIBI_SCRATCH(name, what) u64 name;
#include "vcpu/scratch.inc"
};

struct alignas(64) VcpuState {
  // --- Hot: reached by emitted code ---
  u64 gpr[16];
  u64 rip;
  u64 arithmetic_flags;  // CF PF AF ZF SF OF, valid outside translated code
  u8 if_flag;            // RFLAGS.IF, 0 or 1
  u8 df_flag;            // RFLAGS.DF, 0 or 1
  u8 cpl;
  u8 interrupt_shadow;  // 1: the next instruction boundary does not take interrupts (STI, MOV SS)
  u32 system_flags;     // TF IOPL NT RF VM AC VIF VIP ID, in RFLAGS positions
  u32 stop_requested;   // non-zero: leave translated code at the next boundary (any thread sets it)
  u32 cr8_bias;         // 16 when lowering CR8 must be seen by the VMM, else 0
  u64 cr8;              // TPR[7:4]
  Scratch scratch;
  u64 host_rsp;             // the VMM's stack while translated code runs
  u64 callout_argument;     // what a stub tells its callout
  u32 irq_pending;          // an interrupt waits for IF, the shadow or the TPR to let it in
  u32 last_branch;          // the latest computed branch: 1 + offset of its exit in the TC's data
  HostAddr resume_host_pc;  // where translated code goes on after a callout
  u64 slow_rdtsc[2];  // non-zero: RDTSC and RDTSCP call the simulator, [1] at CPL 3; UpdateRdtsc

  // --- Masks and constants that emitted code loads (PEXT masks must come from memory) ---
  u64 cr8_reserved_mask;    // bits of CR8 that must be zero
  u64 page_index_mask;      // linear bits 47:12
  u64 jump_index_mask;      // kJumpIndexMask
  u64 conflict_index_mask;  // ConflictEntry::kIndexMask
  u64 ram_window[2];        // host start of [read-only alias | read-write alias] for loads, stores
  u64 ram_window_size[2];
  // How many bytes from offset 0 on loads [0] and stores [1] may touch in a segment without a
  // closer look at it; outside 64-bit code. See UpdateFastLimits.
  i64 segment_fast_limit[2][6];

  // --- SYSCALL and SYSRET as emitted code runs them; see PrepareFastSyscall ---
  struct FastSyscall {
    u64 unusable;                  // non-zero: call the simulator
    u64 kept_flags;                // ~SFMASK
    u64 enter_cs[2], enter_ss[2];  // Segment images
    u64 leave_cs[2], leave_ss[2];
  } fast_syscall;

  // --- System state ---
  u64 cr0, cr2, cr3, cr4, efer, xcr0;
  u64 dr[8];
  Segment segment[kSegmentCount];
  DescriptorTable gdtr, idtr;
  u64 star, lstar, cstar, sfmask, kernel_gs_base;
  u64 sysenter_cs, sysenter_esp, sysenter_eip;
  u64 pat, mtrr_def_type, apic_base, tsc_aux, misc_enable;
  u64 debugctl;    // IA32_DEBUGCTL
  i64 tsc_offset;  // guest TSC = host TSC + tsc_offset
  u64 stored_msr[kStoredMsrs];
  u8 halted;  // HLT executed, waiting for an interrupt
  u8 nmi_blocked;
  u8 shutdown;           // triple fault
  u8 nmi_pending;        // an NMI waits for nmi_blocked or the interrupt shadow to go
  u8 task_trap;          // a task with the T flag was entered: #DB before its first instruction
  u8 tsc_watched;        // the platform is told of each reading of the TSC
  u8 waits_for_startup;  // for a startup IPI: after INIT, and from power-up on but for VCPU 0
  u8 number;             // among the machine's VCPUs, and its APIC ID; 0: the boot processor
  u8 vcpus;              // of the machine, as CPUID shows them; 0 and 1 are one
  u8 pad[7];

  // --- Ports that emitted code accesses as memory: of each size (1, 2, 4 bytes) the latch that was
  // accessed last through DX ---
  struct LatchedPort {
    u64 negated;  // -(port + 1); 0: none
    u64 cell;     // host address
    u64 kept;     // see PortLatch
  } latched_port[3];

  // --- Extended state (XSAVE standard format), valid after a full exit ---
  alignas(64) u8 xsave_area[kXsaveAreaSize];

  u64 Rflags() const {
    return arithmetic_flags | (u64{if_flag} << 9) | (u64{df_flag} << 10) | system_flags |
           kFlagsReserved1;
  }
  void SetRflags(u64 value) {
    arithmetic_flags = value & kArithmeticFlags;
    if_flag = (value >> 9) & 1;
    df_flag = (value >> 10) & 1;
    system_flags =
        static_cast<u32>(value & (kTf | kIopl | kNt | kRf | kVm | kAc | kVif | kVip | kId));
  }
  bool LongModeActive() const { return efer & kEferLma; }
  bool In64BitCode() const { return LongModeActive() && segment[kCs].Long(); }
  // 64, 32 or 16: the default size of the running code segment.
  unsigned CodeBits() const { return In64BitCode() ? 64 : segment[kCs].Big() ? 32 : 16; }
  // Of the next instruction: in legacy modes a CS base counts, and addresses have 32 bits.
  LinearAddr LinearPc() const {
    return LinearAddr(In64BitCode() ? rip : static_cast<u32>(rip + segment[kCs].base));
  }
  bool Paging() const { return cr0 & kCr0Pg; }
  bool ProtectedMode() const { return cr0 & kCr0Pe; }
  // May explicit accesses raise #AC?
  bool ChecksAlignment() const { return cpl == 3 && AlignmentArmed(); }
  bool AlignmentArmed() const { return (cr0 & kCr0Am) && (system_flags & kAc); }
  unsigned Iopl() const { return (system_flags >> 12) & 3; }
};

static_assert(offsetof(VcpuState, gpr) == 0);
static_assert(offsetof(VcpuState, rip) == 128);
static_assert(offsetof(VcpuState, arithmetic_flags) == 136);
static_assert(offsetof(VcpuState, if_flag) == 144);
static_assert(offsetof(VcpuState, stop_requested) == 152);
static_assert(offsetof(VcpuState, cr8) == 160);
static_assert(offsetof(VcpuState, scratch) == 168);
static_assert(sizeof(VcpuState) <= 8192, "the VCPU block is two pages");

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_STATE_H_
