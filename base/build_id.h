// SPDX-License-Identifier: Apache-2.0
// The linker's name for the exact code of this program or shared library (NT_GNU_BUILD_ID): another
// build has another one.
#ifndef ALIBI_BASE_BUILD_ID_H_
#define ALIBI_BASE_BUILD_ID_H_

#include <elf.h>
#include <link.h>

#include <cstring>
#include <vector>

#include "base/types.h"

namespace alibi {

namespace internal {

struct BuildIdSearch {
  u64 code;  // an address in the object that is wanted
  std::vector<u8> id;
};

inline void FindInNotes(const u8* note, u64 bytes, std::vector<u8>* id) {
  ElfW(Nhdr) head;
  for (u64 at = 0; at + sizeof(head) <= bytes;) {
    std::memcpy(&head, note + at, sizeof(head));
    const u64 name = at + sizeof(head);
    const u64 text = name + ((head.n_namesz + 3u) & ~3u);
    if (text + head.n_descsz > bytes) return;
    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
        std::memcmp(note + name, "GNU", 4) == 0) {
      id->assign(note + text, note + text + head.n_descsz);
    }
    at = text + ((head.n_descsz + 3u) & ~3u);
  }
}

inline int LookAtObject(dl_phdr_info* object, std::size_t, void* data) {
  auto* search = static_cast<BuildIdSearch*>(data);
  bool holds_code = false;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    holds_code = holds_code || (part.p_type == PT_LOAD &&
                                search->code - (object->dlpi_addr + part.p_vaddr) < part.p_memsz);
  }
  if (!holds_code) return 0;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    FindInNotes(reinterpret_cast<const u8*>(object->dlpi_addr + part.p_vaddr), part.p_memsz,
                &search->id);
  }
  return 1;
}

}  // namespace internal

// Of the object that holds this function. Empty: it was linked without one.
inline std::vector<u8> BuildId() {
  internal::BuildIdSearch search{reinterpret_cast<u64>(&BuildId), {}};
  dl_iterate_phdr(&internal::LookAtObject, &search);
  return search.id;
}

}  // namespace alibi

#endif  // ALIBI_BASE_BUILD_ID_H_
