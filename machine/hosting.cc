// SPDX-License-Identifier: Apache-2.0
#include "machine/hosting.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

namespace alibi {

Result<Hosting> ParseHosting(const std::string& text) {
  Hosting hosting;
  if (text == "all") return hosting;
  std::istringstream list(text);
  std::string item;
  bool any = false;
  while (std::getline(list, item, ',')) {
    any = true;
    if (item == "remap") {
      hosting.remaps = true;
      continue;
    }
    const std::size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    unsigned* const value = name == "views"        ? &hosting.views
                            : name == "satellites" ? &hosting.satellites
                                                   : nullptr;
    if (value == nullptr) {
      return Error{fmt::format(
          "there is no '{}'; there are all, views=NUMBER, satellites=NUMBER, remap", name)};
    }
    const char* const end = item.data() + item.size();
    const char* const begin = equals == std::string::npos ? end : item.data() + equals + 1;
    const auto [stopped, error] = std::from_chars(begin, end, *value);
    if (error != std::errc() || stopped != end || *value == 0) {
      return Error{fmt::format("{} is a number of them, at least 1", name)};
    }
  }
  if (!any || text.back() == ',') return Error{"nothing is not a choice; there is all"};
  return hosting;
}

}  // namespace alibi
