// SPDX-License-Identifier: Apache-2.0
// Kernels that are compressed as a whole (vmlinux.gz), as boot loaders take them.
#ifndef ALIBI_PC_BOOT_GZIP_H_
#define ALIBI_PC_BOOT_GZIP_H_

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "pc/boot/file.h"

namespace alibi::loader {

// RFC 1952: the magic number, and the only method there is.
bool IsGzip(std::span<const u8> bytes);

// All members, one behind the other; zeros may follow. Fails if `bytes` are damaged or end early,
// or if what comes out is larger than `max_bytes`. `name` is the file's, for messages.
Result<std::vector<u8>> Gunzip(std::span<const u8> bytes, const std::string& name,
                               u64 max_bytes = kLargestFile);

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_GZIP_H_
