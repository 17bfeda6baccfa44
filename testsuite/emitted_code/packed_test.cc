// SPDX-License-Identifier: Apache-2.0
// A translation that was packed is unpacked, byte for byte, as the one that would have been made
// there: its code, its data in the TC, and what its CCF says.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/types.h"
#include "testsuite/emitted_code/golden_cases.h"
#include "translator/emitter.h"
#include "translator/packed_ccf.h"
#include "translator/translation_unit.h"

namespace alibi::testsuite {
namespace {

using translator::Ccf;
using translator::EmitResult;
using translator::EmitTarget;
using translator::LookupKind;
using translator::PackedCcf;
using translator::SiteKind;
using translator::SitePlan;

constexpr SitePlan kPlans[] = {
    {}, {SiteKind::kDirect, LookupKind::kTable}, {SiteKind::kChecked}, {SiteKind::kSimulate}};

// Of one page: the guest's code, and where in it the TU begins.
struct Page {
  std::vector<u8> bytes = std::vector<u8>(kPageSize, 0x90);
  u64 offset = 0;
};

// Kernel code with addresses of its own in it, at 0xffffffff81...
const std::vector<std::vector<u8>>& KernelInstructions() {
  static const std::vector<std::vector<u8>> kAll = {
      {0x48, 0xc7, 0xc7, 0x10, 0x20, 0x30, 0x82},                    // mov rdi, imm
      {0x49, 0xc7, 0xc3, 0x10, 0x20, 0x30, 0x82},                    // mov r11, imm
      {0x48, 0x3d, 0x10, 0x20, 0x30, 0x82},                          // cmp rax, imm
      {0x49, 0x81, 0xfa, 0x10, 0x20, 0x30, 0x82},                    // cmp r10, imm
      {0x48, 0x05, 0x10, 0x20, 0x30, 0x82},                          // add rax, imm
      {0x48, 0xb8, 0x10, 0x20, 0x30, 0x82, 0xff, 0xff, 0xff, 0xff},  // movabs rax, imm
      {0x68, 0x10, 0x20, 0x30, 0x82},                                // push imm
      {0x48, 0x8b, 0x04, 0x25, 0x10, 0x20, 0x30, 0x82},              // mov rax, [disp]
      {0x48, 0x8b, 0x04, 0xc5, 0x10, 0x20, 0x30, 0x82},              // mov rax, [rax*8+disp]
      {0x4e, 0x8b, 0x1c, 0xdd, 0x10, 0x20, 0x30, 0x82},              // mov r11, [r11*8+disp]
      {0x48, 0x8b, 0x80, 0x10, 0x20, 0x30, 0x82},                    // mov rax, [rax+disp]
      {0x4d, 0x8b, 0x93, 0x10, 0x20, 0x30, 0x82},                    // mov r10, [r11+disp]
      {0x4c, 0x8b, 0x93, 0x10, 0x20, 0x30, 0x82},                    // mov r10, [rbx+disp]
      {0x4c, 0x01, 0x93, 0x10, 0x20, 0x30, 0x82},                    // add [rbx+disp], r10
      {0x8a, 0xa3, 0x10, 0x20, 0x30, 0x82},                          // mov ah, [rbx+disp]
      {0x48, 0x89, 0x84, 0x18, 0x10, 0x20, 0x30, 0x82},              // mov [rax+rbx+disp], rax
      {0x48, 0xc7, 0x83, 0x10, 0x20, 0x30, 0x82, 0x40, 0x50, 0x60, 0x83},  // mov q[rbx+disp], imm
      {0x48, 0xc7, 0x03, 0x40, 0x50, 0x60, 0x83},                          // mov q[rbx], imm
      {0x48, 0xc7, 0x44, 0x24, 0x08, 0x40, 0x50, 0x60, 0x83},              // mov q[rsp+8], imm
      {0x48, 0x81, 0x3c, 0x25, 0x10, 0x20, 0x30, 0x82, 0x40, 0x50, 0x60, 0x83},
      {0xc7, 0x83, 0x10, 0x20, 0x30, 0x82, 0x01, 0, 0, 0},  // mov d[rbx+disp], 1
      {0x80, 0xbb, 0x10, 0x20, 0x30, 0x82, 0x00},           // cmp b[rbx+disp], 0
      {0x48, 0x8d, 0x83, 0x10, 0x20, 0x30, 0x82},           // lea rax, [rbx+disp]
      {0x4c, 0x8d, 0x93, 0x10, 0x20, 0x30, 0x82},           // lea r10, [rbx+disp]
      {0x48, 0x8d, 0x04, 0xdd, 0x10, 0x20, 0x30, 0x82},     // lea rax, [rbx*8+disp]
      {0xff, 0xb3, 0x10, 0x20, 0x30, 0x82},                 // push [rbx+disp]
      {0xff, 0x34, 0xdd, 0x10, 0x20, 0x30, 0x82},           // push [rbx*8+disp]
      {0xff, 0x93, 0x10, 0x20, 0x30, 0x82},                 // call [rbx+disp]
      {0xff, 0x14, 0xc5, 0x10, 0x20, 0x30, 0x82},           // call [rax*8+disp]
      {0xff, 0x24, 0xc5, 0x10, 0x20, 0x30, 0x82},           // jmp [rax*8+disp]
      {0x48, 0x0f, 0xa3, 0x83, 0x10, 0x20, 0x30, 0x82},     // bt [rbx+disp], rax
      {0x0f, 0x28, 0x83, 0x10, 0x20, 0x30, 0x82},           // movaps xmm0, [rbx+disp]
      {0x65, 0x48, 0x8b, 0x05, 0xc0, 0xef, 0x00, 0x7f},     // mov rax, gs:[rip+...]: below 2 GB
      {0x65, 0xff, 0x0d, 0xc0, 0xef, 0x00, 0x7f},           // dec gs:[rip+...]
      {0x48, 0x8b, 0x05, 0x10, 0x20, 0x00, 0x00},           // mov rax, [rip+...]
      {0xe8, 0x10, 0x20, 0x00, 0x00},                       // call
      {0x48, 0x8b, 0x03},                                   // mov rax, [rbx]
      {0x48, 0x8b, 0x43, 0x08},                             // mov rax, [rbx+8]
      {0x48, 0x01, 0xd8},                                   // add rax, rbx
      {0x74, 0x05},                                         // je
      {0x55},                                               // push rbp
      {0xc3},                                               // ret
  };
  return kAll;
}

class Bench {
 public:
  Bench()
      : stubs(StubTable::Somewhere(HostAddr(code_.data()))),
        emitter_(std::make_unique<translator::Emitter>(stubs)) {}

