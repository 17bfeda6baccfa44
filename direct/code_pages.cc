// SPDX-License-Identifier: Apache-2.0
#include "direct/code_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ranges>
#include <string>

namespace alibi::direct {
namespace {

// The bytes at `at`, as far as they can be read.
template <std::size_t N>
std::span<const u8> Around(const mmu::Mmu& mmu, LinearAddr at, std::array<u8, N>* bytes) {
  const unsigned read = IsCanonical(at) ? mmu.DebugRead(at, bytes->data(), N) : 0;
  return {bytes->data(), read};
}

}  // namespace

Status CodePages::Init() {
  bytes_ = mmu_.memory().capacity() / kPageSize * sizeof(Record);
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Error{std::string("direct execution: out of address space: ") + std::strerror(errno)};
  }
  records_ = static_cast<Record*>(memory);
  remembered_.resize(kRemembered);
  return Ok{};
}

CodePages::~CodePages() {
  if (records_ != nullptr) munmap(records_, bytes_);
}

bool CodePages::KnowsBefore(LinearAddr linear) const {
  const LinearAddr before = linear.PageBase() - kPageSize;
  PhysAddr page;
  return IsCanonical(before) && mmu_.DebugTranslate(before, &page) &&
         mmu_.memory().HostRw(page) != nullptr;
}

CodePages::Judged CodePages::Now(const Record& page, const Record* next, unsigned code_bits) {
  return {&page, next, page.version, next == nullptr ? 0 : u64{next->version}, code_bits};
}

std::optional<WhyNot> CodePages::Judge(const CodeJudge& judge, unsigned code_bits,
                                       LinearAddr linear, PhysAddr page,
                                       std::span<const u8> behind) const {
  ++counters_.direct_judged_pages;
  std::array<u8, CodeJudge::kContextBefore> before;
  // Only a whole run-up is one.
  std::span<const u8> in_front = Around(mmu_, linear.PageBase() - before.size(), &before);
  if (in_front.size() != before.size()) in_front = {};
  const u8* const bytes = mmu_.memory().HostRw(page.PageBase());
  std::vector<u16> starts = known_starts_(linear.PageBase(), page.PageBase());
  std::sort(starts.begin(), starts.end());
  return judge.Judge({.bytes = std::span<const u8, kPageSize>(bytes, kPageSize),
                      .code_bits = code_bits,
                      .before = in_front,
                      .behind = behind,
                      .starts = starts});
}

CodePages::Verdict CodePages::Of(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                                 PhysAddr page) {
  const Record& record = RecordOf(page);
  const unsigned known = record.verdict(code_bits);
  // A page whose beginning looks like anything may do so no more.
  const bool again = (code_bits == 64 ? record.alone64 : record.alone32) && KnowsBefore(linear);
  if (known != kUnknown && !again) return static_cast<Verdict>(known);
  if (record.period == PeriodNow() && record.rewrites == kMostRewrites) {
    return kIneligible;
  }
  return Decide(judge, code_bits, linear, page);
}

CodePages::Verdict CodePages::Again(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                                    PhysAddr page) {
  // Without a verdict it is being rewritten.
  const Record& record = RecordOf(page);
  if (record.verdict(code_bits) != kIneligible) return kIneligible;
  RememberedOf(Now(record, &record, code_bits)) = {};  // with whatever came behind it
  return Decide(judge, code_bits, linear, page);
}

CodePages::Verdict CodePages::Decide(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                                     PhysAddr page) {
  Record& record = RecordOf(page);
  // Before it is read: detached user code may store to it up to then.
  mmu_.TraceDirectCode(page);
  const std::optional<WhyNot> why = Judge(judge, code_bits, linear, page, {});
  const Verdict verdict = !why.has_value() ? kEligible : why->cut ? kNeedsNext : kIneligible;
  counters_.direct_refused_pages +=
      verdict == kIneligible && record.verdict(code_bits) != kIneligible;
  const bool alone = verdict == kIneligible && !KnowsBefore(linear);
  if (code_bits == 64) {
    record.verdict64 = verdict & 3;
    record.alone64 = alone;
  } else {
    record.verdict32 = verdict & 3;
    record.alone32 = alone;
  }
  if (verdict == kIneligible) {
    const Judged judged = Now(record, nullptr, code_bits);
    RememberedOf(judged) = {judged, why};
  }
  return verdict;
}

// Of a page that is kIneligible.
const std::optional<WhyNot>& CodePages::WhyOf(const CodeJudge& judge, unsigned code_bits,
                                              LinearAddr linear, PhysAddr page) {
  const Judged judged = Now(RecordOf(page), nullptr, code_bits);
  Remembered& remembered = RememberedOf(judged);
  if (remembered.judged != judged) {
    remembered = {judged, Judge(judge, code_bits, linear, page, {})};
  }
  return remembered.why;
}

bool CodePages::NeedsNext(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                          PhysAddr page) {
  const Verdict verdict = Of(judge, code_bits, linear, page);
  if (verdict != kIneligible) return verdict == kNeedsNext;
  const std::optional<WhyNot>& why = WhyOf(judge, code_bits, linear, page);
  return why && why->needs_next;
}

bool CodePages::FitsWithNext(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                             PhysAddr page, PhysAddr next) {
  const Record& record = RecordOf(page);
  const Record& next_record = RecordOf(next);
  // Without a verdict a page is not traced, and may change unseen.
  if (record.verdict(code_bits) == kUnknown || next_record.verdict(code_bits) == kUnknown) {
    return false;
  }
  const Judged judged = Now(record, &next_record, code_bits);
  Remembered& remembered = RememberedOf(judged);
  if (remembered.judged != judged) {
    const u8* const behind = mmu_.memory().HostRw(next.PageBase());
    remembered = {judged,
                  Judge(judge, code_bits, linear, page, {behind, CodeJudge::kContextBehind})};
  }
  // Nothing but what has breakpoints anyhow.
  return !remembered.why || (record.verdict(code_bits) == kIneligible &&
                             std::ranges::equal(remembered.why->places.all(),
                                                PlacesIn(judge, code_bits, linear, page).all()));
}

HostVisiblePlaces CodePages::PlacesIn(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                                      PhysAddr page) {
  if (RecordOf(page).verdict(code_bits) != kIneligible) return {};  // it is being rewritten
  const std::optional<WhyNot>& why = WhyOf(judge, code_bits, linear, page);
  return why ? why->places : HostVisiblePlaces();
}

void CodePages::ForgetAll() {
  madvise(records_, bytes_, MADV_DONTNEED);
  remembered_.assign(kRemembered, {});
}

}  // namespace alibi::direct
