// SPDX-License-Identifier: Apache-2.0
// What the TC keeps of translations: how much, and that it is bounded.
#include <catch2/catch.hpp>
#include <iterator>
#include <memory>
#include <vector>

#include "runtime/translation_cache.h"
#include "translator/emitter.h"

namespace alibi::runtime {
namespace {

using translator::Ccf;
using translator::EmitRequest;
using translator::EmitResult;
using translator::Emitter;
using translator::TranslationUnit;

// Translates the same few instructions into a TC until it is full.
class Filler {
 public:
  explicit Filler(u64 bytes) {
    auto made = TranslationCache::Create(bytes);
    REQUIRE(made.ok());
    tc = std::move(*made);
    emitter_ = std::make_unique<Emitter>(StubTable::Somewhere(tc->stub_host()));
    // mov rax, [rdi+8]; add rax, rcx; mov [rsp+16], rax; test rax, rax; jne
    const std::vector<u8> code = {0x48, 0x8b, 0x47, 0x08, 0x48, 0x01, 0xc8, 0x48, 0x89,
                                  0x44, 0x24, 0x10, 0x48, 0x85, 0xc0, 0x75, 0x10};
    REQUIRE(BuildTranslationUnit({.pc = LinearAddr(0x401000),
                                  .bytes = code.data(),
                                  .available = static_cast<unsigned>(code.size())},
                                 tu_.get()) == isa::DecodeStatus::kOk);
    REQUIRE(tu_->count == 5);
  }

  Ccf* Fill() {
    Ccf* first = nullptr;
    while (tc->HasRoom()) {
      Ccf* ccf = tc->NewCcf();
      if (first == nullptr) first = ccf;
      EmitRequest request;
      request.tu = tu_.get();
      request.target = tc->Target();
      const EmitResult emitted = emitter_->Emit(request, ccf);
      REQUIRE(emitted.fits);
      tc->Commit(ccf, emitted);
      instructions += tu_->count;
    }
    return first;
  }

  std::unique_ptr<TranslationCache> tc;
  u64 instructions = 0;

 private:
  std::unique_ptr<Emitter> emitter_;
  std::unique_ptr<TranslationUnit> tu_ = std::make_unique<TranslationUnit>();
};

TEST_CASE("What describes a translation is small") {
  Filler filler(u64{1} << 20);
  filler.Fill();
  CHECK(filler.tc->data_used() <= filler.instructions * 130);
}

TEST_CASE("What describes translations is bounded, and a flush gives all of it back") {
  Filler filler(u64{1} << 20);
  TranslationCache& tc = *filler.tc;
  Ccf* const first = filler.Fill();
  const u64 count = tc.all().size();
  CHECK(tc.data_used() <= tc.data_capacity());
  CHECK(tc.data_capacity() == u64{2} << 20);
  CHECK(tc.FindByHost(tc.all()[count / 2]->entry) == tc.all()[count / 2]);
  tc.Flush();
  CHECK(tc.data_used() == 0);
  CHECK(tc.all().empty());
  CHECK(filler.Fill() == first);
  CHECK(tc.all().size() == count);
}

}  // namespace
}  // namespace alibi::runtime
