#include "vmm/loader/linux.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "vmm/loader/elf.h"

namespace alibi::loader {
namespace {

constexpr u64 kKiB = 1024, kMiB = 1024 * kKiB;
constexpr u64 kFourGiB = u64{1} << 32;

// The setup header, by offset in the image and in boot_params alike.
constexpr u64 kSetupSectors = 0x1f1, kBootFlag = 0x1fe, kHeaderMagic = 0x202, kVersion = 0x206,
              kTypeOfLoader = 0x210, kLoadFlags = 0x211, kCode32Start = 0x214,
              kRamdiskImage = 0x218, kRamdiskSize = 0x21c, kHeapEnd = 0x224, kCommandLine = 0x228,
              kInitrdMax = 0x22c, kRelocatable = 0x234, kCommandLineMax = 0x238,
              kPreferredAddress = 0x258, kInitSize = 0x260, kHeaderStart = 0x1f1,
              kHeaderLength = 0x201;  // its own last byte is 202h + this
// The rest of boot_params.
constexpr u64 kRsdpAddress = 0x70, kE820Entries = 0x1e8, kE820Table = 0x2d0;
constexpr u64 kBootParamsBytes = 4096;
constexpr u16 kOldestVersion = 0x204;  // syssize has 32 bits, so the payload's end is known
constexpr u8 kLoadedHigh = 1, kCanUseHeap = 0x80;
constexpr u8 kUndefinedLoader = 0xff;

constexpr u64 kBootParams = 0x10000, kCommandLineAt = 0x20000;
constexpr u64 kExtendedBda = 0x9fc00, kBiosRom = 0xf0000, kHoleEnd = 0x100000;

Error Bad(const std::string& name, const std::string& why) {
  return Error{"cannot load '" + name + "': " + why};
}

class BootParams {
 public:
  void Put8(u64 offset, u8 value) { bytes_[offset] = value; }
  template <class T>
  void Put(u64 offset, T value) {
    std::memcpy(&bytes_[offset], &value, sizeof(value));
  }
  void PutHeader(std::span<const u8> header) {
    std::copy(header.begin(), header.end(), bytes_.begin() + kHeaderStart);
  }
  // One row of the memory map: RAM is type 1, reserved 2.
  void AddMap(u64 first, u64 end, u32 type) {
    const u64 at = kE820Table + 20u * bytes_[kE820Entries]++;
    Put(at, first);
    Put(at + 8, end - first);
    Put(at + 16, type);
  }
  std::span<const u8> bytes() const { return bytes_; }

 private:
  std::array<u8, kBootParamsBytes> bytes_{};
};

}  // namespace

bool IsLinux(std::span<const u8> image) {
  return image.size() > kInitSize + 4 && Load16(image, kBootFlag) == 0xaa55 &&
         Load32(image, kHeaderMagic) == 0x53726448;  // "HdrS"
}

Result<LinuxEntry> LoadLinux(std::span<const u8> image, const std::string& name,
                             const LinuxOptions& options, GuestMemory& memory) {
  if (!IsLinux(image)) return Bad(name, "it has no Linux boot header");
  const u16 version = Load16(image, kVersion);
  if (version < kOldestVersion || !(image[kLoadFlags] & kLoadedHigh)) {
    return Bad(name,
               "its boot protocol is older than 2.04, or it is a zImage; give a bzImage of Linux "
               "2.6.14 or newer");
  }
  const u64 sectors = image[kSetupSectors] == 0 ? 4 : image[kSetupSectors];
  const u64 setup_bytes = (sectors + 1) * 512;
  if (setup_bytes >= image.size()) return Bad(name, "truncated: the file ends in its setup code");
  const std::span<const u8> kernel = image.subspan(setup_bytes);
  const u64 header_end = std::min<u64>({u64{0x202} + image[kHeaderLength], setup_bytes, 0x290});

  // Where it goes: where it was linked to run if it is relocatable and fits there, else 1 MB.
  u64 load_at = Load32(image, kCode32Start), needs = kernel.size();
  if (version >= 0x20a && header_end >= kInitSize + 4) {
    needs = std::max<u64>(needs, Load32(image, kInitSize));
    const u64 preferred = Load64(image, kPreferredAddress);
    if (image[kRelocatable] != 0 && preferred >= kHoleEnd && preferred < options.low_ram_bytes &&
        needs <= options.low_ram_bytes - preferred) {
      load_at = preferred;
    }
  }
  if (load_at < kHoleEnd || load_at >= options.low_ram_bytes ||
      needs > options.low_ram_bytes - load_at) {
    return Bad(name, "it needs " + std::to_string((load_at + needs + kMiB - 1) / kMiB) +
                         " MB of RAM, and there are " +
                         std::to_string(options.low_ram_bytes / kMiB) + " MB; give more (--ram)");
  }

  const u64 line_max = version >= 0x206 ? Load32(image, kCommandLineMax) : 255;
  const std::string line(options.command_line.c_str());  // a NUL inside ends it for the guest
  if (line.size() > line_max || line.size() >= kExtendedBda - kCommandLineAt) {
    return Bad(name, "its command line may have " + std::to_string(line_max) + " characters, not " +
                         std::to_string(line.size()));
  }

  // As high as the kernel can reach, out of its way.
  u64 initrd_at = 0;
  if (!options.initrd.empty()) {
    const u64 top = std::min<u64>(options.low_ram_bytes, u64{Load32(image, kInitrdMax)} + 1);
    const u64 size = options.initrd.size();
    initrd_at = size < top ? (top - size) & ~kPageMask : 0;
    if (initrd_at < load_at + needs) {
      return Bad(name, "its initial RAM disk of " + std::to_string(size / kMiB + 1) +
                           " MB does not fit beside it in " + std::to_string(top / kMiB) +
                           " MB of RAM; give more (--ram)");
    }
  }

  BootParams params;
  params.PutHeader(image.subspan(kHeaderStart, header_end - kHeaderStart));
  params.Put8(kTypeOfLoader, kUndefinedLoader);
  params.Put8(kLoadFlags, static_cast<u8>(image[kLoadFlags] | kCanUseHeap));
  params.Put<u16>(kHeapEnd, 0xfe00);
  params.Put(kCode32Start, static_cast<u32>(load_at));
  params.Put(kCommandLine, static_cast<u32>(kCommandLineAt));
  params.Put(kRamdiskImage, static_cast<u32>(initrd_at));
  params.Put(kRamdiskSize, static_cast<u32>(options.initrd.size()));
  params.Put(kRsdpAddress, options.rsdp);
  params.AddMap(0, kExtendedBda, 1);
  params.AddMap(kExtendedBda, 0xa0000, 2);
  params.AddMap(kBiosRom, kHoleEnd, 2);
  params.AddMap(kHoleEnd, options.low_ram_bytes, 1);
  if (options.high_ram_bytes != 0) {
    params.AddMap(kFourGiB, kFourGiB + options.high_ram_bytes, 1);
  }

  std::vector<u8> terminated(line.begin(), line.end());
  terminated.push_back(0);
  if (!memory.Write(PhysAddr(load_at), kernel) ||
      !memory.Write(PhysAddr(kBootParams), params.bytes()) ||
      !memory.Write(PhysAddr(kCommandLineAt), terminated) ||
      (initrd_at != 0 && !memory.Write(PhysAddr(initrd_at), options.initrd))) {
    return Bad(name, "guest memory has a hole where it belongs");
  }
  return LinuxEntry{static_cast<u32>(load_at), static_cast<u32>(kBootParams)};
}

}  // namespace alibi::loader
