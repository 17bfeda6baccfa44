// SPDX-License-Identifier: Apache-2.0
// Whole files, with errors a person can act on.
#ifndef ALIBI_PC_BOOT_FILE_H_
#define ALIBI_PC_BOOT_FILE_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::loader {

inline constexpr u64 kLargestFile = u64{1} << 30;

// Fails if `path` is missing, unreadable, no regular file, or larger than `max_bytes`.
Result<std::vector<u8>> ReadWholeFile(const std::string& path, u64 max_bytes = kLargestFile);

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_FILE_H_
