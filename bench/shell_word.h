// SPDX-License-Identifier: Apache-2.0
#ifndef ALIBI_BENCH_SHELL_WORD_H_
#define ALIBI_BENCH_SHELL_WORD_H_

#include <string>

namespace alibi::bench {

// A word for the shell, quoted if it must be.
std::string ShellWord(const std::string& word);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_SHELL_WORD_H_
