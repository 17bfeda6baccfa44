// SPDX-License-Identifier: Apache-2.0
#include "inspect/trace.h"

#include <fmt/format.h>
#include <x86intrin.h>

#include <cstdio>
#include <iterator>

#include "translator/ccf.h"

namespace alibi::vmm {
namespace {

struct TopicRow {
  const char* name;
  const char* what;
};
constexpr TopicRow kTopics[] = {
#define ALIBI_TRACE_TOPIC(enumerator, name, what) {name, what},
#include "inspect/trace_topics.inc"
#undef ALIBI_TRACE_TOPIC
};

struct AccessRow {
  TraceTopic topic;
  const char* what;
};
constexpr AccessRow kAccesses[] = {
    // by AccessKind
    {TraceTopic::kIo, "in"},
    {TraceTopic::kIo, "out"},
    {TraceTopic::kMmio, "load"},
    {TraceTopic::kMmio, "store"},
};

}  // namespace

Result<Tracer> Tracer::Parse(const std::string& topics) {
  Tracer tracer;
  std::size_t at = 0;
  while (at <= topics.size()) {
    const std::size_t end = std::min(topics.find(',', at), topics.size());
    const std::string topic = topics.substr(at, end - at);
    u32 bits = 0;
    for (unsigned i = 0; i < std::size(kTopics); ++i) {
      if (topic == kTopics[i].name || topic == "all") bits |= 1u << i;
    }
    if (bits == 0) {
      std::string message = fmt::format("unknown trace topic '{}'; known are: all", topic);
      for (const TopicRow& row : kTopics) message += fmt::format(" {}", row.name);
      return Error{std::move(message)};
    }
    tracer.topics_ |= bits;
    at = end + 1;
  }
  return tracer;
}

std::string Tracer::Help() {
  std::string text;
  for (const TopicRow& row : kTopics) text += fmt::format("  {:<10} {}\n", row.name, row.what);
  return text;
}

u32 Tracer::wanted_events() const {
  using runtime::RecordKind;
  struct Row {
    TraceTopic topic;
    RecordKind kind;
  };
  static constexpr Row kRows[] = {
      {TraceTopic::kAdapt, RecordKind::kVerdict}, {TraceTopic::kAdapt, RecordKind::kRelookup},
      {TraceTopic::kAdapt, RecordKind::kUngroup}, {TraceTopic::kSmc, RecordKind::kOverwritten},
      {TraceTopic::kFault, RecordKind::kFault},   {TraceTopic::kCr, RecordKind::kControl},
      {TraceTopic::kMsr, RecordKind::kMsr}};
  u32 kinds = 0;
  for (const Row& row : kRows) {
    if (on(row.topic)) kinds |= KindBit(row.kind);
  }
  return kinds;
}

void Tracer::SetOutput(std::FILE* file, u64 most_bytes) {
  file_ = file;
  bound_ = FileBound(
      fileno(file), most_bytes,
      fmt::format("the trace has {} bytes; the rest is left out: see --trace-size", most_bytes));
}

void Tracer::Line(TraceTopic topic, u64 tsc, const std::string& text) {
  std::string name = kTopics[static_cast<unsigned>(topic)].name;
  if (vcpu_) name += fmt::format(", VCPU {}", *vcpu_);
  if (time_ == nullptr) {
    Put(fmt::format("[{}] {}\n", name, text));
    return;
  }
  const u64 ns = time_->Ns(tsc);
  Put(fmt::format("{:>4}.{:09} [{}] {}\n", ns / 1'000'000'000, ns % 1'000'000'000, name, text));
}

void Tracer::Put(const std::string& line) {
  if (bound_.Take(line.size()) == line.size()) std::fwrite(line.data(), 1, line.size(), file_);
}

void Tracer::OnAccess(AccessKind kind, u64 address, unsigned size, u64 value) {
  const AccessRow& row = kAccesses[static_cast<unsigned>(kind)];
  if (!on(row.topic)) return;
  Line(row.topic, __rdtsc(),
       fmt::format("{} {:#x} size {} value {:#x}", row.what, address, size, value));
}

void Tracer::OnInterrupt(InterruptKind kind, u8 vector, u64 rip) {
  if (!on(TraceTopic::kIrq)) return;
  const char* what = kind == InterruptKind::kNmi ? "NMI" : "interrupt";
  Line(TraceTopic::kIrq, __rdtsc(), fmt::format("{} vector {:#x} at rip {:#x}", what, vector, rip));
}

void Tracer::OnTranslation(const translator::Ccf& ccf) {
  if (!on(TraceTopic::kTranslate)) return;
  Line(TraceTopic::kTranslate, __rdtsc(),
       fmt::format("pc {:#x} phys page {:#x}: {} instructions, {} bytes to {} + {}", ccf.pc.value,
                   ccf.phys_page.number, ccf.instrs().size(), ccf.guest_bytes,
                   ccf.hot_end - ccf.hot_start, ccf.cold_end - ccf.cold_start));
}

void Tracer::OnAdaptation(const translator::Ccf& from, const translator::Ccf& to) {
  if (!on(TraceTopic::kAdapt)) return;
  for (std::size_t i = 0; i < to.plans().size() && i < to.instrs().size(); ++i) {
    const translator::SitePlan& now = to.plans()[i];
    // The replaced CCF may have been a longer or a shorter unit.
    if (i < from.plans().size() && i < from.instrs().size() &&
        from.instrs().pc(i) == to.instrs().pc(i) && from.plans()[i].kind == now.kind &&
        from.plans()[i].alone == now.alone && from.plans()[i].lookup == now.lookup) {
      continue;
    }
    const bool known = i < from.plans().size();
    Line(
        TraceTopic::kAdapt, __rdtsc(),
        fmt::format("site {:#x}: {} -> {}{}{}", to.instrs().pc(i).value,
                    known ? adapt::KindName(static_cast<adapt::Kind>(from.plans()[i].kind)) : "?",
                    adapt::KindName(static_cast<adapt::Kind>(now.kind)), now.alone ? ", alone" : "",
                    now.lookup == translator::LookupKind::kTable ? ", by table" : ""));
  }
}

void Tracer::OnEvents(std::span<const runtime::Record> events) {
  using runtime::RecordKind;
  for (const runtime::Record& event : events) {
    switch (event.kind) {
      case RecordKind::kVerdict:
        Line(
            TraceTopic::kAdapt, event.tsc,
            fmt::format("verdict on {:#x}: {} -> {} for {} ({} traps, {} callouts)", event.pc.value,
                        adapt::KindName(event.before), adapt::KindName(event.after),
                        adapt::EventName(event.event), event.value, event.more));
        break;
      case RecordKind::kRelookup:
      case RecordKind::kUngroup:
        Line(TraceTopic::kAdapt, event.tsc,
             fmt::format("verdict on {:#x}: {}", event.pc.value,
                         event.kind == RecordKind::kRelookup ? "its slot thrashes, by table"
                                                             : "its group crosses pages, alone"));
        break;
      case RecordKind::kFault:
        Line(TraceTopic::kFault, event.tsc,
             fmt::format("vector {:#x}{} at pc {:#x}{}", event.number,
                         event.flag ? fmt::format(" error {:#x}", event.more) : "", event.pc.value,
                         event.number == 14 ? fmt::format(" cr2 {:#x}", event.value) : ""));
        break;
      case RecordKind::kOverwritten:
        Line(TraceTopic::kSmc, event.tsc,
             fmt::format("{} bytes stored at physical {:#x}: translation of pc {:#x} is void",
                         event.more, event.value, event.pc.value));
        break;
      case RecordKind::kControl:
        Line(TraceTopic::kCr, event.tsc,
             fmt::format("cr{} = {:#x} at pc {:#x}", event.number, event.value, event.pc.value));
        break;
      case RecordKind::kMsr:
        Line(TraceTopic::kMsr, event.tsc,
             fmt::format("{} {:#x} value {:#x} at pc {:#x}", event.flag ? "write" : "read",
                         event.more, event.value, event.pc.value));
        break;
      case RecordKind::kVcpu:
        vcpu_ = event.number;
        break;
      case RecordKind::kLost:
        Put(fmt::format("[trace] {} events lost: too many at once\n", event.value));
        break;
      default:  // not among wanted_events()
        break;
    }
  }
}

}  // namespace alibi::vmm
