// SPDX-License-Identifier: Apache-2.0
#include "adapt/log/format.h"

#include <xxhash.h>

#include <nlohmann/json.hpp>

namespace alibi::adapt::log {
namespace {

struct NumberMember {
  const char* name;
  u64 Header::*value;
};
constexpr NumberMember kNumbers[] = {{"tsc_hz", &Header::tsc_hz},
                                     {"start_tsc", &Header::start_tsc},
                                     {"start_unix_ns", &Header::start_unix_ns}};

struct TextMember {
  const char* name;
  std::string Header::*value;
};
constexpr TextMember kTexts[] = {{"program", &Header::program},
                                 {"host_cpu", &Header::host_cpu},
                                 {"policy", &Header::policy},
                                 {"engine", &Header::engine},
                                 {"engine_policy", &Header::engine_policy},
                                 {"image", &Header::image},
                                 {"command", &Header::command}};

struct PriceMember {
  const char* name;
  u64 HostPrices::*value;
};
constexpr PriceMember kPrices[] = {{"trap", &HostPrices::trap},
                                   {"callout", &HostPrices::callout},
                                   {"stop", &HostPrices::stop},
                                   {"call", &HostPrices::call}};

}  // namespace

u32 Checksum(const void* data, std::size_t bytes) {
  return static_cast<u32>(XXH3_64bits(data, bytes));
}

std::string HeaderToJson(const Header& header) {
  nlohmann::ordered_json json;
  for (const TextMember& member : kTexts) json[member.name] = header.*member.value;
  for (const NumberMember& member : kNumbers) json[member.name] = header.*member.value;
  for (const PriceMember& member : kPrices) {
    json["prices"][member.name] = header.prices.*member.value;
  }
  // File names may be anything.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<Header> HeaderFromJson(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Error{"its header is no JSON object"};
  Header header;
  bool wrong = false;
  const auto number = [&wrong](const nlohmann::json& object, const char* name, u64* to) {
    const auto found = object.find(name);
    if (found == object.end()) return;
    wrong = wrong || !found->is_number_unsigned();
    if (!wrong) *to = found->get<u64>();
  };
  for (const NumberMember& member : kNumbers) number(json, member.name, &(header.*member.value));
  for (const TextMember& member : kTexts) {
    const auto found = json.find(member.name);
    if (found == json.end()) continue;
    wrong = wrong || !found->is_string();
    if (!wrong) header.*member.value = found->get<std::string>();
  }
  if (const auto prices = json.find("prices"); prices != json.end()) {
    wrong = wrong || !prices->is_object();
    for (const PriceMember& member : kPrices) {
      if (!wrong) number(*prices, member.name, &(header.prices.*member.value));
    }
  }
  if (wrong) return Error{"its header has a member of another type than it should"};
  if (header.tsc_hz == 0) return Error{"its header lacks the TSC's frequency"};
  return header;
}

}  // namespace alibi::adapt::log
