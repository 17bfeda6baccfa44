// SPDX-License-Identifier: Apache-2.0
#include "inspect/memory_use.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "inspect/add_words.h"

namespace alibi::vmm {
namespace {

// Opened once: a sandbox opens nothing.
int StatusFile() {
  static const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  return file;
}

// A line of /proc/self/status in bytes; 0: it has none.
u64 StatusLine(const std::string& name) {
  char text[8192];
  const ssize_t size = pread(StatusFile(), text, sizeof(text) - 1, 0);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* line = std::strstr(text, ("\n" + name + ":").c_str());
  return line == nullptr ? 0 : u64{std::strtoull(line + name.size() + 2, nullptr, 10)} << 10;
}

}  // namespace

void OpenMemoryUse() { StatusFile(); }

std::vector<MemoryRow> MemoryUse(Machine& machine) {
  // Of all cores: peaks need not have been at the same time.
  mmu::MemoryUse mmu = {};
  runtime::MemoryUse engine = {};
  u64 sites = 0, sites_bound = 0;
  for (const auto& core : machine.cores()) {
    AddWords(core->mmu->memory_use(), &mmu);
    if (core->translator == nullptr) continue;
    AddWords(core->translator->memory_use(), &engine);
    sites += core->translator->sites().size();
    sites_bound += core->translator->sites().capacity();
  }
  return {
      {"translations", "bytes of translations", engine.tc_bytes, engine.tc_bytes_peak,
       engine.tc_bytes_bound},
      {"ccfs", "translations described", engine.ccfs, engine.ccfs_peak, engine.ccfs_bound},
      {"shadow", "bytes of shadow tables", mmu.shadow_bytes, mmu.shadow_bytes_peak,
       mmu.shadow_bytes_bound},
      {"views", "views of address spaces", mmu.views, mmu.views, mmu.views_bound},
      {"reverse_map", "reverse-map nodes", mmu.nodes, mmu.nodes_peak, mmu.nodes_bound},
      {"sites", "sites with a record", sites, sites, sites_bound},
      {"private", "bytes of private memory, all of the process", StatusLine("RssAnon"), 0, 0},
      // Both aliases of a guest page count.
      {"resident", "bytes resident, with the guest's RAM", StatusLine("VmRSS"), StatusLine("VmHWM"),
       0},
  };
}

}  // namespace alibi::vmm
