#ifndef ALIBI_VMM_VERSION_H_
#define ALIBI_VMM_VERSION_H_

namespace alibi::vmm {

inline constexpr const char* kVersion = "0.1";

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_VERSION_H_
