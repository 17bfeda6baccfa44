// SPDX-License-Identifier: Apache-2.0
// One-instruction wrappers and the names of architectural bits (Intel SDM vol. 3A ch. 2, vol. 4).
#ifndef ALIBI_FROBOS_LIB_CPU_H_
#define ALIBI_FROBOS_LIB_CPU_H_

#include "frobos/common/port.h"
#include "frobos/lib/privileged.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

enum Vector : u8 {
  kDivideError = 0,
  kDebug = 1,
  kNmi = 2,
  kBreakpoint = 3,
  kOverflow = 4,
  kInvalidOpcode = 6,
  kDeviceNotAvailable = 7,
  kDoubleFault = 8,
  kInvalidTss = 10,
  kSegmentNotPresent = 11,
  kStackFault = 12,
  kGeneralProtection = 13,
  kPageFault = 14,
  kMathFault = 16,
  kAlignmentCheck = 17,
  kSimdFault = 19,
};

// Page-fault error code.
inline constexpr u64 kPfPresent = 1, kPfWrite = 2, kPfUser = 4, kPfReserved = 8, kPfFetch = 16;

inline constexpr u64 kFlagCf = 1u << 0, kFlagPf = 1u << 2, kFlagAf = 1u << 4, kFlagZf = 1u << 6,
                     kFlagSf = 1u << 7, kFlagTf = 1u << 8, kFlagIf = 1u << 9, kFlagDf = 1u << 10,
                     kFlagOf = 1u << 11, kFlagIopl = 3u << 12, kFlagNt = 1u << 14,
                     kFlagRf = 1u << 16, kFlagAc = 1u << 18, kFlagId = 1u << 21;
inline constexpr u64 kFlagsFixed = 2;
inline constexpr u64 kFlagsArithmetic = kFlagCf | kFlagPf | kFlagAf | kFlagZf | kFlagSf | kFlagOf;

inline constexpr u64 kCr0Pe = 1u << 0, kCr0Mp = 1u << 1, kCr0Em = 1u << 2, kCr0Ts = 1u << 3,
                     kCr0Ne = 1u << 5, kCr0Wp = 1u << 16, kCr0Am = 1u << 18, kCr0Pg = 1u << 31;
inline constexpr u64 kCr4Tsd = 1u << 2, kCr4Pge = 1u << 7, kCr4Osfxsr = 1u << 9,
                     kCr4Osxmmexcpt = 1u << 10, kCr4Umip = 1u << 11, kCr4Fsgsbase = 1u << 16,
                     kCr4Osxsave = 1u << 18, kCr4Smep = 1u << 20, kCr4Smap = 1u << 21;

inline constexpr u32 kMsrApicBase = 0x1b, kMsrSysenterCs = 0x174, kMsrSysenterEsp = 0x175,
                     kMsrSysenterEip = 0x176, kMsrEfer = 0xc0000080, kMsrStar = 0xc0000081,
                     kMsrLstar = 0xc0000082, kMsrCstar = 0xc0000083, kMsrSfmask = 0xc0000084,
                     kMsrFsBase = 0xc0000100, kMsrGsBase = 0xc0000101,
                     kMsrKernelGsBase = 0xc0000102, kMsrTscAux = 0xc0000103;
inline constexpr u64 kEferSce = 1u << 0, kEferLme = 1u << 8, kEferLma = 1u << 10,
                     kEferNxe = 1u << 11;

inline u16 Inw(u16 port) {
  u16 value;
  asm volatile("inw %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
inline void Outw(u16 port, u16 value) { asm volatile("outw %0, %1" : : "a"(value), "Nd"(port)); }
inline void Outl(u16 port, u32 value) { asm volatile("outl %0, %1" : : "a"(value), "Nd"(port)); }
inline u32 Inl(u16 port) {
  u32 value;
  asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
inline CpuidResult Features() { return Cpuid(1); }
inline CpuidResult ExtendedFeatures() {
  return Cpuid(0).eax >= 7 ? Cpuid(7) : CpuidResult{0, 0, 0, 0};
}
inline bool HasApic() { return Features().edx >> 9 & 1; }
inline bool HasXsave() { return Features().ecx >> 26 & 1; }
inline bool HasAvx() { return Features().ecx >> 28 & 1; }
inline bool HasCx16() { return Features().ecx >> 13 & 1; }
inline bool HasPge() { return Features().edx >> 13 & 1; }
inline bool HasFsgsbase() { return ExtendedFeatures().ebx & 1; }
inline bool HasSmep() { return ExtendedFeatures().ebx >> 7 & 1; }
inline bool HasSmap() { return ExtendedFeatures().ebx >> 20 & 1; }
inline bool HasUmip() { return ExtendedFeatures().ecx >> 2 & 1; }
inline bool HasNx() { return Cpuid(0x80000001).edx >> 20 & 1; }
inline bool HasGigabytePages() { return Cpuid(0x80000001).edx >> 26 & 1; }
inline bool HasRdtscp() { return Cpuid(0x80000001).edx >> 27 & 1; }

// Gives user code the registers that Linux gives it: the bases of FS and GS, and x87 to AVX-512. A
// VMM that runs user code on the CPU itself may ask for that.
inline void EnableRegistersLikeLinux() {
  if (HasFsgsbase()) WriteCr4(ReadCr4() | kCr4Fsgsbase);
  if (!HasXsave()) return;
  constexpr u32 kX87SseAvxAvx512 = 0xe7;
  WriteCr4(ReadCr4() | kCr4Osxsave);
  asm volatile("xsetbv" : : "a"(Cpuid(0xd).eax & kX87SseAvxAvx512), "c"(0), "d"(0));
}

inline u64 Rdtsc() {
  u32 lo, hi;
  asm volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
  return (u64{hi} << 32) | lo;
}
inline u64 ReadFlags() {
  u64 v;
  asm volatile("pushfq; pop %0" : "=r"(v) : : "memory");
  return v;
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_CPU_H_
