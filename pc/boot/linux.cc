// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/linux.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "pc/boot/elf.h"
#include "pc/boot/layout.h"

namespace alibi::loader {
namespace {

constexpr u64 kMiB = 1 << 20;

// The setup header, by offset in the image and in boot_params alike.
constexpr u64 kSetupSectors = 0x1f1, kParagraphs = 0x1f4, kVideoMode = 0x1fa, kBootFlag = 0x1fe,
              kHeaderMagic = 0x202, kVersion = 0x206, kTypeOfLoader = 0x210, kLoadFlags = 0x211,
              kCode32Start = 0x214, kRamdiskImage = 0x218, kRamdiskSize = 0x21c, kHeapEnd = 0x224,
              kCommandLine = 0x228, kInitrdMax = 0x22c, kRelocatable = 0x234,
              kExtraLoadFlags = 0x236, kCommandLineMax = 0x238, kPreferredAddress = 0x258,
              kInitSize = 0x260, kHeaderStart = 0x1f1,
              kHeaderLength = 0x201;  // its own last byte is 202h + this
// The rest of boot_params.
constexpr u64 kRsdpAddress = 0x70, kE820Entries = 0x1e8, kE820Table = 0x2d0;
constexpr u64 kBootParamsBytes = 4096;
constexpr u16 kOldestVersion = 0x202;  // the command line goes by its pointer
constexpr u8 kLoadedHigh = 1, kCanUseHeap = 0x80;
constexpr u16 kKernel64 = 1;     // of kExtraLoadFlags: there is a 64-bit entry
constexpr u64 kEntry64 = 0x200;  // from where the kernel was loaded
constexpr u8 kUndefinedLoader = 0xff;
constexpr u16 kNormalVideo = 0xffff;

constexpr u64 kSetupStack = 0xe000;  // in the setup code's segment; see pc/boot/linux_rom.S
constexpr u64 kFirmwareTop = u64{1} << 20;
constexpr u64 kGdt = 0x8000, kPageTables = 0x9000;
constexpr u64 kBootParams = 0x10000, kCommandLineAt = 0x20000;
// A zImage lies between 64 KB and 576 KB. Its setup code comes behind it, then the command line, in
// the same segment as the stack.
constexpr u64 kLowKernel = 0x10000, kLowKernelEnd = 0x90000;

struct SetupPlaces {
  u64 setup, command_line, command_line_end;
  u16 heap_end;  // in the setup code's segment, less 200h
};
constexpr SetupPlaces kHighSetup = {kBootParams, kCommandLineAt, kExtendedBda, kSetupStack - 0x200};
constexpr SetupPlaces kLowSetup = {0x90000, 0x99000, 0x9c000, 0x9000 - 0x200};

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
  // struct screen_info: a VGA in mode 3, which shows nothing yet.
  void PutScreen() {
    constexpr u64 kVideoModeNow = 0x06, kColumns = 0x07, kEgaMemory = 0x0a, kLines = 0x0e,
                  kIsVga = 0x0f, kPoints = 0x10;
    Put8(kVideoModeNow, 3);
    Put8(kColumns, 80);
    Put<u16>(kEgaMemory, 3);  // 256 KB
    Put8(kLines, 25);
    Put8(kIsVga, 1);
    Put<u16>(kPoints, 16);
  }
  void AddMap(const MapRange& range) {
    const u64 at = kE820Table + 20u * bytes_[kE820Entries]++;
    Put(at, range.first);
    Put(at + 8, range.end - range.first);
    Put(at + 16, range.usable ? u32{1} : u32{2});
  }
  std::span<const u8> bytes() const { return bytes_; }

 private:
  std::array<u8, kBootParamsBytes> bytes_{};
};

// __BOOT_CS (10h), code of 32 or 64 bits, and __BOOT_DS (18h), both flat.
std::vector<u64> BootGdt(bool long_mode) {
  return {0, 0, long_mode ? u64{0x00af9b000000ffff} : u64{0x00cf9b000000ffff}, 0x00cf93000000ffff};
}

// Six tables from `address` on: the first 4 GB onto itself, in pages of 2 MB.
std::vector<u64> IdentityMap(u64 address) {
  constexpr u64 kEntries = 512, kPresent = 1, kWritable = 2, kLarge = 0x80;
  std::vector<u64> tables(6 * kEntries);
  tables[0] = (address + kPageSize) | kPresent | kWritable;
  for (u64 i = 0; i < 4; ++i) {
    tables[kEntries + i] = (address + (2 + i) * kPageSize) | kPresent | kWritable;
  }
  for (u64 i = 0; i < 4 * kEntries; ++i) {
    tables[2 * kEntries + i] = (i << 21) | kPresent | kWritable | kLarge;
  }
  return tables;
}

std::span<const u8> BytesOf(const std::vector<u64>& words) {
  return {reinterpret_cast<const u8*>(words.data()), words.size() * sizeof(u64)};
}

}  // namespace

bool IsLinux(std::span<const u8> image) {
  return image.size() > kInitSize + 4 && Load16(image, kBootFlag) == 0xaa55 &&
         Load32(image, kHeaderMagic) == 0x53726448;  // "HdrS"
}

