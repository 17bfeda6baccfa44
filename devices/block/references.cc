// SPDX-License-Identifier: Apache-2.0
#include "devices/block/references.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string_view>

#include "base/file_descriptor.h"

namespace alibi::block {
namespace {

// A part of a file, padded with zeros where the file ends.
class Bytes {
 public:
  Bytes(int fd, u64 offset, std::size_t size) : bytes_(size, 0) {
    if (offset > u64{1} << 62) return;
    std::size_t got = 0;
    while (got < size) {
      const ssize_t piece =
          pread(fd, bytes_.data() + got, size - got, static_cast<off_t>(offset + got));
      if (piece <= 0) break;
      got += static_cast<std::size_t>(piece);
    }
  }
  u64 Big(std::size_t at, unsigned size) const {
    u64 value = 0;
    for (unsigned i = 0; i < size; ++i) value = value << 8 | Byte(at + i);
    return value;
  }
  u64 Little(std::size_t at, unsigned size) const {
    u64 value = 0;
    for (unsigned i = size; i-- != 0;) value = value << 8 | Byte(at + i);
    return value;
  }
  std::size_t size() const { return bytes_.size(); }
  std::string_view Text(std::size_t at, std::size_t size) const {
    if (at >= bytes_.size()) return {};
    return std::string_view(bytes_).substr(at, size);
  }

