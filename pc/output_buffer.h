// SPDX-License-Identifier: Apache-2.0
// A serial port's output on its way to a host file: gathered to lines, written whole, and given up
// only when the run is over and the reader does not read.
#ifndef ALIBI_PC_OUTPUT_BUFFER_H_
#define ALIBI_PC_OUTPUT_BUFFER_H_

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "base/file_bound.h"
#include "base/types.h"

namespace alibi::vmm {

// Where it goes.
struct OutputFile {
  int fd = -1;  // -1: dropped
  u64 most_bytes =
      kMaxFileBytes;  // if that is a file; the rest is dropped, and stderr is told once
  // What of the bytes is written: a terminal must not get all that a guest says. Empty: all.
  std::function<std::string(std::string_view)> filter;
};

class OutputBuffer {
 public:
  // After `stopping` has become true a reader that does not read is waited for no longer.
  OutputBuffer(OutputFile file, const std::atomic<bool>& stopping);

  // True if now is a good moment to Flush(): the end of a line, or enough has come together.
  bool Put(u8 byte);
  bool empty() const { return bytes_.empty(); }
  // False if it cannot be written; it is dropped then. May wait for the reader.
  bool Flush();

 private:
  OutputFile file_;
  const std::atomic<bool>& stopping_;
  std::string bytes_;
  FileBound bound_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_OUTPUT_BUFFER_H_