  // Emits the TU in `page`, which lies at `linear`, for one of two places.
  std::optional<EmitResult> Emit(const Page& page, LinearAddr linear, bool user,
                                 const SitePlan& plan, bool indirect, unsigned place) {
    const auto status =
        BuildTranslationUnit({.pc = linear + page.offset,
                              .code_bits = 64,
                              .bytes = page.bytes.data() + page.offset,
                              .available = static_cast<unsigned>(kPageSize - page.offset),
                              .page_before = static_cast<unsigned>(page.offset)},
                             &tu);
    if (status != isa::DecodeStatus::kOk) return std::nullopt;
    request = {};
    request.tu = &tu;
    request.mode.user = user;
    request.plans.fill(plan);
    request.indirect_entry = indirect;
    request.target = TargetOf(place);
    Ccf* ccf = new (CcfAt(place)) Ccf();
    const EmitResult result = emitter_->Emit(request, ccf);
    REQUIRE(result.fits);
    ccf->examined_begin = tu.examined_begin;
    ccf->examined_end = tu.examined_end;
    return result;
  }
  Ccf* CcfAt(unsigned place) { return reinterpret_cast<Ccf*>(TargetOf(place).data) - 1; }
  EmitTarget TargetOf(unsigned place) {
    EmitTarget target;
    const HostAddr begin(code_.data() + 4 * kPageSize);
    // Apart by different distances.
    target.hot = begin + (place == 0 ? 0 : 5 * kPageSize + 0x123);
    target.cold = begin + (place == 0 ? 2 * kPageSize : 9 * kPageSize + 0x77);
    target.hot_room = target.cold_room = 2 * kPageSize;
    target.data = data_[place].data() + 512 + 16 * place;
    target.data_room = kPageSize * 2;
    target.data_origin = HostAddr(data_[place].data());
    return target;
  }

  std::vector<u8> code_ = std::vector<u8>(20 * kPageSize);
  translator::TranslationUnit tu;
  translator::EmitRequest request;
  // In front of the code, as in a TC.
  StubTable stubs;

