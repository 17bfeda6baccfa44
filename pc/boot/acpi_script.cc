// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/acpi_script.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace alibi::loader {
namespace {

constexpr const char* kTables = "etc/acpi/tables";
constexpr const char* kRsdp = "etc/acpi/rsdp";
constexpr u64 kRsdpBytes = 36, kHeaderBytes = 36;
constexpr u64 kLengthAt = 4, kChecksumAt = 9;

enum Command : u32 { kAllocate = 1, kAddPointer = 2, kAddChecksum = 3 };
enum Zone : u8 { kHigh = 1, kFSegment = 2 };

class Script {
 public:
  void Allocate(const char* file, u32 alignment, Zone zone) {
    Begin(kAllocate);
    PutName(4, file);
    Put(60, alignment, 4);
    Put(64, zone, 1);
  }
  // The pointer in `file` is an offset into the tables; it becomes an address.
  void AddPointer(const char* file, u64 at, unsigned size) {
    Begin(kAddPointer);
    PutName(4, file);
    PutName(60, kTables);
    Put(116, at, 4);
    Put(120, size, 1);
  }
  void AddChecksum(const char* file, u64 at, u64 start, u64 length) {
    Begin(kAddChecksum);
    PutName(4, file);
    Put(60, at, 4);
    Put(64, start, 4);
    Put(68, length, 4);
  }
  const std::vector<u8>& bytes() const { return bytes_; }

 private:
  static constexpr u64 kCommandBytes = 128;

  void Begin(Command command) {
    bytes_.resize(bytes_.size() + kCommandBytes);
    Put(0, command, 4);
  }
  void Put(u64 offset, u64 value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) {
      bytes_[bytes_.size() - kCommandBytes + offset + i] = static_cast<u8>(value >> (8 * i));
    }
  }
  void PutName(u64 offset, const char* name) {
    std::memcpy(bytes_.data() + bytes_.size() - kCommandBytes + offset, name, std::strlen(name));
  }

  std::vector<u8> bytes_;
};

u64 Integer(const std::vector<u8>& bytes, u64 at, unsigned size) {
  ALIBI_CHECK(at + size <= bytes.size(), "ACPI tables hold together");
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) value |= u64{bytes[at + i]} << (8 * i);
  return value;
}

bool IsTable(const std::vector<u8>& bytes, u64 at, std::string_view signature) {
  return at + kHeaderBytes <= bytes.size() &&
         std::memcmp(bytes.data() + at, signature.data(), signature.size()) == 0;
}

// Pointers of a table, each with where it is.
struct Pointer {
  u64 at;
  unsigned size;
};

std::vector<Pointer> PointersOf(const std::vector<u8>& bytes, u64 table) {
  const u64 end = table + Integer(bytes, table + kLengthAt, 4);
  std::vector<Pointer> pointers;
  const auto list = [&](unsigned size) {
    for (u64 at = table + kHeaderBytes; at + size <= end; at += size)
      pointers.push_back({at, size});
  };
  if (IsTable(bytes, table, "RSDT")) list(4);
  if (IsTable(bytes, table, "XSDT")) list(8);
  if (IsTable(bytes, table, "FACP")) {
    // FACS and DSDT, and their 64-bit forms (ACPI 6.4, table 5.9).
    for (const Pointer field : {Pointer{36, 4}, {40, 4}, {132, 8}, {140, 8}}) {
      if (table + field.at + field.size <= end) pointers.push_back({table + field.at, field.size});
    }
  }
  return pointers;
}

}  // namespace

std::vector<FirmwareFile> ScriptAcpi(const std::vector<u8>& tables) {
  Script script;
  script.Allocate(kTables, 64, kHigh);
  script.Allocate(kRsdp, 16, kFSegment);
  std::vector<u64> found = {Integer(tables, 16, 4), Integer(tables, 24, 8)};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const u64 table = found[i];
    const std::vector<Pointer> pointers = PointersOf(tables, table);
    for (const Pointer& pointer : pointers) {
      const u64 target = Integer(tables, pointer.at, pointer.size);
      if (target == 0) continue;
      script.AddPointer(kTables, pointer.at, pointer.size);
      if (std::find(found.begin(), found.end(), target) == found.end()) found.push_back(target);
    }
    // The FACS has no checksum, and tables without pointers keep theirs.
    if (pointers.empty()) continue;
    script.AddChecksum(kTables, table + kChecksumAt, table, Integer(tables, table + kLengthAt, 4));
  }
  script.AddPointer(kRsdp, 16, 4);
  script.AddPointer(kRsdp, 24, 8);
  script.AddChecksum(kRsdp, 8, 0, 20);
  script.AddChecksum(kRsdp, 32, 0, kRsdpBytes);
  std::vector<u8> rsdp(tables.begin(), tables.begin() + kRsdpBytes);
  return {{kTables, tables}, {kRsdp, rsdp}, {"etc/table-loader", script.bytes()}};
}

}  // namespace alibi::loader
