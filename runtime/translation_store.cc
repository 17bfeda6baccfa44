// SPDX-License-Identifier: Apache-2.0
#include "runtime/translation_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace alibi::runtime {
namespace {

constexpr u64 kMagic = 0x3130'4354'4942'4c41;  // "ALBITC01"
constexpr u64 kPiece = 64 * 1024;              // how much is read at a time
constexpr unsigned kMostSegments = 4;          // more are merged: each is looked through
constexpr u64 kTierRatio = 4;  // one that is so many times as large as those behind it stays
constexpr u64 kLongestRecord = 8 * 1024;
constexpr u64 kPresentAhead = 1024 * 1024;

bool WriteAll(int file, const void* from, u64 bytes, u64 at) {
  const auto* data = static_cast<const u8*>(from);
  while (bytes > 0) {
    const ssize_t written = pwrite(file, data, bytes, static_cast<off_t>(at));
    if (written <= 0) return false;
    data += written;
    at += static_cast<u64>(written);
    bytes -= static_cast<u64>(written);
  }
  return true;
}

bool ReadAll(int file, void* to, u64 bytes, u64 at) {
  auto* data = static_cast<u8*>(to);
  while (bytes > 0) {
    const ssize_t read = pread(file, data, bytes, static_cast<off_t>(at));
    if (read <= 0) return false;
    data += read;
    at += static_cast<u64>(read);
    bytes -= static_cast<u64>(read);
  }
  return true;
}

// Nobody but this user can have written it.
bool IsOwn(const struct stat& what) {
  return what.st_uid == geteuid() && (what.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool HasSuffix(const std::string& name) {
  return name.size() > 3 && name.compare(name.size() - 3, 3, ".tc") == 0;
}

Status MakeFolders(const std::string& folder) {
  for (std::size_t end = 1; end != std::string::npos;) {
    end = folder.find('/', end);
    const std::string part = folder.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error{fmt::format("{}: {}", part, std::strerror(errno))};
    }
    if (end != std::string::npos) ++end;
  }
  return Ok{};
}

}  // namespace

struct TranslationStore::Head {
  u64 magic;
  u64 fingerprint[2];
  u64 records_end;    // in the file; they begin at kFirstPlace
  u64 index_entries;  // a power of two; behind the records
  u64 index_checksum;
  u64 unused;
  u64 checksum;  // of all before

  u64 Checksum() const { return XXH3_64bits(this, offsetof(Head, checksum)); }
};

// --- Pages ---

TranslationStore::Pages::Pages(u64 bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    size_ = 0;
    return;
  }
  data_ = static_cast<u8*>(data);
}

TranslationStore::Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, size_);
}

// --- Opening ---

TranslationStore::TranslationStore(const Options& options)
    : options_(options), records_(options.max_bytes / 2), index_(1024) {
  static_assert(sizeof(Head) == kFirstPlace);
}

TranslationStore::~TranslationStore() = default;

Result<std::unique_ptr<TranslationStore>> TranslationStore::Open(const Options& options) {
  std::unique_ptr<TranslationStore> store(new TranslationStore(options));
  if (Status status = store->OpenFolder(); !status.ok()) return status.error();
  // Whoever has the folder's lock may remove files, nobody else: what a name stands for does not
  // change between looking at it and removing it. Who does not get the lock does without.
  const int folder = store->folder_.get();
  const bool may_remove = flock(folder, LOCK_EX | LOCK_NB) == 0;
  store->OpenSegments();
  if (may_remove) {
    store->MergeSegments();
    store->RemoveOldest(options.max_bytes);
    flock(folder, LOCK_UN);
  }
  // None (the disk is full): what is there is of use without.
  store->own_.Reset(store->TakeEmpty(nullptr));
  return store;
}

