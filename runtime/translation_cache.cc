#include "runtime/translation_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

// Scalar: Find runs while guest vector state is live.
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>

#include "base/check.h"
#include "runtime/stubs.h"
#include "translator/emitter.h"

namespace alibi::runtime {

using translator::Ccf;

namespace {

Ccf* const kTombstone = reinterpret_cast<Ccf*>(1);
constexpr u64 kMinBytes = u64{1} << 20;

}  // namespace

Result<std::unique_ptr<TranslationCache>> TranslationCache::Create(u64 bytes) {
  if (bytes < kMinBytes || bytes > u64{1} << 30) {
    return Error{"the translation cache must have between 1M and 1G"};
  }
  bytes = (bytes + kPageMask) & ~kPageMask;
  auto tc = std::unique_ptr<TranslationCache>(new TranslationCache());
  const u64 cold_bytes = bytes / 2 & ~kPageMask;
  tc->code_bytes_ = kStubBytes + bytes + cold_bytes;
  tc->data_bytes_ = bytes;
  tc->fd_ = memfd_create("alibi-tc", MFD_CLOEXEC);
  if (tc->fd_ < 0 || ftruncate(tc->fd_, static_cast<off_t>(tc->code_bytes_)) != 0) {
    return Error{std::string("cannot create the translation cache: ") + std::strerror(errno)};
  }
  void* region = mmap(nullptr, tc->code_bytes_ + tc->data_bytes_, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) {
    return Error{"no address space for the translation cache; try a smaller --tc-size"};
  }
  tc->base_ = reinterpret_cast<u64>(region);
  void* code =
      mmap(region, tc->code_bytes_, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, tc->fd_, 0);
  void* data =
      mmap(static_cast<u8*>(region) + tc->code_bytes_, tc->data_bytes_, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  void* writable = mmap(nullptr, tc->code_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, tc->fd_, 0);
  if (code == MAP_FAILED || data == MAP_FAILED || writable == MAP_FAILED) {
    return Error{
        "the host refuses executable shared memory, which translation needs (check noexec "
        "mounts and security policies for memfd)"};
  }
  tc->writable_ = static_cast<u8*>(writable);
  tc->hot_start_ = tc->base_ + kStubBytes;
  tc->hot_end_ = tc->hot_start_ + bytes;
  tc->cold_end_ = tc->hot_end_ + cold_bytes;
  tc->data_start_ = tc->base_ + tc->code_bytes_;
  tc->Flush();
  tc->flushes_ = 0;
  return tc;
}

TranslationCache::~TranslationCache() {
  if (base_ != 0) munmap(reinterpret_cast<void*>(base_), code_bytes_ + data_bytes_);
  if (writable_ != nullptr) munmap(writable_, code_bytes_);
  if (fd_ >= 0) close(fd_);
}

void TranslationCache::Flush() {
  hot_next_ = hot_start_;
  cold_next_ = hot_end_;
  data_next_ = data_start_;
  ccfs_.clear();
  starts_.clear();
  index_.assign(1u << 12, nullptr);
  index_used_ = 0;
  pages_.clear();
  pages_.resize(1u << 8);
  pages_used_ = 0;
  ++flushes_;
}

bool TranslationCache::IsStub(u64 host) const { return host - base_ < kStubBytes; }

bool TranslationCache::HasRoom() const {
  return ccfs_.size() < max_ccfs() && hot_end_ - hot_next_ >= translator::kMaxHotBytes &&
         cold_end_ - cold_next_ >= translator::kMaxColdBytes &&
         data_start_ + data_bytes_ - data_next_ >= translator::kMaxDataBytes;
}

translator::EmitTarget TranslationCache::Target() const {
  translator::EmitTarget target;
  target.hot = hot_next_;
  target.cold = cold_next_;
  target.hot_writable = Writable(hot_next_);
  target.cold_writable = Writable(cold_next_);
  target.hot_room = static_cast<u32>(std::min<u64>(hot_end_ - hot_next_, 1u << 20));
  target.cold_room = static_cast<u32>(std::min<u64>(cold_end_ - cold_next_, 1u << 20));
  target.data_origin = data_start_;
  target.data = reinterpret_cast<u8*>(data_next_);
  target.data_room =
      static_cast<u32>(std::min<u64>(data_start_ + data_bytes_ - data_next_, 1u << 20));
  return target;
}

Ccf* TranslationCache::Commit(std::unique_ptr<Ccf> ccf, const translator::EmitResult& sizes) {
  hot_next_ += sizes.hot_size;
  cold_next_ += sizes.cold_size;
  data_next_ += (sizes.data_size + 63) & ~63u;
  Ccf* raw = ccf.get();
  ccfs_.push_back(std::move(ccf));
  starts_.push_back({raw->hot_start, raw->cold_start});
  Insert(raw);
  AddToPage(raw->phys_page, raw);
  if (raw->phys_page2 != ~u64{0}) AddToPage(raw->phys_page2, raw);
  return raw;
}

u64 TranslationCache::AllocateCold(u32 bytes) {
  if (cold_end_ - cold_next_ < bytes) return 0;
  const u64 at = cold_next_;
  cold_next_ += bytes;
  return at;
}

u64 TranslationCache::Hash(u64 pc, u64 phys_page, u32 mode_bits) {
  const u64 key[2] = {pc, phys_page << 16 | mode_bits};
  return XXH3_64bits(key, sizeof(key));
}

u64 TranslationCache::HashBytes(const u8* bytes, u64 size) { return XXH3_64bits(bytes, size); }

Ccf* TranslationCache::Find(u64 pc, u64 phys_page, const translator::CodeMode& mode) const {
  const u64 mask = index_.size() - 1;
  for (u64 at = Hash(pc, phys_page, mode.Bits()) & mask; index_[at] != nullptr;
       at = (at + 1) & mask) {
    Ccf* ccf = index_[at];
    if (ccf != kTombstone && ccf->pc == pc && ccf->phys_page == phys_page && ccf->mode == mode) {
      return ccf;
    }
  }
  return nullptr;
}

void TranslationCache::Insert(Ccf* ccf) {
  if (2 * (index_used_ + 1) > index_.size()) GrowIndex();
  const u64 mask = index_.size() - 1;
  u64 at = Hash(ccf->pc, ccf->phys_page, ccf->mode.Bits()) & mask;
  while (index_[at] != nullptr && index_[at] != kTombstone) at = (at + 1) & mask;
  if (index_[at] == nullptr) ++index_used_;
  index_[at] = ccf;
}

void TranslationCache::Remove(Ccf* ccf) {
  FindPage(ccf->phys_page)->removed = true;
  const u64 mask = index_.size() - 1;
  for (u64 at = Hash(ccf->pc, ccf->phys_page, ccf->mode.Bits()) & mask; index_[at] != nullptr;
       at = (at + 1) & mask) {
    if (index_[at] == ccf) {
      index_[at] = kTombstone;
      return;
    }
  }
}

void TranslationCache::GrowIndex() {
  std::vector<Ccf*> old(index_.size() * 2, nullptr);
  old.swap(index_);
  index_used_ = 0;
  const u64 mask = index_.size() - 1;
  for (Ccf* ccf : old) {
    if (ccf == nullptr || ccf == kTombstone) continue;
    u64 at = Hash(ccf->pc, ccf->phys_page, ccf->mode.Bits()) & mask;
    while (index_[at] != nullptr) at = (at + 1) & mask;
    index_[at] = ccf;
    ++index_used_;
  }
}

TranslationCache::PageList* TranslationCache::FindPage(u64 phys_page) const {
  const u64 mask = pages_.size() - 1;
  u64 at = phys_page * 0x9e3779b97f4a7c15u >> 40 & mask;
  while (pages_[at].phys_page != phys_page && pages_[at].phys_page != ~u64{0}) at = (at + 1) & mask;
  return &pages_[at];
}

void TranslationCache::AddToPage(u64 phys_page, Ccf* ccf) {
  if (2 * (pages_used_ + 1) > pages_.size()) GrowPages();
  PageList* page = FindPage(phys_page);
  if (page->phys_page == ~u64{0}) {
    page->phys_page = phys_page;
    ++pages_used_;
  }
  if (page->ccfs.size() >= page->compact_at) {
    // Code that rewrites itself for ever must not make every store to its page slower and slower.
    std::erase_if(page->ccfs, [](const Ccf* old) { return !old->valid; });
    page->compact_at = std::max<std::size_t>(64, 2 * page->ccfs.size());
  }
  page->ccfs.push_back(ccf);
}

void TranslationCache::GrowPages() {
  std::vector<PageList> old(pages_.size() * 2);
  old.swap(pages_);
  for (PageList& page : old) {
    if (page.phys_page != ~u64{0}) *FindPage(page.phys_page) = std::move(page);
  }
}

const std::vector<Ccf*>* TranslationCache::InPage(u64 phys_page) const {
  PageList* page = FindPage(phys_page);
  return page->phys_page == phys_page ? &page->ccfs : nullptr;
}

const std::vector<Ccf*>* TranslationCache::InPageWithRemoved(u64 phys_page) const {
  PageList* page = FindPage(phys_page);
  return page->phys_page == phys_page && page->removed ? &page->ccfs : nullptr;
}

Ccf* TranslationCache::FindByHost(u64 host) const {
  if (host - base_ >= code_bytes_ || IsStub(host)) return nullptr;
  const bool hot = host < hot_end_;
  auto after = std::upper_bound(starts_.begin(), starts_.end(), host,
                                [hot](u64 address, const Starts& starts) {
                                  return address < (hot ? starts.hot : starts.cold);
                                });
  if (after == starts_.begin()) return nullptr;
  Ccf* ccf = ccfs_[static_cast<std::size_t>(after - starts_.begin()) - 1].get();
  return host < (hot ? ccf->hot_end : ccf->cold_end) ? ccf : nullptr;
}

u64 TranslationCache::used() const { return (hot_next_ - hot_start_) + (cold_next_ - hot_end_); }

}  // namespace alibi::runtime
