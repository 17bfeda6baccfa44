// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/elf.h"

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <type_traits>

namespace alibi::loader {
namespace {

template <class T>
T LoadInteger(std::span<const u8> bytes, u64 offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

Error Bad(const std::string& name, const std::string& why) {
  return Error{"cannot load '" + name + "': " + why};
}

// Far beyond any kernel's; keeps the work per image small.
constexpr std::size_t kMaxSegments = 256;

// The value of the Xen note that says where a PVH kernel is entered, if it is among these notes.
std::optional<u64> FindPvhEntry(std::span<const u8> notes) {
  constexpr u32 kPhys32Entry = 18;
  constexpr u64 kNoteHeader = 12;
  u64 at = 0;
  while (notes.size() - at >= kNoteHeader) {
    const u64 name_bytes = Load32(notes, at), value_bytes = Load32(notes, at + 4);
    const u32 type = Load32(notes, at + 8);
    const u64 name = at + kNoteHeader, value = name + ((name_bytes + 3) & ~u64{3});
    const u64 next = value + ((value_bytes + 3) & ~u64{3});
    if (next > notes.size()) return std::nullopt;
    if (type == kPhys32Entry && name_bytes == 4 &&
        std::memcmp(notes.data() + name, "Xen", 4) == 0 && (value_bytes == 4 || value_bytes == 8)) {
      return value_bytes == 4 ? Load32(notes, value) : Load64(notes, value);
    }
    at = next;
  }
  return std::nullopt;
}

struct FileRange {
  u64 first, end;
};

// The length of the preamble at the beginning of a segment of the file; `own` is what is not the
// program's.
u64 PreambleOf(std::span<const u8> bytes, u64 offset, const std::vector<FileRange>& own) {
  u64 at = 0;
  while (at < bytes.size()) {
    u64 next = at;
    for (const FileRange& range : own) {
      if (range.first <= offset + at && offset + at < range.end) {
        next = std::max(next, range.end - offset);
      }
    }
    if (next == at && bytes[at] != 0) break;
    at = std::max(next, at + 1);
  }
  return std::min<u64>(at, bytes.size());
}

// A program header of either class, widened.
struct ProgramHeader {
  u64 offset, virtual_address, physical_address, file_size, memory_size;
};

template <class Ehdr, class Phdr>
Result<LoadableImage> ParseClass(std::span<const u8> image, const std::string& name) {
  Ehdr header;
  if (image.size() < sizeof header) return Bad(name, "the ELF header is truncated");
  std::memcpy(&header, image.data(), sizeof header);
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) {
    return Bad(name, "it is an ELF file of type " + std::to_string(header.e_type) +
                         ", not an executable (link it)");
  }
  if (header.e_phnum == 0) return Bad(name, "the ELF file has no program headers");
  if (header.e_phentsize < sizeof(Phdr)) {
    return Bad(name, "the ELF program headers are too small (" +
                         std::to_string(header.e_phentsize) + " bytes)");
  }
  const u64 table = header.e_phoff;
  const u64 table_size = u64{header.e_phentsize} * header.e_phnum;
  if (table > image.size() || table_size > image.size() - table) {
    return Bad(name, "truncated: the ELF program headers lie beyond the end of the file");
  }

  LoadableImage loadable;
  std::optional<u64> translated_entry;
  std::vector<FileRange> own = {{0, sizeof header}, {table, table + table_size}};
  std::vector<u64> offsets;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Phdr raw;
    std::memcpy(&raw, image.data() + table + u64{i} * header.e_phentsize, sizeof raw);
    if (raw.p_type == PT_NOTE && raw.p_offset <= image.size() &&
        raw.p_filesz <= image.size() - raw.p_offset) {
      if (own.size() < kMaxSegments) own.push_back({raw.p_offset, raw.p_offset + raw.p_filesz});
      if (!loadable.pvh_entry) {
        loadable.pvh_entry = FindPvhEntry(image.subspan(raw.p_offset, raw.p_filesz));
      }
    }
    if (raw.p_type != PT_LOAD) continue;
    const ProgramHeader segment{raw.p_offset, raw.p_vaddr, raw.p_paddr, raw.p_filesz, raw.p_memsz};
    const std::string which = "segment " + std::to_string(i);
    if (segment.memory_size == 0 && segment.file_size == 0) continue;
    if (loadable.segments.size() == kMaxSegments) {
      return Bad(name, "it has more than " + std::to_string(kMaxSegments) + " segments");
    }
    if (segment.file_size > segment.memory_size) {
      return Bad(name, which + " is larger in the file than in memory");
    }
    if (segment.offset > image.size() || segment.file_size > image.size() - segment.offset) {
      return Bad(name, "truncated: " + which + " lies beyond the end of the file");
    }
    if (segment.physical_address + segment.memory_size < segment.physical_address) {
      return Bad(name, which + " wraps around the address space");
    }
    loadable.segments.push_back(Segment{segment.physical_address, segment.memory_size,
                                        image.subspan(segment.offset, segment.file_size)});
    offsets.push_back(segment.offset);
    // Kernels linked high have a virtual entry point; they start at its physical place.
    const u64 into = header.e_entry - segment.virtual_address;
    if (!translated_entry && header.e_entry >= segment.virtual_address &&
        into < segment.memory_size) {
      translated_entry = segment.physical_address + into;
    }
  }
  if (loadable.segments.empty()) return Bad(name, "the ELF file has nothing to load");
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    Segment& segment = loadable.segments[i];
    if (offsets[i] == 0) segment.preamble = PreambleOf(segment.bytes, offsets[i], own);
  }
  loadable.entry = translated_entry.value_or(header.e_entry);
  return loadable;
}

}  // namespace

