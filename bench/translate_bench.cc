// SPDX-License-Identifier: Apache-2.0
// What translating costs: cycles per guest instruction for decoding alone, decoding for look-ahead,
// building TUs (with flag liveness), and emitting, over the code of a real program.
//     translate_bench [FILE] [INSTRUCTIONS]
// FILE: an ELF64 file, default the C library; INSTRUCTIONS: how many of its .text, default 60000.
// One JSON line per phase: {"phase", "cycles_per_instruction", "rounds": [..]}; nothing is
// executed.
#include <elf.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "isa/decoder.h"
#include "translator/ccf.h"
#include "translator/emitter.h"
#include "translator/translation_unit.h"

namespace alibi::bench {
namespace {

using namespace isa;
using namespace translator;

constexpr unsigned kRounds = 7;
constexpr u64 kTcBytes = u64{256} << 20;
constexpr u64 kStubBytes = u64{1} << 20;

struct Text {
  std::vector<u8> bytes;  // whole pages, as the loader would map them
  LinearAddr pc;          // of the first byte
  LinearAddr first, last;
};

bool ReadText(const std::string& path, Text* text) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  if (image.size() < sizeof(Elf64_Ehdr)) return false;
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != EM_X86_64) {
    return false;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const u64 at = header.e_phoff + i * sizeof(segment);
    if (at + sizeof(segment) > image.size()) return false;
    std::memcpy(&segment, image.data() + at, sizeof(segment));
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
    if (segment.p_offset + segment.p_filesz > image.size()) return false;
    text->first = LinearAddr(segment.p_vaddr);
    text->pc = text->first.PageBase();
    text->last = text->first + segment.p_filesz;
    text->bytes.assign((segment.p_filesz + 3 * kPageSize) & ~kPageMask, 0x90);
    std::memcpy(text->bytes.data() + (segment.p_vaddr & kPageMask), image.data() + segment.p_offset,
                segment.p_filesz);
    return true;
  }
  return false;
}

// Where TUs begin when the code is translated from front to back.
struct Plan {
  std::vector<LinearAddr> pcs;  // of TUs
  std::vector<LinearAddr> instrs;
  u64 bytes = 0;
};

class Bench {
 public:
  Bench(const Text& text, u64 instructions) : text_(text) {
    auto tu = std::make_unique<TranslationUnit>();
    for (LinearAddr pc = text.first; pc + 64 < text.last && plan_.instrs.size() < instructions;) {
      if (Build(pc, tu.get()) != DecodeStatus::kOk) {
        pc += 1;
        continue;
      }
      plan_.pcs.push_back(pc);
      for (unsigned i = 0; i < tu->count; ++i) plan_.instrs.push_back(tu->instrs[i].pc);
      plan_.bytes += tu->byte_length;
      pc += tu->byte_length;
    }
  }

  u64 instructions() const { return plan_.instrs.size(); }
  u64 tus() const { return plan_.pcs.size(); }
  u64 guest_bytes() const { return plan_.bytes; }
  u64 emitted_bytes() const { return emitted_bytes_; }

  void Decode() {
    Instr instr;
    for (LinearAddr pc : plan_.instrs) {
      (void)isa::Decode(At(pc), 15, pc, 64, &instr);
    }
  }
  void DecodeFlags() {
    Instr instr;
    for (LinearAddr pc : plan_.instrs) (void)DecodeFlagsOnly(At(pc), 15, pc, 64, &instr);
  }
  void BuildTus(bool look_ahead) {
    auto tu = std::make_unique<TranslationUnit>();
    for (LinearAddr pc : plan_.pcs) (void)Build(pc, tu.get(), look_ahead);
  }
  // Emission alone: the TUs were built before, in batches, outside the measured time.
  u64 Emit() {
    constexpr std::size_t kBatch = 64;
    std::vector<TranslationUnit> tus(kBatch);
    u64 cycles = 0;
    ResetTc();
    for (std::size_t at = 0; at < plan_.pcs.size(); at += kBatch) {
      const std::size_t count = std::min(kBatch, plan_.pcs.size() - at);
      for (std::size_t i = 0; i < count; ++i) (void)Build(plan_.pcs[at + i], &tus[i]);
      const u64 begin = __rdtsc();
      for (std::size_t i = 0; i < count; ++i) EmitOne(tus[i]);
      cycles += __rdtsc() - begin;
    }
    return cycles;
  }
  void Everything() {
    auto tu = std::make_unique<TranslationUnit>();
    ResetTc();
    for (LinearAddr pc : plan_.pcs) {
      (void)Build(pc, tu.get());
      EmitOne(*tu);
    }
  }

 private:
  const u8* At(LinearAddr pc) const { return text_.bytes.data() + (pc - text_.pc); }

