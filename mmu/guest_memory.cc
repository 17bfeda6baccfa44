// SPDX-License-Identifier: Apache-2.0
#include "mmu/guest_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

#include "base/memory_file.h"
#include "base/raw_copy.h"

namespace alibi::mmu {
namespace {

u64 ReservationBytes(u64 capacity) { return 2 * capacity + kGuardBytes + HugeBlocks::kBytes; }

// What leads from `place` to the next huge page.
u64 RoundUpBy(u64 place) { return (0 - place) & (HugeBlocks::kBytes - 1); }

u64 InfoBytes(u64 capacity) { return capacity / kPageSize * sizeof(PageInfo); }

std::string Hex(u64 value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

std::string Megabytes(u64 bytes) { return std::to_string((bytes + 0xfffff) >> 20) + " MB"; }

Error HostError(const std::string& what, const std::string& advice) {
  return Error{what + ": " + std::strerror(errno) + "; " + advice};
}

void* Reserve(void* at, u64 size, int protection) {
  return mmap(at, size, protection,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != nullptr ? MAP_FIXED : 0), -1, 0);
}

// The part of [address, address + size) that lies in address's page.
u64 InPage(u64 address, u64 size) {
  const u64 left = kPageSize - (address & kPageMask);
  return size < left ? size : left;
}

// Device accesses are naturally aligned and at most 8 bytes.
unsigned MmioPiece(u64 address, u64 size) {
  unsigned piece = 8;
  while (piece > size || (address & (piece - 1)) != 0) piece >>= 1;
  return piece;
}

}  // namespace

Result<std::unique_ptr<GuestMemory>> GuestMemory::Create(u64 capacity) {
  if (capacity == 0 || (capacity & kPageMask) != 0 || capacity > kPhysLimit) {
    return Error{"guest memory: arena of " + Hex(capacity) +
                 " bytes; give a multiple of 4096 up to 2^40"};
  }
  std::unique_ptr<GuestMemory> memory(new GuestMemory);
  memory->capacity_ = capacity;
  memory->fd_ = CreateMemoryFile("alibi-guest-memory", capacity);
  if (memory->fd_ < 0) {
    return HostError("guest memory: cannot create a memory file of " + Megabytes(capacity),
                     "raise the limit on file sizes (ulimit -f)");
  }
  // Huge pages need the same place in one as in the file.
  void* arena = Reserve(nullptr, ReservationBytes(capacity), PROT_NONE);
  if (arena == MAP_FAILED) {
    return HostError(
        "guest memory: cannot reserve " + Megabytes(2 * capacity) + " of address space",
        "raise the limit on virtual memory (ulimit -v)");
  }
  memory->reservation_ = arena;
  memory->ro_base_ = static_cast<u8*>(arena) + RoundUpBy(HostAddr(arena).value);
  memory->rw_base_ = memory->ro_base_ + capacity;
  memory->own_blocks_ = std::make_unique<HugeBlocks>(capacity);
  memory->blocks_ = memory->own_blocks_.get();
  if (Status made = memory->CreateInfo(); !made.ok()) return made.error();
  return memory;
}

Status GuestMemory::CreateInfo() {
  void* info = Reserve(nullptr, InfoBytes(capacity_), PROT_READ | PROT_WRITE);
  if (info == MAP_FAILED) {
    return HostError("guest memory: cannot reserve page descriptors",
                     "raise the limit on virtual memory (ulimit -v)");
  }
  info_ = static_cast<PageInfo*>(info);
  return Ok{};
}

Result<std::unique_ptr<GuestMemory>> GuestMemory::Share() {
  std::unique_ptr<GuestMemory> share(new GuestMemory);
  share->capacity_ = capacity_;
  if (Status made = share->CreateInfo(); !made.ok()) return made.error();
  share->fd_ = fd_;
  share->ro_base_ = ro_base_;
  share->rw_base_ = rw_base_;
  share->blocks_ = blocks_;
  share->mmio_ = mmio_;
  share->shared_ = this;
  share->TakeSlots();
  for (unsigned i = 0; i < slot_count_; ++i) {
    if (slots_[i].read_only) share->SetRom(slots_[i]);
  }
  shares_.push_back(share.get());
  return share;
}

GuestMemory::~GuestMemory() {
  if (info_ != nullptr) munmap(info_, InfoBytes(capacity_));
  if (shared_ != nullptr) {
    std::erase(shared_->shares_, this);
    return;
  }
  if (reservation_ != nullptr) munmap(reservation_, ReservationBytes(capacity_));
  if (fd_ >= 0) close(fd_);
}

void GuestMemory::TakeSlots() {
  std::copy(std::begin(shared_->slots_), std::end(shared_->slots_), slots_);
  slot_count_ = shared_->slot_count_;
  total_bytes_ = shared_->total_bytes_;
}

void GuestMemory::SetRom(const Slot& slot) {
  for (u64 at = 0; at < slot.size; at += kPageSize) {
    InfoAt(slot.arena_offset + at).flags |= kRomPage;
  }
}

bool GuestMemory::IsFree(u64 start, u64 size) const {
  if (start > capacity_ || size > capacity_ - start) return false;
  return std::none_of(slots_, slots_ + slot_count_, [&](const Slot& slot) {
    return slot.arena_offset < start + size && start < slot.arena_offset + slot.size;
  });
}

u64 GuestMemory::FindArenaSpace(PhysAddr base, u64 size) const {
  // The guest's own huge pages are then the host's, where there is room for that.
  for (const bool alike : {true, false}) {
    // Every start of free space is 0 or the end of a slot.
    for (unsigned candidate = 0; candidate <= slot_count_; ++candidate) {
      u64 start =
          candidate == slot_count_ ? 0 : slots_[candidate].arena_offset + slots_[candidate].size;
      if (alike) start += RoundUpBy(start - base.value);
      if (IsFree(start, size)) return start;
    }
  }
  return kNotRam;
}

void GuestMemory::BackBlock(u64 arena_offset) const {
  const u64 begin = arena_offset & ~(HugeBlocks::kBytes - 1);
  for (unsigned i = 0; i < slot_count_; ++i) {
    const Slot& slot = slots_[i];
    if (begin - slot.arena_offset < slot.size &&
        slot.arena_offset + slot.size - begin >= HugeBlocks::kBytes) {
      blocks_->Ask(begin, rw_base_ + begin);
      return;
    }
  }
  blocks_->Settle(begin);
}

Status GuestMemory::AddSlot(PhysAddr base, u64 size, bool read_only) {
  if (shared_ != nullptr) return shared_->AddSlot(base, size, read_only);
  const std::string name = "memory slot at " + Hex(base.value) + " of " + Hex(size) + " bytes";
  if (size == 0) return Error{name + ": the size is 0; give at least one page (4096 bytes)"};
  if ((base.value | size) & kPageMask) {
    return Error{name + ": base and size must be multiples of 4096"};
  }
  if (base.value >= kPhysLimit || size > kPhysLimit - base.value) {
    return Error{name + ": reaches beyond the guest's physical address space of 2^40 bytes; " +
                 "lower the base or the size"};
  }
  if (slot_count_ == kMaxSlots) {
    return Error{name + ": all " + std::to_string(kMaxSlots) + " slots are in use; remove one"};
  }
  for (unsigned i = 0; i < slot_count_; ++i) {
    const Slot& slot = slots_[i];
    if (base.value < slot.base + slot.size && slot.base < base.value + size) {
      return Error{name + ": overlaps the slot at " + Hex(slot.base) + " of " + Hex(slot.size) +
                   " bytes; remove that one first"};
    }
  }
  struct sysinfo host = {};
  if (sysinfo(&host) == 0) {
    const u64 host_bytes = (u64{host.totalram} + host.totalswap) * host.mem_unit;
    if (total_bytes_ + size > host_bytes) {
      return Error{name + ": the guest would have " + Megabytes(total_bytes_ + size) +
                   " of memory, this host has " + Megabytes(host_bytes) +
                   "; give the guest less memory"};
    }
  }
  const u64 offset = FindArenaSpace(base, size);
  if (offset == kNotRam) {
    return Error{name + ": no room in the arena of " + Megabytes(capacity_) +
                 "; create guest memory with a larger capacity"};
  }
  const off_t file_offset = static_cast<off_t>(offset);
  if (mmap(ro_base_ + offset, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd_, file_offset) ==
          MAP_FAILED ||
      mmap(rw_base_ + offset, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_,
           file_offset) == MAP_FAILED) {
    const Error error = HostError(name + ": cannot be mapped", "free host memory or use less");
    Reserve(ro_base_ + offset, size, PROT_NONE);
    return error;
  }
  if (observer_ != nullptr) observer_->SlotsWillChange();
  unsigned place = slot_count_++;
  for (; place > 0 && slots_[place - 1].size < size; --place) slots_[place] = slots_[place - 1];
  slots_[place] = Slot{base.value, size, offset, read_only};
  total_bytes_ += size;
  for (GuestMemory* share : shares_) share->TakeSlots();
  if (read_only) ForEachShare([&](GuestMemory& share) { share.SetRom(slots_[place]); });
  // Page tables may lie where there was no memory before.
  if (observer_ != nullptr) observer_->SlotsChanged();
  return Ok{};
}

Status GuestMemory::RemoveSlot(PhysAddr base) {
  if (shared_ != nullptr) return shared_->RemoveSlot(base);
  for (unsigned i = 0; i < slot_count_; ++i) {
    if (slots_[i].base != base.value) continue;
    if (observer_ != nullptr) {
      observer_->SlotsWillChange();
      observer_->SlotsChanged();
    }
    const Slot slot = slots_[i];
    Reserve(ro_base_ + slot.arena_offset, slot.size, PROT_NONE);
    Reserve(rw_base_ + slot.arena_offset, slot.size, PROT_NONE);
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(slot.arena_offset), static_cast<off_t>(slot.size));
    blocks_->Forget(slot.arena_offset, slot.size);
    for (u64 at = 0; at < slot.size; at += kPageSize) {
      ForEachShare([&](GuestMemory& share) { share.InfoAt(slot.arena_offset + at) = {}; });
    }
    --slot_count_;
    for (unsigned k = i; k < slot_count_; ++k) slots_[k] = slots_[k + 1];
    slots_[slot_count_] = Slot{};
    total_bytes_ -= slot.size;
    for (GuestMemory* share : shares_) share->TakeSlots();
    return Ok{};
  }
  return Error{"no memory slot begins at " + Hex(base.value) + "; name a slot's first address"};
}

