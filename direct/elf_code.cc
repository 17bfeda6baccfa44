// SPDX-License-Identifier: Apache-2.0
#include "direct/elf_code.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>

namespace alibi::direct {
namespace {

using Bytes = std::vector<u8>;

template <class T>
bool Read(const Bytes& file, u64 at, T* value) {
  if (at > file.size() || file.size() - at < sizeof(T)) return false;
  std::memcpy(value, file.data() + at, sizeof(T));
  return true;
}

bool Cut(const Bytes& file, u64 at, u64 size, Bytes* part) {
  if (at > file.size() || file.size() - at < size) return false;
  part->assign(file.begin() + static_cast<i64>(at), file.begin() + static_cast<i64>(at + size));
  return true;
}

template <class Header, class Program, class Section, class Symbol>
bool ReadParts(const Bytes& file, ElfCode* code) {
  Header header;
  if (!Read(file, 0, &header)) return false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Program program;
    if (!Read(file, header.e_phoff + i * sizeof program, &program)) return false;
    if (program.p_type != PT_LOAD || !(program.p_flags & PF_X)) continue;
    ElfPart& part = code->segments.emplace_back();
    part.address = program.p_vaddr;
    if (!Cut(file, program.p_offset, program.p_filesz, &part.bytes)) return false;
  }
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Section section;
    if (!Read(file, header.e_shoff + i * sizeof section, &section)) return false;
    if (section.sh_type != SHT_SYMTAB) continue;
    for (u64 at = 0; at < section.sh_size; at += sizeof(Symbol)) {
      Symbol symbol;
      if (!Read(file, section.sh_offset + at, &symbol)) return false;
      const bool function = (symbol.st_info & 0xf) == STT_FUNC && symbol.st_size != 0;
      if (function) code->functions.push_back({symbol.st_value, symbol.st_size});
    }
  }
  return true;
}

}  // namespace

Result<ElfCode> ReadElfCode(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error{path + ": cannot be read"};
  const Bytes file{std::istreambuf_iterator<char>(stream), {}};
  if (file.size() <= EI_CLASS || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) {
    return Error{path + ": not an ELF file"};
  }
  ElfCode code;
  const bool wide = file[EI_CLASS] == ELFCLASS64;
  code.code_bits = wide ? 64 : 32;
  const bool whole = wide ? ReadParts<Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr, Elf64_Sym>(file, &code)
                          : ReadParts<Elf32_Ehdr, Elf32_Phdr, Elf32_Shdr, Elf32_Sym>(file, &code);
  if (!whole) return Error{path + ": the file ends early"};
  return code;
}

}  // namespace alibi::direct