bool StartsThroughBios(std::span<const u8> image) {
  return IsLinux(image) && (!(image[kLoadFlags] & kLoadedHigh) || Load32(image, kCode32Start) == 0);
}

namespace {

// Where everything goes, once the image and the options have been found sound.
struct Plan {
  u64 setup_bytes = 0;
  u64 header_end = 0;
  std::span<const u8> kernel;
  u64 load_at = 0;
  std::string command_line;
  u64 initrd_at = 0;       // 0: none
  bool long_mode = false;  // there is a 64-bit entry
  SetupPlaces places = kHighSetup;
};

Result<Plan> MakePlan(std::span<const u8> image, const std::string& name,
                      const LinuxOptions& options) {
  if (!IsLinux(image)) return Bad(name, "it has no Linux boot header");
  const u16 version = Load16(image, kVersion);
  if (version < kOldestVersion) {
    return Bad(name, "its boot protocol is older than 2.02; give a kernel of Linux 2.4 or newer");
  }
  const bool real_mode = options.entry == LinuxEntryPoint::k16;
  if (!real_mode && StartsThroughBios(image)) {
    return Bad(name, "it has no 32-bit entry; --entry 16 starts it through a BIOS");
  }
  const u64 sectors = image[kSetupSectors] == 0 ? 4 : image[kSetupSectors];
  const u64 setup_bytes = (sectors + 1) * 512;
  if (setup_bytes >= image.size()) return Bad(name, "truncated: the file ends in its setup code");
  const std::span<const u8> kernel = image.subspan(setup_bytes);
  // In paragraphs, of which the last may be short. Before 2.04 the upper half means something else.
  const u64 paragraphs = version >= 0x204 ? Load32(image, kParagraphs) : Load16(image, kParagraphs);
  if (const u64 wanted = paragraphs * 16; kernel.size() + 15 < wanted) {
    return Bad(name, "truncated: it has " + std::to_string(image.size()) + " bytes, not " +
                         std::to_string(setup_bytes + wanted));
  }
  const u64 header_end = std::min<u64>({u64{0x202} + image[kHeaderLength], setup_bytes, 0x290});

  const bool long_mode = version >= 0x20c && (Load16(image, kExtraLoadFlags) & kKernel64);
  if (options.entry == LinuxEntryPoint::k64 && !long_mode) {
    return Bad(name, "it has no 64-bit entry (--entry 32 is the one that every kernel has)");
  }

  // Where it goes. A relocatable kernel may run at any address from its preferred one up and is
  // loaded there; another one moves itself there. Until it has set up its own memory it needs
  // init_size bytes from that address.
  // For setup code it lies where all loaders put it.
  const bool low = !(image[kLoadFlags] & kLoadedHigh);
  u64 load_at = !real_mode ? Load32(image, kCode32Start) : low ? kLowKernel : kHoleEnd;
  u64 end = load_at + kernel.size();
  if (version >= 0x20a && header_end >= kInitSize + 4) {
    const u64 preferred = std::min(Load64(image, kPreferredAddress), kFourGiB);
    const bool may_move = !real_mode && image[kRelocatable] != 0;
    if (may_move && preferred >= kHoleEnd) load_at = preferred;
    end = std::max(load_at + kernel.size(), preferred + Load32(image, kInitSize));
  }
  if (load_at < kHoleEnd && !low) return Bad(name, "it wants to be loaded below 1 MB");
  if (low && load_at + kernel.size() > kLowKernelEnd) {
    return Bad(name, "it is a zImage of more than 512 KB");
  }
  if (end > options.low_ram_bytes) {
    return Bad(name, "it needs " + std::to_string((end + kMiB - 1) / kMiB) +
                         " MB of RAM, and there are " +
                         std::to_string(options.low_ram_bytes / kMiB) + " MB; give more (--ram)");
  }

  const u64 line_max = version >= 0x206 ? Load32(image, kCommandLineMax) : 255;
  const std::string line(options.command_line.c_str());  // a NUL inside ends it for the guest
  const SetupPlaces& places = low ? kLowSetup : kHighSetup;
  if (line.size() > line_max || line.size() >= places.command_line_end - places.command_line) {
    return Bad(name, "its command line may have " + std::to_string(line_max) + " characters, not " +
                         std::to_string(line.size()));
  }

  // As high as the kernel can reach, out of its way.
  u64 initrd_at = 0;
  if (!options.initrd.empty()) {
    const u64 reach = version >= 0x203 ? u64{Load32(image, kInitrdMax)} + 1 : 0x38000000;
    // A BIOS keeps its tables at the top of RAM.
    const u64 firmware = real_mode ? kFirmwareTop : 0;
    end = std::max(end, kHoleEnd);
    const u64 top =
        std::min(options.low_ram_bytes - std::min(options.low_ram_bytes, firmware), reach);
    const u64 size = options.initrd.size();
    initrd_at = size < top ? (top - size) & ~kPageMask : 0;
    if (initrd_at < end) {
      const u64 needed = (end + size + firmware + kPageSize + kMiB - 1) / kMiB;
      const std::string disk =
          "its initial RAM disk of " + std::to_string((size + kMiB - 1) / kMiB) + " MB ";
      if (needed * kMiB > reach) {
        return Bad(name, disk + "does not fit beside it below the " + std::to_string(reach / kMiB) +
                             " MB that it can reach");
      }
      return Bad(name, disk + "needs " + std::to_string(needed) + " MB of RAM, and there are " +
                           std::to_string(options.low_ram_bytes / kMiB) + " MB; give more (--ram)");
    }
  }

  return Plan{setup_bytes, header_end, kernel, load_at, line, initrd_at, long_mode, places};
}

std::vector<u8> WithNul(const std::string& text) {
  std::vector<u8> bytes(text.begin(), text.end());
  bytes.push_back(0);
  return bytes;
}

// What a loader writes into the setup header, for the 16-bit entry and for boot_params alike.
template <class Header>
void FillHeader(Header& header, std::span<const u8> image, const Plan& plan, u64 initrd_bytes) {
  header.Put(kVideoMode, kNormalVideo);
  header.Put(kTypeOfLoader, kUndefinedLoader);
  header.Put(kLoadFlags, static_cast<u8>(image[kLoadFlags] | kCanUseHeap));
  header.Put(kHeapEnd, plan.places.heap_end);
  header.Put(kCommandLine, static_cast<u32>(plan.places.command_line));
  header.Put(kRamdiskImage, static_cast<u32>(plan.initrd_at));
  header.Put(kRamdiskSize, static_cast<u32>(initrd_bytes));
}

class SetupCode {
 public:
  explicit SetupCode(std::span<const u8> bytes) : bytes_(bytes.begin(), bytes.end()) {}
  template <class T>
  void Put(u64 offset, T value) {
    std::memcpy(&bytes_[offset], &value, sizeof(value));
  }
  std::vector<u8> Take() { return std::move(bytes_); }

