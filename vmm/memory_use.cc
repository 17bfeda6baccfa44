#include "vmm/memory_use.h"

#include <cstdio>
#include <cstring>

namespace alibi::vmm {
namespace {

// A line of /proc/self/status in bytes; 0: it has none.
u64 StatusLine(const char* name) {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  char line[256];
  unsigned long long kilobytes = 0;
  const std::size_t length = std::strlen(name);
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, name, length) != 0 || line[length] != ':') continue;
    if (std::sscanf(line + length + 1, "%llu", &kilobytes) != 1) kilobytes = 0;
    break;
  }
  std::fclose(file);
  return u64{kilobytes} << 10;
}

}  // namespace

std::vector<MemoryRow> MemoryUse(Machine& machine) {
  const mmu::MemoryUse mmu = machine.mmu().memory_use();
  const runtime::MemoryUse engine = machine.engine().memory_use();
  const u64 sites = machine.engine().sites().size();
  return {
      {"translations", "bytes of translations", engine.tc_bytes, engine.tc_bytes_peak,
       engine.tc_bytes_bound},
      {"ccfs", "translations described", engine.ccfs, engine.ccfs_peak, engine.ccfs_bound},
      {"shadow", "bytes of shadow tables", mmu.shadow_bytes, mmu.shadow_bytes_peak,
       mmu.shadow_bytes_bound},
      {"views", "views of address spaces", mmu.views, mmu.views, mmu.views_bound},
      {"reverse_map", "reverse-map nodes", mmu.nodes, mmu.nodes_peak, mmu.nodes_bound},
      {"sites", "sites with a record", sites, sites, machine.engine().sites().capacity()},
      {"private", "bytes of private memory, all of the process", StatusLine("RssAnon"), 0, 0},
      // Both aliases of a guest page count.
      {"resident", "bytes resident, with the guest's RAM", StatusLine("VmRSS"), StatusLine("VmHWM"),
       0},
  };
}

}  // namespace alibi::vmm
