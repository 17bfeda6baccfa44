// SPDX-License-Identifier: Apache-2.0
// The papers' claims, and what becomes of them here.
#ifndef ALIBI_BENCH_LAB_REPRODUCE_CLAIMS_H_
#define ALIBI_BENCH_LAB_REPRODUCE_CLAIMS_H_

#include <string>
#include <vector>

#include "base/types.h"
#include "bench/lab/reproduce/figures.h"

namespace alibi::bench::lab {

enum class Verdict : u8 {
  kHolds,
  kBetter,       // the paper states a cost, and here it is smaller
  kDoesNotHold,  // today
  kNotChecked,   // not measured, or it cannot be here
};
const char* VerdictName(Verdict verdict);

struct Judgement {
  Verdict verdict = Verdict::kNotChecked;
  std::string here;  // our figure
  std::string why;   // where the verdict needs a reason; may be empty
};

struct Claim {
  const char* id;
  const char* section;
  const char* claim;    // in our own words
  const char* paper;    // its figure
  const char* command;  // shows ours; "": none does
  Judgement (*judge)(const Evidence& f);
};

// A paper.
struct Chapter {
  const char* id;
  const char* heading;
  const char* about;  // which paper it is
  std::vector<Claim> claims;
};
const std::vector<Chapter>& Chapters();

// "1,234,567", whatever the locale is.
std::string GroupDigits(double n);

// kNotChecked if a figure is missing.
Judgement Judge(const Claim& claim, const Figures& figures);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPRODUCE_CLAIMS_H_
