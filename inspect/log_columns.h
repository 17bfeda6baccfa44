// SPDX-License-Identifier: Apache-2.0
// An event log's records as rows: one table of columns for `alibi log --csv` and `--json`.
#ifndef ALIBI_INSPECT_LOG_COLUMNS_H_
#define ALIBI_INSPECT_LOG_COLUMNS_H_

#include <string>

#include "adapt/log/reader.h"

namespace alibi::vmm {

// The column names, separated by commas.
std::string CsvHead();
// The record that reader.Next() gave last, without a line end. Columns that its kind does not have
// are empty.
std::string CsvRow(const adapt::log::Record& record, const adapt::log::Reader& reader);
// One object with the columns that it does have.
std::string JsonRow(const adapt::log::Record& record, const adapt::log::Reader& reader);

// In Intel syntax; "?" if its bytes are not known.
std::string InstructionText(const adapt::log::Site& site);
// Nanoseconds of guest time.
u64 LogNs(u64 tsc, const adapt::log::Header& header);

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_LOG_COLUMNS_H_
