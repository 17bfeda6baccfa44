// SPDX-License-Identifier: Apache-2.0
// The verifier must let good code pass and find every fault that is planted.
#include "testsuite/verifier/verifier.h"

#include <asmjit/x86.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "abi/contract.h"
#include "translator/side_data.h"

namespace alibi::verifier {
namespace {

namespace x86 = asmjit::x86;
using translator::Ccf;
using translator::SiteDesc;

x86::Mem Gs(i64 displacement, unsigned size = 8) {
  x86::Mem mem = x86::ptr_abs(static_cast<u64>(displacement), size);
  mem.setSegment(x86::gs);
  return mem;
}
i32 State(std::size_t offset) { return kVcpuOffset + static_cast<i32>(offset); }

// A CCF made by hand: hot code for a few guest instructions, and the cold code of look-ups that
// miss.
class Fragment {
 public:
  static constexpr i32 kLoadSlot = kSlotsOffset + 3 * i32{sizeof(InlineTlbEntry)};
  static constexpr i32 kStoreSlot = kSlotsOffset + (kSlotCount + 5) * i32{sizeof(InlineTlbEntry)};
  // Where the fields of a slot are.
  static constexpr i32 kDisplacement = 8, kHostPage = 16;

  explicit Fragment(unsigned code_bits = 64) {
    code_.init(asmjit::Environment::host());
    code_.attach(&a);
    stubs_ = StubTable::Somewhere(Here() - 0x10000);  // in front, as in the TC
    ccf_.mode.code_bits = static_cast<u8>(code_bits);
    ccf_.hot_start = ccf_.entry = Here();
    ccf_.cold_start = ccf_.cold_end = Base() + kColdOffset;
    Next();
  }

  HostAddr Base() const { return HostAddr(bytes_.get()); }
  HostAddr Here() const { return Base() + a.offset(); }
  // What follows belongs to the next guest instruction.
  void Next() {
    ++index_;
    side_.map.push_back({static_cast<u16>(a.offset()), static_cast<u8>(index_), false});
  }
  void Raw(std::initializer_list<u8> bytes) { a.embed(bytes.begin(), bytes.size()); }
  void JumpTo(HostAddr target) {
    Raw({0xe9, 0, 0, 0, 0});
    Patch(a.bufferData() + a.offset() - 4, Here(), target);
  }
  // ja to the cold code of a miss, which goes on at `resume` later.
  void JaMiss() {
    Raw({0x0f, 0x87, 0, 0, 0, 0});
    ja_ = static_cast<u32>(a.offset());
  }
  // The site goes on here; its cold code has the address [base + disp].
  SiteDesc* Resume(const x86::Gp& base, i32 disp, unsigned span, bool store) {
    SiteDesc* site = Site();
    site->resume = Here();
    Patch(a.bufferData() + ja_ - 4, Base() + ja_, ccf_.cold_end);
    asmjit::CodeHolder code;
    code.init(asmjit::Environment::host());
    x86::Assembler cold(&code);
    cold.lea(x86::r11, x86::ptr(base, disp));
    cold.mov(x86::r10,
             asmjit::imm(MissWord::Make(site->resume - stubs_.miss, span - 1, 4, store).word));
    Cold(cold, stubs_.miss);
    return site;
  }
  SiteDesc* Site() {
    sites_.push_back(std::make_unique<SiteDesc>());
    SiteDesc* site = sites_.back().get();
    site->ccf = &ccf_;
    site->instr_index = static_cast<u8>(index_);
    side_.sites.push_back(site);
    return site;
  }
  void FaultsHere(SiteDesc* site, bool follower = false) {
    const auto at = std::find(side_.sites.begin(), side_.sites.end(), site);
    side_.faults.push_back(
        {static_cast<u16>(a.offset()), static_cast<u8>(at - side_.sites.begin()), follower});
  }
  void CallStub(HostAddr stub, SiteDesc* site) {
    a.mov(x86::r10, asmjit::imm(reinterpret_cast<u64>(site)));
    JumpTo(stub);
  }
  // A look-up by slot of [base + low, low + span), and a load of `size` bytes at its beginning.
  SiteDesc* Lookup(const x86::Gp& base, i32 low, unsigned span, bool store) {
    const i32 slot = store ? kStoreSlot : kLoadSlot;
    a.mov(x86::r10, Gs(slot));
    a.lea(x86::r10, x86::ptr(base, x86::r10, 0, low));
    Raw({0x49, 0x81, 0xfa});
    const u32 most = 4096 - span;
    a.embed(&most, 4);
    JaMiss();
    a.mov(x86::r10, Gs(slot + kDisplacement));
    return Resume(base, low, span, store);
  }
  void End() {
    a.mov(x86::r11, asmjit::imm(0x12345));
    JumpTo(stubs_.at(Callout::kLookup));
  }
  // The guest's instructions, by default MOV of memory.
  void SetGuest(u8 first, u8 second) { guest_ = {first, second}; }
  const StubTable& stubs() const { return stubs_; }
  Ccf& ccf() { return ccf_; }

