#include "devices/fw_cfg.h"

#include <utility>

namespace alibi::devices {
namespace {

constexpr std::size_t kNameBytes = 56;

void AppendBigEndian(std::vector<u8>& to, u64 value, unsigned size) {
  while (size-- != 0) to.push_back(static_cast<u8>(value >> (8 * size)));
}

}  // namespace

FwCfg::FwCfg() {
  Add(kSignature, {'Q', 'E', 'M', 'U'});
  AddInteger(kInterfaceId, 1, 4);  // the traditional interface alone
  Add(kFileDirectory, {0, 0, 0, 0});
}

void FwCfg::AddInteger(u16 item, u64 value, unsigned size) {
  std::vector<u8> bytes;
  for (unsigned i = 0; i < size; ++i) bytes.push_back(static_cast<u8>(value >> (8 * i)));
  Add(item, std::move(bytes));
}

void FwCfg::AddFile(const std::string& name, std::vector<u8> bytes) {
  const u16 item = static_cast<u16>(kFirstFile + files_++);
  // The directory: a count, then size, selector, two bytes reserved, name; all big-endian.
  std::vector<u8>& directory = items_[kFileDirectory];
  directory[2] = static_cast<u8>(files_ >> 8);
  directory[3] = static_cast<u8>(files_);
  AppendBigEndian(directory, bytes.size(), 4);
  AppendBigEndian(directory, item, 2);
  AppendBigEndian(directory, 0, 2);
  std::string padded = name.substr(0, kNameBytes - 1);
  padded.resize(kNameBytes);
  directory.insert(directory.end(), padded.begin(), padded.end());
  Add(item, std::move(bytes));
}

u64 FwCfg::Read(u64 offset, unsigned) {
  if (offset == 0) return 0;  // the selector is write-only
  const auto item = items_.find(selected_);
  if (item == items_.end() || position_ >= item->second.size()) return 0;
  return item->second[position_++];
}

void FwCfg::Write(u64 offset, unsigned size, u64 value) {
  if (offset != 0) return;  // items are read-only
  selected_ = static_cast<u16>(size == 1 ? (selected_ & 0xff00) | value : value);
  position_ = 0;
}

}  // namespace alibi::devices
