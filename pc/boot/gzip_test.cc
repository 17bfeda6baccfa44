// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/gzip.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <random>

namespace alibi::loader {
namespace {

using Catch::Contains;

std::vector<u8> Compress(const std::vector<u8>& bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::vector<u8> out(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<u8*>(bytes.data());
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<unsigned>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::vector<u8> Sample(std::size_t size) {
  std::mt19937_64 random(7);
  std::vector<u8> bytes(size);
  for (u8& byte : bytes) byte = static_cast<u8>(random() & 15);
  return bytes;
}

TEST_CASE("gzip: what was compressed comes out again") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3'000'000}}) {
    const std::vector<u8> bytes = Sample(size);
    std::vector<u8> file = Compress(bytes);
    REQUIRE(IsGzip(file));
    const auto out = Gunzip(file, "k.gz");
    REQUIRE(out.ok());
    CHECK(out.value() == bytes);
    file.resize(file.size() + 512);  // as tapes and disk blocks pad it
    CHECK(Gunzip(file, "k.gz").ok());
  }
  CHECK_FALSE(IsGzip(Sample(100)));
  CHECK_FALSE(IsGzip({}));
}

TEST_CASE("gzip: members one behind the other are one file") {
  const std::vector<u8> bytes = Sample(5000);
  std::vector<u8> file = Compress(bytes);
  file.insert(file.end(), file.begin(), file.end());
  const auto out = Gunzip(file, "k.gz");
  REQUIRE(out.ok());
  CHECK(out.value().size() == 2 * bytes.size());
}

TEST_CASE("gzip: damage and bombs are errors") {
  const auto refusal = [](const std::vector<u8>& file, u64 max = kLargestFile) {
    const auto out = Gunzip(file, "k.gz", max);
    return out.ok() ? std::string("taken") : out.error().message;
  };
  const std::vector<u8> file = Compress(Sample(100'000));
  for (std::size_t length = 0; length < file.size(); length += length < 64 ? 1 : 997) {
    CHECK_THAT(refusal({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length)}),
               Contains("cannot decompress 'k.gz': truncated"));
  }
  std::vector<u8> damaged = file;
  damaged[file.size() / 2] ^= 0x55;
  CHECK_THAT(refusal(damaged), Contains("cannot decompress"));
  damaged = file;
  damaged.back() ^= 1;  // the length
  CHECK_THAT(refusal(damaged), Contains("damaged"));
  damaged = file;
  damaged.push_back('x');
  CHECK_THAT(refusal(damaged), Contains("behind its end"));
  CHECK_THAT(refusal(Compress(std::vector<u8>(50'000'000)), 1'000'000), Contains("1000000 bytes"));
}

}  // namespace
}  // namespace alibi::loader
