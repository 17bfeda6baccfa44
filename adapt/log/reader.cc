// SPDX-License-Identifier: Apache-2.0
#include "adapt/log/reader.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace alibi::adapt::log {

Result<std::unique_ptr<Reader>> Reader::Open(const std::string& path) {
  std::unique_ptr<Reader> reader(new Reader(path));
  reader->file_.reset(std::fopen(path.c_str(), "rbe"));
  if (reader->file_ == nullptr) {
    return Error{fmt::format("{}: cannot be read: {}", path, std::strerror(errno))};
  }
  if (const Status header = reader->ReadHeader(); !header.ok()) return header.error();
  return reader;
}

bool Reader::ReadBytes(void* to, u64 size) {
  const std::size_t got = std::fread(to, 1, size, file_.get());
  offset_ += got;
  return got == size;
}

Error Reader::Truncated(const std::string& what) {
  failed_ = truncated_ = true;
  if (std::ferror(file_.get()) != 0) {
    return Error{fmt::format("{}: cannot be read behind byte {}", path_, offset_)};
  }
  return Error{fmt::format("{}: truncated at byte {}: {}", path_, offset_, what)};
}

Error Reader::Damaged(const std::string& what) {
  failed_ = true;
  return Error{fmt::format("{}: damaged at byte {}: {}", path_, block_offset_, what)};
}

Status Reader::ReadHeader() {
  Preamble preamble{};
  const bool whole = ReadBytes(&preamble, sizeof(preamble));
  const std::size_t magic = std::min<std::size_t>(offset_, sizeof(kMagic));
  if (magic == 0 || std::memcmp(preamble.magic, kMagic, magic) != 0) {
    return Error{
        fmt::format("{}: no event log of Alibi's (damaged at byte 0: wrong magic)", path_)};
  }
  if (!whole) return Truncated("not even its preamble is there");
  if (preamble.version > kVersion || preamble.version == 0) {
    return Error{
        fmt::format("{}: an event log of version {}; this Alibi reads versions up to {} (byte {})",
                    path_, preamble.version, kVersion, offsetof(Preamble, version))};
  }
  if (preamble.header_bytes > kMaxHeaderBytes) return Damaged("its header cannot be so long");
  block_offset_ = offset_;
  std::string json(preamble.header_bytes, '\0');
  if (!ReadBytes(json.data(), json.size())) return Truncated("its header is not whole");
  if (Checksum(json.data(), json.size()) != preamble.header_checksum) {
    return Damaged("its header's checksum is wrong");
  }
  auto header = HeaderFromJson(json);
  if (!header.ok()) return Damaged(header.error().message);
  header_ = std::move(*header);
  decoder_ = Decoder(header_.start_tsc);
  return Ok{};
}

Result<bool> Reader::ReadBlock() {
  block_offset_ = offset_;
  BlockFrame frame;
  if (!ReadBytes(&frame, sizeof(frame))) return Truncated("its end record is missing");
  if (frame.bytes == 0 || frame.bytes > kMaxBlockBytes) {
    return Damaged(fmt::format("no block has {} bytes", frame.bytes));
  }
  block_.resize(frame.bytes);
  if (!ReadBytes(block_.data(), frame.bytes)) return Truncated("its last block is not whole");
  if (Checksum(block_.data(), frame.bytes) != frame.checksum) {
    return Damaged("the block's checksum is wrong");
  }
  rest_ = block_;
  return true;
}

Result<bool> Reader::Next(Record* record) {
  if (failed_) return Error{path_ + ": nothing can be read behind an error"};
  for (;;) {
    if (rest_.empty()) {
      if (ended_) {
        block_offset_ = offset_;
        if (std::fgetc(file_.get()) != EOF) return Damaged("there is more behind its end");
        return false;
      }
      if (auto block = ReadBlock(); !block.ok()) return block;
    }
    if (ended_) return Damaged("there is more behind its end");
    bool found = false;
    if (!decoder_.Next(&rest_, sites_.size(), record, &counters_, &found)) {
      return Damaged(fmt::format("no record is like that behind byte {} of the block",
                                 block_.size() - rest_.size()));
    }
    if (!found) continue;
    if (record->kind == RecordKind::kSite) {
      record->site = static_cast<u32>(sites_.size());
      sites_.push_back(SiteOf(*record));
    }
    if (record->kind != RecordKind::kSite && record->site != kNoSite) {
      record->pc = sites_[record->site].pc;
      record->physical = sites_[record->site].physical;
    }
    if (record->kind == RecordKind::kVcpu) vcpu_ = record->number;
    ended_ = record->kind == RecordKind::kEnd;
    return true;
  }
}

}  // namespace alibi::adapt::log
