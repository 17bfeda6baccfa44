// SPDX-License-Identifier: Apache-2.0
// Strong address types: a guest-linear, a guest-physical and a host address must not mix.
#ifndef ALIBI_BASE_TYPES_H_
#define ALIBI_BASE_TYPES_H_

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace alibi {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

// The number of a 4 KB page in one of the address spaces.
template <class Tag>
struct Page;

struct HostTag;

// An address in one of the address spaces; Tag only keeps them apart.
template <class Tag>
struct Address {
  u64 value = 0;

  constexpr Address() = default;
  constexpr explicit Address(u64 v) : value(v) {}
  template <class T>
  explicit Address(T* at) requires std::same_as<Tag, HostTag> : value(reinterpret_cast<u64>(at)) {}
  constexpr auto operator<=>(const Address&) const = default;
  constexpr Address operator+(u64 n) const { return Address(value + n); }
  constexpr Address operator-(u64 n) const { return Address(value - n); }
  constexpr u64 operator-(Address other) const { return value - other.value; }
  constexpr Address& operator+=(u64 n) { return *this = *this + n; }
  constexpr Address& operator-=(u64 n) { return *this = *this - n; }
  constexpr Address PageBase() const { return Address(value & ~u64{0xfff}); }
  constexpr u64 PageOffset() const { return value & 0xfff; }
  constexpr Page<Tag> InPage() const { return Page<Tag>(value >> 12); }
  // Zero is no host address.
  constexpr explicit operator bool() const requires std::same_as<Tag, HostTag> {
    return value != 0;
  }
  template <class T = u8>
  T* As() const requires std::same_as<Tag, HostTag> {
    return reinterpret_cast<T*>(value);
  }
};

template <class Tag>
struct Page {
  u64 number = 0;

  constexpr Page() = default;
  constexpr explicit Page(u64 n) : number(n) {}
  constexpr auto operator<=>(const Page&) const = default;
  constexpr Address<Tag> Base() const { return Address<Tag>(number << 12); }
};

// Guest-linear: after segmentation, before paging. In long mode this is what CR2 shows.
using LinearAddr = Address<struct LinearTag>;
// Guest-physical: after paging; an offset into the machine's physical memory map.
using PhysAddr = Address<struct PhysTag>;
using PhysPage = Page<struct PhysTag>;
// In this process: where translated code, its stubs and the views lie.
using HostAddr = Address<HostTag>;

// Are bits 63:47 of a linear address all equal (SDM vol. 1, 3.3.7.1, for 48 bits)?
constexpr bool IsCanonical(u64 linear) {
  return static_cast<u64>(static_cast<i64>(linear << 16) >> 16) == linear;
}
constexpr bool IsCanonical(LinearAddr linear) { return IsCanonical(linear.value); }

inline constexpr u64 kPageSize = 4096;
inline constexpr u64 kPageMask = kPageSize - 1;

}  // namespace alibi

#endif  // ALIBI_BASE_TYPES_H_