  DecodeStatus Build(LinearAddr pc, TranslationUnit* tu, bool look_ahead = true) const {
    const u64 offset = pc.PageOffset();
    const unsigned available = static_cast<unsigned>(kPageSize - offset);
    CodeRequest code{.pc = pc,
                     .bytes = At(pc),
                     .available = available,
                     .page_before = static_cast<unsigned>(offset),
                     .look_ahead = look_ahead};
    DecodeStatus status = BuildTranslationUnit(code, tu);
    if (status == DecodeStatus::kNeedMoreBytes) {
      code.next_page = At(pc) + available;
      code.next_available = 16;
      code.max_instructions = 1;
      status = BuildTranslationUnit(code, tu);
    }
    return status;
  }

  void ResetTc() {
    if (tc_ == nullptr) {
      void* memory = mmap(nullptr, kTcBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) {
        std::perror("translate_bench: mmap");
        std::exit(71);
      }
      tc_ = static_cast<u8*>(memory);
      // Any address in reach will do: nothing runs.
      emitter_ = std::make_unique<Emitter>(StubTable::Somewhere(HostAddr(tc_)));
    }
    hot_ = kStubBytes;
    cold_ = kTcBytes / 2;
    data_ = kTcBytes / 4 * 3;
    slot_ = 0;
    emitted_bytes_ = 0;
  }

  void EmitOne(const TranslationUnit& tu) {
    auto ccf = std::make_unique<Ccf>();
    EmitRequest request;
    request.tu = &tu;
    request.slot_seed = slot_;
    request.target.hot = HostAddr(tc_ + hot_);
    request.target.hot_room = kMaxHotBytes;
    request.target.cold = HostAddr(tc_ + cold_);
    request.target.cold_room = kMaxColdBytes;
    request.target.data = tc_ + data_;
    request.target.data_room = kMaxDataBytes;
    const EmitResult result = emitter_->Emit(request, ccf.get());
    if (!result.fits) return;
    std::memcpy(tc_ + hot_, result.hot_code, result.hot_size);
    std::memcpy(tc_ + cold_, result.cold_code, result.cold_size);
    hot_ += result.hot_size;
    cold_ += result.cold_size;
    data_ += result.data_size;
    slot_ += result.slots_used;
    emitted_bytes_ += result.hot_size + result.cold_size;
    // Kept to the end: an engine frees CCFs at a flush of its TC, long after, and an allocator that
    // works through millions of freed pieces would be measured instead.
    ccfs_.push_back(std::move(ccf));
    if (hot_ + kMaxHotBytes > kTcBytes / 2 || cold_ + kMaxColdBytes > kTcBytes / 4 * 3 ||
        data_ + kMaxDataBytes > kTcBytes) {
      const u64 so_far = emitted_bytes_;
      ResetTc();
      emitted_bytes_ = so_far;
    }
  }

  const Text& text_;
  Plan plan_;
  u8* tc_ = nullptr;
  std::unique_ptr<Emitter> emitter_;
  std::vector<std::unique_ptr<Ccf>> ccfs_;
  u64 hot_ = 0, cold_ = 0, data_ = 0, emitted_bytes_ = 0;
  u32 slot_ = 0;
};

template <class Phase>
void Report(const char* name, u64 instructions, Phase&& phase) {
  std::vector<double> rounds;
  for (unsigned i = 0; i < kRounds; ++i) {
    rounds.push_back(static_cast<double>(phase()) / static_cast<double>(instructions));
  }
  std::printf("{\"phase\":\"%s\",\"cycles_per_instruction\":%.1f,\"rounds\":[", name,
              Summarize(rounds).median);
  for (unsigned i = 0; i < kRounds; ++i) std::printf("%s%.1f", i == 0 ? "" : ",", rounds[i]);
  std::printf("]}\n");
  std::fflush(stdout);
}

template <class Phase>
auto Timed(Phase&& phase) {
  return [phase] {
    const u64 begin = __rdtsc();
    phase();
    return __rdtsc() - begin;
  };
}

int Main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "/lib/x86_64-linux-gnu/libc.so.6";
  const u64 most = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 60000;
  Text text;
  if (most == 0 || !ReadText(path, &text)) {
    std::fprintf(stderr, "translate_bench: %s: no readable x86-64 ELF file with code\n",
                 path.c_str());
    return 66;
  }
  Bench bench(text, most);
  const u64 n = bench.instructions();
  Report("decode", n, Timed([&] { bench.Decode(); }));
  Report("decode_flags", n, Timed([&] { bench.DecodeFlags(); }));
  Report("tu_without_look_ahead", n, Timed([&] { bench.BuildTus(false); }));
  Report("tu", n, Timed([&] { bench.BuildTus(true); }));
  Report("emit", n, [&] { return bench.Emit(); });
  Report("all", n, Timed([&] { bench.Everything(); }));
  std::printf(
      "{\"file\":\"%s\",\"tus\":%llu,\"instructions\":%llu,\"guest_bytes\":%llu,"
      "\"emitted_bytes\":%llu}\n",
      path.c_str(), static_cast<unsigned long long>(bench.tus()),
      static_cast<unsigned long long>(n), static_cast<unsigned long long>(bench.guest_bytes()),
      static_cast<unsigned long long>(bench.emitted_bytes()));
  return 0;
}

}  // namespace
}  // namespace alibi::bench

int main(int argc, char** argv) { return alibi::bench::Main(argc, argv); }
