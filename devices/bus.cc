// SPDX-License-Identifier: Apache-2.0
#include "devices/bus.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"

namespace alibi::devices {
namespace {

constexpr u64 SizeMask(unsigned size) { return size >= 8 ? ~u64{0} : (u64{1} << (size * 8)) - 1; }

std::string Hex(u64 value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Error Overlap(const char* space, const std::string& name, u64 first, u64 last,
              const std::string& other, u64 other_first, u64 other_last) {
  return Error{std::string(space) + " " + Hex(first) + "-" + Hex(last) + " of device '" + name +
               "' overlaps " + Hex(other_first) + "-" + Hex(other_last) + " of device '" + other +
               "'"};
}

bool IsAccessSize(unsigned size, unsigned widest) {
  return (size == 1 || size == 2 || size == 4 || size == 8) && size <= widest;
}

}  // namespace

Status PortBus::Add(u16 first, u32 count, Device& device, std::string name, u64 first_offset) {
  if (count == 0) return Error{"device '" + name + "' asks for an empty port range"};
  const u32 last = first + (count - 1);
  if (count > index_.size() || last >= index_.size()) {
    return Error{"ports " + Hex(first) + "+" + Hex(count) + " of device '" + name +
                 "' leave the 64 K port space"};
  }
  auto place = std::find_if(ranges_.begin(), ranges_.end(),
                            [](const Range& range) { return range.device == nullptr; });
  if (place == ranges_.end() && ranges_.size() == 255) {
    return Error{"no room for device '" + name + "': the port bus already has 255 ranges"};
  }
  for (u32 port = first; port <= last; ++port) {
    if (const Range* other = Find(port)) {
      return Overlap("ports", name, first, last, other->name, other->first,
                     other->first + other->count - 1);
    }
  }
  if (place == ranges_.end()) place = ranges_.emplace(place);
  *place = Range{first, count, first_offset, &device, std::move(name)};
  std::fill_n(index_.begin() + first, count, static_cast<u8>(place - ranges_.begin() + 1));
  return Ok{};
}

void PortBus::Remove(u16 first) {
  const u8 index = index_[first];
  ALIBI_CHECK(index != kUnassigned && ranges_[index - 1].first == first,
              "a range is removed where it begins");
  Range& range = ranges_[index - 1];
  std::fill_n(index_.begin() + first, range.count, kUnassigned);
  range = Range{};  // its number is free
}

bool PortBus::Move(u16 from, u16 to) {
  const u8 index = index_[from];
  if (index == kUnassigned || ranges_[index - 1].first != from) return false;
  Range& range = ranges_[index - 1];
  if (u32{to} + range.count > index_.size()) return false;
  for (u32 i = 0; i < range.count; ++i) {
    if (index_[to + i] != kUnassigned && index_[to + i] != index) return false;
  }
  std::fill_n(index_.begin() + from, range.count, kUnassigned);
  std::fill_n(index_.begin() + to, range.count, index);
  range.first = to;
  return true;
}

const PortBus::Range* PortBus::Find(u32 port) const {
  if (port >= index_.size()) return nullptr;
  const u8 index = index_[port];
  return index == kUnassigned ? nullptr : &ranges_[index - 1];
}

u32 PortBus::Read(u16 port, unsigned size) {
  ALIBI_CHECK(IsAccessSize(size, 4), "a port access is 1, 2 or 4 bytes");
  const Range* range = Find(port);
  if (range != nullptr && range->Takes(port, size)) {
    return static_cast<u32>(range->device->Read(range->OffsetOf(port), size) & SizeMask(size));
  }
  if (size == 1) return 0xff;
  const unsigned half = size / 2;
  const u32 low = Read(port, half);
  const u32 next = u32{port} + half;
  const u32 high =
      next < index_.size() ? Read(static_cast<u16>(next), half) : static_cast<u32>(SizeMask(half));
  return low | high << (half * 8);
}

void PortBus::Write(u16 port, unsigned size, u32 value) {
  ALIBI_CHECK(IsAccessSize(size, 4), "a port access is 1, 2 or 4 bytes");
  value &= static_cast<u32>(SizeMask(size));
  const Range* range = Find(port);
  if (range != nullptr && range->Takes(port, size)) {
    range->device->Write(range->OffsetOf(port), size, value);
    return;
  }
  if (size == 1) return;
  const unsigned half = size / 2;
  Write(port, half, value);
  const u32 next = u32{port} + half;
  if (next < index_.size()) Write(static_cast<u16>(next), half, value >> (half * 8));
}

bool PortBus::Peek(u16 port, unsigned size, u32* value) const {
  const Range* range = Find(port);
  u64 wide;
  if (range == nullptr || !range->Takes(port, size) ||
      !range->device->Peek(range->OffsetOf(port), size, &wide)) {
    return false;
  }
  *value = static_cast<u32>(wide & SizeMask(size));
  return true;
}

bool PortBus::Poke(u16 port, unsigned size, u32 value) {
  const Range* range = Find(port);
  return range != nullptr && range->Takes(port, size) &&
         range->device->Poke(range->OffsetOf(port), size, value & SizeMask(size));
}

PortLatch PortBus::Latch(u16 port, unsigned size) {
  const Range* range = Find(port);
  if (range == nullptr || !range->Takes(port, size)) return {};
  return range->device->Latch(range->OffsetOf(port), size);
}

const char* PortBus::NameOf(u16 port) const {
  const Range* range = Find(port);
  return range == nullptr ? nullptr : range->name.c_str();
}

Status MmioBus::Add(PhysAddr base, u64 size, Device& device, std::string name) {
  if (size == 0) return Error{"device '" + name + "' asks for an empty memory range"};
  const u64 last = base.value + (size - 1);
  if (last < base.value) {
    return Error{"memory range " + Hex(base.value) + "+" + Hex(size) + " of device '" + name +
                 "' wraps around the address space"};
  }
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), base,
                       [](PhysAddr addr, const Range& range) { return addr < range.base; });
  const Range* clash = nullptr;
  if (after != ranges_.begin() && std::prev(after)->last() >= base.value)
    clash = &*std::prev(after);
  if (after != ranges_.end() && after->base.value <= last) clash = &*after;
  if (clash != nullptr) {
    return Overlap("memory range", name, base.value, last, clash->name, clash->base.value,
                   clash->last());
  }
  ranges_.insert(after, Range{base, size, &device, std::move(name)});
  return Ok{};
}

