// SPDX-License-Identifier: Apache-2.0
// Writes an event log: a thread of its own takes records out of a ring and puts them into the file,
// at most every few milliseconds. What has been taken survives the death of the process.
#ifndef ALIBI_ADAPT_LOG_WRITER_H_
#define ALIBI_ADAPT_LOG_WRITER_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "adapt/log/codec.h"
#include "adapt/log/format.h"
#include "adapt/log/ring.h"
#include "base/result.h"

namespace alibi::adapt::log {

inline constexpr u64 kLeastLogBytes = 64 << 10;

class Writer {
 public:
  // The file is made or emptied now. It never exceeds `most_bytes` (at least kLeastLogBytes): what
  // comes when it is full is counted, so that there are no holes but at its end.
  static Result<std::unique_ptr<Writer>> Create(const std::string& path, const Header& header,
                                                u64 most_bytes);
  // Without Finish(): the log has no end, as that of a process that died.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // One thread pushes, until Finish().
  Ring& ring() { return ring_; }
  // All that is in the ring, and the end. `end_tsc` is the time now. An error if the file could not
  // be written whole.
  Status Finish(u64 end_tsc, const FinalCounters& counters);

  // After Finish(). Records found the ring full; there was no room in the file for them.
  u64 lost() const { return lost_; }
  u64 left_out() const { return left_out_; }
  u64 bytes() const { return bytes_; }
  u64 written() const { return written_; }  // records, without the end

 private:
  Writer(std::string path, int fd, u64 start_tsc, u64 most_bytes);
  void Loop();
  void Stop();
  u64 Drain();                // how many records there were
  void WriteBlock(u64 size);  // of block_'s records
  bool WriteAll(const void* data, u64 size);

  const std::string path_;
  int fd_;
  const u64 most_bytes_;
  Ring ring_;
  Encoder encoder_;
  std::vector<u8> block_;  // a frame and records, as long as they are encoded
  u64 bytes_ = 0;
  u64 written_ = 0;
  u64 lost_ = 0;
  u64 left_out_ = 0;
  bool full_ = false;
  int write_error_ = 0;  // errno

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace alibi::adapt::log

#endif  // ALIBI_ADAPT_LOG_WRITER_H_
