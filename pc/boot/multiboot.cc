// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/multiboot.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "pc/boot/elf.h"
#include "pc/boot/layout.h"

namespace alibi::loader {
namespace {

constexpr u32 kHeaderMagic = 0x1badb002;
constexpr u32 kBootMagic = 0x2badb002;
constexpr u64 kHeaderSearch = 8192;

// Header flags. The loader must understand all of bits 0-15 that are set; the rest is optional.
constexpr u32 kAlignModules = 1u << 0;  // always done
constexpr u32 kWantMemory = 1u << 1;    // always given
constexpr u32 kHasAddresses = 1u << 16;
constexpr u32 kRequiredFlags = 0xffff;

// Information flags.
constexpr u32 kInfoMemory = 1u << 0;
constexpr u32 kInfoBootDevice = 1u << 1;
constexpr u32 kInfoCommandLine = 1u << 2;
constexpr u32 kInfoModules = 1u << 3;
constexpr u32 kInfoMap = 1u << 6;
constexpr u32 kInfoLoaderName = 1u << 9;

constexpr u64 kKiB = 1024, kMiB = 1024 * kKiB;
// Page 0 holds the real-mode vectors and the BIOS data area.
constexpr u64 kLowestInfo = 0x1000;
constexpr u64 kMaxModules = 1024;
constexpr char kLoaderName[] = "alibi";

Error Bad(const std::string& name, const std::string& why) {
  return Error{"cannot load '" + name + "': " + why};
}

std::string Megabytes(u64 bytes) { return std::to_string(bytes / kMiB) + " MB"; }

struct Header {
  u64 offset;
  u32 flags;
};

std::optional<Header> FindHeader(std::span<const u8> image) {
  const u64 end = std::min<u64>(image.size(), kHeaderSearch);
  for (u64 offset = 0; offset + 12 <= end; offset += 4) {
    if (Load32(image, offset) != kHeaderMagic) continue;
    const u32 flags = Load32(image, offset + 4);
    if (kHeaderMagic + flags + Load32(image, offset + 8) == 0) return Header{offset, flags};
  }
  return std::nullopt;
}

// The header's own addresses, for images in a format the loader need not know.
Result<LoadableImage> ParseAddresses(std::span<const u8> image, const std::string& name,
                                     const Header& header) {
  constexpr u64 kAddressFields = 12;
  if (header.offset + kAddressFields + 20 > image.size()) {
    return Bad(name, "truncated: the file ends inside the multiboot header");
  }
  const u64 fields = header.offset + kAddressFields;
  const u64 header_address = Load32(image, fields);
  const u64 load_address = Load32(image, fields + 4);
  const u64 load_end = Load32(image, fields + 8);
  const u64 bss_end = Load32(image, fields + 12);
  const u64 entry = Load32(image, fields + 16);

  if (load_address > header_address) {
    return Bad(name, "the multiboot header lies before the load address " + Hex(load_address));
  }
  const u64 before_header = header_address - load_address;
  if (before_header > header.offset) {
    return Bad(name, "the load address " + Hex(load_address) + " lies before the file's start");
  }
  const u64 file_offset = header.offset - before_header;
  u64 file_size = image.size() - file_offset;
  if (load_end != 0) {
    if (load_end < load_address) return Bad(name, "the load end lies before the load address");
    if (load_end - load_address > file_size) {
      return Bad(name, "truncated: the data to load ends beyond the end of the file");
    }
    file_size = load_end - load_address;
  }
  u64 memory_size = file_size;
  if (bss_end != 0) {
    if (bss_end < load_address + file_size) {
      return Bad(name, "the BSS ends before the data to load");
    }
    memory_size = bss_end - load_address;
  }
  if (memory_size == 0) return Bad(name, "the multiboot header loads nothing");
  LoadableImage loadable;
  loadable.segments.push_back(
      Segment{load_address, memory_size, image.subspan(file_offset, file_size)});
  loadable.entry = entry;
  return loadable;
}

// Collects the information structure and what it points to, for a known address.
class InfoBlock {
 public:
  explicit InfoBlock(u64 address) : address_(address) {}

