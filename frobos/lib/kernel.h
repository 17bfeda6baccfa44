// SPDX-License-Identifier: Apache-2.0
// What a kernel has to provide, and what it was started with.
#ifndef ALIBI_FROBOS_LIB_KERNEL_H_
#define ALIBI_FROBOS_LIB_KERNEL_H_

#include "frobos/lib/types.h"

namespace alibi::frobos {

// Each kernel defines this; the result is the exit code.
int Main();

// The multiboot command line: words of the form "flag" or "key=value".
bool HasOption(const char* name);
u64 NumberOption(const char* key, u64 default_value);
// True if key=a,b,c names the item, or if the key is absent altogether.
bool Selected(const char* key, const char* item);

// A kernel's parts, which the command line's only=a,b,c selects.
struct Section {
  const char* name;
  void (*run)();
};
template <u64 kCount>
void RunSections(const Section (&sections)[kCount]) {
  for (const Section& s : sections) {
    if (Selected("only", s.name)) s.run();
  }
}

// True if the command line has key=value with exactly this value.
bool OptionIs(const char* key, const char* value);

// Bytes of RAM from 0, as multiboot tells it.
u64 MemoryEnd();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_KERNEL_H_