  std::vector<std::string> Check() {
    std::memcpy(bytes_.get(), a.bufferData(), a.offset());
    ccf_.hot_end = Here();
    KeepSide();
    return Verify(ccf_, stubs_);
  }
  // The first complaint, or nothing.
  std::string First() {
    const std::vector<std::string> all = Check();
    return all.empty() ? "" : all.front();
  }
  // With the instruction at this offset replaced by NOPs.
  std::string FirstWithout(u32 offset, u32 length) {
    Check();
    std::vector<u8> kept(bytes_.get() + offset, bytes_.get() + offset + length);
    std::memset(bytes_.get() + offset, 0x90, length);
    const std::vector<std::string> all = Verify(ccf_, stubs_);
    std::memcpy(bytes_.get() + offset, kept.data(), length);
    return all.empty() ? "" : all.front();
  }

 private:
  static constexpr u32 kColdOffset = 0x800, kBytes = 0x1000;

  // The guest's instructions are of no importance, but that they have memory operands.
  void KeepSide() {
    const std::vector<u8> guest = [&] {
      std::vector<u8> bytes;
      for (u64 i = 0; i < side_.map.size(); ++i)
        bytes.insert(bytes.end(), guest_.begin(), guest_.end());
      return bytes;
    }();
    auto tu = std::make_unique<translator::TranslationUnit>();
    translator::BuildTranslationUnit({.code_bits = ccf_.mode.code_bits,
                                      .bytes = guest.data(),
                                      .available = static_cast<unsigned>(guest.size()),
                                      .max_instructions = static_cast<unsigned>(side_.map.size())},
                                     tu.get());
    const std::vector<translator::SitePlan> plans(tu->count);
    kept_side_.resize((side_.BytesFor(*tu) + 7) / 8);
    side_.Keep(*tu, plans, nullptr, reinterpret_cast<u8*>(kept_side_.data()), &ccf_);
  }

  void Cold(x86::Assembler& cold, HostAddr target) {
    u8* to = ccf_.cold_end.As();
    std::memcpy(to, cold.bufferData(), cold.offset());
    to[cold.offset()] = 0xe9;
    side_.cold_map.push_back(
        {static_cast<u16>(ccf_.cold_end - ccf_.cold_start), static_cast<u8>(index_)});
    ccf_.cold_end += cold.offset() + 5;
    Patch(ccf_.cold_end.As() - 4, ccf_.cold_end, target);
  }
  static void Patch(u8* at, HostAddr next, HostAddr target) {
    const i32 rel = static_cast<i32>(target - next);
    std::memcpy(at, &rel, 4);
  }

  std::array<u8, 2> guest_ = {0x8b, 0x00};
  std::unique_ptr<u8[]> bytes_{new u8[kBytes]};
  asmjit::CodeHolder code_;
  StubTable stubs_;
  Ccf ccf_;
  translator::SideData side_;
  std::vector<u64> kept_side_;
  std::vector<std::unique_ptr<SiteDesc>> sites_;
  unsigned index_ = ~0u;
  u32 ja_ = 0;