void GuestMemory::ResetChains() {
  for (unsigned i = 0; i < slot_count_; ++i) {
    const u64 end = slots_[i].arena_offset + slots_[i].size;
    for (u64 at = slots_[i].arena_offset; at < end; at += kPageSize) {
      PageInfo& info = InfoAt(at);
      // Most descriptors were never touched; reading them costs no memory, writing would.
      if ((info.writable_chain | info.execute_chain | info.table_chain) == 0) continue;
      info.writable_chain = info.execute_chain = info.table_chain = 0;
      info.writable_count = 0;
      info.flags &= static_cast<u8>(~kPageTableTrace);
    }
  }
}

u64 GuestMemory::MmioRead(PhysAddr address, unsigned size) const {
  const u64 mask = size == 8 ? ~u64{0} : (u64{1} << (8 * size)) - 1;
  return (mmio_ != nullptr ? mmio_->MmioRead(address, size) : ~u64{0}) & mask;
}

void GuestMemory::MmioWrite(PhysAddr address, unsigned size, u64 value) const {
  if (mmio_ != nullptr) mmio_->MmioWrite(address, size, value);
}

bool GuestMemory::IsBacked(PhysAddr address, u64 size) const {
  if (size > kPhysLimit || address.value > kPhysLimit - size) return false;
  // Slot by slot: a loader may ask about gigabytes.
  while (size != 0) {
    const Slot* found = nullptr;
    for (unsigned i = 0; i < slot_count_; ++i) {
      if (address.value - slots_[i].base < slots_[i].size) found = &slots_[i];
    }
    if (found == nullptr) return false;
    const u64 left = found->size - (address.value - found->base);
    if (size <= left) return true;
    size -= left;
    address = address + left;
  }
  return true;
}

