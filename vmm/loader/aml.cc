#include "vmm/loader/aml.h"

namespace alibi::loader::aml {
namespace {

enum Opcode : u8 {
  kZero = 0x00,
  kOne = 0x01,
  kName = 0x08,
  kByte = 0x0a,
  kWord = 0x0b,
  kDword = 0x0c,
  kQword = 0x0e,
  kScope = 0x10,
  kBuffer = 0x11,
  kPackage = 0x12,
  kExtended = 0x5b,
  kDevice = 0x82,
};

void Append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

void AppendInteger(Bytes& to, u64 value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) to.push_back(static_cast<u8>(value >> (8 * i)));
}

Bytes Join(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) Append(all, part);
  return all;
}

// PkgLength counts itself; one byte holds up to 63, more need 4 bits and up to three bytes.
Bytes WithLength(const Bytes& body) {
  Bytes all;
  for (unsigned more = 0; more < 4; ++more) {
    const u64 length = body.size() + 1 + more;
    if (more == 0 && length < 0x40) {
      all.push_back(static_cast<u8>(length));
      break;
    }
    if (more != 0 && length < u64{1} << (4 + 8 * more)) {
      all.push_back(static_cast<u8>(more << 6 | (length & 0xf)));
      AppendInteger(all, length >> 4, more);
      break;
    }
  }
  Append(all, body);
  return all;
}

Bytes Segment(std::string_view name) {
  Bytes all(name.begin(), name.end());
  all.resize(4, '_');
  return all;
}

// Word and double word address space descriptors: a range that begins and ends where it says.
Bytes AddressSpace(u8 type, u8 type_flags, u64 first, u64 last, unsigned size) {
  constexpr u8 kWordDescriptor = 0x88, kDwordDescriptor = 0x87;
  constexpr u8 kFixedRange = 0x0c;  // minimum and maximum are fixed; positive decode
  Bytes all = {size == 2 ? kWordDescriptor : kDwordDescriptor};
  AppendInteger(all, 3 + 5 * size, 2);
  all.push_back(type);
  all.push_back(kFixedRange);
  all.push_back(type_flags);
  AppendInteger(all, 0, size);  // granularity
  AppendInteger(all, first, size);
  AppendInteger(all, last, size);
  AppendInteger(all, 0, size);  // translation
  AppendInteger(all, last - first + 1, size);
  return all;
}

}  // namespace

Bytes Concat(std::initializer_list<Bytes> parts) { return Join(parts); }

Bytes Integer(u64 value) {
  if (value <= 1) return {value == 0 ? kZero : kOne};
  Bytes all;
  const unsigned size = value < 0x100 ? 1 : value < 0x10000 ? 2 : value < u64{1} << 32 ? 4 : 8;
  all.push_back(size == 1 ? kByte : size == 2 ? kWord : size == 4 ? kDword : kQword);
  AppendInteger(all, value, size);
  return all;
}

Bytes EisaId(std::string_view id) {
  const auto digit = [id](unsigned i) -> u32 {
    const char c = id[i];
    return static_cast<u32>(c <= '9' ? c - '0' : c - 'A' + 10);
  };
  const auto letter = [id](unsigned i) -> u32 { return static_cast<u32>(id[i] - '@') & 0x1f; };
  const u32 value = letter(0) << 26 | letter(1) << 21 | letter(2) << 16 | digit(3) << 12 |
                    digit(4) << 8 | digit(5) << 4 | digit(6);
  Bytes all = {kDword};
  AppendInteger(all, __builtin_bswap32(value), 4);
  return all;
}

Bytes Name(std::string_view name, const Bytes& object) {
  return Join({{kName}, Segment(name), object});
}

Bytes Package(const std::vector<Bytes>& elements) {
  Bytes body = {static_cast<u8>(elements.size())};
  for (const Bytes& element : elements) Append(body, element);
  return Join({{kPackage}, WithLength(body)});
}

Bytes Device(std::string_view name, std::initializer_list<Bytes> objects) {
  return Join({{kExtended, kDevice}, WithLength(Join({Segment(name), Join(objects)}))});
}

Bytes SystemBusScope(std::initializer_list<Bytes> objects) {
  return Join({{kScope}, WithLength(Join({{'\\'}, Segment("_SB"), Join(objects)}))});
}

Bytes ResourceTemplate(std::initializer_list<Bytes> descriptors) {
  Bytes body = Join(descriptors);
  body.push_back(0x79);  // end tag
  body.push_back(0);     // no checksum
  return Join({{kBuffer}, WithLength(Join({Integer(body.size()), body}))});
}

Bytes IoPorts(u16 first, u8 count) {
  Bytes all = {0x47, 1};  // 16-bit decode
  AppendInteger(all, first, 2);
  AppendInteger(all, first, 2);
  all.push_back(1);
  all.push_back(count);
  return all;
}

Bytes Irq(unsigned irq) {
  Bytes all = {0x22};
  AppendInteger(all, u64{1} << irq, 2);
  return all;
}

Bytes BusNumbers(u16 first, u16 last) { return AddressSpace(2, 0, first, last, 2); }
Bytes IoRange(u16 first, u16 last) { return AddressSpace(1, 3, first, last, 2); }
Bytes MemoryRange(u32 first, u32 last) { return AddressSpace(0, 1, first, last, 4); }

}  // namespace alibi::loader::aml
