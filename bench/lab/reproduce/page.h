// SPDX-License-Identifier: Apache-2.0
// docs/reproduction.md: the claims, the papers' figures and ours, as a page.
#ifndef ALIBI_BENCH_LAB_REPRODUCE_PAGE_H_
#define ALIBI_BENCH_LAB_REPRODUCE_PAGE_H_

#include <string>

#include "bench/lab/reproduce/reproduction.h"

namespace alibi::bench::lab {

// Depends on what was measured alone: the same text for the same figures.
std::string ReproductionPage(const Reproduction& reproduction);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPRODUCE_PAGE_H_
