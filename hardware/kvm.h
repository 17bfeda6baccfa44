// SPDX-License-Identifier: Apache-2.0
// The KVM API's three descriptors: /dev/kvm, a machine and its only VCPU. Nothing else in the
// program opens that device.
#ifndef ALIBI_HARDWARE_KVM_H_
#define ALIBI_HARDWARE_KVM_H_

#include <memory>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "base/types.h"
#include "hardware/kvm_api.h"

namespace alibi::hardware {

class Kvm {
 public:
  // Fails with one line for a person where the host has no KVM, where this user may not open it, or
  // where it is older than what the engine needs.
  static Result<std::unique_ptr<Kvm>> Open();
  ~Kvm();
  Kvm(const Kvm&) = delete;
  Kvm& operator=(const Kvm&) = delete;

  // ioctl() on each descriptor: its result, or -errno.
  int System(unsigned long request, void* argument) const;
  int Vm(unsigned long request, void* argument) const;
  int Vcpu(unsigned long request, void* argument) const;

  kvm_run& run() const { return *run_; }
  std::vector<kvm_cpuid_entry2> SupportedCpuid() const;
  // Does KVM keep this register of a VCPU's?
  bool KeepsMsr(u32 index) const;

 private:
  Kvm() = default;
  Status Init();
  Status CheckCapabilities() const;
  void ReadMsrList();

  FileDescriptor system_{-1}, vm_{-1}, vcpu_{-1};
  kvm_run* run_ = nullptr;
  std::size_t run_bytes_ = 0;
  std::vector<u32> msrs_;
};

}  // namespace alibi::hardware

#endif  // ALIBI_HARDWARE_KVM_H_
