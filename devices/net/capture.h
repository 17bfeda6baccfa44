// SPDX-License-Identifier: Apache-2.0
// A file with all frames of a card, as tcpdump and Wireshark read it: pcap with nanoseconds.
#ifndef ALIBI_DEVICES_NET_CAPTURE_H_
#define ALIBI_DEVICES_NET_CAPTURE_H_

#include <memory>
#include <span>
#include <string>

#include "base/file_bound.h"
#include "base/result.h"
#include "base/types.h"

namespace alibi::net {

class Capture {
 public:
  // Makes the file, or empties the one that is there.
  static Result<std::unique_ptr<Capture>> Create(const std::string& path);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // A frame that passes now. Those for which the file has no room (kMaxFileBytes), and all after
  // one that could not be written, are left out, with one line on stderr.
  void Add(std::span<const u8> frame);

 private:
  Capture(int fd, std::string path);

  int fd_;
  const std::string path_;
  FileBound bound_;
  bool failed_ = false;
};

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_CAPTURE_H_