 private:
  static std::vector<u8> Room() { return std::vector<u8>(4 * kPageSize); }
  std::vector<u8> data_[2] = {Room(), Room()};
  std::unique_ptr<translator::Emitter> emitter_;
};

// What is left of a CCF when its lists are not looked at.
std::string Describe(const Ccf& ccf) {
  return fmt::format("{:x} {} {} {} {:x} {:x} {:x} {:x} {:x} {:x} {:x} {} {} {} {} {} {} {}",
                     ccf.pc.value, ccf.mode == translator::CodeMode{}, ccf.mode.user,
                     ccf.guest_bytes, ccf.hot_start.value, ccf.hot_end.value, ccf.cold_start.value,
                     ccf.cold_end.value, ccf.entry.value, ccf.redirect.value,
                     ccf.indirect_entry.value, ccf.flags_live_in, ccf.movable, ccf.exit_count,
                     ccf.site_count, ccf.fault_count, ccf.cold_count, ccf.instr_count) +
         fmt::format(" {} {:x} {:x}", ccf.pc_count, ccf.examined_begin.value,
                     ccf.examined_end.value);
}

struct Tally {
  unsigned portable = 0, all = 0;
};

std::vector<u8> PackOf(Bench& bench, const EmitResult& made, const Ccf& ccf, const Page& page) {
  std::vector<u8> packed(16 * 1024);
  packed.resize(PackedCcf::Pack(bench.request, made, bench.stubs, ccf, page.bytes.data(), packed));
  return packed;
}

// Packs the TU where it is, and unpacks it at `there`, in a page whose moving words have followed.
void Check(Bench& bench, const Page& page, LinearAddr here, LinearAddr there, bool user,
           Tally* tally) {
  const u64 delta = there - here;
  for (const SitePlan& plan : kPlans) {
    for (const bool indirect : {false, true}) {
      const auto made = bench.Emit(page, here, user, plan, false, 0);
      if (!made) continue;
      const Ccf& from = *bench.CcfAt(0);
      Ccf* const unpacked = new (bench.CcfAt(1)) Ccf();
      ++tally->all;
      const std::vector<u8> packed = PackOf(bench, *made, from, page);
      if (packed.empty()) continue;
      ++tally->portable;
      const auto parsed = PackedCcf::Parse(packed);
      REQUIRE(parsed);
      CHECK(parsed->MadeFrom(from.pc, from.mode, page.bytes.data()));

      Page moved = page;
      bool leaves = false;  // the kernel's part of the address space
      for (const isa::MovingWord& word : bench.tu.examined.words()) {
        u64 value = 0;
        u8* at = moved.bytes.data() + page.offset + word.offset;
        std::memcpy(&value, at, word.size);
        value += word.against ? 0 - delta : delta;
        std::memcpy(at, &value, word.size);
        leaves = leaves || (!word.against && static_cast<i8>(at[word.size - 1]) >= 0);
      }
      // It may be in code that was only looked at.
      if (leaves && !parsed->MadeFrom(there + page.offset, from.mode, moved.bytes.data())) continue;
      CHECK(parsed->MadeFrom(there + page.offset, from.mode, moved.bytes.data()));
      if (delta != 0 && !bench.tu.examined.words().empty()) {
        CHECK_FALSE(parsed->MadeFrom(there + page.offset, from.mode, page.bytes.data()));
      }
      Page other = moved;
      other.bytes[page.offset + from.guest_bytes - 1] ^= 1;
      CHECK_FALSE(parsed->MadeFrom(there + page.offset, from.mode, other.bytes.data()));

      const EmitTarget target = bench.TargetOf(1);
      PackedCcf::Room room;
      const EmitResult result = parsed->Unpack({.pc = there + page.offset,
                                                .mode = from.mode,
                                                .indirect_entry = indirect,
                                                .stubs = &bench.stubs,
                                                .page = moved.bytes.data(),
                                                .target = target},
                                               &room, unpacked);
      REQUIRE(result.fits);
      const std::vector<u8> data(target.data, target.data + result.data_size);
      const std::vector<u8> hot(result.hot_code, result.hot_code + result.hot_size);
      const std::vector<u8> cold(result.cold_code, result.cold_code + result.cold_size);
      const std::string said = Describe(*unpacked);

      const auto expected = bench.Emit(moved, there, user, plan, indirect, 1);
      REQUIRE(expected);
      REQUIRE(said == Describe(*unpacked));
      REQUIRE(hot == std::vector<u8>(expected->hot_code, expected->hot_code + expected->hot_size));
      REQUIRE(cold ==
              std::vector<u8>(expected->cold_code, expected->cold_code + expected->cold_size));
      REQUIRE(data == std::vector<u8>(target.data, target.data + expected->data_size));
      REQUIRE(result.slots_used == expected->slots_used);
    }
  }
}

// So many pages apart that both choose the same inline TLB entries (a multiple of ChooseSlot's 22
// and 64).
constexpr u64 kApart = u64{22} * 32 * kPageSize;
constexpr LinearAddr kProgram{0x5566'7788'9000}, kKernel{0xffff'ffff'8100'3000};

TEST_CASE("an unpacked translation of a program is the one that would have been made there") {
  Bench bench;
  Tally tally;
  for (const GoldenCase& what : GoldenCases()) {
    INFO(what.line);
    Page page;
    page.offset = 0x120;
    std::copy(what.bytes.begin(), what.bytes.end(), page.bytes.begin() + 0x120);
    for (const u64 delta : {u64{0}, kApart * 0x10001}) {
      Check(bench, page, kProgram, kProgram + delta, what.user, &tally);
    }
  }
  CHECK(tally.portable > 4000);
  CHECK(tally.portable * 10 > tally.all * 9);
}

TEST_CASE("an unpacked translation of a kernel follows the addresses that the kernel names") {
  Bench bench;
  Tally tally;
  for (const auto& bytes : KernelInstructions()) {
    Page page;
    page.offset = 0x120;
    std::copy(bytes.begin(), bytes.end(), page.bytes.begin() + 0x120);
    INFO(fmt::format("{:02x}", fmt::join(bytes, " ")));
    Check(bench, page, kKernel, kKernel + kApart * 9, false, &tally);
  }
  CHECK(tally.portable * 10 > tally.all * 9);
}

TEST_CASE("and so does one of many instructions, with look-ahead") {
  Bench bench;
  Tally tally;
  std::vector<std::vector<u8>> pool = KernelInstructions();
  for (const GoldenCase& what : GoldenCases()) {
    if (!what.user) pool.push_back(what.bytes);
  }
  std::mt19937 random(1);
  const unsigned kernel_count = static_cast<unsigned>(KernelInstructions().size());
  for (unsigned round = 0; round < 1000; ++round) {
    Page page;
    page.offset = random() % 3000;
    u64 at = page.offset > 64 ? page.offset - 64 : 0;
    std::string text = fmt::format("round {}:", round);
    while (at < page.offset + 160) {
      if (at < page.offset && at + 15 > page.offset) at = page.offset;
      const auto& bytes =
          pool[random() % 3 != 0 ? random() % kernel_count : random() % pool.size()];
      std::copy(bytes.begin(), bytes.end(), page.bytes.begin() + static_cast<i64>(at));
      at += bytes.size();
    }
    INFO(text);
    Check(bench, page, kKernel, kKernel + kApart * (1 + random() % 300), false, &tally);
    Check(bench, page, kProgram, kProgram + kApart * 0x10001, true, &tally);
  }
  CHECK(tally.portable > tally.all / 2);
}

TEST_CASE("damaged bytes are refused, or unpacked within their bounds") {
  Bench bench;
  Page page;
  const u8 code[] = {0x48, 0x8b, 0x43, 0x08, 0x48, 0x03, 0x04, 0x8b, 0x74, 0x02, 0x55, 0xc3};
  std::copy(std::begin(code), std::end(code), page.bytes.begin());
  const auto made = bench.Emit(page, kProgram, true, {}, false, 0);
  REQUIRE(made);
  const Ccf& from = *bench.CcfAt(0);
  const std::vector<u8> packed = PackOf(bench, *made, from, page);
  REQUIRE_FALSE(packed.empty());
  for (u64 size = 0; size < packed.size(); ++size) {
    CHECK_FALSE(PackedCcf::Parse({packed.data(), size}));
  }
  std::mt19937 random(2);
  unsigned refused = 0;
  for (unsigned round = 0; round < 20000; ++round) {
    std::vector<u8> damaged = packed;
    for (unsigned i = 0; i <= round % 3; ++i)
      damaged[random() % packed.size()] = static_cast<u8>(random());
    const auto parsed = PackedCcf::Parse(damaged);
    if (!parsed) {
      ++refused;
      continue;
    }
    parsed->MadeFrom(from.pc, from.mode, page.bytes.data());
    PackedCcf::Room room;
    Ccf* const to = new (bench.CcfAt(1)) Ccf();
    (void)parsed->Unpack({.pc = parsed->pc(),
                          .mode = from.mode,
                          .stubs = &bench.stubs,
                          .page = page.bytes.data(),
                          .target = bench.TargetOf(1)},
                         &room, to);
  }
  CHECK(refused > 1000);
}

}  // namespace
}  // namespace alibi::testsuite
