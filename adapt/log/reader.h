// SPDX-License-Identifier: Apache-2.0
// Reads event logs (docs/event_log.md), also those of processes that died, and damaged ones as far
// as they are sound. Nothing is believed unchecked.
#ifndef ALIBI_ADAPT_LOG_READER_H_
#define ALIBI_ADAPT_LOG_READER_H_

#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapt/log/codec.h"
#include "adapt/log/format.h"
#include "adapt/log/record.h"
#include "base/result.h"

namespace alibi::adapt::log {

class Reader {
 public:
  // Errors say what the file is instead: missing, no log, of a newer version, damaged.
  static Result<std::unique_ptr<Reader>> Open(const std::string& path);
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const Header& header() const { return header_; }

  // The next record, in the order of happening. False: that was all, and the log is complete; its
  // last record was the end. An error says at which byte the log stops making sense; all records so
  // far are sound. Sites are defined (a record of their own) before records name them.
  Result<bool> Next(Record* record);

  // After an error: the file ends where more should follow, as that of a process that was killed
  // (or that still runs).
  bool truncated() const { return truncated_; }

  // Those defined so far, by Record::site. References do not survive Next().
  const std::vector<Site>& sites() const { return sites_; }
  // Which VCPU the record that was read last is of; none: the machine has one.
  std::optional<unsigned> vcpu() const { return vcpu_; }
  // After the end was read.
  const FinalCounters& counters() const { return counters_; }
  u64 offset() const { return offset_; }  // in the file, of what was not read yet: whole blocks

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  explicit Reader(std::string path) : path_(std::move(path)) {}
  Status ReadHeader();
  Result<bool> ReadBlock();
  // All of it, or an error: *got says how much there was.
  bool ReadBytes(void* to, u64 size);
  Error Truncated(const std::string& what);
  Error Damaged(const std::string& what);

  const std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  Header header_;
  Decoder decoder_{0};
  std::vector<u8> block_;
  std::span<const u8> rest_;  // of block_
  u64 offset_ = 0;
  u64 block_offset_ = 0;
  bool ended_ = false;
  bool truncated_ = false;
  bool failed_ = false;
  std::vector<Site> sites_;
  std::optional<unsigned> vcpu_;
  FinalCounters counters_;
};

}  // namespace alibi::adapt::log

#endif  // ALIBI_ADAPT_LOG_READER_H_