 private:
  std::vector<u8> bytes_;
};

}  // namespace

Result<LinuxSetup> PrepareLinuxSetup(std::span<const u8> image, const std::string& name,
                                     const LinuxOptions& options) {
  LinuxOptions real_mode = options;
  real_mode.entry = LinuxEntryPoint::k16;
  auto plan = MakePlan(image, name, real_mode);
  if (!plan.ok()) return plan.error();
  // Its stack and heap are in the same 64 KB.
  if (plan->setup_bytes > kSetupStack / 2 || plan->setup_bytes < kHeaderStart + 0x100) {
    return Bad(name, "its setup code has " + std::to_string(plan->setup_bytes) + " bytes");
  }
  SetupCode setup(image.first(plan->setup_bytes));
  FillHeader(setup, image, *plan, options.initrd.size());
  LinuxSetup result;
  result.setup = setup.Take();
  result.setup_at = static_cast<u32>(plan->places.setup);
  result.kernel = plan->kernel;
  result.kernel_at = static_cast<u32>(plan->load_at);
  result.command_line = WithNul(plan->command_line);
  result.command_line_at = static_cast<u32>(plan->places.command_line);
  result.initrd_at = static_cast<u32>(plan->initrd_at);
  return result;
}

Result<LinuxEntry> LoadLinux(std::span<const u8> image, const std::string& name,
                             const LinuxOptions& options, GuestMemory& memory) {
  ALIBI_CHECK(options.entry != LinuxEntryPoint::k16, "setup code is started by a BIOS");
  auto plan = MakePlan(image, name, options);
  if (!plan.ok()) return plan.error();
  BootParams params;
  params.PutHeader(image.subspan(kHeaderStart, plan->header_end - kHeaderStart));
  FillHeader(params, image, *plan, options.initrd.size());
  params.Put(kCode32Start, static_cast<u32>(plan->load_at));
  params.PutScreen();
  params.Put(kRsdpAddress, options.rsdp);
  for (const MapRange& range : PcMemoryMap(options.low_ram_bytes, options.high_ram_bytes)) {
    params.AddMap(range);
  }

  const bool enter64 = plan->long_mode && options.entry != LinuxEntryPoint::k32;
  if (!memory.Write(PhysAddr(plan->load_at), plan->kernel) ||
      !memory.Write(PhysAddr(kBootParams), params.bytes()) ||
      !memory.Write(PhysAddr(kCommandLineAt), WithNul(plan->command_line)) ||
      !memory.Write(PhysAddr(kGdt), BytesOf(BootGdt(enter64))) ||
      (enter64 && !memory.Write(PhysAddr(kPageTables), BytesOf(IdentityMap(kPageTables)))) ||
      (plan->initrd_at != 0 && !memory.Write(PhysAddr(plan->initrd_at), options.initrd))) {
    return Bad(name, "guest memory has a hole where it belongs");
  }
  LinuxEntry entry{.rip = plan->load_at, .boot_params = kBootParams, .gdt = kGdt};
  if (enter64) {
    entry.rip += kEntry64;
    entry.page_tables = kPageTables;
  }
  return entry;
}

}  // namespace alibi::loader
