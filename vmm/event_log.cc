#include "vmm/event_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "adapt/policy.h"

namespace alibi::vmm {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

const char* KindName(u8 kind) { return adapt::KindName(static_cast<adapt::Kind>(kind)); }

std::string LineOf(const runtime::EngineEvent& event, const TimeBase& time) {
  fmt::memory_buffer line;
  auto out = std::back_inserter(line);
  fmt::format_to(out, "{{\"ns\":{},\"pc\":\"{:#x}\",\"phys\":\"{:#x}\",\"cr3\":\"{:#x}\",",
                 time.Ns(event.tsc), event.pc, event.physical, event.cr3);
  switch (event.kind) {
    case runtime::EventKind::kVerdict:
      fmt::format_to(out,
                     "\"event\":\"{}\",\"from\":\"{}\",\"to\":\"{}\",\"cause\":\"{}\","
                     "\"trapped\":{},\"traps\":{},\"callouts\":{}}}\n",
                     event.detail[1] > event.detail[0] ? "convicted" : "acquitted",
                     KindName(event.detail[0]), KindName(event.detail[1]),
                     adapt::EventName(static_cast<adapt::Event>(event.detail[2])),
                     event.detail[3] != 0, event.count[0], event.count[1]);
      break;
    case runtime::EventKind::kRelookup:
      fmt::format_to(out, "\"event\":\"by table\"}}\n");
      break;
    default:
      fmt::format_to(out, "\"event\":\"alone\"}}\n");
      break;
  }
  return fmt::to_string(line);
}

}  // namespace

Result<std::unique_ptr<EventLog>> EventLog::Create(const std::string& path, u64 most_bytes,
                                                   const TimeBase* time) {
  std::unique_ptr<EventLog> log(new EventLog);
  log->path_ = path;
  log->time_ = time;
  log->room_ = most_bytes;
  log->file_ = std::fopen(path.c_str(), "we");
  if (log->file_ == nullptr) {
    return Error{fmt::format("{}: cannot be written: {}", path, std::strerror(errno))};
  }
  std::setvbuf(log->file_, nullptr, _IOFBF, kBufferBytes);
  return log;
}

EventLog::~EventLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void EventLog::OnEvents(const runtime::EngineEvent* events, u32 count, u64 dropped) {
  dropped_ += dropped;
  for (u32 i = 0; i < count; ++i) {
    if (!(EventBit(events[i].kind) & kWanted)) continue;
    const std::string line = LineOf(events[i], *time_);
    if (line.size() > room_) {
      room_ = 0;  // what comes later is not kept either: the log has no holes but at its end
      ++dropped_;
      continue;
    }
    room_ -= line.size();
    ++written_;
    std::fputs(line.c_str(), file_);
  }
}

Status EventLog::Finish() {
  fmt::print(file_, "{{\"event\":\"end\",\"written\":{},\"dropped\":{}}}\n", written_, dropped_);
  const bool failed = std::ferror(file_) != 0;
  if (std::fclose(std::exchange(file_, nullptr)) != 0 || failed) {
    return Error{path_ + ": not written whole; is the disk full?"};
  }
  return Ok{};
}

}  // namespace alibi::vmm