Status TranslationStore::CheckFolder(const std::string& folder) {
  if (Status made = MakeFolders(folder); !made.ok()) return made;
  const FileDescriptor file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat what;
  if (file.get() < 0 || fstat(file.get(), &what) != 0) {
    return Error{fmt::format("{}: {}", folder, std::strerror(errno))};
  }
  if (faccessat(file.get(), ".", W_OK, 0) != 0) {
    return Error{fmt::format("{}: {}", folder, std::strerror(errno))};
  }
  if (!IsOwn(what)) {
    return Error{
        fmt::format("{}: other users may write to it, or it is theirs: code from there is not run; "
                    "make it your own (chmod go-w), or give another folder",
                    folder)};
  }
  return Ok{};
}

Status TranslationStore::OpenFolder() {
  if (Status status = CheckFolder(options_.folder); !status.ok()) return status;
  const int file = open(options_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return Error{fmt::format("{}: {}", options_.folder, std::strerror(errno))};
  folder_.Reset(file);
  return Ok{};
}

std::string TranslationStore::FileName(u64 number) const {
  return fmt::format("{:016x}{:016x}-{}.tc", options_.fingerprint[0], options_.fingerprint[1],
                     number);
}

namespace {

struct Listed {
  std::string name;
  u64 bytes;
  timespec written;
};

// The files of a store, the newest first.
std::vector<Listed> List(int folder) {
  std::vector<Listed> files;
  const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = again < 0 ? nullptr : fdopendir(again);
  if (entries == nullptr) return files;
  while (const dirent* entry = readdir(entries)) {
    struct stat what;
    if (!HasSuffix(entry->d_name) ||
        fstatat(folder, entry->d_name, &what, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(what.st_mode)) {
      continue;
    }
    files.push_back({entry->d_name, static_cast<u64>(what.st_size), what.st_mtim});
  }
  closedir(entries);
  std::sort(files.begin(), files.end(), [](const Listed& a, const Listed& b) {
    return std::pair(b.written.tv_sec, b.written.tv_nsec) <
           std::pair(a.written.tv_sec, a.written.tv_nsec);
  });
  return files;
}

}  // namespace

void TranslationStore::OpenSegments() {
  const std::string prefix = FileName(0).substr(0, 33);
  for (const Listed& file : List(folder_.get())) {
    if (file.name.compare(0, prefix.size(), prefix) == 0) OpenSegment(file.name);
  }
  // What is wanted is most likely in the largest.
  std::sort(segments_.begin(), segments_.end(),
            [](const auto& a, const auto& b) { return a->records_end > b->records_end; });
}

bool TranslationStore::OpenSegment(const std::string& name) {
  auto segment = std::make_unique<Segment>();
  segment->name = name;
  segment->file.Reset(openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat what;
  Head head;
  if (segment->file.get() < 0 || fstat(segment->file.get(), &what) != 0 || !IsOwn(what) ||
      !ReadAll(segment->file.get(), &head, sizeof(head), 0) || head.magic != kMagic ||
      head.checksum != head.Checksum() || head.fingerprint[0] != options_.fingerprint[0] ||
      head.fingerprint[1] != options_.fingerprint[1]) {
    return false;
  }
  const u64 size = static_cast<u64>(what.st_size);
  if (head.records_end < kFirstPlace || head.records_end > size ||
      !std::has_single_bit(head.index_entries) ||
      head.index_entries > (size - head.records_end) / sizeof(Entry)) {
    return false;
  }
  segment->records_end = head.records_end;
  segment->index.resize(head.index_entries);
  const u64 index_bytes = head.index_entries * sizeof(Entry);
  if (!ReadAll(segment->file.get(), segment->index.data(), index_bytes, head.records_end) ||
      XXH3_64bits(segment->index.data(), index_bytes) != head.index_checksum) {
    return false;
  }
  segment->window_of.resize((head.records_end + kPiece - 1) / kPiece);
  segments_.push_back(std::move(segment));
  return true;
}

// Of whatever build: the folder does not grow with every new program.
void TranslationStore::RemoveOldest(u64 room) {
  u64 bytes = 0;
  for (const Listed& file : List(folder_.get())) {
    bytes += file.bytes;
    if (bytes > room) unlinkat(folder_.get(), file.name.c_str(), 0);
  }
}

// As in a log-structured merge tree: the small ones, so that a record is copied but a few times.
void TranslationStore::MergeSegments() {
  if (segments_.size() <= kMostSegments) return;
  u64 rest = 0;
  for (const auto& segment : segments_) rest += segment->records_end;
  auto first = segments_.begin();
  for (; segments_.end() - first > 2; ++first) {
    rest -= (*first)->records_end;
    if ((*first)->records_end < kTierRatio * rest) break;
  }
  std::string name;
  const FileDescriptor file(TakeEmpty(&name));
  if (file.get() < 0) return;
  if (!WriteMerged({first, segments_.end()}, file.get())) {
    unlinkat(folder_.get(), name.c_str(), 0);
    return;
  }
  for (auto segment = first; segment != segments_.end(); ++segment) {
    unlinkat(folder_.get(), (*segment)->name.c_str(), 0);
    ForgetWindows(segment->get());
  }
  segments_.erase(first, segments_.end());
  OpenSegment(name);
}

bool TranslationStore::WriteMerged(std::span<const std::unique_ptr<Segment>> segments, int file) {
  const Pages records(options_.max_bytes / 2);
  if (records.data() == nullptr) return false;
  u64 end = kFirstPlace;
  std::vector<Entry> entries, index(1024);
  for (const auto& segment : segments) {
    // In the order in which they were made, and will be wanted.
    for (u64 place = kFirstPlace; place < segment->records_end;) {
      const Frame* frame = FrameAt(segment.get(), place);
      if (frame == nullptr || !IsWhole(*frame)) break;
      const u64 bytes = sizeof(Frame) + frame->bytes;
      place = Behind(place, frame->bytes);
      // Runs at the same time have made the same.
      if (ForEachOfKey(index, frame->key, [&](u64 other) {
            return reinterpret_cast<const Frame*>(records.data() + other)->checksum ==
                   frame->checksum;
          })) {
        continue;
      }
      if (end + bytes > records.size()) break;
      std::memcpy(records.data() + end, frame, bytes);
      entries.push_back(EntryOf(*frame, end));
      Grow(&index, entries.size());
      Insert(&index, entries.back());
      end = Behind(end, frame->bytes);
    }
  }
  return WriteSegment(file, options_.fingerprint, records.data(), end, entries);
}

// A new file, or one that another run has left empty, locked as long as it is open; or none.
int TranslationStore::TakeEmpty(std::string* taken) const {
  for (u64 number = 1; number < 1000; ++number) {
    const std::string name = FileName(number);
    FileDescriptor file(
        openat(folder_.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat what;
    // Whoever writes to one has its lock. So it is empty if it is so once the lock is ours: before,
    // somebody may have been about to write.
    if (file.get() < 0 || flock(file.get(), LOCK_EX | LOCK_NB) != 0 ||
        fstat(file.get(), &what) != 0 || what.st_size != 0 || what.st_nlink == 0 || !IsOwn(what)) {
      continue;
    }
    if (taken != nullptr) *taken = name;
    return file.Release();
  }
  return -1;
}

// --- Reading ---

const TranslationStore::Window* TranslationStore::WindowOf(Segment* segment, u64 piece) {
  if (const u8 known = segment->window_of[piece]; known != 0) return &windows_[known - 1u];
  Window& window = windows_[next_window_];
  if (window.segment != nullptr) window.segment->window_of[window.piece] = 0;
  window.segment = nullptr;
  const u64 at = piece * kPiece;
  window.bytes.resize(kPiece + kLongestRecord);
  if (!ReadAll(segment->file.get(), window.bytes.data(),
               std::min(window.bytes.size(), segment->records_end - at), at)) {
    return nullptr;
  }
  window.segment = segment;
  window.piece = piece;
  next_window_ = (next_window_ + 1) % kWindows;
  segment->window_of[piece] = static_cast<u8>(&window - windows_.data() + 1);
  return &window;
}

const TranslationStore::Frame* TranslationStore::FrameAt(Segment* segment, u64 place) {
  if (place < kFirstPlace || place + sizeof(Frame) > segment->records_end) return nullptr;
  const Window* window = WindowOf(segment, place / kPiece);
  if (window == nullptr) return nullptr;
  const auto* frame = reinterpret_cast<const Frame*>(window->bytes.data() + place % kPiece);
  const u64 room = std::min(segment->records_end - place, kLongestRecord) - sizeof(Frame);
  return frame->bytes > room ? nullptr : frame;
}

const TranslationStore::Frame* TranslationStore::WholeFrameAt(Segment* segment, u64 place) {
  const Frame* frame = FrameAt(segment, place);
  if (frame != nullptr && IsWhole(*frame)) return frame;
  ++damaged_;
  return nullptr;
}

void TranslationStore::ForgetWindows(const Segment* segment) {
  for (Window& window : windows_) {
    if (window.segment == segment) window.segment = nullptr;
  }
}

u64 TranslationStore::Checksum(u64 key, std::span<const u8> bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), key);
}

bool TranslationStore::IsWhole(const Frame& frame) {
  return frame.checksum == Checksum(frame.key, BytesOf(frame));
}

// --- Adding ---

TranslationStore::Entry TranslationStore::EntryOf(const Frame& frame, u64 place) {
  return {static_cast<u32>(frame.key), static_cast<u32>(place / kAlignment)};
}

void TranslationStore::Insert(std::vector<Entry>* index, const Entry& entry) {
  const u64 mask = index->size() - 1;
  u64 at = entry.key & mask;
  while ((*index)[at].place != 0) at = (at + 1) & mask;
  (*index)[at] = entry;
}

void TranslationStore::Grow(std::vector<Entry>* index, u64 entries) {
  if (entries * 2 < index->size()) return;
  std::vector<Entry> old(index->size() * 2);
  old.swap(*index);
  for (const Entry& entry : old) {
    if (entry.place != 0) Insert(index, entry);
  }
}

std::span<u8> TranslationStore::Room() {
  constexpr u64 kMost = sizeof(Frame) + kLongestRecord;
  if (kMost > records_.size() - records_end_) return {};
#ifdef MADV_POPULATE_WRITE
  // In bulk: a fault for each page costs several times as much. An older host takes the faults.
  if (records_end_ + kMost > present_) {
    const u64 more = std::min(kPresentAhead, records_.size() - present_);
    madvise(records_.data() + present_, more, MADV_POPULATE_WRITE);
    present_ += more;
  }
#endif
  return {records_.data() + records_end_ + sizeof(Frame), kLongestRecord - sizeof(Frame)};
}

void TranslationStore::Add(u64 key, u64 bytes) {
  u8* const to = records_.data() + records_end_;
  const Frame frame{Checksum(key, {to + sizeof(Frame), bytes}), key, bytes};
  std::memcpy(to, &frame, sizeof(frame));
  added_.push_back(EntryOf(frame, records_end_));
  Grow(&index_, added_.size());
  Insert(&index_, added_.back());
  records_end_ = Behind(records_end_, bytes);
}

bool TranslationStore::WriteSegment(int file, const u64 fingerprint[2], const u8* records,
                                    u64 bytes, const std::vector<Entry>& entries) {
  std::vector<Entry> index(std::bit_ceil(entries.size() * 2 + 1));
  for (const Entry& entry : entries) Insert(&index, entry);
  Head head{};
  head.magic = kMagic;
  std::copy_n(fingerprint, 2, head.fingerprint);
  head.records_end = bytes;
  head.index_entries = index.size();
  head.index_checksum = XXH3_64bits(index.data(), index.size() * sizeof(Entry));
  head.checksum = head.Checksum();
  return WriteAll(file, records + kFirstPlace, bytes - kFirstPlace, kFirstPlace) &&
         WriteAll(file, index.data(), index.size() * sizeof(Entry), bytes) &&
         WriteAll(file, &head, sizeof(head), 0);
}

Status TranslationStore::Save() {
  if (added_.empty() || own_.get() < 0) return Ok{};
  const bool written =
      WriteSegment(own_.get(), options_.fingerprint, records_.data(), records_end_, added_);
  const int error = errno;
  own_.Reset(-1);
  if (!written) return Error{fmt::format("{}: {}", options_.folder, std::strerror(error))};
  return Ok{};
}

}  // namespace alibi::runtime
