// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/smbios.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace alibi::loader {
namespace {

constexpr u64 kAnchorBytes = 31, kMinorVersion = 8;
constexpr u64 kKiB = 1024, kMiB = 1024 * kKiB, kFourGiB = u64{1} << 32;

// Structure types (DSP0134, chapter 7), and the handles that refer to them.
enum Type : u8 {
  kBios = 0,
  kSystem = 1,
  kChassis = 3,
  kProcessor = 4,
  kMemoryArray = 16,
  kMemoryDevice = 17,
  kMappedAddress = 19,
  kBootInformation = 32,
  kEnd = 127,
};
constexpr u64 kNoHandle = 0xffff, kNoErrorInformation = 0xfffe;

// Structures, one behind the other: the formatted part, then the strings that it counts from 1.
class Tables {
 public:
  struct Field {
    u64 value;
    unsigned size;
  };
  // Returns the structure's handle.
  u16 Add(Type type, std::initializer_list<Field> fields,
          std::initializer_list<std::string_view> strings = {}) {
    const u64 start = bytes_.size();
    const u16 handle = static_cast<u16>(type << 8 | Count(type));
    Append(type, 1);
    Append(0, 1);
    Append(handle, 2);
    for (const Field& field : fields) Append(field.value, field.size);
    bytes_[start + 1] = static_cast<u8>(bytes_.size() - start);
    for (const std::string_view text : strings) {
      bytes_.insert(bytes_.end(), text.begin(), text.end());
      bytes_.push_back(0);
    }
    if (strings.size() == 0) bytes_.push_back(0);
    bytes_.push_back(0);
    largest_ = std::max(largest_, bytes_.size() - start);
    types_.push_back(type);
    return handle;
  }
  const std::vector<u8>& bytes() const { return bytes_; }
  u64 largest() const { return largest_; }
  u64 count() const { return types_.size(); }

 private:
  void Append(u64 value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) bytes_.push_back(static_cast<u8>(value >> (8 * i)));
  }
  u64 Count(Type type) const {
    return static_cast<u64>(std::count(types_.begin(), types_.end(), type));
  }

  std::vector<u8> bytes_;
  std::vector<Type> types_;
  u64 largest_ = 0;
};

