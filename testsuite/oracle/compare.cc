// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "isa/decoder.h"
#include "isa/vector_fields.h"
#include "testsuite/host_cpu.h"
#include "translator/translation_unit.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/fault.h"

namespace alibi::oracle {

namespace {

constexpr const char* kGprNames[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                       "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

constexpr const char* kSegmentNames[6] = {"es", "cs", "ss", "ds", "fs", "gs"};

// What is compared besides memory; masks edit both sides.
struct Side {
  u8 vector;
  u32 error_code;
  u64 cr2;
  CpuState state;
};

struct Masking {
  const CodeImage& code;  // as it was at the end: sequences change themselves
  const CodeImage& initial_code;
  unsigned code_bits;  // at the end
  bool began_narrow;   // in 16- or 32-bit code
  Kind kind;
  unsigned run;
  Side& native;
  Side& guest;
  // So many bytes below the stack pointer may differ.
  u32 ignored_below_stack = 0;
  bool nothing_to_compare = false;
  template <class Edit>
  void Both(Edit edit) {
    edit(native);
    edit(guest);
  }
};

// Which runs a mask is for.
enum class Where : u8 {
  kEverywhere,
  kTranslated,  // it is due to translated code: not where a satellite has executed all of it
};

struct Mask {
  const char* what;
  const char* why;
  void (*apply)(Masking&);
  Where where = Where::kEverywhere;
};

constexpr bool HasErrorCode(u8 vector) {
  return vector == 8 || (vector >= 10 && vector <= 14) || vector == 17;
}

// The instruction at `pc`, if it lies in the code pages.
bool InstrAt(const CodeImage& code, unsigned code_bits, u64 pc, isa::Instr* instr) {
  const u64 at = pc - kCodeBase;
  if (at >= kCodeBytes) return false;
  return isa::Decode(code.data() + at, static_cast<unsigned>(std::min<u64>(15, kCodeBytes - at)),
                     LinearAddr(pc), code_bits, instr) == isa::DecodeStatus::kOk;
}

constexpr Mask kMasks[] = {
    {"the return address below RSP, after #GP of an indirect call to a non-canonical address",
     "translated code has pushed it when the look-up of the target finds out; RSP is put back, and "
     "what lies below it belongs to nobody",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.vector == vcpu::kGeneralProtection && m.native.state.rip == m.guest.state.rip &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) &&
           instr.op == isa::Op::kCallIndirect) {
         m.ignored_below_stack = 8;
       }
     },
     Where::kTranslated},
    {"memory below the stack pointer, after a call, PUSHA or ENTER that faulted outside 64-bit "
     "mode",
     "Zen 5 pushes what it can before it looks at the target or meets the fault; Intel's manual "
     "(vol. 2, CALL) checks first, and so do we",
     [](Masking& m) {
       isa::Instr instr;
       if (m.code_bits == 64 || m.native.vector == vcpu::kBreakpoint ||
           m.native.state.rip != m.guest.state.rip ||
           !InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) ||
           (instr.op != isa::Op::kCallFar && instr.op != isa::Op::kCall &&
            instr.op != isa::Op::kCallIndirect && instr.op != isa::Op::kPusha &&
            instr.op != isa::Op::kEnter)) {
         return;
       }
       m.ignored_below_stack = instr.op == isa::Op::kEnter ? 33 * 4 : 32;
     }},
    {"memory below the stack pointer, after an ENTER that faulted in a satellite",
     "the CPU pushes what it can before it faults; then the translator executes it again, and "
     "where "
     "the frame pointers that it copies lie below the stack pointer, they have been overwritten: "
     "as "
     "when a system restarts it",
     [](Masking& m) {
       isa::Instr instr;
       if (m.kind == Kind::kDirect && m.native.vector != vcpu::kBreakpoint &&
           m.native.state.rip == m.guest.state.rip &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) &&
           instr.op == isa::Op::kEnter) {
         m.ignored_below_stack = 33 * 8;
       }
     }},
    {"which fault a far return or IRET has whose frame is partly out of reach",
     "Zen 5 reads the selector before the offset, and the outer stack pointer behind them even if "
     "the selector turns out to be bad; Sapphire Rapids reads no more than 16 bits of the selector",
     [](Masking& m) {
       isa::Instr instr;
       auto of_stack = [](u8 vector) {
         return vector == vcpu::kStackFault || vector == vcpu::kPageFault ||
                vector == vcpu::kAlignmentCheck;
       };
       auto of_selector = [](u8 vector) {
         return vector == vcpu::kGeneralProtection || vector == vcpu::kSegmentNotPresent;
       };
       const u8 native = m.native.vector, guest = m.guest.vector;
       if ((!of_stack(native) && !of_stack(guest)) || m.native.state.rip != m.guest.state.rip ||
           !InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) ||
           (instr.op != isa::Op::kRetFar && instr.op != isa::Op::kIret)) {
         return;
       }
       if ((of_stack(native) || of_selector(native)) && (of_stack(guest) || of_selector(guest))) {
         m.guest.vector = m.native.vector;
         m.guest.error_code = m.native.error_code;
         m.guest.cr2 = m.native.cr2;
       }
     }},
    {"CR2 of an XSAVE or XRSTOR that faults",
     "which part of the area is touched first, where it is not the end (XsaveAreaEnd)",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.vector == vcpu::kPageFault && m.guest.vector == vcpu::kPageFault &&
           m.native.state.rip == m.guest.state.rip && m.guest.cr2 - m.native.cr2 + 4096 < 8192 &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) &&
           instr.unit == isa::Unit::kXsave &&
           !vcpu::HostHasIntelsWay(vcpu::HostDifference::kXsaveAreaEnd)) {
         m.guest.cr2 = m.native.cr2;
       }
     }},
    {"everything, after #GP in the last 15 bytes of a code segment",
     "how many bytes the CPU fetches in advance: Zen 5 has #GP there before #UD, and now and then "
     "at "
     "a taken LOOP that ends at the limit",
     [](Masking& m) {
       const u16 cs = m.native.state.selector[vcpu::kCs];
       if (m.code_bits != 64 && m.native.vector == vcpu::kGeneralProtection &&
           !vcpu::InSegmentLimit(SegmentOf(cs), static_cast<u32>(OffsetOf(cs, m.native.state.rip)),
                                 16)) {
         m.nothing_to_compare =
             m.guest.state.rip != m.native.state.rip || m.guest.vector != m.native.vector;
       }
     }},
    {"RF in the frame of #DB between the iterations of a REP instruction",
     "Intel's CPUs set it (SDM vol. 3, 17.3.1.1), and so do we; Zen 5 does not",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.vector == vcpu::kDebug && m.native.state.rip == m.guest.state.rip &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) && (instr.rep || instr.repne)) {
         m.Both([](Side& side) { side.state.rflags &= ~vcpu::kRf; });
       }
     }},
    {"where INT1 ends", "the hypervisor of this host reports its #DB as a fault",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.vector == vcpu::kDebug && m.guest.state.rip == m.native.state.rip + 1 &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) && instr.op == isa::Op::kInt1) {
         m.native.state.rip = m.guest.state.rip;
       }
     }},
    {"#GP of a misaligned vector operand against #SS or #GP of one that leaves its segment",
     "an operand that is both: CPUs differ in which they look at first",
     [](Masking& m) {
       isa::Instr instr;
       if (m.code_bits != 64 && m.native.vector == vcpu::kGeneralProtection &&
           m.guest.vector == vcpu::kStackFault && m.native.state.rip == m.guest.state.rip &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) && instr.mem.size >= 16) {
         m.guest.vector = m.native.vector;
       }
     }},
    {"arithmetic flags at a fault in the middle of a repeated CMPS or SCAS",
     "Intel's CPUs show the flags from before the instruction (SDM vol. 2, REP), as the simulator "
     "does; AMD's show those of the last element compared",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.state.rip != m.guest.state.rip ||
           !InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) ||
           !(instr.rep || instr.repne) ||
           (instr.op != isa::Op::kCmps && instr.op != isa::Op::kScas)) {
         return;
       }
       m.Both([](Side& side) { side.state.rflags &= ~vcpu::kArithmeticFlags; });
     }},
    {"arithmetic flags at a site's first fault, or first two page faults, where nothing can read "
     "them "
     "before they are written again",
     "an inserted look-up may compare; whoever inspects the frame of a fault sees some value there "
     "until the site has learnt, as translator/flag_liveness.h says. At the regular end all flags "
     "count, and at every later fault.",
     [](Masking& m) {
       // Code that was overwritten is new code, and so are its sites. Where the sequence is
       // interrupted, translations begin elsewhere from run to run: one that keeps all flags by
       // chance teaches its sites nothing. Nor do runs in a satellite teach the translator.
       if (m.run >= 2 && !IsInterrupted(m.kind) && m.kind != Kind::kDirect &&
           m.code == m.initial_code) {
         return;
       }
       if (m.native.vector == vcpu::kBreakpoint || m.native.state.rip != m.guest.state.rip) return;
       const u16 cs = m.native.state.selector[vcpu::kCs];
       // Of code that was overwritten the translation may be the old one, with other needs.
       const u64 live = m.code == m.initial_code ? LiveFlagsAt(m.code, m.native.state.rip, cs) : 0;
       const u64 dead = vcpu::kArithmeticFlags & ~live;
       m.Both([dead](Side& side) { side.state.rflags &= ~dead; });
     },
     Where::kTranslated},
    {"x87 instruction and data pointers, last opcode",
     "the host's FPU notes where the translation and its operand lie on the host",
     [](Masking& m) {
       m.Both([](Side& side) {
         side.state.vector.fip = side.state.vector.fdp = 0;
         side.state.vector.fop = 0;
       });
     },
     Where::kTranslated},
    {"everything, when one side has #AC at 16 bytes or more, a masked operand, a gather or ENTER",
     "whether such operands are checked, and when, is the CPU model's choice (SDM vol. 3, table "
     "6-7)",
     [](Masking& m) {
       using isa::Op;
       if (m.native.vector == m.guest.vector && m.native.state.rip == m.guest.state.rip) return;
       for (const Side* side : {&m.native, &m.guest}) {
         isa::Instr instr;
         const unsigned bits =
             m.kind == Kind::kSupervisor ? 64 : CodeBitsOf(side->state.selector[vcpu::kCs]);
         if (side->vector == vcpu::kAlignmentCheck &&
             InstrAt(m.code, bits, side->state.rip, &instr) &&
             (instr.mem.size >= 16 || instr.mem.masked_element != 0 ||
              InfoOf(instr.op).Has(isa::kMasksElements) || instr.op == Op::kEnter)) {
           m.nothing_to_compare = true;
         }
       }
     }},
    {"the stack's fault or the target's, of a call that has both",
     "Intel's manual checks the target first (vol. 2, CALL), and so do we; Zen 5 pushes first",
     [](Masking& m) {
       isa::Instr instr;
       if (m.guest.vector == vcpu::kGeneralProtection && m.native.vector != m.guest.vector &&
           m.native.state.rip == m.guest.state.rip &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) &&
           (instr.op == isa::Op::kCallIndirect || instr.op == isa::Op::kCall ||
            instr.op == isa::Op::kCallFar)) {
         m.native.vector = m.guest.vector;
         m.native.error_code = m.guest.error_code;
       }
     }},
    {"#MF of an earlier x87 instruction against the memory fault of this one",
     "a callout has resolved the operand before the FPU is asked; after the guest has mended the "
     "memory fault, #MF follows",
     [](Masking& m) {
       const u8 other = m.guest.vector;
       if (m.native.vector == vcpu::kX87Error && m.native.state.rip == m.guest.state.rip &&
           ((other >= vcpu::kStackFault && other <= vcpu::kPageFault) ||
            other == vcpu::kAlignmentCheck)) {
         m.guest.vector = m.native.vector;
       }
     },
     Where::kTranslated},
    {"#PF, #GP or #AC of an operand that straddles the end of the canonical addresses",
     "the CPU may access such an operand in parts",
     [](Masking& m) {
       if (m.native.vector == vcpu::kPageFault && m.native.cr2 >> 12 == 0x7ffffffff &&
           m.guest.vector != vcpu::kPageFault && m.native.state.rip == m.guest.state.rip) {
         m.native.vector = m.guest.vector;
         m.native.error_code = m.guest.error_code;
       }
     }},
    {"#GP of an FS- or GS-relative operand whose offset is not canonical but whose address is",
     "measured on Zen 5, where Intel's manual checks the sum only (vol. 1, 3.3.7.1)",
     [](Masking& m) {
       isa::Instr instr;
       const bool fault = m.guest.vector == vcpu::kPageFault && m.guest.cr2 >> 63;
       if (m.native.vector == vcpu::kGeneralProtection &&
           (fault || m.guest.vector == vcpu::kAlignmentCheck) &&
           m.native.state.rip == m.guest.state.rip &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) &&
           instr.segment_override != 0xff) {
         m.guest.vector = m.native.vector;
         m.guest.error_code = 0;
       }
     }},
    {"#GP or #SS of an operand that goes over the end of 4 GB, in 32-bit code with a limit of 4 GB",
     "implementation-specific (SDM vol. 3, 5.3): Zen 5 faults, a flat segment here wraps",
     [](Masking& m) {
       isa::Instr instr;
       if (m.code_bits == 64 || m.native.state.rip != m.guest.state.rip ||
           (m.native.vector != vcpu::kGeneralProtection && m.native.vector != vcpu::kStackFault) ||
           !InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) || !instr.mem.present ||
           (m.guest.vector != vcpu::kPageFault && m.guest.vector != vcpu::kAlignmentCheck)) {
         return;
       }
       if (m.guest.vector == vcpu::kPageFault && m.guest.cr2 < 0xffffff00 &&
           m.guest.cr2 >= kPageSize) {
         return;
       }
       m.guest.vector = m.native.vector;
       m.guest.error_code = m.native.error_code;
     }},
    {"#PF of the first elements of a masked operand that goes over the end of 4 GB, against #GP or "
     "#SS of the one that crosses it",
     "implementation-specific (SDM vol. 3, 5.3): Sapphire Rapids has #PF",
     [](Masking& m) {
       isa::Instr instr;
       if (m.code_bits != 64 && m.native.state.rip == m.guest.state.rip &&
           m.native.vector == vcpu::kPageFault &&
           (m.guest.vector == vcpu::kGeneralProtection || m.guest.vector == vcpu::kStackFault) &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) &&
           instr.mem.masked_element != 0 &&
           SegmentOf(m.native.state.selector[instr.mem.segment]).limit == 0xffffffff) {
         m.guest.vector = m.native.vector;
         m.guest.error_code = m.native.error_code;
         m.guest.cr2 = m.native.cr2;
       }
     }},
    {"#PF of the first half of an operand of 64 bytes whose second half leaves the address space",
     "Zen 4 accesses it in two parts",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.state.rip == m.guest.state.rip && m.native.vector == vcpu::kPageFault &&
           (m.guest.vector == vcpu::kGeneralProtection || m.guest.vector == vcpu::kStackFault) &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) && instr.mem.size == 64) {
         m.guest.vector = m.native.vector;
         m.guest.error_code = m.native.error_code;
         m.guest.cr2 = m.native.cr2;
       }
     }},
    {"everything, after #GP or #SS of an x87 operand of ten bytes, a far pointer or BOUND's "
     "operand "
     "that leaves its segment",
     "Zen 5 accesses such an operand in two parts, and the second one may wrap at 64 KB",
     [](Masking& m) {
       isa::Instr instr;
       const bool differ = m.guest.vector != m.native.vector ||
                           m.guest.error_code != m.native.error_code ||
                           m.guest.state.rip != m.native.state.rip;
       if (m.began_narrow && differ && m.guest.error_code == 0 &&
           (m.guest.vector == vcpu::kGeneralProtection || m.guest.vector == vcpu::kStackFault) &&
           InstrAt(m.code, CodeBitsOf(m.guest.state.selector[vcpu::kCs]), m.guest.state.rip,
                   &instr) &&
           instr.mem.present &&
           (instr.mem.size == 10 || instr.op == isa::Op::kJmpFar || instr.op == isa::Op::kCallFar ||
            InfoOf(instr.op).Has(isa::kLoadsFarPointer) || instr.op == isa::Op::kBound)) {
         m.nothing_to_compare = true;
       }
     }},
    {"everything, after #GP of SGDT, SIDT, SLDT, STR or SMSW",
     "Linux emulates them; jumps astray and overwritten code come upon them",
     [](Masking& m) {
       isa::Instr instr;
       if (m.guest.vector == vcpu::kGeneralProtection &&
           InstrAt(m.code, CodeBitsOf(m.guest.state.selector[vcpu::kCs]), m.guest.state.rip,
                   &instr) &&
           (instr.op == isa::Op::kSgdt || instr.op == isa::Op::kSidt ||
            instr.op == isa::Op::kSldt || instr.op == isa::Op::kStr ||
            instr.op == isa::Op::kSmsw)) {
         m.nothing_to_compare = true;
       }
     }},
    {"everything, after #UD of a reserved encoding that the host runs",
     "rows IgnoredVexW, BroadcastOfRegister and LockedVerw of docs/cpu_differences.md",
     [](Masking& m) {
       const u64 at = m.guest.state.rip - kCodeBase;
       if (m.guest.vector == vcpu::kInvalidOpcode && at < kCodeBytes &&
           (m.native.vector != m.guest.vector || m.native.state.rip != m.guest.state.rip) &&
           testsuite::RunsReservedEncoding(std::span(m.code).subspan(at)) != nullptr) {
         m.nothing_to_compare = true;
       }
     }},
    {"registers after a POPA that faulted", "Zen 5 loads them as it goes, we at the end",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.vector != m.guest.vector || m.native.state.rip != m.guest.state.rip ||
           !InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) ||
           instr.op != isa::Op::kPopa) {
         return;
       }
       for (unsigned i = 0; i < 8; ++i) {
         if (i != vcpu::kRsp) m.guest.state.gpr[i] = m.native.state.gpr[i];
       }
     }},
    {"#UD of a vector instruction that the host does not know against its memory fault",
     "a callout has resolved the operand before the host sees the instruction",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.vector == vcpu::kInvalidOpcode && m.native.state.rip == m.guest.state.rip &&
           InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) && instr.mem.present &&
           instr.encoding != isa::Encoding::kLegacy) {
         m.guest.vector = m.native.vector;
       }
     },
     Where::kTranslated},
    {"the upper part of a gather's destination, when the gather faults",
     "some CPUs clear what lies beyond the vector length first, some last; the simulator does it "
     "last, as the manual's pseudo-code",
     [](Masking& m) {
       isa::Instr instr;
       if (m.native.vector == vcpu::kBreakpoint || m.native.state.rip != m.guest.state.rip ||
           !InstrAt(m.code, m.code_bits, m.native.state.rip, &instr) ||
           instr.op != isa::Op::kGather) {
         return;
       }
       const isa::VectorFields f(instr);
       m.Both([&](Side& side) {
         std::memset(side.state.vector.zmm[f.reg] + f.bytes, 0,
                     sizeof(side.state.vector.zmm[f.reg]) - f.bytes);
       });
     }},
    {"CS, SS, and the U/S bit of #PF's error code, of sequences that run at CPL 0",
     "the native side always runs at CPL 3",
     [](Masking& m) {
       if (m.kind != Kind::kSupervisor) return;
       for (const vcpu::SegmentIndex i : {vcpu::kCs, vcpu::kSs}) {
         m.guest.state.selector[i] = m.native.state.selector[i];
       }
       m.Both([](Side& side) {
         if (side.vector == vcpu::kPageFault) side.error_code &= ~vcpu::kPfUser;
       });
     }},
    {"#PF error code, P bit, beyond what Linux lets users map",
     "the host's kernel sets it so that user programs cannot probe its mappings",
     [](Masking& m) {
       m.Both([](Side& side) {
         constexpr u64 kTaskSizeMax = 0x7ffffffff000;
         if (side.vector == vcpu::kPageFault && side.cr2 >= kTaskSizeMax) {
           side.error_code |= vcpu::kPfPresent;
         }
       });
     }},
    {"r8 to r15 and the upper halves of registers, after 16- and 32-bit code",
     "such code cannot see them; what they hold then is undefined (SDM vol. 1, 3.4.1.1)",
     [](Masking& m) {
       if (!m.began_narrow) return;
       m.Both([](Side& side) {
         for (unsigned i = 0; i < 16; ++i) {
           side.state.gpr[i] = i < 8 ? side.state.gpr[i] & 0xffffffff : 0;
         }
       });
     }},
    {"the RPL of null selectors", "an IRET of the host's kernel clears it",
     [](Masking& m) {
       m.Both([](Side& side) {
         for (u16& selector : side.state.selector) {
           if (selector < 4) selector = 0;
         }
       });
     }},
    {"RFLAGS.TF of stepped sequences", "the stepping itself",
     [](Masking& m) {
       if (m.kind == Kind::kStepped) m.Both([](Side& side) { side.state.rflags &= ~vcpu::kTf; });
     }},
    {"error code of exceptions that have none, CR2 of all but #PF",
     "the host's kernel reports those of an earlier exception",
     [](Masking& m) {
       m.Both([](Side& side) {
         if (!HasErrorCode(side.vector)) side.error_code = 0;
         if (side.vector != vcpu::kPageFault) side.cr2 = 0;
       });
     }},
};

