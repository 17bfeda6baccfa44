// SPDX-License-Identifier: Apache-2.0
// An experiment's report: one HTML page that needs no network, readable in light and dark.
#ifndef ALIBI_BENCH_LAB_REPORT_H_
#define ALIBI_BENCH_LAB_REPORT_H_

#include <string>

#include "bench/lab/lab_data.h"

namespace alibi::bench::lab {

// Of figures that may be compared: of one host.
std::string MakeReport(const LabData& data);

// Of an experiment that was spread over hosts: a page with a link to each host's report, and the
// name of that report's file.
std::string MakeHostIndex(const LabData& data);
std::string HostReportName(const std::string& host);
// A page until its body begins.
std::string PageHead(const std::string& title);

// Its sections' contents, as HTML; what cannot be shown says what is missing.
std::string NanobenchSection(const LabData& data);    // the paper's Figure 4
std::string OverheadSection(const LabData& data);     // its Figure 5
std::string CountsSection(const LabData& data);       // the counts of its section 6.3
std::string ConvergenceSection(const LabData& data);  // traps over time
std::string CoherenceSection(const LabData& data);    // the trade-off of its section 2.4
std::string EnginesSection(const LabData& data);      // the hybrid VMM of its section 7.3
std::string MacroSection(const LabData& data);        // its Figures 2 and 3
std::string TranslationSection(const LabData& data);
std::string SitesSection(const LabData& data);
std::string GuiltiestSection(const LabData& data);
std::string NetworkSection(const LabData& data);  // hosted I/O
std::string VmiSection(const LabData& data);      // a paravirtual guest
std::string ProgramsSection(const LabData& data);

// The configuration that sections show which show one only: the default policy if it is there.
const Configuration* ReferenceOf(const std::vector<Configuration>& ours);
// "0", "-1.25 ms".
std::string TimeLabel(double seconds);
// "-" for NaN.
std::string CellOf(double value, const std::string& unit);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPORT_H_
