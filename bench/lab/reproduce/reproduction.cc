// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/reproduce/reproduction.h"

#include <fmt/format.h>

namespace alibi::bench::lab {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "alibi-reproduction";
constexpr int kVersion = 2;
constexpr const char* kFirstChapter = "translation";  // version 1 had only this one

Figures FiguresOf(const ordered_json& json) {
  Figures figures;
  figures.host = json.at("host");
  figures.settings = json.at("settings");
  figures.failures = json.at("failures").get<std::vector<std::string>>();
  figures.values = json.at("figures").get<std::map<std::string, double>>();
  return figures;
}

}  // namespace

std::string VendorOf(const ordered_json& host) {
  const std::string cpu = host.value("cpu", std::string("unknown"));
  for (const char* vendor : {"AMD", "Intel"}) {
    if (cpu.find(vendor) != std::string::npos) return vendor;
  }
  return cpu;
}

std::string Reproduction::ToJson() const {
  ordered_json json = {{"format", kFormat}, {"version", kVersion}};
  ordered_json& all = json["hosts"] = ordered_json::object();
  for (const auto& [vendor, chapters] : hosts) {
    for (const auto& [chapter, figures] : chapters) {
      all[vendor][chapter] = {{"host", figures.host},
                              {"settings", figures.settings},
                              {"failures", figures.failures},
                              {"figures", figures.values}};
    }
  }
  return json.dump(1) + "\n";
}

Result<Reproduction> Reproduction::FromJson(const std::string& text) {
  const auto json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  Reproduction reproduction;
  try {
    if (!json.is_object() || json.value("format", std::string()) != kFormat) {
      return Error{"these are no measurements of alibi lab reproduce"};
    }
    const int version = json.value("version", 0);
    if (version < 1 || version > kVersion) {
      return Error{fmt::format("version {} of the measurements' format; this program reads 1 to {}",
                               version, kVersion)};
    }
    if (version == 1) {
      Figures figures = FiguresOf(json);
      reproduction.hosts[VendorOf(figures.host)][kFirstChapter] = std::move(figures);
      return reproduction;
    }
    for (const auto& [vendor, chapters] : json.at("hosts").items()) {
      for (const auto& [chapter, figures] : chapters.items()) {
        reproduction.hosts[vendor][chapter] = FiguresOf(figures);
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return Error{fmt::format("the measurements are damaged: {}", error.what())};
  }
  return reproduction;
}

}  // namespace alibi::bench::lab
