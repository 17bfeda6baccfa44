// SPDX-License-Identifier: Apache-2.0
// docs/reproduction.json: what hosts measured for the page. Intel's and AMD's stand side by side.
#ifndef ALIBI_BENCH_LAB_REPRODUCE_REPRODUCTION_H_
#define ALIBI_BENCH_LAB_REPRODUCE_REPRODUCTION_H_

#include <map>
#include <string>

#include "base/result.h"
#include "bench/lab/reproduce/figures.h"

namespace alibi::bench::lab {

struct Reproduction {
  // By the CPU's vendor, then by chapter (claims.h).
  std::map<std::string, std::map<std::string, Figures>> hosts;

  std::string ToJson() const;
  // Reads version 1 as well, which had one host and one chapter.
  static Result<Reproduction> FromJson(const std::string& text);
};

// "AMD", "Intel", or the CPU's name, of a host as DescribeHost has it.
std::string VendorOf(const nlohmann::ordered_json& host);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPRODUCE_REPRODUCTION_H_
