// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/kernel.h"

#include "frobos/common/check.h"
#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"
#include "frobos/lib/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kMultibootMagic = 0x2badb002;
constexpr u64 kDefaultMemory = 64u << 20;

struct MultibootInfo {
  u32 flags;
  u32 mem_lower_kb;
  u32 mem_upper_kb;
  u32 boot_device;
  u32 command_line;
};
constexpr u32 kHasMemory = 1u << 0, kHasCommandLine = 1u << 2;

char command_line[512];
u64 memory_end = kDefaultMemory;

// The value after "key=", or the empty string for a bare "key"; nullptr if absent.
const char* Find(const char* key) {
  const size_t length = strlen(key);
  for (const char* p = command_line; *p != 0;) {
    while (*p == ' ') p++;
    if (memcmp(p, key, length) == 0) {
      const char end = p[length];
      if (end == '=') return p + length + 1;
      if (end == ' ' || end == 0) return "";
    }
    while (*p != 0 && *p != ' ') p++;
  }
  return nullptr;
}

bool IsWordEnd(char c) { return c == 0 || c == ' ' || c == ','; }

}  // namespace

bool HasOption(const char* name) { return Find(name) != nullptr; }

u64 NumberOption(const char* key, u64 default_value) {
  const char* p = Find(key);
  if (p == nullptr || *p < '0' || *p > '9') return default_value;
  u64 value = 0;
  for (; *p >= '0' && *p <= '9'; p++) value = value * 10 + static_cast<u64>(*p - '0');
  return value;
}

bool Selected(const char* key, const char* item) {
  const char* p = Find(key);
  if (p == nullptr) return true;
  const size_t length = strlen(item);
  while (*p != 0 && *p != ' ') {
    if (strncmp(p, item, length) == 0 && IsWordEnd(p[length])) return true;
    while (!IsWordEnd(*p)) p++;
    if (*p == ',') p++;
  }
  return false;
}

bool OptionIs(const char* key, const char* value) { return HasOption(key) && Selected(key, value); }

u64 MemoryEnd() { return memory_end; }

extern "C" [[gnu::used]] void KernelStart(u64 magic, const MultibootInfo* info) {
  InitConsole();
  Print("\n");  // firmware may have left the terminal in the middle of a line
  if (static_cast<u32>(magic) == kMultibootMagic && info != nullptr) {
    if (info->flags & kHasMemory) memory_end = (u64{info->mem_upper_kb} + 1024) << 10;
    if (info->flags & kHasCommandLine) {
      const char* text = reinterpret_cast<const char*>(u64{info->command_line});
      for (size_t i = 0; i + 1 < sizeof(command_line) && text[i] != 0; i++)
        command_line[i] = text[i];
    }
  }
  SetOnQemu(OptionIs("host", "qemu"));
  RunOnVmi();
  InitPic();  // firmware may have left its timer running
  InitDescriptors();
  InitTraps();
  InitPaging();
  Exit(static_cast<u8>(Main()));
}

}  // namespace alibi::frobos
