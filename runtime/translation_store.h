// SPDX-License-Identifier: Apache-2.0
// Translations that outlive the TC and the run (a persistent code cache): packed CCFs, by a key
// that is cheap to make from the guest's code, in files that later runs read.
//
//   DIR/<fingerprint>-<n>.tc     one segment: what one run has translated, or several merged
//
//   | head | records: frame, packed CCF, ... | index: (key, place), open addressing |
//
// A segment is written by the run that made it, its head last, and never changed: runs that share a
// folder do not wait for each other. All opening, merging and removing happens in Open(); the
// records are read in pieces as they are asked for, and Save() writes to a file that is open
// already, as a sandbox demands.
//
// What a file says is code that will run in this process. The folder and its files must be the
// user's own and nobody else's to write; a record counts only with its checksum, and a segment only
// for the same fingerprint: the program's build, the host's CPU, the guest's CPU.
#ifndef ALIBI_RUNTIME_TRANSLATION_STORE_H_
#define ALIBI_RUNTIME_TRANSLATION_STORE_H_

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "base/types.h"

namespace alibi::runtime {

class TranslationStore {
 public:
  struct Options {
    std::string folder;  // made, with what leads to it, if it is missing
    u64 fingerprint[2] = {};
    u64 max_bytes = u64{256} << 20;  // of all files together; one run adds half of it at most
  };
  // An error: the folder cannot be used, and why.
  static Result<std::unique_ptr<TranslationStore>> Open(const Options& options);
  // May others put files there, or change them? An error says so.
  static Status CheckFolder(const std::string& folder);
  ~TranslationStore();
  TranslationStore(const TranslationStore&) = delete;
  TranslationStore& operator=(const TranslationStore&) = delete;

  // f(bytes) for each record of that key until it is true, and whether it was. The bytes are
  // aligned to 8, and lie there until the next call.
  template <class F>
  bool Find(u64 key, F f);
  // The same for the few records behind the one that Find() or this has found last: what another
  // run has added next.
  template <class F>
  bool FindFollowing(u64 key, F f);
  // Room for a record, aligned to 8; none: the store is full. Add() takes its first bytes, for this
  // run, and for later ones once they are saved.
  std::span<u8> Room();
  void Add(u64 key, u64 bytes);
  // Writes what was added since Open(), if there is a file for it. Later additions are not kept.
  Status Save();

  u64 added() const { return added_.size(); }
  u64 damaged() const { return damaged_; }  // records whose checksum was wrong, so far

 private:
  struct Entry {
    u32 key = 0;    // of the key, the low half
    u32 place = 0;  // of the record's frame, in units of kAlignment; 0: free
  };
  struct Frame {
    u64 checksum;
    u64 key;
    u64 bytes;
  };
  struct Head;
  // Memory of a fixed size that the host backs as it is touched.
  class Pages {
   public:
    explicit Pages(u64 bytes);
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    u8* data() const { return data_; }
    u64 size() const { return size_; }

   private:
    u8* data_ = nullptr;
    u64 size_ = 0;
  };
  struct Segment {
    std::string name;
    FileDescriptor file{-1};
    u64 records_end = 0;
    std::vector<Entry> index;
    std::vector<u8> window_of;  // by piece: the window that holds it, and 1; 0: none
  };
  // What was read of a segment: a piece, and as much behind it as a record may need that begins in
  // it. A few of them serve: what a run asks for lies together, as another run has written it.
  struct Window {
    Segment* segment = nullptr;
    u64 piece = 0;
    std::vector<u8> bytes;
  };

