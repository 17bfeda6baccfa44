// SPDX-License-Identifier: Apache-2.0
// Whole files.
#ifndef ALIBI_BENCH_LAB_FILES_H_
#define ALIBI_BENCH_LAB_FILES_H_

#include <string>

#include "base/result.h"

namespace alibi::bench::lab {

Result<std::string> ReadWholeFile(const std::string& path);
// Either whole or not at all: written beside it first.
Status WriteWholeFile(const std::string& path, const std::string& text);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_FILES_H_
