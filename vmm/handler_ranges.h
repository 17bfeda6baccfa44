// SPDX-License-Identifier: Apache-2.0
// Which handler of an embedder's answers for an address.
#ifndef ALIBI_VMM_HANDLER_RANGES_H_
#define ALIBI_VMM_HANDLER_RANGES_H_

#include <fmt/format.h>

#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::vmm {

template <class Handler>
class HandlerRanges {
 public:
  Handler* Find(u64 address) const {
    for (const Range& range : ranges_) {
      if (address - range.base < range.size) return range.handler;
    }
    return nullptr;
  }
  Status Add(const char* kind, u64 base, u64 size, u64 space, Handler& handler) {
    if (size == 0 || base >= space || size > space - base) {
      return Error{fmt::format("{} {:#x} to {:#x}: an empty range, or one that does not exist",
                               kind, base, base + size)};
    }
    for (const Range& range : ranges_) {
      if (base < range.base + range.size && range.base < base + size) {
        return Error{fmt::format("{} {:#x} to {:#x}: overlaps the handler at {:#x}", kind, base,
                                 base + size - 1, range.base)};
      }
    }
    ranges_.push_back({base, size, &handler});
    return Ok{};
  }

 private:
  struct Range {
    u64 base, size;
    Handler* handler;
  };
  std::vector<Range> ranges_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_HANDLER_RANGES_H_