Tables Describe(const SmbiosHardware& hardware) {
  constexpr u64 kOther = 1, kUnknown = 2, kSafe = 3;
  Tables tables;
  constexpr u64 kVirtualMachine = 1 << 4 << 8;  // byte 2 of the characteristics' extension
  tables.Add(kBios,
             {{1, 1},       // vendor,
              {2, 1},       // version,
              {0xf000, 2},  // segment,
              {3, 1},       // date,
              {0, 1},       // size: 64 KB
              {1 << 3, 8},  // no characteristics
              {kVirtualMachine, 2},
              {0, 1},  // the system BIOS's release: 0.1
              {1, 1},
              {0xffff, 2}},  // there is no embedded controller
             {"Alibi", "0.1", "11/20/2026"});
  tables.Add(kSystem,
             {{1, 1},  // manufacturer,
              {2, 1},  // product,
              {3, 1},  // version
              {0, 1},  // no serial number,
              {0, 8},  // no UUID
              {0, 8},
              {6, 1},  // the power switch woke it
              {0, 1},
              {0, 1}},
             {"Alibi", "Virtual PC", "i440FX"});
  tables.Add(kChassis,
             {{1, 1},  // manufacturer
              {kOther, 1},
              {0, 3},
              {kSafe, 1},
              {kSafe, 1},
              {kSafe, 1},
              {kUnknown, 1},
              {0, 4},
              {0, 1},
              {0, 1},
              {0, 1},
              {0, 1},
              {0, 1}},
             {"Alibi"});
  constexpr u64 kCentralProcessor = 3, kEnabled = 0x41;
  tables.Add(kProcessor,
             {{1, 1},  // socket
              {kCentralProcessor, 1},
              {kOther, 1},  // family
              {2, 1},       // manufacturer
              {0, 8},       // its ID is CPUID's to tell
              {0, 1},
              {0, 1},  // voltage, external clock, speeds: unknown
              {0, 2},
              {0, 2},
              {0, 2},
              {kEnabled, 1},
              {kOther, 1},
              {kNoHandle, 2},  // caches
              {kNoHandle, 2},
              {kNoHandle, 2},
              {0, 3},
              {1, 1},  // cores, cores in use, threads
              {1, 1},
              {1, 1},
              {kUnknown, 2},
              {kOther, 2}},
             {"CPU 0", "Alibi"});
  const u64 ram = hardware.low_ram_bytes + hardware.high_ram_bytes;
  constexpr u64 kSystemMemory = 3, kNoCorrection = 3, kIn64Bits = 0x80000000;
  const bool large_array = ram / kKiB >= kIn64Bits;
  const u16 array = tables.Add(kMemoryArray, {{kOther, 1},
                                              {kSystemMemory, 1},
                                              {kNoCorrection, 1},
                                              {large_array ? kIn64Bits : ram / kKiB, 4},
                                              {kNoErrorInformation, 2},
                                              {1, 2},
                                              {large_array ? ram : 0, 8}});
  constexpr u64 kDimm = 9, kRam = 7, kOtherDetail = 1 << 1, kExtendedSize = 0x7fff;
  const bool large_device = ram / kMiB >= kExtendedSize;
  tables.Add(kMemoryDevice,
             {{array, 2},
              {kNoErrorInformation, 2},
              {kNoHandle, 2},  // widths
              {kNoHandle, 2},
              {large_device ? kExtendedSize : ram / kMiB, 2},
              {kDimm, 1},
              {0, 1},
              {1, 1},  // locator
              {0, 1},
              {kRam, 1},
              {kOtherDetail, 2},
              {0, 2},
              {2, 1},  // manufacturer
              {0, 3},
              {0, 1},
              {large_device ? ram / kMiB : 0, 4},
              {0, 2},
              {0, 6}},
             {"DIMM 0", "Alibi"});
  const auto map = [&](u64 base, u64 bytes) {
    if (bytes == 0) return;
    const u64 last = base + bytes - 1;
    const bool far = last / kKiB >= 0xffffffff;
    tables.Add(kMappedAddress, {{far ? 0xffffffff : base / kKiB, 4},
                                {far ? 0xffffffff : last / kKiB, 4},
                                {array, 2},
                                {1, 1},
                                {far ? base : 0, 8},
                                {far ? last : 0, 8}});
  };
  map(0, hardware.low_ram_bytes);
  map(kFourGiB, hardware.high_ram_bytes);
  tables.Add(kBootInformation, {{0, 6}, {0, 1}});
  tables.Add(kEnd, {});
  return tables;
}

}  // namespace

Smbios BuildSmbios(const SmbiosHardware& hardware, u32 tables_at) {
  const Tables tables = Describe(hardware);
  Smbios result;
  result.tables = tables.bytes();
  std::vector<u8>& anchor = result.anchor;
  anchor.resize(kAnchorBytes);
  const auto put = [&anchor](u64 at, u64 value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) anchor[at + i] = static_cast<u8>(value >> (8 * i));
  };
  const auto text = [&anchor](u64 at, std::string_view word) {
    std::copy(word.begin(), word.end(), anchor.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto checksum = [&anchor](u64 first, u64 end, u64 at) {
    u8 sum = 0;
    for (u64 i = first; i < end; ++i) sum = static_cast<u8>(sum + anchor[i]);
    anchor[at] = static_cast<u8>(-sum);
  };
  text(0, "_SM_");
  put(5, kAnchorBytes, 1);
  put(6, 2, 1);
  put(7, kMinorVersion, 1);
  put(8, tables.largest(), 2);
  text(0x10, "_DMI_");
  put(0x16, result.tables.size(), 2);
  put(0x18, tables_at, 4);
  put(0x1c, tables.count(), 2);
  put(0x1e, 2 << 4 | kMinorVersion, 1);
  checksum(0x10, kAnchorBytes, 0x15);
  checksum(0, kAnchorBytes, 4);
  return result;
}

bool WriteSmbios(const SmbiosHardware& hardware, GuestMemory& memory) {
  constexpr u64 kTables = kSmbiosAddress + 32;
  const Smbios smbios = BuildSmbios(hardware, static_cast<u32>(kTables));
  return memory.Write(PhysAddr(kSmbiosAddress), smbios.anchor) &&
         memory.Write(PhysAddr(kTables), smbios.tables);
}

}  // namespace alibi::loader