 private:
  u8 Byte(std::size_t at) const { return at < bytes_.size() ? static_cast<u8>(bytes_[at]) : 0; }
  std::string bytes_;
};

using References = std::vector<Reference>;
constexpr auto kBacking = Reference::Kind::kBacking;
constexpr auto kData = Reference::Kind::kData;
constexpr std::size_t kMaxName = 4096;

// QEMU's docs/interop/qcow2.txt.
References OfQcow2(int fd) {
  constexpr std::size_t kHeaderBytes = 104;
  constexpr u64 kMaxHeader = 2 << 20;  // it fits into a cluster
  constexpr u64 kExternalData = 4;     // of the incompatible features
  constexpr u64 kDataFileName = 0x44415441, kBackingFormat = 0xe2792aca;
  References found;
  const Bytes header(fd, 0, kHeaderBytes);
  const u64 version = header.Big(4, 4);
  if (version != 2 && version != 3) return found;
  if (const u64 at = header.Big(8, 8); at != 0) {
    const std::size_t size = std::min<u64>(header.Big(16, 4), kMaxName);
    found.push_back({kBacking, std::string(Bytes(fd, at, size).Text(0, size))});
  }
  bool named = false;
  for (u64 at = version < 3 ? 72 : header.Big(100, 4); at < kMaxHeader;) {
    const Bytes extension(fd, at, 8);
    const u64 type = extension.Big(0, 4), size = extension.Big(4, 4);
    if (type == 0) break;
    const Bytes value(fd, at + 8, std::min<u64>(size, kMaxName));
    if (type == kDataFileName) {
      found.push_back({kData, std::string(value.Text(0, value.size()))});
      named = true;
    } else if (type == kBackingFormat && !found.empty()) {
      found.front().format = value.Text(0, value.size());
    }
    at += 8 + ((size + 7) & ~u64{7});
  }
  if (version >= 3 && (header.Big(72, 8) & kExternalData) != 0 && !named)
    found.push_back({kData, ""});
  return found;
}

// VMware's descriptor: lines key="value", and extents: access, sectors, kind, "file", offset.
void OfDescriptor(std::string_view text, bool extents_too, References* found) {
  text = text.substr(0, text.find('\0'));
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t quote = line.find('"');
    const std::size_t end = quote == std::string::npos ? quote : line.find('"', quote + 1);
    const std::string name =
        quote == std::string::npos
            ? ""
            : line.substr(quote + 1,
                          end == std::string::npos ? std::string::npos : end - quote - 1);
    if (line.find("parentFileNameHint") != std::string::npos) {
      found->push_back({kBacking, name});
      continue;
    }
    std::istringstream words(line);
    std::string access, sectors, kind;
    if (!extents_too || !(words >> access >> sectors >> kind)) continue;
    if (access != "RW" && access != "RDONLY" && access != "NOACCESS") continue;
    if (kind != "ZERO") found->push_back({kData, name});
  }
}

// VMware's Virtual Disk Format 5.0. A sparse file's descriptor names the file itself as its extent,
// which QEMU takes for granted unless the header claims no capacity: then the descriptor rules.
References OfVmdk(int fd) {
  constexpr std::size_t kMaxDescriptor = 1 << 20, kSector = 512;
  References found;
  const Bytes header(fd, 0, kSector);
  if (header.Text(0, 4) != "KDMV") {
    if (header.Text(0, 4) == "COWD") return found;  // an ESX sparse extent has no descriptor
    const Bytes descriptor(fd, 0, kMaxDescriptor);
    OfDescriptor(descriptor.Text(0, kMaxDescriptor), true, &found);
    return found;
  }
  const bool extents_too = header.Little(12, 8) == 0;
  // Where the header says, and where QEMU looks for a parent whatever the header says.
  const u64 sector = header.Little(28, 8);
  OfDescriptor(Bytes(fd, kSector, kMaxDescriptor).Text(0, kMaxDescriptor), extents_too, &found);
  if (sector > 1 && sector < u64{1} << 50) {
    OfDescriptor(Bytes(fd, sector * kSector, kMaxDescriptor).Text(0, kMaxDescriptor), extents_too,
                 &found);
  }
  return found;
}

std::string Utf16(const Bytes& bytes, std::size_t at, std::size_t size, bool big) {
  std::string text;
  for (std::size_t i = 0; i + 2 <= size; i += 2) {
    const u64 unit = big ? bytes.Big(at + i, 2) : bytes.Little(at + i, 2);
    if (unit == 0) break;
    text += unit < 0x80 ? static_cast<char>(unit) : '?';
  }
  return text;
}

// Microsoft's Virtual Hard Disk Image Format: a differencing disk (type 4) has its parent's name in
// the dynamic disk header. The footer is at the end, and a copy of it at the beginning.
References OfVpc(int fd) {
  constexpr std::size_t kFooter = 512, kHeader = 1024;
  constexpr u64 kDifferencing = 4;
  References found;
  const off_t end = lseek(fd, 0, SEEK_END);
  for (const u64 at : {u64{0}, end < off_t{kFooter} ? u64{0} : static_cast<u64>(end) - kFooter}) {
    const Bytes footer(fd, at, kFooter);
    if (footer.Text(0, 8) != "conectix" || footer.Big(60, 4) != kDifferencing) continue;
    const Bytes header(fd, footer.Big(16, 8), kHeader);
    found.push_back({kBacking, Utf16(header, 64, 512, /*big=*/true)});
    break;
  }
  return found;
}

// Microsoft's [MS-VHDX]: region tables at 192 KB and 256 KB lead to the metadata, whose file
// parameters tell that there is a parent, and whose parent locator names it.
References OfVhdx(int fd) {
  constexpr u64 kRegionTables[] = {192 << 10, 256 << 10};
  constexpr std::size_t kTable = 64 << 10, kMaxEntries = 2047;
  const auto guid = [](const Bytes& bytes, std::size_t at, u32 first, u64 last) {
    return bytes.Little(at, 4) == first && bytes.Big(at + 8, 8) == last;
  };
  References found;
  for (const u64 table_at : kRegionTables) {
    const Bytes regions(fd, table_at, kTable);
    if (regions.Text(0, 4) != "regi") continue;
    for (std::size_t i = 0; i < std::min<u64>(regions.Little(8, 4), kMaxEntries); ++i) {
      const std::size_t region = 16 + 32 * i;
      if (!guid(regions, region, 0x8b7ca206, 0xb8fe575f050f886e)) continue;
      const u64 metadata_at = regions.Little(region + 16, 8);
      const Bytes metadata(fd, metadata_at, kTable);
      if (metadata.Text(0, 8) != "metadata") continue;
      bool has_parent = false;
      std::string name;
      for (std::size_t j = 0; j < std::min<u64>(metadata.Little(10, 2), kMaxEntries); ++j) {
        const std::size_t entry = 32 + 32 * j;
        const Bytes item(fd, metadata_at + metadata.Little(entry + 16, 4), kTable);
        if (guid(metadata, entry, 0xcaa16737, 0xb3b633f0aa44e76b)) {
          has_parent = has_parent || (item.Little(4, 4) & 2) != 0;
        } else if (guid(metadata, entry, 0xa8d35f2d, 0xabf7d3d84834ab0c)) {
          has_parent = true;
          for (std::size_t k = 0; k < std::min<u64>(item.Little(18, 2), 64); ++k) {
            const std::size_t pair = 20 + 12 * k;
            const std::string key =
                Utf16(item, item.Little(pair, 4), item.Little(pair + 8, 2), false);
            if (key != "relative_path" && key != "absolute_win32_path") continue;
            name = Utf16(item, item.Little(pair + 4, 4), item.Little(pair + 10, 2), false);
            if (key == "relative_path") break;
          }
        }
      }
      if (has_parent) {
        found.push_back({kBacking, name});
        return found;
      }
    }
  }
  return found;
}

struct FormatRow {
  const char* name;
  u64 magic_offset;
  std::string_view magic;
};
constexpr FormatRow kMagics[] = {
    {"qcow2", 0, "QFI\xfb"},
    {"vmdk", 0, "KDMV"},
    {"vmdk", 0, "COWD"},
    {"vmdk", 0, "# Disk DescriptorFile"},
    {"vdi", 0x40, "\x7f\x10\xda\xbe"},
    {"vhdx", 0, "vhdxfile"},
    {"vpc", 0, "conectix"},
};

// The path of a name in an image at `image`; empty: it is no file's.
std::string PathOf(const std::string& image, std::string name) {
  if (name.starts_with("file:")) name.erase(0, 5);
  if (name.empty() || name.find('\0') != std::string::npos) return "";
  const std::size_t colon = name.find(':');
  if (colon != std::string::npos && colon < name.find('/')) return "";
  if (name.front() == '/') return name;
  const std::size_t folder = image.rfind('/');
  return folder == std::string::npos ? name : image.substr(0, folder + 1) + name;
}

}  // namespace