void GuestMemory::ReadPhys(PhysAddr address, void* out, u64 size) const {
  u8* to = static_cast<u8*>(out);
  while (size != 0) {
    const u64 offset = ArenaOffset(address);
    u64 piece;
    if (offset != kNotRam) {
      piece = InPage(address.value, size);
      RawCopy(to, rw_base_ + offset, piece);
    } else {
      piece = MmioPiece(address.value, size);
      const u64 value = MmioRead(address, static_cast<unsigned>(piece));
      RawCopy(to, &value, piece);
    }
    to += piece;
    size -= piece;
    address = address + piece;
  }
}

void GuestMemory::WritePhys(PhysAddr address, const void* data, u64 size) {
  const u8* from = static_cast<const u8*>(data);
  while (size != 0) {
    const u64 offset = ArenaOffset(address);
    u64 piece = InPage(address.value, size);
    const u8 flags = offset == kNotRam ? kRomPage : InfoAt(offset).flags;
    if (flags == 0) {
      Back(offset);
      RawCopy(rw_base_ + offset, from, piece);
    } else if (!(flags & kRomPage)) {
      observer_->WriteTraced(address, from, piece);
    } else {
      piece = MmioPiece(address.value, size);
      u64 value = 0;
      RawCopy(&value, from, piece);
      MmioWrite(address, static_cast<unsigned>(piece), value);
    }
    from += piece;
    size -= piece;
    address = address + piece;
  }
}

bool GuestMemory::LoadPhys(PhysAddr address, const void* data, u64 size) {
  if (!IsBacked(address, size)) return false;
  const u8* from = static_cast<const u8*>(data);
  while (size != 0) {
    const u64 offset = ArenaOffset(address);
    const u64 piece = InPage(address.value, size);
    if ((InfoAt(offset).flags & (kOwnTraces | kTracedElsewhere)) != 0) {
      observer_->WriteTraced(address, from, piece);
    } else {
      Back(offset);
      RawCopy(rw_base_ + offset, from, piece);
    }
    from += piece;
    size -= piece;
    address = address + piece;
  }
  return true;
}

}  // namespace alibi::mmu
