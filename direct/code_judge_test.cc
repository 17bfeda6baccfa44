// SPDX-License-Identifier: Apache-2.0
#include "direct/code_judge.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace alibi::direct {
namespace {

using Bytes = std::vector<u8>;

// A host on which every row applies, and a guest that is shown what it must be.
HostTraits Host(vcpu::Vendor vendor = vcpu::Vendor::kIntel) {
  return {.vendor = vendor, .xcr0 = 0x600e7, .shadow_stacks = true};
}

GuestTraits Guest() { return {.features = {}, .xcr0 = 0xe7}; }

GuestTraits Without(std::initializer_list<isa::Feature> features) {
  GuestTraits guest = Guest();
  for (const isa::Feature feature : features) guest.features.Hide(feature);
  return guest;
}

// NOPs with `code` at `offset`.
struct Page {
  std::array<u8, kPageSize> bytes;
  Page() { bytes.fill(0x90); }
  Page(unsigned offset, const Bytes& code) : Page() { Put(offset, code); }
  void Put(unsigned offset, const Bytes& code) {
    const std::size_t size = std::min<std::size_t>(code.size(), kPageSize - offset);
    std::copy_n(code.begin(), size, bytes.begin() + offset);
  }
};

std::optional<WhyNot> Judge(const Page& page, unsigned code_bits = 64, const Bytes& behind = {},
                            const HostTraits& host = Host(), const GuestTraits& guest = Guest()) {
  return CodeJudge(host, guest)
      .Judge({.bytes = page.bytes,
              .code_bits = code_bits,
              .before = {},
              .behind = behind,
              .starts = {}});
}

TEST_CASE("A page of plain code is eligible", "[judge]") {
  CHECK(!Judge(Page()));
  CHECK(!Judge(Page(100, {0xba, 0x0f, 0x00, 0x00, 0x00, 0xc3})));  // MOV EDX, 15
  CHECK(!Judge(Page(100, {0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3})));
  CHECK(!Judge(Page(100, {0xba, 0x0f, 0x00, 0x00, 0x00, 0xc3}), 32));
}

TEST_CASE("An instruction of the table is found at every offset", "[judge]") {
  for (unsigned offset = 0; offset <= kPageSize - 2; ++offset) {
    const std::optional<WhyNot> why = Judge(Page(offset, {0x0f, 0xa2}));
    REQUIRE(why);
    CHECK(why->offset == offset);
    CHECK(why->row == HostVisible::kCpuid);
    CHECK(!why->cut);
  }
}

TEST_CASE("Prefixes select among the instructions of an opcode", "[judge]") {
  CHECK(Judge(Page(200, {0xf3, 0x0f, 0xc7, 0xf8}))->row == HostVisible::kRdpid);
  CHECK(Judge(Page(200, {0xf3, 0x48, 0x0f, 0xc7, 0xf8}))->offset == 200);
  CHECK(!Judge(Page(200, {0x0f, 0xc7, 0xf8})));        // RDSEED
  CHECK(!Judge(Page(200, {0xf2, 0x0f, 0xc7, 0xf8})));  // RDSEED
  // Prefixes that the page's end separates from the opcode.
  const Page last(kPageSize - 1, {0xf3});
  CHECK(Judge(last, 64, Bytes{0x0f, 0xc7, 0xf8})->offset == kPageSize - 1);
  CHECK(!Judge(last, 64, Bytes{0x0f, 0xc7, 0xc8}));
}

TEST_CASE("What the page's end cuts is judged by what could follow", "[judge]") {
  const Page page(kPageSize - 1, {0x0f});
  CHECK(Judge(page)->cut);
  CHECK(!Judge(page, 64, Bytes{0x1f, 0x00}));
  CHECK(Judge(page, 64, Bytes{0xa2})->offset == kPageSize - 1);
  CHECK(!Judge(page, 64, Bytes{0xa2})->cut);
  CHECK(Judge(Page(kPageSize - 1, {0x48}))->cut);
  CHECK(!Judge(Page(kPageSize - 1, {0xc3})));
  // An immediate that ends there.
  CHECK(!Judge(Page(kPageSize - 5, {0xba, 0x00, 0x00, 0x00, 0x0f})));
}

TEST_CASE("What is not cut is the better reason", "[judge]") {
  const Page page(kPageSize - 4, {0x62, 0xf1, 0x0f, 0xa2});  // EVEX, or CPUID
  const CodeJudge judge(Host(), Without({isa::Feature::kAvx512f}));
  const u16 starts[] = {kPageSize - 2};
  CodePage code{.bytes = page.bytes, .before = {}, .behind = {}, .starts = {}};
  CHECK(judge.Judge(code)->cut);
  CHECK(judge.Judge(code)->row == HostVisible::kEvex);
  code.starts = starts;
  CHECK(!judge.Judge(code)->cut);
  CHECK(judge.Judge(code)->row == HostVisible::kCpuid);
}

TEST_CASE("Vendors, code sizes and host settings decide which rows apply", "[judge]") {
  const Page sysenter(300, {0x0f, 0x34}), syscall(300, {0x0f, 0x05}), int80(300, {0xcd, 0x80}),
      cpuid(300, {0x0f, 0xa2}), rdtsc(300, {0x0f, 0x31}), rdtscp(300, {0x0f, 0x01, 0xf9}),
      xsave(300, {0x0f, 0xae, 0x20}), rdssp(300, {0xf3, 0x0f, 0x1e, 0xc8});
  const HostTraits amd = Host(vcpu::Vendor::kAmd);
  CHECK(Judge(sysenter));
  CHECK(!Judge(sysenter, 64, {}, amd));
  CHECK(!Judge(syscall));
  CHECK(!Judge(syscall, 32));
  CHECK(Judge(syscall, 32, {}, amd)->row == HostVisible::kSyscall32);
  CHECK(Judge(int80)->row == HostVisible::kInt80);
  CHECK(!Judge(int80, 32));
  HostTraits other = Host();
  CHECK(Judge(cpuid));
  CHECK(Judge(rdtsc));
  CHECK(Judge(rdtscp));
  other.cpuid_traps = other.tsc_traps = true;
  CHECK(!Judge(cpuid, 64, {}, other));
  CHECK(!Judge(rdtsc, 64, {}, other));
  CHECK(!Judge(rdtscp, 64, {}, other));
  CHECK(Judge(xsave));
  other.xcr0 = Guest().xcr0;
  CHECK(!Judge(xsave, 64, {}, other));
  CHECK(Judge(xsave, 64, {}, other, Without({isa::Feature::kXgetbv1})));
  CHECK(Judge(rdssp));
  other.shadow_stacks = false;
  CHECK(!Judge(rdssp, 64, {}, other));
}

// NOPs of one byte would say nothing: all offsets are beginnings.
Page PlainCode() {
  Page page;
  for (unsigned at = 0; at + 7 <= kPageSize; at += 7) {
    page.Put(at, {0x8b, 0x44, 0x24, 0x08, 0x83, 0xc0, 0x07});
  }
  return page;
}

TEST_CASE("What looks at selectors, or changes the size of code", "[judge]") {
  const Bytes both[] = {{0xff, 0x2b}, {0xff, 0x58, 0x10}, {0xcb}, {0xca, 0x08, 0x00}, {0xcf}};
  const Bytes narrow[] = {{0x8e, 0xe8},
                          {0x8c, 0xc8},
                          {0x06},
                          {0x1f},
                          {0x0f, 0xa8},
                          {0xc5, 0x06},
                          {0x0f, 0xb2, 0x06},
                          {0x9a, 0, 0, 0, 0, 0x33, 0}};
  for (unsigned at = 70; at < 3000; at += 7 * 41) {
    for (const Bytes& code : both) {
      Page page = PlainCode();
      page.Put(at, code);
      const unsigned size = static_cast<unsigned>(code.size());
      page.Put(at + size, Bytes(7 - size % 7, 0x90));
      CHECK(Judge(page, 32)->offset == at);
      CHECK(Judge(page, 64)->offset == at);
    }
    for (const Bytes& code : narrow) {
      Page page = PlainCode();
      page.Put(at, code);
      page.Put(at + static_cast<unsigned>(code.size()), Bytes(7 - code.size() % 7, 0x90));
      CHECK(Judge(page, 32)->offset == at);
      CHECK(!Judge(page, 64));
    }
  }
  // Within other instructions they are nothing.
  for (const u8 byte : {0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0xca, 0xcb, 0xcf, 0xea}) {
    Page page = PlainCode();
    // Behind the first bytes, in front of which nothing is known.
    for (unsigned at = 70; at + 7 < kPageSize; at += 7) {
      page.bytes[at + 3] = page.bytes[at + 6] = byte;
    }
    CAPTURE(unsigned{byte});
    CHECK(!Judge(page, 32));
    CHECK(!Judge(page, 64));
  }
}

TEST_CASE("What x87 instructions note of selectors", "[judge]") {
  const Page fnstenv(200, {0xd9, 0x34, 0x24}), fxsave(200, {0x0f, 0xae, 0x07});
  HostTraits host = Host();
  for (const Page& page : {fnstenv, fxsave}) CHECK(!Judge(page, 32, {}, host));
  host.x87_selectors = true;
  for (const Page& page : {fnstenv, fxsave}) CHECK(Judge(page, 32, {}, host));
  CHECK(!Judge(fnstenv, 64, {}, host));
  GuestTraits guest = Guest();
  guest.same_selectors = true;
  for (const Page& page : {fnstenv, fxsave}) CHECK(!Judge(page, 32, {}, host, guest));
}

TEST_CASE("Extensions that the guest is not shown, and the host has", "[judge]") {
  using enum isa::Feature;
  const Page tzcnt(400, {0xf3, 0x0f, 0xbc, 0xc1}), vaddps(400, {0xc5, 0xf0, 0x58, 0xc2}),
      vaddps512(400, {0x62, 0xf1, 0x74, 0x48, 0x58, 0xc2}),
      aesenc(400, {0x66, 0x0f, 0x38, 0xdc, 0xc1}), andn(400, {0xc4, 0xe2, 0x70, 0xf2, 0xc2});
  for (const Page& page : {tzcnt, vaddps, vaddps512, aesenc, andn}) CHECK(!Judge(page));
  CHECK(Judge(tzcnt, 64, {}, Host(), Without({kBmi1})));
  CHECK(Judge(vaddps, 64, {}, Host(), Without({kAvx})));
  CHECK(Judge(vaddps, 32, {}, Host(), Without({kAvx})));
  CHECK(!Judge(andn, 64, {}, Host(), Without({kAvx})));
  CHECK(Judge(vaddps512, 64, {}, Host(), Without({kAvx512f}))->row == HostVisible::kEvex);
  CHECK(!Judge(vaddps, 64, {}, Host(), Without({kAvx512f})));
  CHECK(Judge(aesenc, 64, {}, Host(), Without({kAes})));
  HostTraits old = Host();
  old.features.Hide(kAes);
  CHECK(!Judge(aesenc, 64, {}, old, Without({kAes})));
  // LDS in 32-bit code.
  CHECK(Judge(Page(400, {0xc5, 0x70, 0x58}), 32, {}, Host(), Without({kAvx}))->row ==
        HostVisible::kLoadFarPointer);
}

TEST_CASE("A known start is a beginning", "[judge]") {
  const Page page(500, {0xba, 0x0f, 0xa2, 0x00, 0x00});
  CHECK(!Judge(page));
  const u16 starts[] = {3, 501, 700};
  CHECK(CodeJudge(Host(), Guest())
            .Judge({.bytes = page.bytes, .before = {}, .behind = {}, .starts = starts})
            ->offset == 501);
}

// Five calls of one function, on a page that GCC is in all the time: E8 88 0B 0F 00, and TEST AL,
// AL behind it.
TEST_CASE("What lies within a known instruction is none", "[judge]") {
  const auto judge = [](const Page& page, std::vector<u16> starts) {
    return CodeJudge(Host(), Guest())
        .Judge({.bytes = page.bytes, .before = {}, .behind = {}, .starts = starts});
  };
  // So near to the page's beginning every offset may be one.
  const Page move(10, {0xba, 0x0f, 0xa2, 0x00, 0x00, 0x0f, 0xa2});
  CHECK(judge(move, {})->offset == 11);
  CHECK(judge(move, {10})->offset == 15);
  // An instruction that begins there has more to say than one around it.
  CHECK(judge(move, {10, 11})->offset == 11);
  const Page prefixed(10, {0xba, 0xf3, 0x0f, 0xc7, 0xf8});  // RDPID
  CHECK(judge(prefixed, {})->offset == 11);
  CHECK_FALSE(judge(prefixed, {10}));
  // What the page's end cuts still is.
  CHECK(judge(Page(kPageSize - 1, {0x0f}), {kPageSize - 1})->cut);
}

TEST_CASE("CR4 and XCR0 switch extensions off", "[judge]") {
  using enum isa::Feature;
  constexpr u64 kAll = vcpu::kCr4Osxsave | vcpu::kCr4Fsgsbase;
  const GuestTraits all = GuestTraitsOf({}, kAll, 0xe7);
  for (const isa::Feature feature : {kAvx, kAvx512f, kFsgsbase, kXsave}) {
    CHECK(all.features.Has(feature));
  }
  CHECK(!GuestTraitsOf({}, kAll, 7).features.Has(kAvx512f));
  CHECK(GuestTraitsOf({}, kAll, 7).features.Has(kAvx));
  CHECK(!GuestTraitsOf({}, kAll, 3).features.Has(kAvx));
  CHECK(!GuestTraitsOf({}, vcpu::kCr4Fsgsbase, 0xe7).features.Has(kXsave));
  CHECK(GuestTraitsOf({}, vcpu::kCr4Fsgsbase, 0xe7).xcr0 == 0);
  CHECK(!GuestTraitsOf({}, vcpu::kCr4Osxsave, 0xe7).features.Has(kFsgsbase));
}

std::vector<u16> Places(const Page& page, unsigned code_bits = 64) {
  const std::optional<WhyNot> why = Judge(page, code_bits);
  REQUIRE(why);
  return {why->places.all().begin(), why->places.all().end()};
}

TEST_CASE("Where breakpoints make a page eligible", "[judge]") {
  Page page;
  for (const unsigned at : {300, 700, 1000}) page.Put(at, {0x0f, 0xa2});
  CHECK(Places(page) == std::vector<u16>{300, 700, 1000});
  // A prefix begins another instruction, which does the same.
  page.Put(999, {0x66});
  CHECK(Places(page) == std::vector<u16>{300, 700, 1000, 999});
  page.Put(2000, {0x0f, 0xa2});
  CHECK(Places(page).empty());  // there are four
}

TEST_CASE("What breakpoints do not stop", "[judge]") {
  const Bytes cpuid = {0x0f, 0xa2};
  // MOV SS holds them back; so do those that may stand in the page before.
  Page page(300, cpuid);
  page.Put(298, {0x8e, 0xd0});
  CHECK(Places(page).empty());
  page.Put(298, {0x8e, 0xd8});  // MOV DS
  CHECK(Places(page) == std::vector<u16>{300});
  CHECK(Places(Page(14, cpuid)).empty());
  CHECK(Places(Page(15, cpuid)) == std::vector<u16>{15});
  page = Page(300, cpuid);
  page.Put(299, {0x17});  // POP SS
  CHECK(Places(page, 32).empty());
  // What the page's end cuts waits for the next page.
  page = Page(300, cpuid);
  CHECK_FALSE(Judge(page)->needs_next);
  page.Put(kPageSize - 1, {0x0f});
  CHECK(Places(page) == std::vector<u16>{300});
  CHECK(Judge(page)->needs_next);
  CHECK_FALSE(Judge(page, 64, Bytes{0x1f, 0x00})->needs_next);
}

}  // namespace
}  // namespace alibi::direct
