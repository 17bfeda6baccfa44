// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/interrupts.h"

#include "frobos/lib/cpu.h"

namespace alibi::frobos {
namespace {

constexpr u16 kMaster = 0x20, kSlave = 0xa0;
constexpr u16 kPit = 0x40, kPitCommand = 0x43;
constexpr u64 kLapicBase = 0xfee00000;
constexpr u8 kEoi = 0x20;

volatile u32* LapicAddress(u32 offset) {
  return reinterpret_cast<volatile u32*>(kLapicBase + offset);
}

}  // namespace

void InitPic() {
  Outb(kMaster, 0x11);  // ICW1: edge, cascade, ICW4 follows
  Outb(kSlave, 0x11);
  Outb(kMaster + 1, kIrqBase);
  Outb(kSlave + 1, kIrqBase + 8);
  Outb(kMaster + 1, 4);  // slave on line 2
  Outb(kSlave + 1, 2);
  Outb(kMaster + 1, 1);  // 8086 mode
  Outb(kSlave + 1, 1);
  MaskAllInterrupts();
}

void MaskAllInterrupts() {
  Outb(kMaster + 1, 0xff);
  Outb(kSlave + 1, 0xff);
}

void UnmaskIrq(unsigned irq) {
  const u16 port = irq < 8 ? kMaster + 1 : kSlave + 1;
  Outb(port, Inb(port) & ~(1u << (irq & 7)));
}

void MaskIrq(unsigned irq) {
  const u16 port = irq < 8 ? kMaster + 1 : kSlave + 1;
  Outb(port, Inb(port) | 1u << (irq & 7));
}

void EndOfIrq(unsigned irq) {
  if (irq >= 8) Outb(kSlave, kEoi);
  Outb(kMaster, kEoi);
}

u8 ReadPicRegister(bool isr) {
  Outb(kMaster, isr ? 0x0b : 0x0a);
  return Inb(kMaster);
}

void StartPit(PitMode mode, u16 divisor) {
  Outb(kPitCommand, 0x30 | static_cast<u8>(mode) << 1);
  Outb(kPit, static_cast<u8>(divisor));
  Outb(kPit, static_cast<u8>(divisor >> 8));
}

void StopPit() { Outb(kPitCommand, 0x30); }

u32 ReadLapic(LapicRegister r) { return *LapicAddress(r); }
void WriteLapic(LapicRegister r, u32 value) { *LapicAddress(r) = value; }

void InitLapic() {
  WriteMsr(kMsrApicBase, ReadMsr(kMsrApicBase) | 1u << 11);
  WriteLapic(kLapicTpr, 0);
  WriteLapic(kLapicTimer, kLapicMasked);
  WriteLapic(kLapicDivide, 0xb);  // by 1
  WriteLapic(kLapicLint0, kLapicExtInt);
  WriteLapic(kLapicLint1, kLapicMasked);
  WriteLapic(kLapicSpurious, kLapicSoftwareEnable | kSpuriousVector);
}

bool LapicBit(LapicRegister array, u8 vector) {
  return *LapicAddress(array + vector / 32 * 0x10) >> (vector % 32) & 1;
}

void SendSelfIpi(u8 vector) {
  WriteLapic(kLapicIcrHigh, 0);
  WriteLapic(kLapicIcrLow, 1u << 18 | 1u << 14 | vector);  // self, assert, fixed
}

}  // namespace alibi::frobos
