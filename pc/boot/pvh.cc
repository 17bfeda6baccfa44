// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/pvh.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "pc/boot/elf.h"
#include "pc/boot/layout.h"

namespace alibi::loader {
namespace {

constexpr u32 kStartMagic = 0x336ec578;
constexpr u64 kStartInfoBytes = 56, kModuleBytes = 32, kMapBytes = 24;
constexpr u64 kLowestInfo = 0x1000;  // page 0 is the BIOS's
constexpr u64 kMaxCommandLine = 64 << 10, kMaxModules = 1024;

Error Bad(const std::string& name, const std::string& why) {
  return Error{"cannot load '" + name + "': " + why};
}

// struct hvm_start_info with all it points to, for a known address.
class StartInfo {
 public:
  explicit StartInfo(u64 address) : address_(address), bytes_(kStartInfoBytes) {}

  template <class T>
  void Put(u64 offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }
  void Append32(u64 value) { Append(static_cast<u32>(value)); }
  void Append64(u64 value) { Append(value); }
  u64 AppendString(const std::string& text) {
    const u64 at = Here();
    const std::string upto_nul(text.c_str());  // a NUL inside ends it for the guest anyway
    bytes_.insert(bytes_.end(), upto_nul.begin(), upto_nul.end());
    bytes_.resize((bytes_.size() + 8) & ~u64{7});
    return at;
  }
  u64 Here() const { return address_ + bytes_.size(); }
  const std::vector<u8>& bytes() const { return bytes_; }

 private:
  template <class T>
  void Append(T value) {
    const u64 at = bytes_.size();
    bytes_.resize(at + sizeof(value));
    Put(at, value);
  }

  u64 address_;
  std::vector<u8> bytes_;
};

StartInfo Build(u64 address, const PvhOptions& options, const std::vector<u64>& module_addresses) {
  StartInfo info(address);
  info.Put(0, kStartMagic);
  info.Put(4, u32{1});  // version
  info.Put(12, static_cast<u32>(options.modules.size()));
  info.Put(24, info.AppendString(options.command_line));
  info.Put(32, options.rsdp);
  std::vector<u64> lines;
  for (const Module& module : options.modules)
    lines.push_back(info.AppendString(module.command_line));
  if (!options.modules.empty()) info.Put(16, info.Here());
  for (std::size_t i = 0; i < options.modules.size(); ++i) {
    for (const u64 field :
         {module_addresses[i], u64{options.modules[i].bytes.size()}, lines[i], u64{0}}) {
      info.Append64(field);
    }
  }
  const std::vector<MapRange> map = PcMemoryMap(options.low_ram_bytes, options.high_ram_bytes);
  info.Put(40, info.Here());
  info.Put(48, static_cast<u32>(map.size()));
  for (const MapRange& range : map) {
    info.Append64(range.first);
    info.Append64(range.end - range.first);
    info.Append32(range.usable ? 1 : 2);  // as in E820
    info.Append32(0);
  }
  return info;
}

}  // namespace

bool IsPvh(std::span<const u8> image) {
  if (!LooksLikeElf(image)) return false;
  const auto parsed = ParseElf(image, "");
  return parsed.ok() && parsed.value().pvh_entry.has_value();
}

Result<PvhEntry> LoadPvh(std::span<const u8> image, const std::string& name,
                         const PvhOptions& options, GuestMemory& memory) {
  auto parsed = ParseElf(image, name);
  if (!parsed.ok()) return parsed.error();
  if (!parsed->pvh_entry) return Bad(name, "it has no PVH entry (a note of Xen's)");
  if (options.command_line.size() >= kMaxCommandLine) {
    return Bad(name, "its command line may have " + std::to_string(kMaxCommandLine - 1) +
                         " characters, not " + std::to_string(options.command_line.size()));
  }
  if (options.modules.size() > kMaxModules) {
    return Bad(name, "there are more than " + std::to_string(kMaxModules) + " modules");
  }
  DropPreambleIn(kVgaHole, kHoleEnd, &*parsed);
  Layout layout(options.low_ram_bytes);
  u64 end = 0;
  for (const Segment& segment : parsed->segments) {
    end = std::max(end, segment.address + segment.memory_size);
  }
  constexpr u64 kMiB = 1 << 20;
  if (end > options.low_ram_bytes) {
    return Bad(name, "it needs " + std::to_string(end / kMiB + 1) +
                         " MB of RAM below 4 GB, and there are " +
                         std::to_string(options.low_ram_bytes / kMiB) + " MB; give more (--ram)");
  }
  bool entry_is_loaded = false;
  for (const Segment& segment : parsed->segments) {
    const std::string problem = layout.Take(segment.address, segment.memory_size);
    if (!problem.empty()) return Bad(name, "segment " + Hex(segment.address) + " is " + problem);
    entry_is_loaded |= *parsed->pvh_entry >= segment.address &&
                       *parsed->pvh_entry - segment.address < segment.memory_size;
  }
  if (!entry_is_loaded) {
    return Bad(name, "the PVH entry point " + Hex(*parsed->pvh_entry) + " is not in any segment");
  }
  std::vector<u64> module_addresses;
  for (const Module& module : options.modules) {
    const u64 size = std::max<u64>(module.bytes.size(), 1);
    const auto place = layout.Place(layout.End(), size, kPageSize);
    if (!place) {
      return Bad(name, "module '" + module.command_line + "' needs " +
                           std::to_string((layout.End() + size) / kMiB + 1) +
                           " MB of RAM, and there are " +
                           std::to_string(options.low_ram_bytes / kMiB) + " MB; give more (--ram)");
    }
    module_addresses.push_back(*place);
  }
  // The size does not depend on the address, so a first build measures.
  const u64 size = Build(0, options, module_addresses).bytes().size();
  const auto address = layout.Place(kLowestInfo, size, 16);
  if (!address) return Bad(name, "no room in RAM for the start information");
  const StartInfo info = Build(*address, options, module_addresses);

  bool written = true;
  for (const Segment& segment : parsed->segments) {
    const u64 loaded = segment.bytes.size(), rest = segment.memory_size - loaded;
    written = written && (loaded == 0 || memory.Write(PhysAddr(segment.address), segment.bytes));
    written = written && (rest == 0 || memory.Zero(PhysAddr(segment.address + loaded), rest));
  }
  for (std::size_t i = 0; i < options.modules.size(); ++i) {
    if (options.modules[i].bytes.empty()) continue;
    written = written && memory.Write(PhysAddr(module_addresses[i]), options.modules[i].bytes);
  }
  if (!written || !memory.Write(PhysAddr(*address), info.bytes())) {
    return Bad(name, "the machine's memory does not cover the RAM size given");
  }
  return PvhEntry{static_cast<u32>(*parsed->pvh_entry), static_cast<u32>(*address)};
}

}  // namespace alibi::loader