References FindReferences(int fd, const std::string& format) {
  if (format == "qcow2") return OfQcow2(fd);
  if (format == "vmdk") return OfVmdk(fd);
  if (format == "vpc") return OfVpc(fd);
  if (format == "vhdx") return OfVhdx(fd);
  return {};  // raw; a VDI's parent has no name, and QEMU takes none
}

std::string FormatByContents(int fd) {
  const Bytes beginning(fd, 0, 512);
  for (const FormatRow& row : kMagics) {
    if (beginning.Text(row.magic_offset, row.magic.size()) == row.magic) return row.name;
  }
  return "raw";
}

Result<std::vector<NamedFile>> FollowReferences(const std::string& path,
                                                const std::string& format) {
  struct Image {
    std::string path, format;
  };
  std::vector<Image> images = {{path, format}};
  std::vector<NamedFile> files;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const Image image = images[i];
    const FileDescriptor file(open(image.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0)
      return Error{"it needs '" + Printable(image.path) + "': " + strerror(errno)};
    const std::string its_format =
        image.format.empty() ? FormatByContents(file.get()) : image.format;
    for (const Reference& reference : FindReferences(file.get(), its_format)) {
      const std::string named = PathOf(image.path, reference.name);
      if (named.empty()) {
        return Error{"it names '" + Printable(reference.name) +
                     "', which is no file of this host; backing=allow is for files"};
      }
      if (files.size() >= kMaxReferences) {
        return Error{"it and what it names name too many files, or themselves"};
      }
      const bool data = reference.kind == kData;
      files.push_back({named, i == 0 && data, data && its_format == "qcow2"});
      if (reference.kind == kBacking) images.push_back({named, reference.format});
    }
  }
  return files;
}

std::string Printable(const std::string& name) {
  std::string text;
  for (const char c : name.substr(0, 100)) {
    text += static_cast<u8>(c) < 0x20 || static_cast<u8>(c) >= 0x7f ? '?' : c;
  }
  return text;
}

}  // namespace alibi::block
