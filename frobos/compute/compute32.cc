// SPDX-License-Identifier: Apache-2.0
// The compute programs as 32-bit code, in CPL 3, with two-level paging, on 4 KB user pages whose
// physical order is shuffled. Output and command line: run32.h.

#include "frobos/compute/machine32.h"
#include "frobos/compute/run32.h"

namespace alibi::frobos {
namespace {

extern "C" u8 program_start[], program_end[], program_bss_start[], program_bss_end[];

constexpr u32 kStackPages = 16;
constexpr u32 kStackTop = kUserBase + kStackPages * kPageSize;

class Kernel : public Host32 {
 public:
  void Write(const char* text, size_t length) override {
    for (size_t i = 0; i < length; i++) PutChar(text[i]);
  }
  const char* Run(uint64_t (*program)(unsigned), unsigned scale, uint64_t* checksum) override {
    const UserResult r = CallUser(reinterpret_cast<const void*>(program), scale, kStackTop);
    *checksum = r.value;
    if (r.Done()) return nullptr;
    char* end = error_;
    const auto hex = [&end](u32 value) {
      for (int shift = 28; shift >= 0; shift -= 4) *end++ = "0123456789abcdef"[value >> shift & 15];
      *end++ = ' ';
    };
    for (const char* p = "vector, error, eip, cr2: "; *p != 0; p++) *end++ = *p;
    hex(r.vector), hex(r.error), hex(r.eip), hex(r.cr2);
    *end = 0;
    return error_;
  }

 private:
  char error_[80];
};

}  // namespace

int Main(const char* command_line) {
  MoveToShuffledPages(program_start, program_end);
  MoveToShuffledPages(program_bss_start, program_bss_end);
  MapShuffled(kUserBase, kStackPages);
  Kernel kernel;
  return RunPrograms32(&kernel, command_line) ? 0 : 1;
}

}  // namespace alibi::frobos