 public:
  x86::Assembler a;
};

bool Has(const std::string& complaint, const char* what) {
  return complaint.find(what) != std::string::npos;
}

// mov eax, [rbx + 8]; mov [rbx + 16], rcx
void Group(Fragment* f) {
  SiteDesc* load = f->Lookup(x86::rbx, 8, 16, true);
  f->FaultsHere(load);
  f->a.mov(x86::eax, x86::ptr(x86::rbx, x86::r10, 0, 8));
  f->Next();
  f->FaultsHere(f->Site(), true);
  f->a.mov(x86::ptr(x86::rbx, x86::r10, 0, 16), x86::rcx);
}

TEST_CASE("Good code passes", "[verifier]") {
  Fragment f;
  Group(&f);
  f.Next();
  SiteDesc* site = f.Site();
  f.CallStub(f.stubs().at(Callout::kSimulate), site);
  site->resume = f.Here();
  f.Next();
  f.FaultsHere(f.Lookup(x86::rsp, -8, 8, true));
  f.a.mov(x86::ptr(x86::rsp, x86::r10, 0, -8), x86::rax);
  f.a.lea(x86::rsp, x86::ptr(x86::rsp, -8));
  f.End();
  CHECK(f.First() == "");
}

TEST_CASE("Every instruction of a look-up matters", "[verifier]") {
  Fragment f;
  Group(&f);
  f.End();
  REQUIRE(f.First() == "");
  // mov r10, neg_page; lea; cmp; ja; mov r10, displacement
  const u32 lengths[] = {9, 5, 7, 6, 9};
  u32 at = 0;
  for (const u32 length : lengths) {
    INFO("without hot+" << at);
    CHECK(f.FirstWithout(at, length) != "");
    at += length;
  }
  // In the cold part: lea r11; mov r10, word; jmp.
  const u32 cold = static_cast<u32>(f.ccf().cold_start - f.Base());
  CHECK(f.FirstWithout(cold, 4) != "");
  CHECK(f.FirstWithout(cold + 4, 10) != "");
}

// alibi fuzz --seed 3200: the address of another access was taken for the group's base anew.
TEST_CASE("An address of 32 bits off a group's moved base, between its accesses", "[verifier]") {
  Fragment f(32);
  // pop eax; an access to [esp + esi * 4 + 256]; pop edx
  f.FaultsHere(f.Lookup(x86::rsp, 0, 8, false));
  f.a.mov(x86::eax, x86::ptr(x86::rsp, x86::r10));
  f.a.lea(x86::esp, x86::ptr(x86::rsp, 4));
  f.Next();
  f.a.lea(x86::r11d, x86::ptr(x86::rsp, x86::rsi, 2, 256));
  f.Next();
  f.FaultsHere(f.Site(), true);
  f.a.mov(x86::edx, x86::ptr(x86::rsp, x86::r10));
  f.a.lea(x86::esp, x86::ptr(x86::rsp, 4));
  f.End();
  CHECK(f.First() == "");
}

// --seed 3300: a base of 32 bits is back where it began.
TEST_CASE("Stack accesses around a stack pointer that SHLD has made", "[verifier]") {
  Fragment f(32);
  // shld esp, eax, 3; push esp; pop ebx; push esi
  f.a.shld(x86::esp, x86::eax, 3);
  f.Next();
  f.FaultsHere(f.Lookup(x86::rsp, -8, 8, true));
  f.a.mov(x86::ptr(x86::rsp, x86::r10, 0, -4), x86::esp);
  f.a.lea(x86::esp, x86::ptr(x86::rsp, -4));
  f.Next();
  f.FaultsHere(f.Site(), true);
  f.a.mov(x86::ebx, x86::ptr(x86::rsp, x86::r10));
  f.a.lea(x86::esp, x86::ptr(x86::rsp, 4));
  f.Next();
  f.FaultsHere(f.Site(), true);
  f.a.mov(x86::ptr(x86::rsp, x86::r10, 0, -4), x86::esi);
  f.End();
  CHECK(f.First() == "");
}

// One condition away from an escape: the room of CS was checked with r10, where the displacement
// waited for the group's next access.
TEST_CASE("A segment check between two accesses of a group", "[verifier]") {
  Fragment f(32);
  // mov eax, [ebx]; mov cs:[0x102000], ecx; mov edx, [ebx + 4]
  f.FaultsHere(f.Lookup(x86::rbx, 0, 8, false));
  f.a.mov(x86::eax, x86::ptr(x86::rbx, x86::r10));
  f.Next();
  f.a.mov(x86::r11d, asmjit::imm(0x102000));
  SiteDesc* recheck = f.Site();
  f.a.mov(x86::r10, Gs(State(offsetof(vcpu::VcpuState, segment_fast_limit) + 8 * 7)));
  f.a.sub(x86::r10, x86::r11);
  f.a.cmp(x86::r10, 4);
  f.Raw({0x7d, 15});  // jge over the callout
  f.CallStub(f.stubs().at(Callout::kRecheck), recheck);
  f.a.mov(x86::r10, Gs(State(offsetof(vcpu::VcpuState, segment) + 16)));
  f.a.lea(x86::r11d, x86::ptr(x86::r11, x86::r10));
  f.a.add(x86::r11, Gs(Fragment::kStoreSlot));
  f.Raw({0x49, 0x81, 0xfb, 0xfc, 0x0f, 0, 0});  // cmp r11, 4092
  f.Raw({0x76, 15});                            // jbe
  f.CallStub(f.stubs().at(Callout::kSimulate), f.Site());
  f.Next();
  f.FaultsHere(f.Site(), true);
  f.a.mov(x86::edx, x86::ptr(x86::rbx, x86::r10, 0, 4));
  f.End();
  CHECK(Has(f.First(), "memory without a look-up"));
}

TEST_CASE("Memory that no look-up has found", "[verifier]") {
  struct Bad {
    std::vector<u8> bytes;
    const char* complaint;
  };
  u8 mask[4];  // a field that emitted code only reads
  const i32 at = kVcpuOffset + static_cast<i32>(offsetof(vcpu::VcpuState, page_index_mask));
  std::memcpy(mask, &at, sizeof(mask));
  const Bad bad[] = {
      {{0x48, 0x8b, 0x03}, "memory without"},                       // mov rax, [rbx]
      {{0x48, 0x89, 0x04, 0x24}, "memory without"},                 // mov [rsp], rax
      {{0x4a, 0x8b, 0x04, 0x13}, "memory without"},                 // mov rax, [rbx+r10]
      {{0x49, 0x8b, 0x03}, "memory without"},                       // mov rax, [r11]
      {{0x64, 0x8b, 0x04, 0x25, 0, 0, 0, 0}, "memory without"},     // mov eax, fs:[0]
      {{0x65, 0x48, 0x8b, 0x03}, "%gs with a base"},                // mov rax, gs:[rbx]
      {{0x65, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0}, "%gs at a place"},  // mov eax, gs:[16]
      {{0x65, 0x48, 0x89, 0x04, 0x25, mask[0], mask[1], mask[2], mask[3]},
       "store"},                                                       // mov gs:[], rax
      {{0x65, 0x4e, 0x8b, 0x14, 0xd5, 0, 0, 0, 0}, "nothing bounds"},  // mov r10, gs:[r10*8]
      {{0x67, 0x42, 0x8b, 0x04, 0x13}, "memory without"},              // mov eax, [ebx+r10d]
      {{0xf3, 0xa4}, "memory without"},                                // rep movsb
      {{0x48, 0x8b, 0x05, 0, 0, 0, 0}, "memory without"},              // mov rax, [rip]
      {{0xa1, 0, 0, 0, 0, 0, 0, 0, 0}, "memory without"},              // mov eax, [abs]
      {{0x0f, 0x05}, "no translation"},                                // syscall
      {{0xcd, 0x80}, "no translation"},                                // int 0x80
      {{0x50}, "no translation"},                                      // push rax
      {{0xc3}, "no translation"},                                      // ret
      {{0x0f, 0xa2}, "no translation"},                                // cpuid
      {{0xfd}, "no translation"},                                      // std
      {{0xe6, 0x80}, "no translation"},                                // out 0x80, al
      {{0x8e, 0xd8}, "no translation"},                                // mov ds, eax
      {{0x0f, 0x01, 0xef}, "0f 01 ef"},                                // wrpkru
      {{0x0f, 0xae, 0xe8 + 0, 0x90}, ""},                              // lfence: good
      {{0xf3, 0x49, 0x0f, 0xae, 0xda}, "no peer view"},                // wrgsbase r10
      {{0x41, 0xff, 0xe3}, "where a register says"},                   // jmp r11
      {{0xff, 0x25, 0, 0, 0, 0}, "memory without"},                    // jmp [rip]
      {{0xeb, 0x40}, "neither the CCF nor"},                           // jmp far away
      {{0xeb, 0xff}, "into an instruction"},                           // jmp into itself
      {{0x06}, "Zydis does not decode"}};
  for (const Bad& b : bad) {
    Fragment f;
    f.a.embed(b.bytes.data(), b.bytes.size());
    f.End();
    const std::string first = f.First();
    INFO(b.complaint << " | " << first << " | " << static_cast<unsigned>(b.bytes[0]));
    CHECK((*b.complaint == 0 ? first.empty() : Has(first, b.complaint)));
  }
}

TEST_CASE("The cell of a latched port is for its instruction, and as wide as the entry",
          "[verifier]") {
  struct Case {
    u8 guest[2];
    unsigned entry;  // 0, 1, 2: of 1, 2, 4 bytes
    unsigned bytes;
    i32 beside;
    bool store, good;
  };
  constexpr u8 kOut16[] = {0x66, 0xef}, kIn16[] = {0x66, 0xed}, kMov[] = {0x8b, 0x00};
  const auto with = [](const u8* guest, unsigned entry, unsigned bytes, i32 beside, bool store,
                       bool good) {
    return Case{{guest[0], guest[1]}, entry, bytes, beside, store, good};
  };
  for (const Case& each : {with(kOut16, 1, 2, 0, true, true), with(kIn16, 1, 2, 0, false, true),
                           with(kIn16, 1, 2, 0, true, false), with(kOut16, 1, 2, 0, false, false),
                           with(kOut16, 1, 4, 0, true, false), with(kOut16, 1, 1, 0, true, false),
                           with(kOut16, 2, 2, 0, true, false), with(kOut16, 0, 2, 0, true, false),
                           with(kOut16, 1, 2, 1, true, false), with(kMov, 1, 2, 0, true, false),
                           with(kMov, 1, 2, 0, false, false)}) {
    CAPTURE(each.guest[0], each.guest[1], each.entry, each.bytes, each.beside, each.store);
    Fragment f;
    f.SetGuest(each.guest[0], each.guest[1]);
    using Entry = vcpu::VcpuState::LatchedPort;
    f.a.mov(x86::r10, Gs(State(offsetof(vcpu::VcpuState, latched_port) +
                               each.entry * sizeof(Entry) + offsetof(Entry, cell))));
    const x86::Mem cell = x86::ptr(x86::r10, each.beside, each.bytes);
    const x86::Gp value = each.bytes == 1   ? x86::Gp(x86::al)
                          : each.bytes == 2 ? x86::Gp(x86::ax)
                                            : x86::Gp(x86::eax);
    if (each.store) {
      f.a.mov(cell, value);
    } else {
      f.a.mov(value, cell);
    }
    f.End();
    CHECK(f.First().empty() == each.good);
  }
}

TEST_CASE("A look-up of something else", "[verifier]") {
  const auto with = [](const std::function<void(Fragment*)>& make) {
    Fragment f;
    make(&f);
    f.End();
    return f.First();
  };
  // One byte more than was looked up.
  CHECK(Has(with([](Fragment* f) {
              f->FaultsHere(f->Lookup(x86::rbx, 0, 4, false));
              f->a.mov(x86::rax, x86::ptr(x86::rbx, x86::r10));
            }),
            "more than was looked up"));
  CHECK(Has(with([](Fragment* f) {
              f->FaultsHere(f->Lookup(x86::rbx, 0, 8, false));
              f->a.mov(x86::eax, x86::ptr(x86::rbx, x86::r10, 0, -1));
            }),
            "more than was looked up"));
  // Another register, or the register moved.
  CHECK(Has(with([](Fragment* f) {
              f->FaultsHere(f->Lookup(x86::rbx, 0, 8, false));
              f->a.mov(x86::rax, x86::ptr(x86::rcx, x86::r10));
            }),
            "memory without"));
  CHECK(Has(with([](Fragment* f) {
              SiteDesc* site = f->Lookup(x86::rbx, 0, 8, false);
              f->a.lea(x86::rbx, x86::ptr(x86::rbx, 8));
              f->FaultsHere(site);
              f->a.mov(x86::rax, x86::ptr(x86::rbx, x86::r10));
            }),
            "more than was looked up"));
  // A store by a load's slot.
  CHECK(Has(with([](Fragment* f) {
              f->FaultsHere(f->Lookup(x86::rbx, 0, 8, false));
              f->a.mov(x86::ptr(x86::rbx, x86::r10), x86::rax);
            }),
            "a store by a load's look-up"));
  // A callout in between.
  CHECK(Has(with([](Fragment* f) {
              f->FaultsHere(f->Lookup(x86::rbx, 0, 8, false));
              f->a.mov(x86::eax, x86::ptr(x86::rbx, x86::r10));
              f->Next();
              SiteDesc* site = f->Site();
              f->CallStub(f->stubs().at(Callout::kSimulate), site);
              site->resume = f->Here();
              f->Next();
              f->FaultsHere(f->Site(), true);
              f->a.mov(x86::eax, x86::ptr(x86::rbx, x86::r10, 0, 4));
            }),
            "memory without"));
  // On one of two paths.
  CHECK(Has(with([](Fragment* f) {
              SiteDesc* site = f->Lookup(x86::rbx, 0, 8, false);
              f->Raw({0x74, 3});  // je over the next
              f->a.mov(x86::r10, x86::rcx);
              f->FaultsHere(site);
              f->a.mov(x86::rax, x86::ptr(x86::rbx, x86::r10));
            }),
            "memory without"));
  // 32-bit sums may wrap, unless the register itself is looked up.
  for (const i32 disp : {4, 64}) {
    Fragment f(32);
    f.FaultsHere(f.Lookup(x86::rbx, 64, 8, false));
    f.a.mov(x86::eax, x86::ptr(x86::rbx, x86::r10, 0, 64));
    f.Next();
    f.a.lea(x86::ebx, x86::ptr(x86::rbx, disp));
    f.Next();
    f.FaultsHere(f.Site(), true);
    f.a.mov(x86::eax, x86::ptr(x86::rbx, x86::r10, 0, 64 - disp));
    f.End();
    CHECK((f.First() == "") == (disp == 64));
  }
}

TEST_CASE("What is left behind", "[verifier]") {
  const auto with = [](const std::function<void(Fragment*)>& make) {
    Fragment f;
    make(&f);
    f.End();
    return f.First();
  };
  CHECK(Has(with([](Fragment* f) {
              f->Lookup(x86::rbx, 0, 8, false);
              f->a.mov(x86::rax, x86::r10);
            }),
            "a host address is left in a guest register"));
  CHECK(Has(with([](Fragment* f) {
              f->Lookup(x86::rbx, 0, 8, false);
              f->a.add(x86::rax, x86::r10);
            }),
            "a host address is left in a guest register"));
  CHECK(Has(with([](Fragment* f) {
              f->Lookup(x86::rbx, 0, 8, false);
              f->a.mov(Gs(State(offsetof(vcpu::VcpuState, gpr) + 80)), x86::r10);
            }),
            "where the guest reads"));
  CHECK(Has(with([](Fragment* f) {
              f->FaultsHere(f->Lookup(x86::rbx, 0, 8, true));
              f->a.mov(x86::ptr(x86::rbx, x86::r10), x86::r10);
            }),
            "where the guest reads"));
  CHECK(Has(with([](Fragment* f) { f->Raw({0x9f}); }), "flags are left in rax"));
  // An access behind a change, one that nobody expects, one that says it follows.
  CHECK(Has(with([](Fragment* f) {
              f->a.mov(x86::rax, x86::rcx);
              f->FaultsHere(f->Lookup(x86::rbx, 0, 8, false));
              f->a.mov(x86::rdx, x86::ptr(x86::rbx, x86::r10));
            }),
            "behind a change of guest registers"));
  CHECK(Has(with([](Fragment* f) {
              f->Lookup(x86::rbx, 0, 8, false);
              f->a.mov(x86::rdx, x86::ptr(x86::rbx, x86::r10));
            }),
            "nobody expects"));
  CHECK(Has(with([](Fragment* f) {
              f->FaultsHere(f->Lookup(x86::rbx, 0, 8, false), true);
              f->a.mov(x86::rdx, x86::ptr(x86::rbx, x86::r10));
            }),
            "lies about"));
  // A stub without its descriptor, a branch into the entry that may be redirected.
  CHECK(Has(with([](Fragment* f) { f->JumpTo(f->stubs().at(Callout::kSimulate)); }),
            "no descriptor"));
  CHECK(Has(with([](Fragment* f) { f->CallStub(f->stubs().at(Callout::kRaise), nullptr); }),
            "without its descriptor"));
  CHECK(Has(with([](Fragment* f) { f->Raw({0x90, 0x74, 0xfe, 0x90, 0x90}); }), "redirected entry"));
  Fragment f;
  f.a.nop();
  CHECK(Has(f.First(), "runs off the end"));
}

}  // namespace
}  // namespace alibi::verifier
