// SPDX-License-Identifier: Apache-2.0
// The registers as gdb sees them: one table makes the target description and moves the values.
//
// The standard features are those of the GDB manual, G.5.15 ("i386 Features"); the system registers
// are in a feature of our own.
#ifndef ALIBI_INSPECT_GDB_TARGET_XML_H_
#define ALIBI_INSPECT_GDB_TARGET_XML_H_

#include <string>
#include <vector>

#include "base/types.h"
#include "vcpu/state.h"

namespace alibi::vmm::gdb {

enum class Architecture : u8 { kI386, kAmd64 };

// Where a register's value is.
enum class Source : u8 {
  kGpr,
  kRip,
  kFlags,
  kSelector,     // index: SegmentIndex
  kSegmentBase,  // index: SegmentIndex
  kKernelGsBase,
  kControl,  // index: 0, 2, 3, 4, 8
  kEfer,
  kSt,          // 80 bits, index: stack position
  kX87Control,  // index: position in FCTRL FSTAT FTAG FISEG FIOFF FOSEG FOOFF FOP
  kXmm,
  kMxcsr,
  kYmmHigh,
};

struct Register {
  std::string name;
  unsigned bits;
  const char* type;
  Source source;
  unsigned index;
};

class RegisterFile {
 public:
  RegisterFile(Architecture architecture, bool avx);

  Architecture architecture() const { return architecture_; }
  const std::string& xml() const { return xml_; }
  unsigned count() const { return static_cast<unsigned>(registers_.size()); }
  const Register& at(unsigned number) const { return registers_[number]; }

  // The value in the target's byte order, at.bits / 8 bytes.
  std::string Read(const vcpu::VcpuState& state, unsigned number) const;
  // False: the register cannot be written (selectors, control registers), or not with that value,
  // and that is not its value already.
  bool Write(vcpu::VcpuState& state, unsigned number, const std::string& bytes) const;

 private:
  void AddFeature(const char* feature, const char* types, std::vector<Register> registers);

  Architecture architecture_;
  std::vector<Register> registers_;
  std::string xml_;
};

}  // namespace alibi::vmm::gdb

#endif  // ALIBI_INSPECT_GDB_TARGET_XML_H_