u16 Load16(std::span<const u8> bytes, u64 offset) { return LoadInteger<u16>(bytes, offset); }
u32 Load32(std::span<const u8> bytes, u64 offset) { return LoadInteger<u32>(bytes, offset); }
u64 Load64(std::span<const u8> bytes, u64 offset) { return LoadInteger<u64>(bytes, offset); }

std::string Hex(u64 value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

void DropPreambleIn(u64 first, u64 end, LoadableImage* image) {
  for (Segment& segment : image->segments) {
    const u64 segment_end = segment.address + segment.memory_size;
    if (segment.address >= end || segment_end <= first) continue;
    const u64 dropped = std::min(end, segment_end) - segment.address;
    if (dropped > segment.preamble) continue;
    segment.address += dropped;
    segment.memory_size -= dropped;
    segment.bytes = segment.bytes.subspan(dropped);
    segment.preamble -= dropped;
  }
  std::erase_if(image->segments, [](const Segment& segment) { return segment.memory_size == 0; });
}

bool LooksLikeElf(std::span<const u8> image) {
  return image.size() >= SELFMAG && std::memcmp(image.data(), ELFMAG, SELFMAG) == 0;
}

Result<LoadableImage> ParseElf(std::span<const u8> image, const std::string& name) {
  // e_machine sits at the same place in both classes.
  if (image.size() < offsetof(Elf32_Ehdr, e_version)) {
    return Bad(name, "the ELF header is truncated");
  }
  if (image[EI_DATA] != ELFDATA2LSB) return Bad(name, "the ELF file is not little-endian x86");
  const u16 machine = Load16(image, offsetof(Elf32_Ehdr, e_machine));
  switch (image[EI_CLASS]) {
    case ELFCLASS32:
      if (machine != EM_386) {
        return Bad(name,
                   "the 32-bit ELF file is not for i386 (machine " + std::to_string(machine) + ")");
      }
      return ParseClass<Elf32_Ehdr, Elf32_Phdr>(image, name);
    case ELFCLASS64:
      if (machine != EM_X86_64) {
        return Bad(name, "the 64-bit ELF file is not for x86-64 (machine " +
                             std::to_string(machine) + ")");
      }
      return ParseClass<Elf64_Ehdr, Elf64_Phdr>(image, name);
    default:
      return Bad(name, "the ELF file has the unknown class " + std::to_string(image[EI_CLASS]));
  }
}

}  // namespace alibi::loader
