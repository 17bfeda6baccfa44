// SPDX-License-Identifier: Apache-2.0
// Adds up counters: structures of words and nothing else.
#ifndef ALIBI_INSPECT_ADD_WORDS_H_
#define ALIBI_INSPECT_ADD_WORDS_H_

#include <array>
#include <bit>
#include <cstddef>

#include "base/types.h"

namespace alibi::vmm {

template <class Counters>
void AddWords(const Counters& part, Counters* sum) {
  using Words = std::array<u64, sizeof(Counters) / sizeof(u64)>;
  auto words = std::bit_cast<Words>(*sum);
  const auto more = std::bit_cast<Words>(part);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] += more[i];
  *sum = std::bit_cast<Counters>(words);
}

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_ADD_WORDS_H_
