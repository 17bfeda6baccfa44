#include "vmm/trace.h"

#include <fmt/format.h>

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
#include "vmm/trace_topics.inc"
#undef ALIBI_TRACE_TOPIC
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

void Tracer::Access(TraceTopic topic, const char* what, u64 address, unsigned size, u64 value) {
  if (!on(topic)) return;
  fmt::print(stderr, "[{}] {} {:#x} size {} value {:#x}\n",
             kTopics[static_cast<unsigned>(topic)].name, what, address, size, value);
}

void Tracer::Interrupt(const char* what, u8 vector, u64 rip) {
  if (!on(TraceTopic::kIrq)) return;
  fmt::print(stderr, "[irq] {} vector {:#x} at rip {:#x}\n", what, vector, rip);
}

void Tracer::OnTranslation(const translator::Ccf& ccf) {
  if (!on(TraceTopic::kTranslate)) return;
  fmt::print(stderr, "[translate] pc {:#x} phys page {:#x}: {} instructions, {} bytes to {} + {}\n",
             ccf.pc, ccf.phys_page, ccf.instrs.size(), ccf.guest_bytes, ccf.hot_end - ccf.hot_start,
             ccf.cold_end - ccf.cold_start);
}

void Tracer::OnAdaptation(const translator::Ccf& from, const translator::Ccf& to) {
  if (!on(TraceTopic::kAdapt)) return;
  for (std::size_t i = 0; i < to.plans.size() && i < to.instrs.size(); ++i) {
    const translator::SitePlan& now = to.plans[i];
    // The replaced CCF may have been a longer or a shorter unit.
    if (i < from.plans.size() && i < from.instrs.size() && from.instrs[i].pc == to.instrs[i].pc &&
        from.plans[i].kind == now.kind && from.plans[i].alone == now.alone &&
        from.plans[i].lookup == now.lookup) {
      continue;
    }
    const bool known = i < from.plans.size();
    fmt::print(stderr, "[adapt] site {:#x}: {} -> {}{}{}\n", to.instrs[i].pc,
               known ? adapt::KindName(static_cast<adapt::Kind>(from.plans[i].kind)) : "?",
               adapt::KindName(static_cast<adapt::Kind>(now.kind)), now.alone ? ", alone" : "",
               now.lookup == translator::LookupKind::kTable ? ", by table" : "");
  }
}

}  // namespace alibi::vmm
