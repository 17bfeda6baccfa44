// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib32/console.h"

#include <stdarg.h>

namespace alibi::frobos {
namespace {

constexpr u16 kUart = 0x3f8;
constexpr u16 kDebugExitPort = 0xf4;
constexpr u8 kTransmitterEmpty = 0x20;

u32 checks_passed;
u32 checks_failed;
bool on_qemu;

void PutNumber(u32 value, u32 base, u32 width, char fill) {
  char digits[12];
  u32 n = sizeof(digits);
  do {
    digits[--n] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  for (u32 i = sizeof(digits) - n; i < width; i++) PutChar(fill);
  while (n < sizeof(digits)) PutChar(digits[n++]);
}

void PrintList(const char* format, va_list args) {
  for (const char* p = format; *p != 0; p++) {
    if (*p != '%') {
      PutChar(*p);
      continue;
    }
    p++;
    char fill = ' ';
    u32 width = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
      if (*p == '0' && width == 0) fill = '0';
      width = width * 10 + static_cast<u32>(*p - '0');
    }
    switch (*p) {
      case 'd': {
        const i32 v = va_arg(args, i32);
        if (v < 0) PutChar('-');
        PutNumber(v < 0 ? -static_cast<u32>(v) : static_cast<u32>(v), 10, width, fill);
        break;
      }
      case 'u':
        PutNumber(va_arg(args, u32), 10, width, fill);
        break;
      case 'x':
        PutNumber(va_arg(args, u32), 16, width, fill);
        break;
      case 'c':
        PutChar(static_cast<char>(va_arg(args, int)));
        break;
      case 's':
        for (const char* s = va_arg(args, const char*); *s != 0; s++) PutChar(*s);
        break;
      default:
        PutChar(*p);
    }
  }
}

void Pass(const char* name) {
  checks_passed++;
  Print("PASS %s\n", name);
}

}  // namespace

void InitConsole() {
  Outb(kUart + 1, 0x00);  // no interrupts
  Outb(kUart + 3, 0x80);  // DLAB
  Outb(kUart + 0, 1);     // 115200 baud
  Outb(kUart + 1, 0);
  Outb(kUart + 3, 0x03);  // 8n1
  Outb(kUart + 2, 0x07);  // FIFOs on and cleared
  Outb(kUart + 4, 0x03);  // DTR, RTS
}

void PutChar(char c) {
  // Bounded, so that a machine with a dumb UART still shows something.
  for (int i = 0; i < 100000 && (Inb(kUart + 5) & kTransmitterEmpty) == 0; i++) {
  }
  Outb(kUart, static_cast<u8>(c));
}

void Print(const char* format, ...) {
  va_list args;
  va_start(args, format);
  PrintList(format, args);
  va_end(args);
}

void Exit(u8 code) {
  Outb(kDebugExitPort, code);
  for (;;) asm volatile("cli; hlt");
}

void Panic(const char* format, ...) {
  Print("PANIC ");
  va_list args;
  va_start(args, format);
  PrintList(format, args);
  va_end(args);
  Print("\n");
  Exit(kExitPanic);
}

void Check(bool ok, const char* name) {
  if (ok) return Pass(name);
  checks_failed++;
  Print("FAIL %s: expected true got false\n", name);
}

void CheckEq(const char* name, u32 got, u32 expected) {
  if (got == expected) return Pass(name);
  checks_failed++;
  Print("FAIL %s: expected 0x%x got 0x%x\n", name, expected, got);
}

void Skip(const char* name, const char* reason) { Print("SKIP %s: %s\n", name, reason); }

void SetOnQemu(bool on) { on_qemu = on; }
bool OnQemu() { return on_qemu; }

bool SkipOnQemu(const char* name) {
  if (on_qemu) Skip(name, "qemu-wrong");
  return on_qemu;
}

void CountCheck(bool ok) { (ok ? checks_passed : checks_failed)++; }

bool Cases::Case(bool ok) {
  cases_++;
  if (!ok) failed_++;
  return ok || failed_ > kShown;
}

Cases::~Cases() {
  CountCheck(failed_ == 0);
  if (failed_ == 0) {
    Print("PASS %s (%u cases)\n", name_, cases_);
  } else {
    Print("FAIL %s: expected %u good cases got %u\n", name_, cases_, cases_ - failed_);
  }
}

int Summary() {
  Print("SUMMARY %u passed %u failed\n", checks_passed, checks_failed);
  return checks_failed == 0 ? 0 : 1;
}

}  // namespace alibi::frobos