  explicit TranslationStore(const Options& options);
  std::string FileName(u64 number) const;
  Status OpenFolder();
  void OpenSegments();
  bool OpenSegment(const std::string& name);
  void RemoveOldest(u64 room);
  void MergeSegments();
  bool WriteMerged(std::span<const std::unique_ptr<Segment>> segments, int file);
  void ForgetWindows(const Segment* segment);
  int TakeEmpty(std::string* taken) const;
  static bool WriteSegment(int file, const u64 fingerprint[2], const u8* records, u64 bytes,
                           const std::vector<Entry>& entries);
  // Of a record, or none: it does not lie in the segment.
  const Frame* FrameAt(Segment* segment, u64 place);
  // The same, with its checksum; counts the damaged.
  const Frame* WholeFrameAt(Segment* segment, u64 place);
  const Window* WindowOf(Segment* segment, u64 piece);
  static bool IsWhole(const Frame& frame);
  static u64 Checksum(u64 key, std::span<const u8> bytes);
  static std::span<const u8> BytesOf(const Frame& frame) {
    return {reinterpret_cast<const u8*>(&frame + 1), frame.bytes};
  }
  template <class F>
  static bool ForEachOfKey(const std::vector<Entry>& index, u64 key, F f);
  static Entry EntryOf(const Frame& frame, u64 place);
  static void Insert(std::vector<Entry>* index, const Entry& entry);
  // Room for one more than `entries`.
  static void Grow(std::vector<Entry>* index, u64 entries);

  static constexpr unsigned kWindows = 16;
  // How many records behind the last one are looked at before the index, whose memory is cold.
  static constexpr unsigned kFollowing = 3;

  const Options options_;
  FileDescriptor folder_{-1};
  FileDescriptor own_{-1};
  std::vector<std::unique_ptr<Segment>> segments_;  // the largest first
  Pages records_;  // added, with their frames; the first byte is never a frame's
  u64 records_end_ = kFirstPlace, present_ = 0;  // up to there the host has given memory
  std::vector<Entry> added_, index_;
  std::array<Window, kWindows> windows_;
  unsigned next_window_ = 0;
  Segment* next_segment_ = nullptr;  // what follows the record that was found last
  u64 next_place_ = 0;
  u64 damaged_ = 0;

  static constexpr u64 kFirstPlace = 64, kAlignment = 8;
  // Where the next one lies.
  static constexpr u64 Behind(u64 place, u64 bytes_of_record) {
    return (place + sizeof(Frame) + bytes_of_record + kAlignment - 1) & ~(kAlignment - 1);
  }
};

template <class F>
bool TranslationStore::ForEachOfKey(const std::vector<Entry>& index, u64 key, F f) {
  const u64 mask = index.size() - 1;
  for (u64 at = key & mask, steps = 0; steps < index.size() && index[at].place != 0;
       at = (at + 1) & mask, ++steps) {
    if (index[at].key == static_cast<u32>(key) && f(index[at].place * kAlignment)) return true;
  }
  return false;
}

// Runs of one system ask for nearly the same in nearly the same order.
template <class F>
bool TranslationStore::FindFollowing(u64 key, F f) {
  u64 place = next_place_;
  for (unsigned i = 0; i < kFollowing && next_segment_ != nullptr; ++i) {
    const Frame* frame = FrameAt(next_segment_, place);
    if (frame == nullptr) return false;
    const u64 next = Behind(place, frame->bytes);
    if (frame->key == key && (frame = WholeFrameAt(next_segment_, place)) != nullptr &&
        f(BytesOf(*frame))) {
      next_place_ = next;
      return true;
    }
    place = next;
  }
  return false;
}

template <class F>
bool TranslationStore::Find(u64 key, F f) {
  if (FindFollowing(key, f)) return true;
  if (ForEachOfKey(index_, key, [&](u64 place) {
        const auto* frame = reinterpret_cast<const Frame*>(records_.data() + place);
        // Its memory is not out of a stray store's reach, as code is.
        return frame->key == key && IsWhole(*frame) && f(BytesOf(*frame));
      })) {
    return true;
  }
  for (const auto& segment : segments_) {
    if (ForEachOfKey(segment->index, key, [&](u64 place) {
          const Frame* frame = WholeFrameAt(segment.get(), place);
          if (frame == nullptr || frame->key != key || !f(BytesOf(*frame))) return false;
          next_segment_ = segment.get();
          next_place_ = Behind(place, frame->bytes);
          return true;
        })) {
      return true;
    }
  }
  return false;
}

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_TRANSLATION_STORE_H_
