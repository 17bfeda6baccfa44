// SPDX-License-Identifier: Apache-2.0
#include "hardware/kvm.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace alibi::hardware {
namespace {

constexpr char kDevice[] = "/dev/kvm";
constexpr int kApiVersion = 12;

// What the engine cannot do without; the youngest is of Linux 5.16.
struct Capability {
  int number;
  const char* name;
};
constexpr Capability kNeeded[] = {
    {KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"},
    {KVM_CAP_READONLY_MEM, "KVM_CAP_READONLY_MEM"},
    {KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT"},
    {KVM_CAP_SYNC_REGS, "KVM_CAP_SYNC_REGS"},
    {KVM_CAP_X86_USER_SPACE_MSR, "KVM_CAP_X86_USER_SPACE_MSR"},
    {KVM_CAP_X86_MSR_FILTER, "KVM_CAP_X86_MSR_FILTER"},
    {KVM_CAP_XSAVE, "KVM_CAP_XSAVE"},
    {KVM_CAP_XCRS, "KVM_CAP_XCRS"},
    {KVM_CAP_DEBUGREGS, "KVM_CAP_DEBUGREGS"},
    {KVM_CAP_VCPU_EVENTS, "KVM_CAP_VCPU_EVENTS"},
    {KVM_CAP_SET_GUEST_DEBUG, "KVM_CAP_SET_GUEST_DEBUG"},
    {KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID"},
    {KVM_CAP_VCPU_ATTRIBUTES, "KVM_CAP_VCPU_ATTRIBUTES"},
};

int Request(int fd, unsigned long request, void* argument) {
  const int result = ioctl(fd, request, argument);
  return result < 0 ? -errno : result;
}

// Where Intel's CPUs without unrestricted guests keep a TSS and a page table of KVM's own: four
// pages that no PC of ours has memory or devices at.
constexpr unsigned long kTssAddress = 0xfeffd000;
constexpr u64 kIdentityMapAddress = 0xfeffc000;

}  // namespace

Result<std::unique_ptr<Kvm>> Kvm::Open() {
  std::unique_ptr<Kvm> kvm(new Kvm);
  if (Status status = kvm->Init(); !status.ok()) return status.error();
  return kvm;
}

Kvm::~Kvm() {
  if (run_ != nullptr) munmap(run_, run_bytes_);
}

Status Kvm::Init() {
  system_.Reset(open(kDevice, O_RDWR | O_CLOEXEC));
  if (system_.get() < 0) {
    return Error{fmt::format(
        "{}: {}: {}", kDevice, std::strerror(errno),
        errno == EACCES ? "join the group that may open it (kvm), or use --engine translate"
                        : "this host offers no KVM; use --engine translate")};
  }
  if (const int version = System(KVM_GET_API_VERSION, nullptr); version != kApiVersion) {
    return Error{fmt::format("{}: speaks version {} of the KVM API, not {}; use --engine translate",
                             kDevice, version, kApiVersion)};
  }
  if (Status status = CheckCapabilities(); !status.ok()) return status;
  const auto refused = [](const char* what, int error) {
    return Error{fmt::format("{}: refuses a {}: {}", kDevice, what, std::strerror(-error))};
  };
  const int vm = System(KVM_CREATE_VM, nullptr);
  if (vm < 0) return refused("machine", vm);
  vm_.Reset(vm);
  // AMD's KVM has no use for them and may refuse both.
  (void)Vm(KVM_SET_TSS_ADDR, reinterpret_cast<void*>(kTssAddress));
  u64 identity_map = kIdentityMapAddress;
  (void)Vm(KVM_SET_IDENTITY_MAP_ADDR, &identity_map);
  const int vcpu = Vm(KVM_CREATE_VCPU, nullptr);
  if (vcpu < 0) return refused("VCPU", vcpu);
  vcpu_.Reset(vcpu);
  const int run_bytes = System(KVM_GET_VCPU_MMAP_SIZE, nullptr);
  if (run_bytes < static_cast<int>(sizeof(kvm_run))) return refused("VCPU's page", -EINVAL);
  run_bytes_ = static_cast<std::size_t>(run_bytes);
  void* run = mmap(nullptr, run_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
  if (run == MAP_FAILED) return refused("mapping of the VCPU's page", -errno);
  run_ = static_cast<kvm_run*>(run);
  ReadMsrList();
  // Without it the guest would be shown nothing.
  if (SupportedCpuid().empty()) return refused("list of what it supports", -ENOTSUP);
  return Ok{};
}

Status Kvm::CheckCapabilities() const {
  for (const Capability& needed : kNeeded) {
    // The number itself is the argument.
    const auto argument = static_cast<unsigned long>(needed.number);
    if (System(KVM_CHECK_EXTENSION, reinterpret_cast<void*>(argument)) <= 0) {
      return Error{
          fmt::format("{}: lacks {}: a host kernel of Linux 5.16 or newer is needed; use "
                      "--engine translate",
                      kDevice, needed.name)};
    }
  }
  return Ok{};
}

void Kvm::ReadMsrList() {
  kvm_msr_list none = {};
  System(KVM_GET_MSR_INDEX_LIST, &none);  // fails with the length
  std::vector<u32> words(none.nmsrs + 1);
  words[0] = none.nmsrs;
  if (System(KVM_GET_MSR_INDEX_LIST, words.data()) == 0) {
    msrs_.assign(words.begin() + 1, words.begin() + 1 + words[0]);
  }
}

bool Kvm::KeepsMsr(u32 index) const {
  return std::find(msrs_.begin(), msrs_.end(), index) != msrs_.end();
}

std::vector<kvm_cpuid_entry2> Kvm::SupportedCpuid() const {
  constexpr u32 kMost = 256;
  struct {
    kvm_cpuid2 header;
    kvm_cpuid_entry2 entries[kMost];
  } list = {};
  list.header.nent = kMost;
  if (System(KVM_GET_SUPPORTED_CPUID, &list) != 0) return {};
  return {list.entries, list.entries + list.header.nent};
}

int Kvm::System(unsigned long request, void* argument) const {
  return Request(system_.get(), request, argument);
}
int Kvm::Vm(unsigned long request, void* argument) const {
  return Request(vm_.get(), request, argument);
}
int Kvm::Vcpu(unsigned long request, void* argument) const {
  return Request(vcpu_.get(), request, argument);
}

}  // namespace alibi::hardware
