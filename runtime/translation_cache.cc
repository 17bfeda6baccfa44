// SPDX-License-Identifier: Apache-2.0
#include "runtime/translation_cache.h"

#include <sys/mman.h>
#include <x86intrin.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <type_traits>

#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>

#include "base/file_descriptor.h"
#include "base/memory_file.h"
#include "base/raw_copy.h"
#include "runtime/stubs.h"
#include "translator/emitter.h"

namespace alibi::runtime {

using translator::Ccf;

namespace {

constexpr u64 kMinBytes = u64{1} << 20;
// How much of a region is faulted in at a time.
constexpr u64 kAhead = 128 * 1024;

// What costs less was no huge page, but there already.
constexpr u64 kHugePageCost = 200'000;

// Best effort: what an older host does not know is left to page faults.
void Populate(HostAddr from, [[maybe_unused]] bool write) {
#ifdef MADV_POPULATE_WRITE
  madvise(from.As(), kAhead, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
}

}  // namespace

Result<std::unique_ptr<TranslationCache>> TranslationCache::Create(u64 bytes) {
  if (bytes < kMinBytes || bytes > u64{1} << 30) {
    return Error{"the translation cache must have between 1M and 1G"};
  }
  bytes = (bytes + kPageMask) & ~kPageMask;
  auto tc = std::unique_ptr<TranslationCache>(new TranslationCache());
  const u64 cold_bytes = bytes / 2 & ~kPageMask;
  tc->code_bytes_ = kStubBytes + bytes + cold_bytes;
  tc->data_bytes_ = bytes * kDataPerHotByte;
  // Nobody needs it once it is mapped, and writing to it would get past the key.
  const FileDescriptor file(CreateMemoryFile("alibi-tc", tc->code_bytes_));
  if (file.get() < 0) {
    return Error{std::string("cannot create the translation cache: ") + std::strerror(errno)};
  }
  void* region = mmap(nullptr, tc->code_bytes_ + tc->data_bytes_, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) {
    return Error{"no address space for the translation cache; try a smaller --tc-size"};
  }
  tc->base_ = HostAddr(region);
  void* code =
      mmap(region, tc->code_bytes_, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, file.get(), 0);
  void* data =
      mmap(static_cast<u8*>(region) + tc->code_bytes_, tc->data_bytes_, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  void* writable =
      mmap(nullptr, tc->code_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (code == MAP_FAILED || data == MAP_FAILED || writable == MAP_FAILED) {
    return Error{
        "the host refuses executable shared memory, which translation needs (check noexec "
        "mounts and security policies for memfd)"};
  }
  tc->writable_ = static_cast<u8*>(writable);
  tc->key_.Shut(writable, tc->code_bytes_);
  tc->hot_start_ = tc->base_ + kStubBytes;
  tc->hot_end_ = tc->hot_start_ + bytes;
  tc->cold_end_ = tc->hot_end_ + cold_bytes;
  tc->data_start_ = tc->base_ + tc->code_bytes_;
  madvise(data, tc->data_bytes_, MADV_HUGEPAGE);
  tc->hot_present_ = {tc->hot_start_, tc->hot_end_};
  tc->cold_present_ = {tc->hot_end_, tc->cold_end_};
  tc->data_present_ = {tc->data_start_, tc->data_start_ + tc->data_bytes_};
  tc->Flush();
  tc->flushes_ = 0;
  return tc;
}

TranslationCache::~TranslationCache() {
  if (base_) munmap(base_.As(), code_bytes_ + data_bytes_);
  if (writable_ != nullptr) munmap(writable_, code_bytes_);
}

// Callouts and signal handlers come here while guest vector state is live.
void TranslationCache::Write(HostAddr host, const void* code, u64 bytes) const {
  const ProtectionKey::Scope open(key_);
  RawCopy(Alias(host), code, bytes);
}

void TranslationCache::Flush() {
  hot_next_ = hot_start_;
  cold_next_ = hot_end_;
  data_next_ = data_start_;
  ccfs_.clear();
  starts_.clear();
  index_.Clear();
  instrs_.clear();
  ++flushes_;
}

bool TranslationCache::IsStub(HostAddr host) const { return host - base_ < kStubBytes; }

bool TranslationCache::HasRoom() const {
  return hot_end_ - hot_next_ >= translator::kMaxHotBytes &&
         cold_end_ - cold_next_ >= translator::kMaxColdBytes &&
         data_bytes_ - data_used() >= sizeof(Ccf) + translator::kMaxDataBytes;
}

// True: the stretch that begins at *from is wanted now.
bool TranslationCache::Advance(HostAddr next, u64 most, Present* present, HostAddr* from) {
  if (next + most <= present->end || present->limit - present->end < kAhead) return false;
  *from = present->end;
  present->end += kAhead;
  return true;
}

void TranslationCache::FaultIn() {
  constexpr u64 kUsual = 8192;
  HostAddr from;
  for (const auto& [next, present] :
       {std::pair{hot_next_, &hot_present_}, std::pair{cold_next_, &cold_present_}}) {
    if (!Advance(next, kUsual, present, &from)) continue;
    const ProtectionKey::Scope open(key_);
    Populate(HostAddr(Alias(from)), true);
    Populate(from, false);
  }
  if (!Advance(data_next_, kUsual, &data_present_, &from)) return;
  const u64 begin = __rdtsc();
  Populate(from, true);
  const u64 cost = __rdtsc() - begin;
  if (cost <= kHugePageCost || huge_pages_.Failed()) return;
  huge_pages_.Note(!HugePageTrial::IsDear(cost));
  // The rest comes in small pages.
  if (huge_pages_.Failed()) madvise(from.As(), data_present_.limit - from, MADV_NOHUGEPAGE);
}

Ccf* TranslationCache::NewCcf() {
  static_assert(std::is_trivially_destructible_v<Ccf> && sizeof(Ccf) % 8 == 0);
  FaultIn();
  auto* ccf = new (data_next_.As()) Ccf();
  data_next_ += sizeof(Ccf);
  return ccf;
}

translator::EmitTarget TranslationCache::Target() const {
  translator::EmitTarget target;
  target.hot = hot_next_;
  target.cold = cold_next_;
  target.hot_room = static_cast<u32>(std::min<u64>(hot_end_ - hot_next_, 1u << 20));
  target.cold_room = static_cast<u32>(std::min<u64>(cold_end_ - cold_next_, 1u << 20));
  target.data_origin = data_start_;
  target.data = data_next_.As();
  target.data_room =
      static_cast<u32>(std::min<u64>(data_start_ + data_bytes_ - data_next_, 1u << 20));
  return target;
}

void TranslationCache::Commit(Ccf* ccf, const translator::EmitResult& emitted) {
  {
    const ProtectionKey::Scope open(key_);
    RawCopy(Alias(hot_next_), emitted.hot_code, emitted.hot_size);
    RawCopy(Alias(cold_next_), emitted.cold_code, emitted.cold_size);
  }
  hot_next_ += emitted.hot_size;
  cold_next_ += emitted.cold_size;
  data_next_ += emitted.data_size;
  ccfs_.push_back(ccf);
  starts_.push_back({ccf->hot_start, ccf->cold_start});
}

HostAddr TranslationCache::AllocateCold(u32 bytes) {
  if (cold_end_ - cold_next_ < bytes) return {};
  const HostAddr at = cold_next_;
  cold_next_ += bytes;
  return at;
}

u64 TranslationCache::HashBytes(const u8* bytes, u64 size) { return XXH3_64bits(bytes, size); }

Ccf* TranslationCache::FindByHost(HostAddr host) const {
  if (host - base_ >= code_bytes_ || IsStub(host)) return nullptr;
  const bool hot = host < hot_end_;
  auto after = std::upper_bound(starts_.begin(), starts_.end(), host,
                                [hot](HostAddr address, const Starts& starts) {
                                  return address < (hot ? starts.hot : starts.cold);
                                });
  if (after == starts_.begin()) return nullptr;
  Ccf* ccf = ccfs_[static_cast<std::size_t>(after - starts_.begin()) - 1];
  return host < (hot ? ccf->hot_end : ccf->cold_end) ? ccf : nullptr;
}

u64 TranslationCache::used() const { return (hot_next_ - hot_start_) + (cold_next_ - hot_end_); }

}  // namespace alibi::runtime