std::string Hex(const u8* bytes, unsigned size) {
  std::string text;
  for (unsigned i = size; i-- > 0;) text += fmt::format("{:02x}{}", bytes[i], i % 8 ? "" : " ");
  return text;
}

class Report {
 public:
  void Value(const std::string& name, u64 native, u64 guest) {
    if (native == guest) return;
    lines_.push_back(fmt::format("* {:<8} native {:#018x}  alibi {:#018x}", name, native, guest));
  }
  void Bytes(const std::string& name, const u8* native, const u8* guest, unsigned size) {
    if (std::memcmp(native, guest, size) == 0) return;
    lines_.push_back(fmt::format("* {:<8} native {}\n           alibi  {}", name, Hex(native, size),
                                 Hex(guest, size)));
  }
  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

// Does a push or pop of the last `bytes` bytes below the stack pointer reach this byte?
bool BelowStack(const CpuState& state, u32 bytes, u64 linear) {
  const u16 cs = state.selector[vcpu::kCs];
  const u64 sp = state.gpr[vcpu::kRsp];
  if (CodeBitsOf(cs) == 64) return sp - 1 - linear < bytes;
  const vcpu::Segment stack = SegmentOf(state.selector[vcpu::kSs]);
  const u32 offset = static_cast<u32>(linear - stack.base);
  // In a segment of 16 bits all offsets count that are equal there.
  return ((static_cast<u32>(sp) - 1 - offset) & vcpu::StackMask(stack)) < bytes;
}

void CompareMemory(const Outcome& native, const Outcome& guest, u32 ignored, Report* report) {
  if (native.memory == guest.memory) return;
  unsigned shown = 0;
  u64 at = 0;
  for (const DataPage& page : kDataPages) {
    if (page.kind == PageKind::kAbsent) continue;
    for (u64 i = 0; i < kPageSize; i += 8) {
      u64 a, b;
      std::memcpy(&a, native.memory.data() + at + i, 8);
      std::memcpy(&b, guest.memory.data() + at + i, 8);
      for (unsigned byte = 0; ignored != 0 && a != b && byte < 8; ++byte) {
        if (!BelowStack(native.state, ignored, page.linear + i + byte)) continue;
        const u64 mask = u64{0xff} << (8 * byte);
        b = (b & ~mask) | (a & mask);
      }
      if (a != b && ++shown <= 8) report->Value(fmt::format("[{:x}]", page.linear + i), a, b);
    }
    at += kPageSize;
  }
}

// Outside 64-bit mode: is the next instruction's first byte outside CS?
bool BehindLimit(const CpuState& state) {
  const u16 cs = state.selector[vcpu::kCs];
  return CodeBitsOf(cs) != 64 &&
         !vcpu::InSegmentLimit(SegmentOf(cs), static_cast<u32>(OffsetOf(cs, state.rip)), 1);
}

// Did the sequence overwrite one of its REP instructions?
bool OverwritesRep(const TestCase& test, const Outcome& native) {
  u64 at = test.initial.rip - kCodeBase;
  for (std::size_t i = 0; i < test.code.size(); ++i) {
    const auto& bytes = test.code[i];
    isa::Instr instr;
    const unsigned bits = i < test.code_bits.size() ? test.code_bits[i] : test.CodeBits();
    if (!std::equal(bytes.begin(), bytes.end(), native.code.begin() + static_cast<i64>(at)) &&
        InstrAt(test.CodePages(), bits, kCodeBase + at, &instr) && (instr.rep || instr.repne)) {
      return true;
    }
    at += bytes.size();
  }
  return false;
}

}  // namespace

