// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "base/check.h"

namespace alibi::loader {
namespace {

Error Bad(const std::string& name, const std::string& why) {
  return Error{"cannot decompress '" + name + "': " + why};
}

constexpr std::size_t kPieceBytes = 1 << 20;

}  // namespace

bool IsGzip(std::span<const u8> bytes) {
  return bytes.size() > 3 && bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == Z_DEFLATED;
}

Result<std::vector<u8>> Gunzip(std::span<const u8> bytes, const std::string& name, u64 max_bytes) {
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  z_stream stream{};
  const int begun = inflateInit2(&stream, kGzipOnly);
  ALIBI_CHECK(begun == Z_OK, "zlib has the memory for its window");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  // Files have at most kLargestFile bytes, which zlib's counters hold.
  stream.next_in = const_cast<u8*>(bytes.data());
  stream.avail_in = static_cast<unsigned>(bytes.size());
  std::vector<u8> out;
  for (;;) {
    const std::size_t before = out.size();
    out.resize(before + kPieceBytes);
    stream.next_out = out.data() + before;
    stream.avail_out = kPieceBytes;
    const int result = inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
    if (out.size() > max_bytes) {
      return Bad(name, "it holds more than the " + std::to_string(max_bytes) + " bytes allowed");
    }
    if (result == Z_STREAM_END) {
      const std::span<const u8> rest = bytes.last(stream.avail_in);
      if (!IsGzip(rest)) {
        const bool padding = std::all_of(rest.begin(), rest.end(), [](u8 b) { return b == 0; });
        return padding ? Result<std::vector<u8>>(std::move(out))
                       : Bad(name, "there is something behind its end");
      }
      inflateReset(&stream);
    } else if (result == Z_BUF_ERROR ||
               (result == Z_OK && stream.avail_in == 0 && stream.avail_out != 0)) {
      return Bad(name, "truncated");
    } else if (result != Z_OK) {
      return Bad(name, std::string("damaged: ") + (stream.msg != nullptr ? stream.msg : "no gzip"));
    }
  }
}

}  // namespace alibi::loader
