// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/console.h"

#include <nlohmann/json.hpp>

namespace alibi::bench {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "@@bench ";
// agetty's, behind the name of the host; no line end follows.
constexpr std::string_view kPrompt = " login: ";
// A guest that prints without line ends must not fill our memory.
constexpr std::size_t kLongestLine = 65536;

LinuxOutcome OutcomeOf(const Json& line) {
  LinuxOutcome outcome;
  if (line.contains("error")) {
    outcome.error = line.at("error").get<std::string>();
    return outcome;
  }
  const double count = line.at("count").get<double>();
  outcome.check = line.at("check").get<std::string>();
  for (const Json& seconds : line.at("seconds")) {
    outcome.seconds.push_back(seconds.get<double>() / count);
  }
  if (!(count > 0) || outcome.seconds.empty()) outcome.error = "it gave no figures";
  return outcome;
}

}  // namespace

void LinuxConsole::Feed(std::string_view text, double host_seconds, double cpu_seconds) {
  const ClockMark now = {0, host_seconds, cpu_seconds};
  for (char c : text) {
    if (c == '\n') {
      Line(pending_, now);
      pending_.clear();
    } else if (c != '\r' && pending_.size() < kLongestLine) {
      pending_ += c;
      if (pending_.ends_with(kPrompt)) marks_.try_emplace(kLoginMark, now);
    }
  }
}

void LinuxConsole::Line(std::string_view line, const ClockMark& now) {
  // A message of the kernel's may have begun the line.
  const std::size_t at = line.find(kPrefix);
  if (at == std::string_view::npos) {
    if (!line.empty()) last_line_ = line;
    return;
  }
  // A value of the wrong type throws; a broken line is one that the guest could not finish.
  try {
    const Json json = Json::parse(line.substr(at + kPrefix.size()));
    if (json.contains("mark")) {
      marks_.insert_or_assign(json.at("mark").get<std::string>(),
                              ClockMark{json.at("clock").get<double>(), now.host, now.cpu});
    } else if (json.contains("begin")) {
      unfinished_ = json.at("begin").get<std::string>();
      begun_ = now;
    } else {
      const std::string name = json.at("name").get<std::string>();
      LinuxOutcome outcome = OutcomeOf(json);
      if (unfinished_ == name) {
        unfinished_.clear();
        outcome.host = now.host - begun_.host;
        outcome.cpu = now.cpu - begun_.cpu;
      }
      outcomes_.insert_or_assign(name, std::move(outcome));
    }
  } catch (const Json::exception&) {
    last_line_ = line;
  }
}

std::optional<ClockMark> LinuxConsole::Mark(const std::string& name) const {
  const auto it = marks_.find(name);
  if (it == marks_.end()) return std::nullopt;
  return it->second;
}

}  // namespace alibi::bench
