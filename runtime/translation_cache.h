// SPDX-License-Identifier: Apache-2.0
// The translation cache: W^X by a dual mapping, one region each for hot code, cold code and data
// (CCFs with their descriptors and side data), and the CCFs in it, by host address and (CodeIndex)
// by guest code.
//
//   | stubs | hot code -> ...          | cold code -> ...        | data -> ...          |
//   |<-------- executable alias (read + execute) --------------->|<- read + write ----->|
//
// The writable alias of the code lies elsewhere. Where the host has protection keys, it is shut
// except during Write() and Commit(). Allocation is by bumping; when a region is full, everything
// is thrown away at once (the caller makes sure that nothing runs).
#ifndef ALIBI_RUNTIME_TRANSLATION_CACHE_H_
#define ALIBI_RUNTIME_TRANSLATION_CACHE_H_

#include <deque>
#include <memory>
#include <vector>

#include "base/huge_page_trial.h"
#include "base/protection_key.h"
#include "base/result.h"
#include "base/types.h"
#include "runtime/code_index.h"
#include "translator/ccf.h"

namespace alibi::runtime {

class TranslationCache {
 public:
  static Result<std::unique_ptr<TranslationCache>> Create(u64 bytes);
  ~TranslationCache();
  TranslationCache(const TranslationCache&) = delete;
  TranslationCache& operator=(const TranslationCache&) = delete;

  HostAddr stub_host() const { return base_; }
  // While it lives, the writable alias of the code stays open for Write().
  class Writing {
   public:
    explicit Writing(const TranslationCache& tc) : open_(tc.key_) {}

   private:
    const ProtectionKey::Scope open_;
  };
  // Puts code where it runs at `host`.
  void Write(HostAddr host, const void* code, u64 bytes) const;
  bool ContainsCode(HostAddr host) const { return host - base_ < code_bytes_; }
  bool IsStub(HostAddr host) const;

  // Room for one more CCF? If not, Flush() first.
  bool HasRoom() const;
  // A record for the next CCF. Target() lies behind it, and Commit() takes it over.
  translator::Ccf* NewCcf();
  translator::EmitTarget Target() const;
  // With what was emitted for Target(). The index is the caller's.
  void Commit(translator::Ccf* ccf, const translator::EmitResult& emitted);
  // Bytes of cold code for something small (an entry check, a redirection).
  HostAddr AllocateCold(u32 bytes);
  // Gives back the last `bytes` of hot code: an exit jump that will be elided.
  void TrimHot(u32 bytes) { hot_next_ -= bytes; }
  HostAddr hot_next() const { return hot_next_; }
  HostAddr data_origin() const { return data_start_; }

  CodeIndex& index() { return index_; }
  // The CCF whose hot or cold code holds `host`, or null.
  translator::Ccf* FindByHost(HostAddr host) const;

  // XXH3 of guest code.
  static u64 HashBytes(const u8* bytes, u64 size);

  // For an instruction that is decoded again; lives until Flush().
  isa::Instr* NewInstr() { return &instrs_.emplace_back(); }

  void Flush();
  u64 used() const;
  u64 capacity() const { return code_bytes_; }
  u64 flushes() const { return flushes_; }
  u64 data_used() const { return data_next_ - data_start_; }
  u64 max_ccfs() const { return data_bytes_ / sizeof(translator::Ccf); }
  u64 data_capacity() const { return data_bytes_; }
  const std::vector<translator::Ccf*>& all() const { return ccfs_; }

 private:
  // What of a region the host has given memory to: all in front of `end`.
  struct Present {
    HostAddr end, limit;
  };
  TranslationCache() = default;
  // So that the next CCF's memory is there: asked for in bulk, since a fault for each page costs
  // several times as much.
  void FaultIn();
  static bool Advance(HostAddr next, u64 most, Present* present, HostAddr* from);
  u8* Alias(HostAddr host) const { return writable_ + (host - base_); }
  // A CCF's data are larger than its code: some 500 bytes against 160 in the mean of a Linux boot.
  // So much room per byte of hot code is full before the code is, and is most of what a VMM takes.
  static constexpr u64 kDataPerHotByte = 2;

  const ProtectionKey& key_ = ProtectionKey::OfProcess();
  HostAddr base_;  // executable alias
  u8* writable_ = nullptr;
  u64 code_bytes_ = 0;  // stubs + hot + cold
  u64 data_bytes_ = 0;
  HostAddr hot_start_, hot_end_, hot_next_;
  HostAddr cold_end_, cold_next_;
  HostAddr data_start_, data_next_;
  Present hot_present_, cold_present_, data_present_;
  HugePageTrial huge_pages_;  // of the data
  u64 flushes_ = 0;
  std::vector<translator::Ccf*> ccfs_;  // in the order of their code
  // Of ccfs_, by position: a search touches no CCF but the one it finds.
  struct Starts {
    HostAddr hot, cold;
  };
  std::vector<Starts> starts_;
  CodeIndex index_;
  std::deque<isa::Instr> instrs_;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_TRANSLATION_CACHE_H_
