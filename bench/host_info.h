// SPDX-License-Identifier: Apache-2.0
// What the numbers were measured on.
#ifndef ALIBI_BENCH_HOST_INFO_H_
#define ALIBI_BENCH_HOST_INFO_H_

#include <nlohmann/json.hpp>
#include <string>

namespace alibi::bench {

// {"cpu", "kernel", "cores", "tsc_hz", "time", "versions": {"compiler", "qemu"}}. `qemu`: its path,
// or "".
nlohmann::ordered_json DescribeHost(const std::string& qemu);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_HOST_INFO_H_
