// SPDX-License-Identifier: Apache-2.0
#include "frobos/common/console.h"

#include <stdarg.h>

#include "frobos/common/port.h"

namespace alibi::frobos {
namespace {

constexpr u16 kUart = 0x3f8;
constexpr u16 kDebugExitPort = 0xf4;
constexpr u8 kTransmitterEmpty = 0x20;

struct Spec {
  bool left = false;
  bool zero = false;
  int width = 0;
  bool wide = false;
};

void PutPadded(const char* text, int length, const Spec& spec) {
  const int padding = spec.width - length;
  const char fill = spec.zero && !spec.left ? '0' : ' ';
  if (!spec.left) {
    for (int i = 0; i < padding; i++) PutChar(fill);
  }
  for (int i = 0; i < length; i++) PutChar(text[i]);
  if (spec.left) {
    for (int i = 0; i < padding; i++) PutChar(' ');
  }
}

void PutNumber(Word value, unsigned base, bool negative, const Spec& spec) {
  char digits[24];
  int n = sizeof(digits);
  do {
    digits[--n] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  if (negative) digits[--n] = '-';
  PutPadded(digits + n, static_cast<int>(sizeof(digits)) - n, spec);
}

void PrintList(const char* format, va_list args) {
  for (const char* p = format; *p != 0; p++) {
    if (*p != '%') {
      PutChar(*p);
      continue;
    }
    Spec spec;
    for (p++; *p == '-' || *p == '0'; p++) (*p == '-' ? spec.left : spec.zero) = true;
    for (; *p >= '0' && *p <= '9'; p++) spec.width = spec.width * 10 + (*p - '0');
    for (; *p == 'l' || *p == 'z'; p++) spec.wide = true;
    switch (*p) {
      case 'd':
      case 'i': {
        const long v = spec.wide ? va_arg(args, long) : va_arg(args, i32);
        PutNumber(v < 0 ? -static_cast<Word>(v) : static_cast<Word>(v), 10, v < 0, spec);
        break;
      }
      case 'u':
        PutNumber(spec.wide ? va_arg(args, Word) : va_arg(args, u32), 10, false, spec);
        break;
      case 'x':
        PutNumber(spec.wide ? va_arg(args, Word) : va_arg(args, u32), 16, false, spec);
        break;
      case 'p':
        PutNumber(reinterpret_cast<Word>(va_arg(args, void*)), 16, false, spec);
        break;
      case 'c':
        PutChar(static_cast<char>(va_arg(args, int)));
        break;
      case 's': {
        const char* s = va_arg(args, const char*);
        int length = 0;
        while (s[length] != 0) length++;
        PutPadded(s, length, spec);
        break;
      }
      case 0:
        return;
      default:
        PutChar(*p);
    }
  }
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

}  // namespace alibi::frobos
