// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/harness.h"

#include <fmt/format.h>

#include "testsuite/host_cpu.h"
#include "testsuite/oracle/compare.h"
#include "testsuite/oracle/listing.h"
#include "testsuite/oracle/segments.h"
#include "testsuite/verifier/observer.h"

namespace alibi::oracle {

namespace {

constexpr const char* kGprNames[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                       "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

constexpr const char* kSegmentNames[6] = {"es", "cs", "ss", "ds", "fs", "gs"};

// Collects the translations of the sequence (not those of the handlers).
class Recorder final : public runtime::TranslationObserver {
 public:
  void OnTranslation(const translator::Ccf& ccf) override {
    if (ccf.pc.value - kCodeBase >= kCodeBytes) return;
    text_ += ListIr(ccf) + ListHost(ccf);
  }
  void OnAdaptation(const translator::Ccf&, const translator::Ccf& to) override {
    text_ += fmt::format("  (replaces an earlier translation of {:x})\n", to.pc.value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::vector<u8> NopOf(std::size_t size) {
  std::vector<u8> nops(size, 0x90);
  return nops;
}

// mov r32, r32 in 64-bit code behind other code: without it the register is undefined.
bool ClearsUpperHalf(const std::vector<u8>& instr) {
  return instr.size() == 2 && instr[0] == 0x89 && instr[1] >= 0xc0 &&
         (instr[1] & 7) == ((instr[1] >> 3) & 7);
}

RunOptions OptionsOf(const GeneratedCase& made, unsigned run) {
  RunOptions options;
  options.cold = run == 0 && made.test.seed % 64 == 0;
  options.new_code = run == 0;
  return options;
}

}  // namespace

Harness::Harness()
    : observer_(std::make_unique<verifier::Observer>()),
      guest_(std::make_unique<Outcome>()),
      native_outcome_(std::make_unique<Outcome>()) {
  const u64 components = XsaveLayout::Host().mask;
  testsuite::CanCheck(components & 4, "AVX instructions, but for their #UD", "AVX");
  testsuite::CanCheck((components & 0xe0) == 0xe0, "AVX-512 instructions, but for their #UD",
                      "AVX-512");
  testsuite::CanCheck(HostAllowsSegments(), "16-bit code, segments that are not flat",
                      "modify_ldt(2)");
}
Harness::~Harness() = default;

bool Harness::Applies(const Traits& traits, Kind kind) {
  if (kind == Kind::kSupervisor) return !traits.user_only;
  if (IsInterrupted(kind)) return !traits.unsteppable;
  return true;
}

GuestMachine& Harness::Machine(Kind kind) {
  auto& machine = machines_[static_cast<unsigned>(kind)];
  u64& uses = uses_[static_cast<unsigned>(kind)];
  // Wild addresses leave untouched parts of shadow tables in use, and emptying these takes longer
  // and longer.
  constexpr u64 kMaxUses = 20'000;
  if (uses++ % kMaxUses == 0) {
    machine.reset();
    machine = std::make_unique<GuestMachine>(kind);
  }
  return *machine;
}

void Harness::Count(Way way) {
  u64* const counts[] = {&ways_.translated, &ways_.mixed, &ways_.direct};
  ++*counts[static_cast<unsigned>(way)];
}

std::optional<Find> Harness::CheckOn(GuestMachine& machine, const GeneratedCase& made,
                                     const Outcome& native, unsigned runs) {
  if (native.end != End::kException) return std::nullopt;
  machine.set_observer(nullptr);
  if (verify_) observer_->Watch(machine.engine());
  const u64& flushes = machine.engine().counters().site_table_flushes;
  const u64 flushes_before = flushes;
  for (unsigned run = 0; run < runs; ++run) {
    // Some hosts delay locked accesses to two cache lines, now and then for two seconds: an endless
    // sequence is one that does not end again and again.
    for (unsigned left = 3; left > 0; --left) {
      machine.Run(made.test, OptionsOf(made, run), guest_.get());
      if (guest_->end != End::kTimeout) break;
    }
    ++runs_;
    if (machine.kind() == Kind::kDirect) Count(guest_->way);
    auto differences = Differences(made.test, machine.kind(), native, *guest_,
                                   flushes == flushes_before ? run : 0);
    for (auto& complaint : observer_->Take()) differences.push_back(std::move(complaint));
    if (!differences.empty()) {
      return Find{made, machine.kind(), run, false, std::move(differences)};
    }
  }
  return std::nullopt;
}

std::optional<Find> Harness::CheckFresh(const GeneratedCase& made, Kind kind, unsigned runs) {
  GuestMachine fresh(kind);
  native_.Run({&made.test, 1}, {native_outcome_.get(), 1});
  return CheckOn(fresh, made, *native_outcome_, runs);
}

std::optional<Find> Harness::Check(const GeneratedCase& made, Kind kind, const Outcome& native,
                                   unsigned runs) {
  if (!Applies(made.traits, kind)) return std::nullopt;
  // Other code would be translated, as in the kind `threshold`.
  if (kind == Kind::kDirect && made.test.CodeBits() == 16) return std::nullopt;
  GuestMachine& machine = Machine(kind);
  if (!testsuite::CanCheck(machine.works(), "direct execution", "prctl(PR_SET_TSC), seccomp(2)")) {
    return std::nullopt;
  }
  return CheckOn(machine, made, native, runs);
}

std::optional<Find> Harness::Check(const GeneratedCase& made, Kind kind, unsigned runs) {
  native_.Run({&made.test, 1}, {native_outcome_.get(), 1});
  return Check(made, kind, *native_outcome_, runs);
}

std::optional<Find> Harness::CheckAll(const GeneratedCase& made, unsigned runs) {
  native_.Run({&made.test, 1}, {native_outcome_.get(), 1});
  for (unsigned kind = 0; kind < kKindCount; ++kind) {
    if (auto find = Check(made, static_cast<Kind>(kind), *native_outcome_, runs)) return find;
  }
  return std::nullopt;
}

Find Harness::Shrink(Find find) {
  auto fresh = CheckFresh(find.made, find.kind, find.run + 1);
  if (!fresh) {
    find.needs_history = true;
    return find;
  }
  find = *fresh;
  auto attempt = [&](GeneratedCase candidate) {
    auto still = CheckFresh(candidate, find.kind, 3);
    if (still) find = *still;
    return still.has_value();
  };
  for (std::size_t i = find.made.test.code.size(); i-- > 0;) {
    GeneratedCase candidate = find.made;
    auto& instr = candidate.test.code[i];
    if (instr == NopOf(instr.size()) || ClearsUpperHalf(instr)) continue;
    instr = NopOf(instr.size());
    attempt(std::move(candidate));
  }
  // Leading and trailing NOPs change nothing but the length.
  for (;;) {
    GeneratedCase candidate = find.made;
    auto& code = candidate.test.code;
    if (code.size() < 2) break;
    if (code.front() == NopOf(code.front().size())) {
      candidate.test.initial.rip += code.front().size();
      code.erase(code.begin());
      auto& bits = candidate.test.code_bits;
      if (!bits.empty()) bits.erase(bits.begin());
    } else if (code.back() == NopOf(code.back().size())) {
      code.pop_back();
    } else {
      break;
    }
    if (!attempt(std::move(candidate))) break;
  }
  for (unsigned reg = 0; reg < 16; ++reg) {
    if (reg == vcpu::kRsp || find.made.test.initial.gpr[reg] == 0) continue;
    GeneratedCase candidate = find.made;
    candidate.test.initial.gpr[reg] = 0;
    attempt(std::move(candidate));
  }
  GeneratedCase plain = find.made;
  plain.test.initial.vector = VectorState{};
  attempt(std::move(plain));
  return find;
}

std::string Harness::Story(const Find& find) {
  const TestCase& test = find.made.test;
  const CpuState& initial = test.initial;
  std::string text = fmt::format(
      "=== {} seed {:#x}, kind {} ({}), run {}{}\n", test.name.empty() ? "sequence" : test.name,
      test.seed, KindName(find.kind), KindMeaning(find.kind), find.run,
      find.needs_history ? ", only on a machine that ran other sequences before" : "");
  text += "code:\n" + ListGuest(test);
  text += "bytes, for a regression test:\n  ";
  for (const auto& instr : test.code) {
    text += "{";
    for (u8 byte : instr) text += fmt::format("{:#04x}, ", byte);
    text += "}, ";
  }
  text += "\ninitial state:\n";
  for (unsigned i = 0; i < 16; ++i) {
    text += fmt::format("  {:<4}{:#018x}{}", kGprNames[i], initial.gpr[i], i % 4 == 3 ? "\n" : "");
  }
  text += fmt::format("  rip {:#x}  rflags {:#x}  fs {:#x}  gs {:#x}  mxcsr {:#x}  fcw {:#x}\n",
                      initial.rip, initial.rflags, initial.fs_base, initial.gs_base,
                      initial.vector.mxcsr, initial.vector.fcw);
  text += "  masks";
  for (unsigned i = 0; i < 8; ++i) text += fmt::format(" k{} {:#x}", i, initial.vector.k[i]);
  text += '\n';
  for (unsigned i = 0; i < 6; ++i) {
    const vcpu::Segment segment = SegmentOf(initial.selector[i]);
    text +=
        fmt::format("  {} {:04x}: base {:08x} limit {:08x} attributes {:04x}\n", kSegmentNames[i],
                    segment.selector, segment.base, segment.limit, segment.attributes);
  }
  native_.Run({&test, 1}, {native_outcome_.get(), 1});
  text += fmt::format("native end: vector {} error {:#x} cr2 {:#x} rip {:#x}\n",
                      native_outcome_->vector, native_outcome_->error_code, native_outcome_->cr2,
                      native_outcome_->state.rip);
  text += "differences:\n";
  for (const std::string& line : find.differences) text += line + "\n";
  GuestMachine machine(find.kind);
  Recorder recorder;
  machine.set_observer(&recorder);
  for (unsigned run = 0; run <= find.run; ++run) {
    machine.Run(test, OptionsOf(find.made, run), guest_.get());
  }
  machine.set_observer(nullptr);
  return text + "translations (IR, then emitted code):\n" + recorder.text();
}

std::string Harness::CounterSummary() const {
  runtime::Counters sum;
  for (const auto& machine : machines_) {
    if (machine == nullptr) continue;
    const runtime::Counters& counters = machine->engine().counters();
#define ALIBI_COUNTER(name, what) sum.name += counters.name;
#include "runtime/counters.inc"
#undef ALIBI_COUNTER
  }
  std::string text;
  text += fmt::format("  runs of the kind direct: {} direct, {} mixed, {} translated\n",
                      ways_.direct, ways_.mixed, ways_.translated);
#define ALIBI_COUNTER(name, what) text += fmt::format("  {:<26}{}\n", #name, sum.name);
#include "runtime/counters.inc"
#undef ALIBI_COUNTER
  return text;
}

}  // namespace alibi::oracle
