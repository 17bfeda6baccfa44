// SPDX-License-Identifier: Apache-2.0
// The results of `alibi bench scaling`: cost against size for each of the engine's bounds. The JSON
// is LinuxJson's.
#ifndef ALIBI_BENCH_LINUX_SCALING_REPORT_H_
#define ALIBI_BENCH_LINUX_SCALING_REPORT_H_

#include <string>

#include "bench/linux/linux_runner.h"

namespace alibi::bench {

// One size per row: seconds per operation (medians), the ratio to QEMU TCG, and how many times as
// much as the size before it, of Alibi and natively; a jump is red. Then what failed.
std::string ScalingTable(const LinuxMeasurements& measurements, bool colors);

// One self-contained SVG, for light and dark ground, with a panel for each bound.
std::string ScalingSvg(const LinuxMeasurements& measurements, const std::string& subtitle);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_SCALING_REPORT_H_
