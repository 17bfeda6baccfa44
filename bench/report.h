// SPDX-License-Identifier: Apache-2.0
// Results as text: tables and a bar chart for the terminal.
#ifndef ALIBI_BENCH_REPORT_H_
#define ALIBI_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "bench/results.h"

namespace alibi::bench {

struct ReportStyle {
  std::string default_policy;
  bool colors = false;
  unsigned width = 100;  // columns of the terminal
};

// One privileged or control-flow operation per row, cycles (medians), with the design's budgets.
std::string NanobenchTable(const Results& results, const ReportStyle& style);
// The compute programs whose names begin with prefix: times native.
std::string ComputeTable(const Results& results, const ReportStyle& style,
                         const std::string& prefix);
// Cycles per guest instruction and bytes of CCF per guest byte.
std::string TranslationTable(const Results& results, const ReportStyle& style);
// Horizontal bars on a log scale: native, alibi with the default policy, qemu-tcg.
std::string BarChart(const Results& results, const ReportStyle& style);
// What failed; "" if nothing did.
std::string MissList(const Results& results, const ReportStyle& style);

// Everything above, in this order.
std::string FullReport(const Results& results, const ReportStyle& style);

// Where the hardware engine's callret shows that this host's KVM runs ring 0 by an instruction
// emulator: two lines that say so. Else "".
std::string HardwareNote(const Results& results);

// "0.29", "4.3", "620", "25,102".
std::string FormatCycles(double cycles);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_REPORT_H_