const MmioBus::Range* MmioBus::Find(PhysAddr addr) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), addr,
                       [](PhysAddr a, const Range& range) { return a < range.base; });
  if (after == ranges_.begin()) return nullptr;
  const Range& range = *std::prev(after);
  return addr.value <= range.last() ? &range : nullptr;
}

bool MmioBus::Move(PhysAddr from, PhysAddr to) {
  const auto found = std::find_if(ranges_.begin(), ranges_.end(),
                                  [from](const Range& range) { return range.base == from; });
  if (found == ranges_.end()) return false;
  const Range moved = *found;
  ranges_.erase(found);
  const bool ok = Add(to, moved.size, *moved.device, moved.name).ok();
  if (!ok) {
    const Status back = Add(from, moved.size, *moved.device, moved.name);
    ALIBI_CHECK(back.ok(), "a range fits where it was");
  }
  return ok;
}

void MmioBus::Remove(PhysAddr base) {
  const auto found = std::find_if(ranges_.begin(), ranges_.end(),
                                  [base](const Range& range) { return range.base == base; });
  ALIBI_CHECK(found != ranges_.end(), "a range is removed where it begins");
  ranges_.erase(found);
}

bool MmioBus::Claims(PhysAddr addr, u64 size) const {
  if (size == 0) return false;
  u64 last = addr.value + (size - 1);
  if (last < addr.value) last = ~u64{0};
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), PhysAddr(last),
                       [](PhysAddr a, const Range& range) { return a < range.base; });
  return after != ranges_.begin() && std::prev(after)->last() >= addr.value;
}

u64 MmioBus::Read(PhysAddr addr, unsigned size) {
  ALIBI_CHECK(IsAccessSize(size, 8), "a memory-mapped access is 1, 2, 4 or 8 bytes");
  const Range* range = Find(addr);
  if (range != nullptr && range->Takes(addr, size)) {
    return range->device->Read(addr - range->base, size) & SizeMask(size);
  }
  if (size == 1) return 0xff;
  const unsigned half = size / 2;
  const u64 low = Read(addr, half);
  return low | Read(addr + half, half) << (half * 8);
}

void MmioBus::Write(PhysAddr addr, unsigned size, u64 value) {
  ALIBI_CHECK(IsAccessSize(size, 8), "a memory-mapped access is 1, 2, 4 or 8 bytes");
  value &= SizeMask(size);
  const Range* range = Find(addr);
  if (range != nullptr && range->Takes(addr, size)) {
    range->device->Write(addr - range->base, size, value);
    return;
  }
  if (size == 1) return;
  const unsigned half = size / 2;
  Write(addr, half, value);
  Write(addr + half, half, value >> (half * 8));
}

bool MmioBus::Peek(PhysAddr addr, unsigned size, u64* value) const {
  const Range* range = Find(addr);
  if (range == nullptr || !range->Takes(addr, size) ||
      !range->device->Peek(addr - range->base, size, value)) {
    return false;
  }
  *value &= SizeMask(size);
  return true;
}

const char* MmioBus::NameOf(PhysAddr addr) const {
  const Range* range = Find(addr);
  return range == nullptr ? nullptr : range->name.c_str();
}

// A reset may move ranges (a device's base registers), so the devices are listed first.
void PortBus::ResetDevices() {
  std::vector<Device*> devices;
  for (const Range& range : ranges_) {
    if (range.device != nullptr) devices.push_back(range.device);
  }
  for (Device* device : devices) device->Reset();
}

void MmioBus::ResetDevices() {
  std::vector<Device*> devices;
  for (const Range& range : ranges_) devices.push_back(range.device);
  for (Device* device : devices) device->Reset();
}

}  // namespace alibi::devices
