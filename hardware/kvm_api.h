// SPDX-License-Identifier: Apache-2.0
// <linux/kvm.h> with the layout that the kernel means. Its arrays without a length stand behind an
// empty structure, which has a byte in C++ and none in C: sizes, and with them the numbers of
// requests, would be others.
#ifndef ALIBI_HARDWARE_KVM_API_H_
#define ALIBI_HARDWARE_KVM_API_H_

#include <linux/stddef.h>
#undef __DECLARE_FLEX_ARRAY
#define __DECLARE_FLEX_ARRAY(type, name) type name[0]
#include <linux/kvm.h>

static_assert(sizeof(kvm_xsave) == 4096 && sizeof(kvm_msrs) == 8 && sizeof(kvm_msr_list) == 4 &&
              sizeof(kvm_cpuid2) == 8);

#endif  // ALIBI_HARDWARE_KVM_API_H_