  void Put32(u64 offset, u64 value) {
    const u32 narrow = static_cast<u32>(value);
    std::memcpy(bytes_.data() + offset, &narrow, sizeof narrow);
  }
  void Append32(u64 value) { AppendInteger(static_cast<u32>(value)); }
  void Append64(u64 value) { AppendInteger(value); }
  u64 AppendString(const std::string& text) {
    const u64 at = Here();
    const std::string upto_nul(text.c_str());  // a NUL inside ends it for the guest anyway
    bytes_.insert(bytes_.end(), upto_nul.begin(), upto_nul.end());
    bytes_.push_back(0);
    return at;
  }
  void Align() { bytes_.resize((bytes_.size() + 7) & ~u64{7}); }
  u64 Here() const { return address_ + bytes_.size(); }
  void Reserve(u64 size) { bytes_.resize(bytes_.size() + size); }
  const std::vector<u8>& bytes() const { return bytes_; }

 private:
  template <class T>
  void AppendInteger(T value) {
    const u64 at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }

  u64 address_;
  std::vector<u8> bytes_;
};

// Offsets in the information structure.
enum InfoOffset : u64 {
  kFlags = 0,
  kMemoryLower = 4,
  kMemoryUpper = 8,
  kBootDevice = 12,
  kCommandLine = 16,
  kModuleCount = 20,
  kModuleTable = 24,
  kMapLength = 44,
  kMapAddress = 48,
  kLoaderNameAddress = 64,
  kInfoSize = 120,
};

InfoBlock BuildInfo(u64 address, const MultibootOptions& options,
                    const std::vector<u64>& module_addresses) {
  InfoBlock info(address);
  info.Reserve(kInfoSize);
  const u64 ram = options.low_ram_bytes;
  u32 flags =
      kInfoMemory | kInfoBootDevice | kInfoCommandLine | kInfoModules | kInfoMap | kInfoLoaderName;
  // The first hard disk, no partition of it: what QEMU says, too.
  info.Put32(kBootDevice, 0x8000ffff);
  info.Put32(kMemoryLower, std::min(ram, kVgaHole) / kKiB);
  info.Put32(kMemoryUpper, ram > kHoleEnd ? (ram - kHoleEnd) / kKiB : 0);
  info.Put32(kCommandLine, info.AppendString(options.command_line));
  info.Put32(kLoaderNameAddress, info.AppendString(kLoaderName));

  if (!options.modules.empty()) {
    std::vector<u64> names;
    for (const Module& module : options.modules) {
      names.push_back(info.AppendString(module.command_line));
    }
    info.Align();
    info.Put32(kModuleCount, options.modules.size());
    info.Put32(kModuleTable, info.Here());
    for (std::size_t i = 0; i < options.modules.size(); ++i) {
      info.Append32(module_addresses[i]);
      info.Append32(module_addresses[i] + options.modules[i].bytes.size());
      info.Append32(names[i]);
      info.Append32(0);
    }
  }

  info.Align();
  const u64 map = info.Here();
  for (const MapRange& range : PcMemoryMap(ram, options.high_ram_bytes)) {
    info.Append32(20);  // the size of what follows
    info.Append64(range.first);
    info.Append64(range.end - range.first);
    info.Append32(range.usable ? 1 : 2);
  }
  info.Put32(kMapAddress, map);
  info.Put32(kMapLength, info.Here() - map);
  info.Put32(kFlags, flags);
  return info;
}

std::optional<Error> CheckOptions(const std::string& name, const MultibootOptions& options) {
  if (options.low_ram_bytes < kHoleEnd) {
    return Bad(name, "the machine has " + std::to_string(options.low_ram_bytes / kKiB) +
                         " KB of RAM; a multiboot kernel needs more than 1 MB");
  }
  if (options.low_ram_bytes > kLargestLowRam) {
    return Bad(name, "RAM below 4 GB may not reach beyond " + Hex(kLargestLowRam));
  }
  if (options.high_ram_bytes > u64{1} << 46) return Bad(name, "RAM above 4 GB is over 64 TB");
  if (options.modules.size() > kMaxModules) {
    return Bad(name, "there are more than " + std::to_string(kMaxModules) + " modules");
  }
  return std::nullopt;
}

}  // namespace

bool IsMultiboot(std::span<const u8> image) { return FindHeader(image).has_value(); }

Result<MultibootEntry> LoadMultiboot(std::span<const u8> image, const std::string& name,
                                     const MultibootOptions& options, GuestMemory& memory) {
  if (std::optional<Error> error = CheckOptions(name, options)) return *error;
  if (image.empty()) return Bad(name, "the file is empty");
  const std::optional<Header> header = FindHeader(image);
  if (!header) {
    return Bad(name, "not a multiboot image (no valid header in the first 8192 bytes)");
  }
  if (const u32 unknown = header->flags & kRequiredFlags & ~(kAlignModules | kWantMemory)) {
    return Bad(name, "the multiboot header requires unsupported features (flags " + Hex(unknown) +
                         (unknown & 4 ? ", bit 2: a video mode)" : ")"));
  }
  Result<LoadableImage> parsed =
      (header->flags & kHasAddresses) ? ParseAddresses(image, name, *header)
      : LooksLikeElf(image)           ? ParseElf(image, name)
                                      : Result<LoadableImage>(Bad(
                                            name, "neither an ELF file nor load addresses in the header"));
  if (!parsed.ok()) return parsed.error();
  LoadableImage& loadable = *parsed;
  DropPreambleIn(kVgaHole, kHoleEnd, &loadable);

  Layout layout(options.low_ram_bytes);
  bool entry_is_loaded = false;
  for (const Segment& segment : loadable.segments) {
    const std::string problem = layout.Take(segment.address, segment.memory_size);
    if (!problem.empty()) {
      return Bad(name, "segment " + Hex(segment.address) + "-" +
                           Hex(segment.address + segment.memory_size - 1) + " is " + problem);
    }
    entry_is_loaded |=
        loadable.entry >= segment.address && loadable.entry - segment.address < segment.memory_size;
  }
  if (!entry_is_loaded) {
    return Bad(name, "the entry point " + Hex(loadable.entry) + " is not in any loaded segment");
  }

  std::vector<u64> module_addresses;
  for (const Module& module : options.modules) {
    const std::optional<u64> place =
        layout.Place(layout.End(), std::max<u64>(module.bytes.size(), 1), kPageSize);
    if (!place) {
      return Bad(name, "module '" + module.command_line + "' does not fit into RAM (" +
                           Megabytes(options.low_ram_bytes) + ")");
    }
    module_addresses.push_back(*place);
  }
  // The size does not depend on the address, so a first build measures.
  const u64 info_size = BuildInfo(0, options, module_addresses).bytes().size();
  const std::optional<u64> info_address = layout.Place(kLowestInfo, info_size, 16);
  if (!info_address) return Bad(name, "no room in RAM for the multiboot information");
  const InfoBlock info = BuildInfo(*info_address, options, module_addresses);

  bool written = true;
  for (const Segment& segment : loadable.segments) {
    const u64 rest = segment.memory_size - segment.bytes.size();
    if (!segment.bytes.empty()) {
      written = written && memory.Write(PhysAddr(segment.address), segment.bytes);
    }
    if (rest != 0) {
      written = written && memory.Zero(PhysAddr(segment.address + segment.bytes.size()), rest);
    }
  }
  for (std::size_t i = 0; i < options.modules.size(); ++i) {
    if (options.modules[i].bytes.empty()) continue;
    written = written && memory.Write(PhysAddr(module_addresses[i]), options.modules[i].bytes);
  }
  written = written && memory.Write(PhysAddr(*info_address), info.bytes());
  if (!written) return Bad(name, "the machine's memory does not cover the RAM size given");
  return MultibootEntry{static_cast<u32>(loadable.entry), kBootMagic,
                        static_cast<u32>(*info_address)};
}

}  // namespace alibi::loader