u64 LiveFlagsAt(const CodeImage& image, u64 pc, u16 cs) {
  const unsigned code_bits = CodeBitsOf(cs);
  const u64 offset = pc - kCodeBase;
  if (offset >= kCodeBytes) return vcpu::kArithmeticFlags;
  auto unit = std::make_unique<translator::TranslationUnit>();
  const u64 in_page = offset & kPageMask;
  const u64 page = offset - in_page;
  const bool last = page + kPageSize == kCodeBytes;
  const auto status = translator::BuildTranslationUnit(
      {.pc = LinearAddr(pc),
       .code_bits = code_bits,
       .bytes = image.data() + offset,
       .available = static_cast<unsigned>(kPageSize - in_page),
       .next_page = last ? nullptr : image.data() + page + kPageSize,
       .next_available = last ? 0u : 16u,
       .page_before = static_cast<unsigned>(in_page),
       .code_base = code_bits == 64 ? 0 : static_cast<u32>(SegmentOf(cs).base)},
      unit.get());
  if (status != isa::DecodeStatus::kOk) return vcpu::kArithmeticFlags;
  return unit->flags_live_before[0];
}

std::vector<std::string> Differences(const TestCase& test, Kind kind, const Outcome& native,
                                     const Outcome& guest, unsigned run) {
  if (native.end != End::kException) return {};
  const bool changed = native.code != test.CodePages();
  // A stepped REP that overwrites itself is fetched again after every element; and else the CPU
  // chooses when.
  if (changed && (IsInterrupted(kind) || OverwritesRep(test, native))) return {};
  // Of code that runs into its segment's limit the debug handler's IRET has the #GP already.
  if (IsInterrupted(kind) && BehindLimit(native.state)) return {};
  // To the debug handler an INT1 that the sequence came upon is one #DB more.
  if (IsInterrupted(kind) && native.vector == vcpu::kDebug) return {};
  Report report;
  if (guest.end == End::kTimeout && native.slow) return {};
  // A #AC that is the CPU model's choice (see the masks) would have ended the loop.
  if (isa::Instr instr; guest.end == End::kTimeout && native.vector == vcpu::kAlignmentCheck &&
                        InstrAt(native.code, 64, native.state.rip, &instr) &&
                        instr.mem.size >= 16) {
    return {};
  }
  if (guest.end != End::kException) {
    return {guest.end == End::kTimeout ? "* the translated sequence does not end"
                                       : "* the guest shut down or left its handlers"};
  }
  Side n{native.vector, native.error_code, native.cr2, native.state};
  Side g{guest.vector, guest.error_code, guest.cr2, guest.state};
  // The handler of a tick amid the sequence returns with its own ID and NT.
  if (native.slow) {
    n.state.rflags &= ~(vcpu::kId | vcpu::kNt);
    g.state.rflags &= ~(vcpu::kId | vcpu::kNt);
  }
  const CodeImage initial_code = test.CodePages();
  Masking masking{native.code,
                  initial_code,
                  CodeBitsOf(native.state.selector[vcpu::kCs]),
                  test.CodeBits() != 64,
                  kind,
                  run,
                  n,
                  g,
                  0,
                  false};
  for (const Mask& mask : kMasks) {
    if (mask.where == Where::kTranslated && guest.way == Way::kDirect) continue;
    mask.apply(masking);
  }
  if (masking.nothing_to_compare) return {};
  report.Value("vector", n.vector, g.vector);
  report.Value("error", n.error_code, g.error_code);
  report.Value("cr2", n.cr2, g.cr2);
  report.Value("rip", n.state.rip, g.state.rip);
  report.Value("rflags", n.state.rflags, g.state.rflags);
  for (unsigned i = 0; i < 16; ++i) report.Value(kGprNames[i], n.state.gpr[i], g.state.gpr[i]);
  for (unsigned i = 0; i < 6; ++i) {
    report.Value(kSegmentNames[i], n.state.selector[i], g.state.selector[i]);
  }
  report.Value("fs_base", n.state.fs_base, g.state.fs_base);
  report.Value("gs_base", n.state.gs_base, g.state.gs_base);
  const VectorState &a = n.state.vector, &b = g.state.vector;
  if (!(a == b)) {
    report.Value("fcw", a.fcw, b.fcw);
    report.Value("fsw", a.fsw, b.fsw);
    report.Value("ftw", a.ftw, b.ftw);
    report.Value("mxcsr", a.mxcsr, b.mxcsr);
    for (unsigned i = 0; i < 8; ++i) {
      report.Bytes(fmt::format("st{}", i), a.st[i], b.st[i], 10);
      report.Value(fmt::format("k{}", i), a.k[i], b.k[i]);
    }
    for (unsigned i = 0; i < 32; ++i) {
      report.Bytes(fmt::format("zmm{}", i), a.zmm[i], b.zmm[i], 64);
    }
  }
  unsigned shown = 0;
  for (u64 i = 0; i < kCodeBytes && native.code != guest.code; ++i) {
    if (native.code[i] == guest.code[i] || ++shown > 8) continue;
    report.Value(fmt::format("[{:x}]", kCodeBase + i), native.code[i], guest.code[i]);
  }
  CompareMemory(native, guest, masking.ignored_below_stack, &report);
  return report.Take();
}

std::string MaskTable() {
  std::string text;
  for (const Mask& mask : kMasks) {
    text +=
        fmt::format("{}{}:\n    {}\n", mask.what,
                    mask.where == Where::kTranslated ? " (translated code only)" : "", mask.why);
  }
  return text;
}

}  // namespace alibi::oracle
