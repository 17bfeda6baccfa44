// SPDX-License-Identifier: Apache-2.0
// A serial port's output on its way to a host file: gathered to lines, written whole, and given up
// only when the run is over and the reader does not read.
#ifndef ALIBI_VMM_OUTPUT_BUFFER_H_
#define ALIBI_VMM_OUTPUT_BUFFER_H_

#include <atomic>
#include <optional>
#include <string>

#include "base/types.h"
#include "vmm/file_bound.h"
#include "vmm/terminal_filter.h"

namespace alibi::vmm {

class OutputBuffer {
 public:
  // `fd` < 0: everything is dropped. A terminal gets what TerminalFilter leaves, unless `raw`.
  // After `stopping` has become true a reader that does not read is waited for no longer. A file
  // gets `most_bytes`; the rest is dropped, and stderr is told once.
  OutputBuffer(int fd, const std::atomic<bool>& stopping, bool raw, u64 most_bytes);

  // True if now is a good moment to Flush(): the end of a line, or enough has come together.
  bool Put(u8 byte);
  bool empty() const { return bytes_.empty(); }
  // False if it cannot be written; it is dropped then. May wait for the reader.
  bool Flush();

 private:
  int fd_;
  const std::atomic<bool>& stopping_;
  std::string bytes_;
  std::optional<TerminalFilter> filter_;
  FileBound bound_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_OUTPUT_BUFFER_H_
