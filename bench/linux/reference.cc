// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/linux/workloads.h"

namespace alibi::bench {
namespace {

using Json = nlohmann::json;

constexpr const char* kAlibiToNative = "alibi/native";
constexpr const char* kTcgToAlibi = "tcg/alibi";

std::optional<double> RatioIn(const Json& row, const char* name) {
  if (!row.contains(name)) return std::nullopt;
  const double ratio = row.at(name).get<double>();
  if (!(ratio > 0)) throw std::domain_error(std::string(name) + " is no ratio");
  return ratio;
}

// How many times worse `here` is than `there`, by the ratio that says least; nothing if they have
// no ratio in common.
std::optional<double> Worse(const LinuxRatios& here, const LinuxRatios& there) {
  std::optional<double> worse;
  if (here.alibi_to_native && there.alibi_to_native) {
    worse = *here.alibi_to_native / *there.alibi_to_native;
  }
  if (here.tcg_to_alibi && there.tcg_to_alibi) {
    const double by_tcg = *there.tcg_to_alibi / *here.tcg_to_alibi;
    worse = worse ? std::min(*worse, by_tcg) : by_tcg;
  }
  return worse;
}

std::string Both(const char* name, const std::optional<double>& here,
                 const std::optional<double>& there) {
  return here && there ? fmt::format("; {} {:.2f}, there {:.2f}", name, *here, *there) : "";
}

}  // namespace

std::map<std::string, LinuxRatios> RatiosOf(const LinuxMeasurements& measurements) {
  std::map<std::string, LinuxRatios> all;
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    const auto own = measurements.results.MedianOf(workload.name, kAlibi);
    if (!own || !(*own > 0)) continue;
    LinuxRatios ratios;
    const auto native = measurements.results.MedianOf(workload.name, kNative);
    if (native && *native > 0) ratios.alibi_to_native = *own / *native;
    const auto peer = measurements.results.MedianOf(workload.name, kQemuTcg);
    if (peer && *peer > 0) ratios.tcg_to_alibi = *peer / *own;
    if (ratios.alibi_to_native || ratios.tcg_to_alibi) all[workload.name] = ratios;
  }
  return all;
}

Result<std::vector<ReferenceHost>> ParseReference(const std::string& text) {
  std::vector<ReferenceHost> hosts;
  // Missing members, wrong types and broken texts throw.
  try {
    for (const Json& row : Json::parse(text)) {
      ReferenceHost host;
      host.name = row.at("host").get<std::string>();
      host.date = row.at("date").get<std::string>();
      host.kernel = row.at("kernel").get<std::string>();
      for (const auto& [workload, ratios] : row.at("ratios").items()) {
        if (FindLinuxWorkload(workload) == nullptr) {
          return Error{fmt::format("no workload is called '{}'", workload)};
        }
        host.ratios[workload] = {RatioIn(ratios, kAlibiToNative), RatioIn(ratios, kTcgToAlibi)};
      }
      hosts.push_back(std::move(host));
    }
  } catch (const std::exception& problem) {
    return Error{problem.what()};
  }
  return hosts;
}

nlohmann::ordered_json RatiosJson(const std::map<std::string, LinuxRatios>& ratios) {
  const auto rounded = [](double ratio) { return std::round(ratio * 1000) / 1000; };
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    const auto it = ratios.find(workload.name);
    if (it == ratios.end()) continue;
    nlohmann::ordered_json& row = json[workload.name];
    if (it->second.alibi_to_native) row[kAlibiToNative] = rounded(*it->second.alibi_to_native);
    if (it->second.tcg_to_alibi) row[kTcgToAlibi] = rounded(*it->second.tcg_to_alibi);
  }
  return json;
}

std::string MuchWorseThanElsewhere(const LinuxMeasurements& measurements,
                                   const std::vector<ReferenceHost>& hosts,
                                   const std::string& kernel) {
  const auto here = RatiosOf(measurements);
  std::string text;
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    const auto own = here.find(workload.name);
    if (own == here.end()) continue;
    const ReferenceHost* best = nullptr;
    double most = 0;
    for (const ReferenceHost& host : hosts) {
      const auto theirs = host.ratios.find(workload.name);
      if (host.kernel != kernel || theirs == host.ratios.end()) continue;
      const auto worse = Worse(own->second, theirs->second);
      if (worse && *worse > most) {
        most = *worse;
        best = &host;
      }
    }
    if (best == nullptr || most < kMuchWorse) continue;
    const LinuxRatios& there = best->ratios.at(workload.name);
    text += fmt::format("MUCH WORSE  {}: {:.1f} times worse than on {} ({}{}{})\n", workload.name,
                        most, best->name, best->date,
                        Both(kAlibiToNative, own->second.alibi_to_native, there.alibi_to_native),
                        Both(kTcgToAlibi, own->second.tcg_to_alibi, there.tcg_to_alibi));
  }
  return text;
}

}  // namespace alibi::bench
